"""The decision: among all candidates the cheapest fleet whose simulation keeps every promise, and why the others are not it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from fleetplan import catalog, prices
from fleetplan.engine.outcome import FINISHED
from fleetplan.sizing import bounds, buying
from fleetplan.sizing.candidates import expand
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.machine import Machine, machine
from fleetplan.sizing.offered import Offered, offered
from fleetplan.sizing.search import Found, least_count
from fleetplan.sizing.verdict import Looks, Verdict, judge
from fleetplan.spec.scenario import Scenario
from fleetplan.traffic.requests import Requests

FEWEST_REPLICATIONS, MOST_REPLICATIONS = 2, 4
FURTHER_LOOKS = (8, 16)
"""Replications after which the certificate looks again where the search left noise in it."""
BURST_REQUESTS = 3000
BURST_TURNS = 12
"""A saturated run lasts this many times as long as a full batch."""


@dataclass(frozen=True, eq=False)
class Plan:
    """A scenario with its model, traffic, machines and prices: what every stage starts from."""

    scenario: Scenario
    model: catalog.Model
    traffic: Offered
    machines: dict[str, Machine]
    """By candidate id, in the order of the grid."""


@dataclass(frozen=True, eq=False)
class Option:
    """What became of one candidate."""

    machine: Machine
    status: str
    """chosen, dearer, pruned, infeasible or cannot run."""
    reason: str
    found: Found | None = None
    fleet: Fleet | None = None
    """Of the count found, or, where pruned, of the lower bound."""
    lower_bound: int | None = None
    sustainable_per_s: float | None = None
    """Of one replica."""


@dataclass(frozen=True, eq=False)
class Decision:
    """The chosen option, if any, and all of them in order of cost."""

    plan: Plan
    chosen: Option | None
    options: tuple[Option, ...]
    prices: prices.PriceList
    saturation: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict at the decided count."""
        if self.chosen is None or self.chosen.found is None or self.chosen.found.replicas is None:
            return None
        return self.chosen.found.verdicts[self.chosen.found.replicas]


def plan(scenario: Scenario) -> Plan:
    """Expand a scenario and build every machine."""
    model = catalog.model(scenario.model_reference)
    traffic = offered(scenario, model.architecture.max_context_tokens)
    mix = traffic.requests()
    lengths = mix.prompt_tokens + mix.output_tokens
    machines = {
        candidate.candidate_id: machine(candidate, scenario, model, int(lengths.max()), int(lengths.mean()))
        for candidate in expand(scenario)
    }
    return Plan(scenario, model, traffic, machines)


def sustainable_rate_per_s(built: Machine, traffic: Offered) -> float:
    """Requests/s of one replica that always has work, by simulation: the middle half of a long burst of the same mix.

    Who finishes in that half may be lighter than the mix by chance, so it is never taken above 1 / least work.
    """
    assert built.config is not None
    assert built.memory is not None
    mix = traffic.requests()
    lengths = float((mix.prompt_tokens + mix.output_tokens).mean())
    batch = built.config.max_num_seqs
    if built.config.kv_blocks is not None:
        batch = min(batch, max(int(built.config.kv_blocks * built.config.block_size / lengths), 1))
    count = max(BURST_REQUESTS, BURST_TURNS * batch)
    # A cap on the queue would refuse most of a burst; what a replica sustains is its own work, not its door.
    open_door = replace(built.config, max_queued_requests=None, max_queued_tokens=None)
    run = replace(built, config=open_door).run(traffic.burst(count), 1, traffic.seed)
    finish = np.sort(run.finish_s[run.outcome == FINISHED])
    if len(finish) < 8:
        return 0.0
    first, last = finish[len(finish) // 4], finish[3 * len(finish) // 4]
    share_served = len(finish) / count
    rate = (3 * len(finish) // 4 - len(finish) // 4) / (last - first) / share_served
    return min(float(rate), 1 / _least_work_s(built, mix)) * built.engines_per_replica


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
    utilisation = traffic.rate_per_s / (replicas * sustainable_per_s) if sustainable_per_s else float("inf")

    shortfalls = tuple(
        f"deadline of {name}"
        for name in scenario.deadlines()
        if utilisation > scenario.policy.max_utilisation * (1 + 1e-9)
    )
    if sustainable_per_s * replicas < _throughput_rate_per_s(subject) * (1 - 1e-9):
        shortfalls = (*shortfalls, "throughput")

    def run(replication: int):  # type: ignore[no-untyped-def]
        return built.run(traffic.requests(replication), engines, traffic.seed + replication), traffic.warmup_s

    return judge(
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


def hopeless(built: Machine, subject: Plan, replications: int | None = None) -> str | None:
    """Why `verdict_at` passes at no count, by the latencies of lone requests of the same draws; None: it may."""
    assert built.step is not None
    assert built.config is not None
    step, traffic = built.step, subject.traffic
    budget = built.config.max_num_batched_tokens if built.candidate.scheduler == "chunked" else None
    given = replications or subject.scenario.simulation.replications

    def draws() -> Iterator[tuple[Requests, bounds.Lone]]:
        for replication in range(1 if traffic.exact else given or MOST_REPLICATIONS):
            mix = traffic.requests(replication)
            judged = mix.take(mix.arrival_s >= traffic.warmup_s) if traffic.warmup_s else mix
            yield judged, bounds.lone(judged, step, budget, built.client_s)

    return bounds.never(traffic.limits, draws(), 1 if traffic.exact else given or FEWEST_REPLICATIONS)


def decide(
    subject: Plan,
    saturation: Callable[[Machine], float] | None = None,
    *,
    prune: bool = True,
    replications: int | None = None,
) -> Decision:
    """Search every candidate that can run, cheapest lower bound first; prune those that cannot be cheaper than two found ones.

    The bound is N ≥ rate · least work / max_utilisation: the sustainable rate, by simulation, is never above 1 / least work, so a pruned
    candidate cannot win. `saturation` gives a machine's sustainable rate where it is known already.
    """
    scenario, traffic = subject.scenario, subject.traffic
    policy = scenario.policy
    sheet = prices.price_list(policy.prices, scenario.folder)
    rate_of = functools.cache(saturation or (lambda built: sustainable_rate_per_s(built, traffic)))
    mix = traffic.requests()
    options: list[Option] = []
    open_: list[tuple[float, str, Machine, int, float]] = []
    for built in subject.machines.values():
        if built.reason is not None:
            options.append(Option(built, "cannot run", built.reason))
            continue
        if (refused := buying.refused(policy, built.candidate)) is not None:
            options.append(Option(built, "cannot run", refused))
            continue
        usd = buying.usd_per_gpu_hour(policy, built.candidate.gpu, sheet)
        if usd is None:
            options.append(
                Option(built, "cannot run", f"the price list {sheet.name} has no {built.candidate.gpu}")
            )
            continue
        why = hopeless(built, subject, replications)
        if why is not None:
            options.append(Option(built, "infeasible", why))
            continue
        work = _least_work_s(built, mix)
        lower = max(
            ceil_ratio(traffic.rate_per_s * work / built.engines_per_replica, policy.max_utilisation), 1
        )
        cost = _fleet(built, subject, lower, usd).usd_per_hour
        open_.append((cost, built.candidate.candidate_id, built, lower, usd))
    open_.sort(key=lambda item: item[:2])
    found: list[Option] = []
    known: dict[str, float] = {}
    for cost, identity, built, lower, usd in open_:
        ceiling = sorted(o.fleet.usd_per_hour for o in found if o.fleet)[1] if len(found) > 1 else None
        if prune and ceiling is not None and cost > ceiling:
            reason = (
                f"at least {lower} replicas by its bounds, {cost:.2f} USD/h, dearer than two fleets that hold"
            )
            options.append(
                Option(built, "pruned", reason, fleet=_fleet(built, subject, lower, usd), lower_bound=lower)
            )
            continue
        sustainable = known[identity] = rate_of(built)
        if sustainable <= 0:
            options.append(
                Option(built, "infeasible", "it finishes no request of this traffic", lower_bound=lower)
            )
            continue
        start = max(
            ceil_ratio(traffic.rate_per_s / sustainable, policy.max_utilisation),
            ceil_ratio(_throughput_rate_per_s(subject), sustainable),
            lower,
        )
        most = limit = buying.limit(policy, built.candidate)
        if prune and ceiling is not None:
            most = min(most, _most_within(built, subject, usd, ceiling))
        if start > most:
            options.append(
                Option(
                    built,
                    *_over(built, subject, start, most, limit),
                    fleet=_fleet(built, subject, start, usd),
                    lower_bound=start,
                    sustainable_per_s=sustainable,
                )
            )
            continue
        judged = functools.partial(verdict_at, built, subject, sustainable, replications=replications)
        search = least_count(judged, start, most)
        if search.replicas is None:
            status, reason = _over(built, subject, most + 1, most, limit)
            if status == "infeasible":
                reason += f"; at {most} fails: {', '.join(search.verdicts[most].failures)}"
            options.append(
                Option(built, status, reason, search, lower_bound=most + 1, sustainable_per_s=sustainable)
            )
            continue
        found.append(
            Option(
                built, "dearer", "", search, _fleet(built, subject, search.replicas, usd), start, sustainable
            )
        )
    ranked = sorted(found, key=_rank)
    if not ranked:
        return Decision(subject, None, (*options,), sheet, known)
    best = ranked[0]
    assert best.fleet is not None
    ceiling = policy.max_cost_usd_per_hour
    if ceiling is not None and best.fleet.usd_per_hour > ceiling * (1 + 1e-9):
        dear = [
            replace(
                o,
                status="infeasible",
                reason=f"costs {o.fleet.usd_per_hour:.2f} USD/h, above policy.max_cost of {ceiling:.2f} by "
                f"{o.fleet.usd_per_hour - ceiling:.2f}",
            )
            for o in ranked
            if o.fleet is not None
        ]
        return Decision(subject, None, (*dear, *options), sheet, known)
    chosen = Option(
        best.machine, "chosen", "", best.found, best.fleet, best.lower_bound, best.sustainable_per_s
    )
    others = [
        Option(
            o.machine,
            "dearer",
            f"{o.fleet.usd_per_hour - best.fleet.usd_per_hour:.2f} USD/h more than the chosen one"
            if o.fleet.usd_per_hour > best.fleet.usd_per_hour
            else "costs the same; the chosen one has more headroom or fewer GPUs",
            o.found,
            o.fleet,
            o.lower_bound,
            o.sustainable_per_s,
        )
        for o in ranked[1:]
        if o.fleet is not None
    ]
    return Decision(subject, chosen, (chosen, *others, *options), sheet, known)


def binding_limit(built: Machine, below: Verdict | None, at: Verdict, lower_bound: int) -> tuple[str, str]:
    """(limit, sentence): what makes N the least count, read off the failure at N − 1."""
    if below is None:
        return "one replica", "one replica is the least there is; nothing binds"
    failures = below.failures
    first = failures[0] if failures else "none"
    if first == "saturated" or first == "queue grows":
        resource = resource_bound(built)
        return resource, f"{below.replicas} replicas cannot sustain the traffic ({first}): {resource} binds"
    if first == "utilisation cap":
        others = ", ".join(failures[1:])
        return "utilisation cap", (
            f"{below.replicas} replicas would run at {below.utilisation:.0%}, above the cap of {below.max_utilisation:.0%}"
            + (f"; also fails {others}" if others else "; its promises would hold")
        )
    return first, f"with {below.replicas} replicas fails: {', '.join(failures)}"


def resource_bound(built: Machine) -> str:
    """Which resource a saturated engine runs out of: KV memory where it caps the batch below max_num_seqs, else compute or bandwidth."""
    assert built.step is not None
    assert built.config is not None
    assert built.memory is not None
    roof, config = built.roof or built.step, built.config
    held = built.memory.sequences_at_mean or 1
    batch = min(config.max_num_seqs, max(held // built.engines_per_replica, 1))
    read = batch * (built.memory.mean_tokens or 1)
    n = np.array([batch])
    compute = float(roof.at(roof.compute_s, roof.compute_slope_s, n)[0]) + roof.pair_s * read
    memory = float(roof.at(roof.memory_s, roof.memory_slope_s, n)[0]) + roof.kv_token_s * read
    if batch < config.max_num_seqs and memory > compute:
        return "KV memory"
    return "compute" if compute >= memory else "bandwidth"


def _rank(option: Option) -> tuple[float, int, float, str]:
    assert option.fleet is not None
    assert option.found is not None
    assert option.found.replicas is not None
    verdict = option.found.verdicts[option.found.replicas]
    return (
        round(option.fleet.usd_per_hour, 6),
        option.fleet.gpus,
        verdict.utilisation,
        option.machine.candidate.candidate_id,
    )


def _throughput_rate_per_s(subject: Plan) -> float:
    """Requests/s of this mix that make the promised output tokens/s; 0 where none is promised."""
    promised = subject.scenario.policy.throughput_tokens_per_s
    return 0.0 if promised is None else promised / float(subject.traffic.requests().output_tokens.mean())


def _least_work_s(built: Machine, mix: Requests) -> float:
    assert built.step is not None
    assert built.config is not None
    budget = built.config.max_num_batched_tokens if built.candidate.scheduler == "chunked" else None
    return bounds.least_work_s(
        mix, built.step, budget or built.config.max_num_seqs * int(mix.prompt_tokens.max())
    )


def _fleet(built: Machine, subject: Plan, replicas: int, usd: float) -> Fleet:
    return buying.fleet_of(subject.scenario.policy, built.candidate, replicas, usd)


def _most_within(built: Machine, subject: Plan, usd: float, ceiling_usd_per_hour: float) -> int:
    gpus = ceiling_usd_per_hour / usd * (1 + 1e-9)
    return buying.most_replicas(subject.scenario.policy, built.candidate, gpus)


def _over(built: Machine, subject: Plan, needed: int, most: int, limit: int) -> tuple[str, str]:
    if most >= limit:
        return "infeasible", buying.beyond(subject.scenario.policy, built.candidate, needed)
    return "pruned", f"needs at least {needed} replicas, dearer than two fleets that hold"
