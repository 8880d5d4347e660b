"""Growth over months: the least count of each month by simulation, and when the next GPU is needed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fleetplan import progress
from fleetplan.sizing import buying
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.decide import Decision, Plan, verdict_at
from fleetplan.sizing.settle import fleet_of

HALVINGS = 4
"""Of a month, to tell when the next replica is needed."""


@dataclass(frozen=True)
class Month:
    """What a month needs."""

    month: int
    """0: the planned traffic."""
    factor: float
    """Rate over the planned one."""
    rate_per_s: float
    fleet: Fleet | None
    """None: no fleet that may be bought holds."""
    utilisation: float | None
    reason: str | None
    needed_from: float | None = None
    """Month, to a sixteenth, from which the replicas of the month before do not hold; None: they still do, or did not before."""


def months(decision: Decision) -> Iterator[Month]:
    """The decided candidate month by month; the traffic only grows, so each month's search starts at the month before's count."""
    chosen, subject = decision.chosen, decision.plan
    policy = subject.scenario.policy
    growth = policy.growth
    if growth is None or chosen is None or chosen.fleet is None or not chosen.sustainable_per_s:
        return
    sustainable = chosen.sustainable_per_s
    candidate, usd = chosen.machine.candidate, chosen.fleet.prices
    most = buying.limit(policy, candidate)

    def holds(replicas: int, month: float) -> bool:
        grown = scaled(subject, (1 + growth.per_month) ** month)
        return verdict_at(chosen.machine, grown, sustainable, replicas).passes

    count = chosen.fleet.replicas
    for month in progress.each(range(growth.months + 1), "month"):
        before, factor = count, (1 + growth.per_month) ** month
        rate = subject.traffic.rate_per_s * factor
        if month:
            count = max(count, ceil_ratio(rate / sustainable, policy.max_utilisation))
            while count <= most and not holds(count, month):
                count += 1
        since = None
        if before < count and before <= most:
            since = _first(month, functools.partial(holds, before))
        if count > most:
            yield Month(month, factor, rate, None, None, buying.beyond(policy, candidate, count), since)
            continue
        spared = fleet_of(scaled(subject, factor), chosen.machine, count, usd)
        if spared.fleet is None:
            yield Month(month, factor, rate, None, None, spared.reason, since)
            continue
        sustained = chosen.machine.sustains(sustainable, count)
        yield Month(month, factor, rate, spared.fleet, rate / sustained, None, since)


def _first(month: int, holds: Callable[[float], bool]) -> float:
    """Within the month before `month`, when it ceases to hold, by halving."""
    low, high = float(month - 1), float(month)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def scaled(subject: Plan, factor: float) -> Plan:
    """The same plan with every rate multiplied; lengths and promises stay."""
    traffic = subject.traffic
    if factor == 1:
        return subject
    grown = replace(
        traffic,
        rate_scale=traffic.rate_scale * factor,
        rate_per_s=traffic.rate_per_s * factor,
        exact=False,
        _cache={},
    )
    return replace(subject, traffic=grown)
