"""Faults at the busiest time: what fails, whether the fleet keeps its promises meanwhile, and how many replicas would."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan import progress
from fleetplan.engine import Result, simulate
from fleetplan.engine.load import Outage
from fleetplan.sizing.decide import FEWEST_REPLICATIONS, Decision, Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered
from fleetplan.sizing.search import least_count
from fleetplan.sizing.verdict import Limit, Sample, sample
from fleetplan.spec.policy import Policy

MOST_TIMES = 4
"""No fleet above this many times the decided count is tried against a fault."""


@dataclass(frozen=True)
class Event:
    """One kind of fault: which replicas of how many are away from when to when, after its start."""

    name: str
    away: Callable[[int], tuple[tuple[int, float, float], ...]]
    """Replicas of the fleet → (replica, from [s], to [s]) after the start."""
    drains: bool
    """Whether what runs on a replica ends before it goes."""

    def lost(self, replicas: int) -> int:
        """Most replicas that are away at once."""
        gone = self.away(replicas)
        return max((sum(a <= at < b for _, a, b in gone) for _, at, _ in gone), default=0)


@dataclass(frozen=True)
class Share:
    """One promise: shares of requests that met it."""

    limit: Limit
    requests: int
    """Requests that arrived while a replica was away."""
    during_share: float | None
    """Share of those; None: none arrived, or the metric is not by request."""
    run_share: float
    """Share of all requests of the run, those lost with a replica and started anew included."""

    @property
    def holds(self) -> bool:
        """Whether the promised share is met while replicas are away (over the run, where that is not known)."""
        share = self.run_share if self.during_share is None else self.during_share
        return share >= self.limit.share * (1 - 1e-12)


@dataclass(frozen=True)
class Faced:
    """One event at one count."""

    event: Event
    replicas: int
    """Replicas that run before it, spares included."""
    down_s: float
    up_s: float
    lost_requests: float
    """Requests lost with a replica and started anew; mean over replications."""
    shares: tuple[Share, ...]

    @property
    def passes(self) -> bool:
        """Whether every promise holds."""
        return all(share.holds for share in self.shares)


@dataclass(frozen=True)
class Resilience:
    """One event: the decided fleet with its spares, and the least count that holds."""

    faced: Faced
    needed_replicas: int | None
    """None: no count that was tried holds."""


def events(policy: Policy) -> tuple[Event, ...]:
    """What the policy says happens."""
    given = policy.outages
    if given is None:
        return ()
    found = []
    if given.replicas is not None and given.recovery_s is not None:
        k, away_s = given.replicas, given.recovery_s
        words = "1 replica fails" if k == 1 else f"{k} replicas fail"
        found.append(Event(words, lambda n: tuple((r, 0.0, away_s) for r in range(min(k, n))), False))
    if given.zones is not None and given.recovery_s is not None:
        z, zone_s = given.zones, given.recovery_s
        # Spread evenly, replica r lies in zone r mod z, so that zone 0 is a largest one.
        found.append(
            Event(f"1 of {z} zones is lost", lambda n: tuple((r, 0.0, zone_s) for r in range(0, n, z)), False)
        )
    if given.rolling_restart_s is not None:
        each_s = given.rolling_restart_s
        found.append(
            Event(
                "rolling restart", lambda n: tuple((r, r * each_s, (r + 1) * each_s) for r in range(n)), True
            )
        )
    return tuple(found)


def resilience(decision: Decision) -> Iterator[Resilience]:
    """The decided fleet, spares running too, through every event, and the least count that keeps every promise meanwhile."""
    chosen, subject = decision.chosen, decision.plan
    if chosen is None or chosen.fleet is None:
        return
    count, running = chosen.fleet.replicas, chosen.fleet.replicas + chosen.fleet.spare_replicas
    for event in events(subject.scenario.policy):
        faced = functools.cache(functools.partial(face, subject, chosen.machine, event))
        with progress.during(f"while {event.name}"):
            found = Resilience(faced(running), needed(faced, event, count))
            progress.say(
                f"{found.needed_replicas} replicas keep every promise"
                if found.needed_replicas
                else "no count holds"
            )
        yield found


def needed(faced: Callable[[int], Faced], event: Event, count: int) -> int | None:
    """Least replicas, those that must serve without the event included, that keep every promise through it: N + k.

    The search begins with what is lost on top of `count`; None: nothing up to MOST_TIMES the count does.
    """
    start, most = count + event.lost(count), MOST_TIMES * count + event.lost(count)
    found = least_count(faced, start, most).replicas  # type: ignore[arg-type]  # it only asks for `passes`
    return None if found is None else max(found, count)


def face(
    subject: Plan, built: Machine, event: Event, replicas: int, replications: int | None = None
) -> Faced:
    """Simulate the planned traffic on this many replicas through the event, which begins at the busiest time."""
    traffic = subject.traffic
    given = replications or subject.scenario.simulation.replications
    gone = event.away(replicas)
    length = max(b for _, _, b in gone)
    lost, spans = 0, []
    during: list[list[Sample]] = [[] for _ in traffic.limits]
    whole: list[list[Sample]] = [[] for _ in traffic.limits]
    for replication in range(1 if traffic.exact else given or FEWEST_REPLICATIONS):
        progress.say(f"{replicas} replicas, replication {replication + 1}")
        requests = traffic.requests(replication)
        start = busiest_s(requests.arrival_s, length, traffic.warmup_s, traffic.duration_s)
        result = run(built, traffic, replication, replicas, outages_of(built, gone, start, event.drains))
        lost += int((result.restarts > 0).sum()) if result.restarts is not None else 0
        end = min(start + length, traffic.duration_s)
        spans.append((start, start + length))
        rows = (result.arrival_s >= start) & (result.arrival_s < end)
        inside = result.take(rows)
        for limit, part, all_of_it in zip(traffic.limits, during, whole, strict=True):
            if limit.metric != "itl":
                part.append(sample(inside, limit, -np.inf, built.client_s))
            all_of_it.append(sample(result, limit, traffic.warmup_s, built.client_s))
    shares = tuple(
        Share(limit, sum(s.count for s in part), _pooled(part), _pooled(all_of_it) or 0.0)
        for limit, part, all_of_it in zip(traffic.limits, during, whole, strict=True)
    )
    return Faced(event, replicas, *spans[0], lost / len(spans), shares)


def run(
    built: Machine, traffic: Offered, replication: int, replicas: int, outages: Iterable[Outage]
) -> Result:
    """One replication on this many replicas with outages of engines."""
    assert built.step is not None
    assert built.config is not None
    engines = replicas * built.engines_per_replica
    return simulate(
        traffic.requests(replication),
        built.step,
        built.config,
        engines,
        built.router,
        traffic.seed + replication,
        outages=tuple(outages),
    )


def outages_of(
    built: Machine, gone: Iterable[tuple[int, float, float]], start_s: float, drains: bool
) -> tuple[Outage, ...]:
    """Outages of the engines of replicas that are away: a replica goes with all its engines."""
    each = built.engines_per_replica
    return tuple(
        Outage(replica * each + engine, start_s + a, start_s + b, drain=drains)
        for replica, a, b in gone
        for engine in range(each)
    )


def busiest_s(arrival_s: NDArray[np.float64], length_s: float, from_s: float, to_s: float) -> float:
    """Start [s] of the window of this length within [from, to] in which most requests arrive; `from` where none fits.

    >>> busiest_s(np.array([0.0, 5.0, 6.0, 6.5, 20.0]), 2.0, 0.0, 30.0)
    5.0
    """
    starts = arrival_s[(arrival_s >= from_s) & (arrival_s + length_s <= to_s)]
    if not len(starts):
        return from_s
    counts = np.searchsorted(arrival_s, starts + length_s) - np.searchsorted(arrival_s, starts)
    return float(starts[int(np.argmax(counts))])


def _pooled(samples: list[Sample]) -> float | None:
    count = sum(s.count for s in samples)
    return sum(s.met for s in samples) / count if count else None
