"""Growth over months: the least count of each month by simulation, and when the next GPU is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from fleetplan.sizing import buying
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.decide import Decision, Plan, verdict_at


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


def months(decision: Decision) -> Iterator[Month]:
    """The decided candidate month by month; the traffic only grows, so each month's search starts at the month before's count."""
    chosen, subject = decision.chosen, decision.plan
    policy = subject.scenario.policy
    given = policy.growth
    if given is None or chosen is None or chosen.fleet is None or not chosen.sustainable_per_s:
        return
    candidate, usd = chosen.machine.candidate, chosen.fleet.usd_per_gpu_hour
    most = buying.limit(policy, candidate)
    count = chosen.fleet.replicas
    for month in range(given.months + 1):
        factor = (1 + given.per_month) ** month
        grown = scaled(subject, factor)
        rate = grown.traffic.rate_per_s
        if month:
            count = max(count, ceil_ratio(rate / chosen.sustainable_per_s, policy.max_utilisation))
            while (
                count <= most
                and not verdict_at(chosen.machine, grown, chosen.sustainable_per_s, count).passes
            ):
                count += 1
        if count > most:
            yield Month(month, factor, rate, None, None, buying.beyond(policy, candidate, count))
            continue
        fleet = buying.fleet_of(policy, candidate, count, usd)
        yield Month(month, factor, rate, fleet, rate / (count * chosen.sustainable_per_s), None)


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
