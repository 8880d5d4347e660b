"""Spot replicas that the provider takes back: when they are away, and whether the fleet keeps its promises all the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from fleetplan.sizing import resilience
from fleetplan.sizing.decide import FEWEST_REPLICATIONS, Decision
from fleetplan.sizing.verdict import Looks, Verdict, judge
from fleetplan.spec.paying import Spot

Absence = tuple[int, float, float]
"""Replica, from when to when [s] it is away."""


def interruptions(
    spot: Spot, replicas: Iterable[int], duration_s: float, seed: Sequence[int], away: Sequence[Absence] = ()
) -> list[Absence]:
    """Poisson interruptions of each of the replicas while it serves, each as long as the restart; none while it is `away` anyway.

    >>> spot = Spot(discount=0.5, interruptions_per_day=24, restart="10 min")
    >>> found = interruptions(spot, [3], 86400.0, [1])
    >>> 10 < len(found) < 40, {round(b - a) for _, a, b in found}, {r for r, _, _ in found}
    (True, {600}, {3})
    """
    found: list[Absence] = []
    if not spot.interruptions_per_day or spot.restart_s is None:
        return found
    for replica in replicas:
        rng = np.random.default_rng(np.random.SeedSequence([*seed, 0x5907, replica]))
        busy = [(a, b) for r, a, b in away if r == replica]
        at = 0.0
        while True:
            at += float(rng.exponential(86400 / spot.interruptions_per_day))
            if at >= duration_s:
                break
            if all(at + spot.restart_s <= a or at >= b for a, b in busy):
                found.append((replica, at, at + spot.restart_s))
            at += spot.restart_s
    return found


def held(
    decision: Decision,
    spot: Spot | None,
    replicas: int,
    on_spot: Iterable[int],
    away: Sequence[Absence] = (),
    utilisation: float = 0.0,
) -> Verdict:
    """The verdict of this many replicas of the chosen candidate that come and go (`away`, drained), spot ones interrupted at random."""
    chosen, traffic, scenario = decision.chosen, decision.plan.traffic, decision.plan.scenario
    assert chosen is not None
    built, taken = chosen.machine, tuple(on_spot)
    planned = resilience.outages_of(built, away, 0.0, drains=True)

    def run(replication: int):  # type: ignore[no-untyped-def]
        sudden = (
            interruptions(spot, taken, traffic.duration_s, [scenario.seed, replication], away) if spot else ()
        )
        outages = (*planned, *resilience.outages_of(built, sudden, 0.0, drains=False))
        return traffic.judged(resilience.run(built, traffic, replication, replicas, outages))

    replications = scenario.simulation.replications or FEWEST_REPLICATIONS
    return judge(
        replicas,
        traffic.limits,
        built.client_s,
        run,
        utilisation=utilisation,
        max_utilisation=math.inf,
        looks=Looks.fixed(replications, scenario.policy.confidence),
        exact=traffic.exact and spot is None,
    )
