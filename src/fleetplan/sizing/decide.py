"""The decision: among all candidates the cheapest fleet whose simulation keeps every promise, and why the others are not it."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fleetplan import catalog, prices, progress
from fleetplan.sizing import bounds, buying, endpoint, runs
from fleetplan.sizing.apart import Apart, build
from fleetplan.sizing.candidates import Candidate, expand
from fleetplan.sizing.cost import Fleet, Prices
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import offered
from fleetplan.sizing.options import Decision, Option, Plan
from fleetplan.sizing.pairs import Pair, Pairs
from fleetplan.sizing.saturation import rated, sustainable_rate_per_s
from fleetplan.sizing.search import least_count
from fleetplan.sizing.verdict import Looks, Verdict, counted, judge
from fleetplan.spec.endpoint import EndpointScenario
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.traffic.requests import Requests

FEWEST_REPLICATIONS, MOST_REPLICATIONS = 2, 4
FURTHER_LOOKS = (8, 16)
"""Replications after which the certificate looks again where the search left noise in it."""


def plan(scenario: Asked) -> Plan:
    """Expand a scenario and build every machine."""
    if isinstance(scenario, EndpointScenario):
        return Plan(scenario, None, offered(scenario), endpoint.machines(scenario))
    assert isinstance(scenario, Scenario)
    model = catalog.model(scenario.model_reference)
    traffic = offered(scenario, model.architecture.max_context_tokens)
    machines = {
        candidate.candidate_id: build(candidate, scenario, model, traffic.requests())
        for candidate in progress.each(expand(scenario), "memory and step times of candidate", _label)
    }
    return Plan(scenario, model, traffic, machines)


def verdict_at(
    built: Machine,
    subject: Plan,
    sustainable_per_s: float,
    replicas: int,
    replications: int | None = None,
    further: bool = False,
) -> Verdict:
    """Simulate the planned traffic on this many replicas, as often as the verdict takes; `further`: up to the last of FURTHER_LOOKS."""
    traffic, scenario = subject.traffic, subject.scenario
    given = replications or scenario.simulation.replications
    level = scenario.policy.confidence
    if given:
        looks = Looks.fixed(given, level)
    else:
        search = tuple(range(1, MOST_REPLICATIONS + 1))
        every = (*search, *FURTHER_LOOKS)
        looks = Looks(every if further else search, FEWEST_REPLICATIONS, 1 - (1 - level) / len(every))
    engines = replicas * built.engines_per_replica
    sustained = built.sustains(sustainable_per_s, replicas)
    utilisation = traffic.rate_per_s / sustained if sustained else float("inf")

    shortfalls = tuple(
        f"deadline of {name}"
        for name in scenario.deadlines()
        if utilisation > scenario.policy.max_utilisation * (1 + 1e-9)
    )
    if sustained < throughput_rate_per_s(subject) * (1 - 1e-9):
        shortfalls = (*shortfalls, "throughput")

    def run(replication: int):  # type: ignore[no-untyped-def]
        progress.say(f"replication {replication + 1}")
        requests = traffic.requests(replication)
        return traffic.judged(runs.run(built, requests, engines, traffic.seed + replication))

    pools = built.candidate.pools(replicas) if built.prefill is not None else ()
    with progress.during(counted(replicas, pools)):
        made = judge(
            replicas,
            traffic.limits,
            built.client_s,
            run,
            utilisation=utilisation,
            max_utilisation=scenario.policy.max_utilisation,
            looks=looks,
            exact=traffic.exact,
            shortfalls=shortfalls,
        )
    return replace(made, pools=pools) if pools else made


def hopeless(built: Machine, subject: Plan, replications: int | None = None) -> str | None:
    """Why `verdict_at` passes at no count, by the latencies of lone requests of the same draws; None: it may."""
    traffic = subject.traffic
    if (why := _link_too_slow(built, subject)) is not None:
        return why
    given = replications or subject.scenario.simulation.replications

    def draws() -> Iterator[tuple[Requests, bounds.Lone, bounds.Flags]]:
        for replication in range(1 if traffic.exact else given or MOST_REPLICATIONS):
            mix = traffic.requests(replication)
            yield mix, built.at_best(mix), mix.arrival_s >= traffic.warmup_s

    return bounds.never(traffic.limits, draws(), 1 if traffic.exact else given or FEWEST_REPLICATIONS)


def decide(
    subject: Plan,
    saturation: Callable[[Machine], float] | None = None,
    *,
    settle: Callable[[Option], Option] | None = None,
    prune: bool = True,
    replications: int | None = None,
) -> Decision:
    """Search every candidate that can run, cheapest lower bound first; prune those that cannot be cheaper than two found ones.

    The bound is N ≥ rate · least work / max_utilisation: the sustainable rate, by simulation, is never above 1 / least work, so a pruned
    candidate cannot win. `saturation` gives a machine's sustainable rate where it is known already. `settle` has the last word on the
    cheapest option, its count and its spares: where that makes it dearer, the next one is settled too, and who was pruned may come back.
    """
    scenario, traffic = subject.scenario, subject.traffic
    sheet = prices.price_list(scenario.policy.prices, scenario.folder)
    known: dict[str, float] = {}

    def rate_of(built: Machine) -> float:
        identity = built.candidate.candidate_id
        if identity not in known:
            known[identity] = (
                saturation(built) if saturation is not None else sustainable_rate_per_s(built, traffic)
            )
        return known[identity]

    options, waiting = _opened(subject, sheet, replications)
    found: list[Option] = []
    pruned: dict[str, tuple[_Open, Option]] = {}
    settled: set[str] = set()
    while True:
        for item in progress.each(waiting, "candidate", lambda item: item.built.candidate.label):
            ceiling = _second(found) if prune else None
            option = _searched(item, subject, rate_of, ceiling, replications)
            progress.say(_came_to(option))
            if option.status == "pruned":
                pruned[item.identity] = item, option
            else:
                (found if option.status == "dearer" else options).append(option)
        ranked = sorted(found, key=_rank)
        if settle is None or not ranked or ranked[0].machine.candidate.candidate_id in settled:
            break
        settled.add(ranked[0].machine.candidate.candidate_id)
        with progress.during(f"the cheapest so far, {ranked[0].machine.candidate.label}, looked at closer"):
            best = settle(ranked[0])
            progress.say(_came_to(best))
        found = ranked[1:]
        (found if best.status == "dearer" else options).append(best)
        ceiling = _second(found)
        waiting = [
            item
            for item, option in pruned.values()
            if ceiling is None or option.fleet is None or option.fleet.usd_per_hour <= ceiling
        ]
        for item in waiting:
            del pruned[item.identity]
    options += [option for _, option in pruned.values()]
    if not ranked:
        return Decision(subject, None, (*options,), sheet, known)
    return _ranked(subject, ranked, options, sheet, known)


@dataclass(frozen=True)
class _Open:
    """A candidate that may win, by its lower bound."""

    usd_per_hour: float
    """Of the fleet of its lower bound."""
    identity: str
    built: Machine
    lower: int
    usd: Prices


def _opened(
    subject: Plan, sheet: prices.PriceList, replications: int | None
) -> tuple[list[Option], list[_Open]]:
    """(who cannot run or hold, who is to be searched, cheapest bound first)."""
    policy = subject.scenario.policy
    options: list[Option] = []
    open_: list[_Open] = []
    for built in subject.machines.values():
        candidate = built.candidate
        prices_by_kind = buying.prices_of(policy, candidate, sheet)
        usd = {gpu: price for gpu, price in prices_by_kind.items() if price is not None}
        refused = built.reason or buying.refused(policy, candidate)
        if refused is None and len(usd) < len(prices_by_kind):
            missing = next(gpu for gpu in prices_by_kind if gpu not in usd)
            refused = f"the price list {sheet.name} has no {missing}"
        if refused is not None:
            options.append(Option(built, "cannot run", refused))
            continue
        if (why := hopeless(built, subject, replications)) is not None:
            options.append(Option(built, "infeasible", why))
            continue
        built, lower = bounded(built, subject)
        cost = _fleet(built, subject, lower, usd).usd_per_hour
        open_.append(_Open(cost, candidate.candidate_id, built, lower, usd))
    return options, sorted(open_, key=lambda item: (item.usd_per_hour, item.identity))


def _label(candidate: Candidate) -> str:
    return candidate.label


def _came_to(option: Option) -> str:
    """What came of a search, in a few words."""
    count = option.found.replicas if option.found else None
    if option.status == "dearer" and option.fleet is not None:
        return f"{counted(count or 0, option.found.at.pools if option.found else ())}, {option.fleet.gpus} GPUs, {option.fleet.usd_per_hour:.2f} USD/h"
    return f"{option.status}, {option.reason}"


def bounded(built: Machine, subject: Plan) -> tuple[Machine, int]:
    """(the machine, least replicas by its bounds): N ≥ rate · least work / max_utilisation.

    Where both pools' counts are searched, the bound is of each pool, and the machine's fleets are on the way through that pair.
    """
    traffic, cap = subject.traffic, subject.scenario.policy.max_utilisation
    mix, rate = traffic.requests(), traffic.rate_per_s
    if isinstance(built, Apart) and built.candidate.searched:
        pair = [max(ceil_ratio(rate * work, cap), 1) for work in built.works_s(mix)]
        return built.paired(*pair), sum(pair)
    return built, max(ceil_ratio(rate * built.least_work_s(mix) / built.engines_per_replica, cap), 1)


def _second(found: list[Option]) -> float | None:
    """USD/h of the second cheapest fleet that holds; None: there are no two."""
    costs = sorted(o.fleet.usd_per_hour for o in found if o.fleet)
    return costs[1] if len(costs) > 1 else None


def _searched(
    item: _Open,
    subject: Plan,
    rate_of: Callable[[Machine], float],
    ceiling: float | None,
    replications: int | None,
) -> Option:
    """The least count of one candidate (status `dearer`, until all are ranked), or why there is none below the ceiling [USD/h]."""
    built, lower, usd, policy = item.built, item.lower, item.usd, subject.scenario.policy
    if ceiling is not None and item.usd_per_hour > ceiling:
        reason = f"at least {lower} replicas by its bounds, {item.usd_per_hour:.2f} USD/h, dearer than two fleets that hold"
        fleet = _fleet(built, subject, lower, usd)
        return Option(built, "pruned", reason, fleet=fleet, lower_bound=lower)
    built = rated(built, subject.traffic)
    sustainable = rate_of(built)
    if sustainable <= 0:
        return Option(built, "infeasible", "it finishes no request of this traffic", lower_bound=lower)
    if isinstance(built, Apart) and built.candidate.searched:
        return _searched_pair(built, item, subject, ceiling, replications)
    start = max(
        ceil_ratio(subject.traffic.rate_per_s / sustainable, policy.max_utilisation),
        ceil_ratio(throughput_rate_per_s(subject), sustainable),
        lower,
    )
    most = limit = buying.limit(policy, built.candidate)
    if ceiling is not None:
        most = min(most, _most_within(built, subject, usd, ceiling))
    if start > most:
        status, reason = _over(built, subject, start, most, limit)
        fleet = _fleet(built, subject, start, usd)
        return Option(built, status, reason, fleet=fleet, lower_bound=start, sustainable_per_s=sustainable)
    judged = functools.partial(verdict_at, built, subject, sustainable, replications=replications)
    search = least_count(judged, start, most)
    if search.replicas is None:
        status, reason = _over(built, subject, most + 1, most, limit)
        bound = None
        if status == "infeasible":
            reason += f"; at {most} fails: {', '.join(search.verdicts[most].failures)}"
        else:
            bound = _fleet(built, subject, most + 1, usd)
        return Option(built, status, reason, search, bound, most + 1, sustainable)
    fleet = _fleet(built, subject, search.replicas, usd)
    return Option(built, "dearer", "", search, fleet, start, sustainable)


def pairs_of(built: Apart, subject: Plan, usd: Prices) -> Pairs:
    """The fleets that a candidate whose two counts are searched may have for this traffic."""
    measured, lower = bounded(rated(built, subject.traffic), subject)
    assert isinstance(measured, Apart)
    p, d = measured.candidate.pools(lower)
    needed = throughput_rate_per_s(subject)
    return Pairs.of(measured, subject.scenario.policy, usd, (p, d), subject.traffic.rate_per_s, needed)


def verdict_of(
    space: Pairs, subject: Plan, pair: Pair, replications: int | None = None, further: bool = False
) -> Verdict:
    """The verdict of so many prefill and decode replicas."""
    return verdict_at(space.machine(pair), subject, math.nan, sum(pair), replications, further)


def _searched_pair(
    built: Apart, item: _Open, subject: Plan, ceiling: float | None, replications: int | None
) -> Option:
    """As `_searched`, where the counts of both pools are searched."""
    space = pairs_of(built, subject, item.usd)
    assert space.built.rates is not None
    policy, lower, rate = subject.scenario.policy, sum(space.start), space.built.rates.balanced
    least = space.machine(space.start)
    fleet = _fleet(least, subject, lower, item.usd)
    if not space.allowed(space.start):
        why = buying.beyond(policy, least.candidate, lower)
        return Option(least, "infeasible", why, fleet=fleet, lower_bound=lower, sustainable_per_s=rate)
    found = space.search(functools.partial(verdict_of, space, subject, replications=replications), ceiling)
    if found.replicas is not None:
        p, d = found.at.pools
        best = space.machine((p, d))
        fleet = _fleet(best, subject, found.replicas, item.usd)
        return Option(best, "dearer", "", found, fleet, lower, rate)
    above = None if ceiling is None else space.least_above(ceiling)
    if above is not None:
        fleet = _fleet(space.machine(above), subject, sum(above), item.usd)
        why = f"needs at least {fleet.gpus} GPUs, dearer than two fleets that hold"
        return Option(space.machine(above), "pruned", why, found, fleet, sum(above), rate)
    last = found.every[-1]
    p, d = last.pools
    nearest = space.machine((p, d))
    why = f"no pair that may be had holds; {last.counted} fail: {', '.join(last.failures)}"
    return Option(nearest, "infeasible", why, found, None, space.most_replicas + 1, rate)


def _ranked(
    subject: Plan, ranked: list[Option], rest: list[Option], sheet: prices.PriceList, known: dict[str, float]
) -> Decision:
    """The decision for the first of these, unless it costs more than may be spent."""
    best = ranked[0].fleet
    assert best is not None
    ceiling = subject.scenario.policy.max_cost_usd_per_hour
    made = []
    for option in ranked:
        assert option.fleet is not None
        usd = option.fleet.usd_per_hour
        if ceiling is not None and best.usd_per_hour > ceiling * (1 + 1e-9):
            reason = f"costs {usd:.2f} USD/h, above policy.max_cost of {ceiling:.2f} by {usd - ceiling:.2f}"
            made.append(replace(option, status="infeasible", reason=reason))
        elif option is ranked[0]:
            made.append(replace(option, status="chosen"))
        else:
            reason = (
                f"{usd - best.usd_per_hour:.2f} USD/h more than the chosen one"
                if usd > best.usd_per_hour
                else "costs the same; the chosen one has more headroom or fewer GPUs"
            )
            made.append(replace(option, reason=reason))
    chosen = made[0] if made[0].status == "chosen" else None
    return Decision(subject, chosen, (*made, *rest), sheet, known)


def _rank(option: Option) -> tuple[float, int, float, str]:
    assert option.fleet is not None
    assert option.found is not None
    assert option.found.replicas is not None
    verdict = option.found.at
    return (
        round(option.fleet.usd_per_hour, 6),
        option.fleet.gpus,
        verdict.utilisation,
        option.machine.candidate.candidate_id,
    )


def throughput_rate_per_s(subject: Plan, mix: Requests | None = None) -> float:
    """Requests/s of this mix (None: the planned one) that make the promised output tokens/s; 0 where none is promised."""
    promised = subject.scenario.policy.throughput_tokens_per_s
    mix = subject.traffic.requests() if mix is None else mix
    return 0.0 if promised is None else promised / float(mix.generated_tokens.mean())


def _link_too_slow(built: Machine, subject: Plan) -> str | None:
    """Why two pools pass at no count: the one link between them, which more replicas do not widen, would be busier than the cap, or than it
    can be at the promised throughput."""
    split, link, traffic = built.candidate.split, built.link, subject.traffic
    if split is None or link is None:
        return None
    mix, cap = traffic.requests(), subject.scenario.policy.max_utilisation
    crosses = (mix.prompt_tokens > split.bypass_tokens) & (mix.output_tokens > 1)
    each_s = float((mix.prompt_tokens * crosses).mean()) * link.s_per_token
    busy, full = traffic.rate_per_s * each_s, throughput_rate_per_s(subject) * each_s
    if busy <= cap * (1 + 1e-9):
        if full <= 1 + 1e-9:
            return None
        promised = subject.scenario.policy.throughput_tokens_per_s or 0.0
        return (
            f"its link of {link.bytes_per_s / 1e9:g} GB/s takes the KV of prompts for {promised / full:,.0f} output tokens/s, and the throughput "
            f"asked for is {promised:,.0f}; no number of replicas mends it, {link.bytes_per_s * full / 1e9:.3g} GB/s would"
        )
    return (
        f"the KV of its prompts would keep the link of {link.bytes_per_s / 1e9:g} GB/s {busy:.0%} busy, above the cap of {cap:.0%}; no "
        f"number of replicas mends it, {link.bytes_per_s * busy / cap / 1e9:.3g} GB/s would"
    )


def _fleet(built: Machine, subject: Plan, replicas: int, usd: Prices) -> Fleet:
    return buying.fleet_of(subject.scenario.policy, built.candidate, replicas, usd)


def _most_within(built: Machine, subject: Plan, usd: Prices, ceiling_usd_per_hour: float) -> int:
    def fits(gpus: dict[str, int]) -> bool:
        return sum(count * usd[gpu] for gpu, count in gpus.items()) <= ceiling_usd_per_hour * (1 + 1e-9)

    return buying.most_replicas(subject.scenario.policy, built.candidate, fits)


def _over(built: Machine, subject: Plan, needed: int, most: int, limit: int) -> tuple[str, str]:
    if most >= limit:
        return "infeasible", buying.beyond(subject.scenario.policy, built.candidate, needed)
    return "pruned", f"needs at least {needed} replicas, dearer than two fleets that hold"


__all__ = [
    "Decision",
    "Option",
    "Plan",
    "bounded",
    "decide",
    "hopeless",
    "pairs_of",
    "plan",
    "throughput_rate_per_s",
    "verdict_at",
    "verdict_of",
]
