"""The last word on a count and its spares: replications until both sides of N are clear, and spares that ride out what may fail."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from fleetplan.sizing import buying, resilience
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.cost import Fleet, Prices
from fleetplan.sizing.decide import Option, Plan, pairs_of, verdict_at, verdict_of
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.pairs import Pair
from fleetplan.sizing.search import Found
from fleetplan.sizing.verdict import Verdict
from fleetplan.spec.policy import Policy


@dataclass(frozen=True)
class Spared:
    """A fleet with its spares and what they are for; no fleet: why none rides out what may fail, and what would help."""

    fleet: Fleet | None
    reason: str | None
    remedy: str | None = None


def settle(subject: Plan, option: Option, replications: int | None = None) -> Option:
    """The option with its count and spares settled; `infeasible` where nothing that may be bought is enough then."""
    assert option.found is not None
    assert option.fleet is not None
    option = certified(subject, option, replications)
    assert option.found is not None
    built, policy, found = option.machine, subject.scenario.policy, option.found
    assert option.fleet is not None
    most = buying.limit(policy, built.candidate)
    if found.replicas is None or found.replicas > most:
        reason = f"{buying.beyond(policy, built.candidate, most + 1)}; at {most} a promise fails with more replications"
        return replace(option, status="infeasible", reason=reason, fleet=None, lower_bound=most + 1)
    spared = fleet_of(subject, built, found.replicas, option.fleet.prices, replications)
    if spared.fleet is None:
        return replace(
            option,
            status="infeasible",
            reason=spared.reason or "",
            fleet=None,
            remedy=spared.remedy,
        )
    return replace(option, fleet=spared.fleet, spares_reason=spared.reason)


def certified(subject: Plan, option: Option, replications: int | None = None) -> Option:
    """The option with further replications wherever N or N − 1 is not clear of noise; N moves where they overturn it.

    Where the scenario says how many replications there are, or the traffic is one recording, there are no further ones.
    """
    assert option.found is not None
    if replications or subject.scenario.simulation.replications or subject.traffic.exact:
        return option
    if isinstance(option.machine, Apart) and option.machine.candidate.searched:
        return _certified_pair(subject, option, option.machine)
    return replace(option, found=_certified(subject, option))


def _certified_pair(subject: Plan, option: Option, built: Apart) -> Option:
    """The same of a pair: as long as it or one of its neighbours is not clear of noise, these are, and the search is made again."""
    assert option.fleet is not None
    space, found = pairs_of(built, subject, option.fleet.prices), option.found
    sure: set[Pair] = set()
    while found is not None and found.replicas is not None:
        unsure = [v.pools for v in (found.at, *found.fewer) if not v.decided and v.pools not in sure]
        if not unsure:
            break
        for p, d in unsure:
            found.pairs[p, d] = verdict_of(space, subject, (p, d), further=True)
            sure.add((p, d))
        found = space.search(functools.partial(verdict_of, space, subject), None, found.pairs)
    assert found is not None
    if found.replicas is None:
        return replace(option, found=found)
    p, d = found.at.pools
    return replace(option, machine=space.machine((p, d)), found=found)


def _certified(subject: Plan, option: Option) -> Found:
    assert option.found is not None
    assert option.found.replicas is not None
    verdicts, count = dict(option.found.verdicts), option.found.replicas
    most = buying.limit(subject.scenario.policy, option.machine.candidate)
    sure: dict[int, Verdict] = {}

    def verdict(replicas: int) -> Verdict:
        if replicas not in sure:
            known = verdicts.get(replicas)
            if known is None or not known.decided:
                known = verdict_at(
                    option.machine, subject, option.sustainable_per_s or 0.0, replicas, further=True
                )
            sure[replicas] = verdicts[replicas] = known
        return sure[replicas]

    while count <= most and not verdict(count).passes:
        count += 1
    # Who failed on the way up stays failed, so this ends where the climb began or below.
    while 1 < count <= most and verdict(count - 1).passes:
        count -= 1
    return Found(count if count <= most else None, verdicts)


def fleet_of(
    subject: Plan, built: Machine, replicas: int, usd: Prices, replications: int | None = None
) -> Spared:
    """The fleet of this many serving replicas: spares of the policy, of its availability, and of its outages where they are to be bought."""
    policy, candidate = subject.scenario.policy, built.candidate
    fleet = buying.fleet_of(policy, candidate, replicas, usd)
    reason = _reason(policy, fleet)
    if policy.outages is None or not policy.outages.buy_spares:
        return Spared(fleet, reason)
    for event in resilience.events(policy):
        faced = functools.cache(
            functools.partial(resilience.face, subject, built, event, replications=replications)
        )
        enough = resilience.needed(faced, event, replicas)
        if enough is None:
            return Spared(
                None,
                f"no count up to {resilience.MOST_TIMES} times {replicas} replicas keeps its promises while: {event.name}",
                "recover sooner (policy.outages), drop policy.outages.buy_spares, or promise less",
            )
        if enough - replicas > fleet.spare_replicas:
            fleet = buying.fleet_of(policy, candidate, replicas, usd, (enough - replicas,))
            reason = f"N + {enough - replicas} by simulation, so that promises hold while: {event.name}"
    short = buying.shortest(policy, candidate, {lot.gpu: lot.gpus for lot in fleet.lots})
    if short is not None and short[1] > short[2]:
        gpu, needs, stock = short
        return Spared(
            None,
            f"needs {needs} GPUs with its spares ({reason}) and the stock of {gpu} is {stock}",
            f"raise policy.stock of {gpu} to at least {needs} GPUs, or drop policy.outages.buy_spares",
        )
    return Spared(fleet, reason)


def _reason(policy: Policy, fleet: Fleet) -> str | None:
    if not fleet.spare_replicas:
        return None
    if max(fleet.spares) > policy.spare_replicas and policy.availability is not None:
        return f"an availability of {policy.availability.target:.6g}, whole units failing together"
    return "policy.spare_replicas"


__all__ = ["Spared", "certified", "fleet_of", "settle"]
