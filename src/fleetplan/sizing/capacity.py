"""The other way round: what a given fleet holds, by candidate: highest rate, tightest promises, longest context, headroom."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from fleetplan import catalog, progress
from fleetplan.errors import InputError
from fleetplan.sizing import buying
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.binding import resource_bound
from fleetplan.sizing.decide import Plan, hopeless, verdict_at
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered, offered
from fleetplan.sizing.saturation import rates_of, sustainable_rate_per_s
from fleetplan.sizing.verdict import Limit, Verdict
from fleetplan.spec.scenario import Scenario
from fleetplan.traffic.requests import Requests

PRECISION = 1.01
"""The highest factor that holds and the lowest one seen to fail are at most this ratio apart."""
MOST_REQUESTS = 3_000_000
"""A fleet whose highest rate may take more requests a replication is refused: it would not be answered soon."""
MOST_PAIRS = 3
"""Of two pools whose counts are searched, so many of the pairs that the GPUs hold are simulated."""
SMALLEST_SHARE = 1 / 64
"""Of the cap's rate; a fleet that does not hold even this load is said to hold none."""


@dataclass(frozen=True)
class Tightest:
    """The tightest limit of one promise that holds at today's traffic, all of a candidate's at once."""

    limit: Limit
    met_share: float
    """Share of today's requests that meet the promise as it stands."""
    tightest_s: float | None
    reason: str | None
    """Why there is none."""


@dataclass(frozen=True, eq=False)
class Held:
    """What one candidate does with the GPUs it is given."""

    machine: Machine
    gpus: int
    """GPUs of its kind in the fleet."""
    replicas: int
    """That serve: as many as these GPUs hold, whole nodes where nodes are bought, less the spares."""
    reason: str | None
    """Why it holds no load at all; None: it holds some."""
    factor: float | None = None
    """Highest factor on the planned traffic at which every promise holds."""
    failing_factor: float | None = None
    """Lowest factor seen to fail; None: the cap on utilisation ends the search."""
    rate_per_s: float | None = None
    sustainable_per_s: float | None = None
    """Of the serving replicas, saturated."""
    binding: str | None = None
    """What fails just above."""
    at: Verdict | None = None
    """The verdict at the highest factor."""
    today: Verdict | None = None
    """The verdict at the planned traffic."""
    tightest: tuple[Tightest, ...] = ()
    longest_context_tokens: int | None = None
    """Prompt and output of one sequence: what the KV pool holds, at most the model's context."""
    longest_prompt_tokens: int | None = None
    """Longest prompt whose lone request is within every TTFT limit and fits with a mean answer; None: not even one token."""

    @property
    def pools(self) -> tuple[int | None, int | None]:
        """(prefill, decode) replicas; None: one pool."""
        if self.machine.candidate.split is None:
            return None, None
        before, after = self.machine.candidate.pools(self.replicas)
        return before, after

    @property
    def fleet(self) -> str:
        """Its replicas in words."""
        before, after = self.pools
        return str(self.replicas) if before is None else f"{before} prefill + {after} decode"


@dataclass(frozen=True, eq=False)
class Capacity:
    """What a fleet holds, by candidate, the best first."""

    plan: Plan
    fleet: dict[str, int]
    """GPUs by catalogue name."""
    held: tuple[Held, ...]

    @property
    def best(self) -> Held | None:
        """The candidate with the highest rate; None where none holds any load."""
        return self.held[0] if self.held and self.held[0].factor is not None else None


def capacity(
    subject: Plan, fleet: Mapping[str, int], saturation: Callable[[Machine], float] | None = None
) -> Capacity:
    """What each candidate holds on the GPUs of `fleet` of its kind, or kinds (catalogue name or alias → GPUs, of which it has all).

    The rate is found by bisection on simulations with common random numbers, to 1%: a scaled scenario has the same requests in the
    same order with the same lengths, nearer together. Raises InputError for a count below 1 or a GPU that no candidate runs on.
    """
    stock: dict[str, int] = {}
    for name, count in fleet.items():
        if count < 1:
            raise InputError(f"gpus: {name}: a fleet has at least 1 GPU of a kind (got {count})")
        gpu = catalog.gpu(name).name
        stock[gpu] = stock.get(gpu, 0) + count
    kinds = list(
        dict.fromkeys(side.gpu for built in subject.machines.values() for side in built.candidate.sides)
    )
    for gpu in stock:
        if gpu not in kinds:
            raise InputError(
                f"gpus: {gpu}: no candidate of {subject.scenario.scenario} runs on it (its grid has {', '.join(kinds)}), "
                "add it to candidates.gpu or leave it out"
            )
    rate = saturation or (lambda built: sustainable_rate_per_s(built, subject.traffic))
    scaled = _Scaled(subject)
    asked = [
        (built, given)
        for built in subject.machines.values()
        if (given := {side.gpu: stock[side.gpu] for side in built.candidate.sides if side.gpu in stock})
    ]
    held = []
    for built, given in progress.each(asked, "candidate", lambda item: item[0].candidate.label):
        fleets = _fleets(built, subject, given)
        each = [_held(made, count, given, subject, scaled, rate) for made, count in fleets]
        held.append(min(each, key=_rank))
        reached = held[-1].rate_per_s
        progress.say(f"holds {reached:.4g} requests/s" if reached else held[-1].reason or "")
    return Capacity(subject, stock, tuple(sorted(held, key=_rank)))


def _fleets(built: Machine, subject: Plan, given: Mapping[str, int]) -> list[tuple[Machine, int]]:
    """(machine, serving replicas) to look at: all that these GPUs hold; where both pools' counts are searched, by the MOST_PAIRS of
    the pairs, of which none leaves room for one more, that sustain the most."""
    policy, fits = subject.scenario.policy, buying.within(given)
    runs = built.reason is None and set(given) == {side.gpu for side in built.candidate.sides}
    if not (runs and isinstance(built, Apart) and built.candidate.searched):
        return [(built, buying.most_replicas(policy, built.candidate, fits))]
    rates = rates_of(built, subject.traffic)
    made = replace(built, rates=rates)
    pairs: list[tuple[int, int]] = []

    def holds(p: int, d: int) -> bool:
        return p + d <= policy.max_replicas and fits(
            buying.gpus_of(policy, made.candidate.paired(p, d), p + d)
        )

    d = 1
    while holds(1, d + 1):
        d += 1
    p = 1
    while d >= 1:
        if holds(p, d):
            pairs.append((p, d))
            p += 1
        else:
            d -= 1
    best: dict[int, tuple[int, int]] = {d: (p, d) for p, d in pairs}  # the most prefill that goes with each
    ranked = sorted(best.values(), key=lambda pair: -rates.of(*pair))[:MOST_PAIRS]
    return [(made.paired(*pair), sum(pair)) for pair in ranked] or [(made, 0)]


class _Scaled:
    """The plan with every rate multiplied, each factor drawn once for all candidates."""

    def __init__(self, subject: Plan) -> None:
        self._subject = subject
        self._drawn: dict[float, Offered] = {}

    def __call__(self, factor: float) -> Plan:
        if factor not in self._drawn:
            scenario, model = self._subject.scenario, self._subject.model
            assert isinstance(scenario, Scenario)
            assert model is not None
            workload = scenario.workload
            more = workload.model_copy(update={"rate_scale": workload.rate_scale * factor})
            self._drawn[factor] = offered(
                scenario.model_copy(update={"workload": more}),
                model.architecture.max_context_tokens,
            )
        return replace(self._subject, traffic=self._drawn[factor])


def _held(
    built: Machine,
    replicas: int,
    given: Mapping[str, int],
    subject: Plan,
    scaled: _Scaled,
    saturation: Callable[[Machine], float],
) -> Held:
    policy, gpus = subject.scenario.policy, sum(given.values())
    why = built.reason or buying.refused(policy, built.candidate)
    if why is None and len(given) < len({side.gpu for side in built.candidate.sides}):
        why = "its pools run on two kinds of GPU, of which only one is given"
    if why is not None:
        return Held(built, gpus, 0, f"cannot run: {why}")
    assert built.step is not None
    assert built.config is not None
    assert built.memory is not None
    assert subject.model is not None
    traffic = subject.traffic
    mix = traffic.requests()
    context = built.memory.longest_sequence_tokens
    most = subject.model.architecture.max_context_tokens
    longest = min((n for n in (context, most) if n), default=None)
    prompt = _longest_prompt(built, traffic, mix, longest)
    if replicas < 1:
        count, sides = built.candidate.least_replicas, built.candidate.sides
        least = sum(buying.gpus_of(policy, built.candidate, count).values())
        pools = zip(sides, built.candidate.pools(count), strict=True)
        each = sum(side.gpus_per_engine_group * n for side, n in pools)
        spare = f", {least} with what stands by and is bought along" if least > each else ""
        what = "one replica of each pool" if built.candidate.searched else "a replica"
        why = f"{what} takes {each} GPUs{spare} (got {gpus})"
        return Held(built, gpus, 0, why, longest_context_tokens=longest, longest_prompt_tokens=prompt)
    why = hopeless(built, subject)
    rate = 0.0 if why else saturation(built)
    if why is None and rate <= 0:
        why = "it finishes no request of this traffic"
    if why is not None:
        return Held(built, gpus, replicas, why, longest_context_tokens=longest, longest_prompt_tokens=prompt)
    sustained = built.sustains(rate, replicas)
    cap = subject.scenario.policy.max_utilisation * sustained / traffic.rate_per_s
    if (requests := traffic.requests_at(cap)) > MOST_REQUESTS:
        most = int(gpus * MOST_REQUESTS / requests)
        raise InputError(
            f"gpus: {' and '.join(given)}: {gpus} are more than can be simulated soon: {replicas} replicas of {built.candidate.label} "
            f"may take {requests:,.0f} requests a replication (most {MOST_REQUESTS:,}); give at most about {most}, or a shorter "
            "simulation.horizon"
        )
    seen: dict[float, Verdict] = {}

    def at(factor: float) -> Verdict:
        if factor not in seen:
            seen[factor] = verdict_at(built, scaled(factor), rate, replicas)
        return seen[factor]

    today = verdict_at(built, subject, rate, replicas)
    glance = _highest(lambda f: _glance(built, scaled(f), rate, replicas), cap)
    factor, failing = _confirmed(lambda f: at(f).passes, glance, cap)
    if factor is None:
        failures = ", ".join(at(failing).failures)
        why = f"fails at {failing * traffic.rate_per_s:.3g} requests/s already: {failures}"
        return Held(
            built, gpus, replicas, why, today=today, sustainable_per_s=sustained,
            tightest=tuple(_tightest(today)), longest_context_tokens=longest, longest_prompt_tokens=prompt,
        )  # fmt: skip
    above = failing is not None and factor < cap
    binding = at(failing).failures[0] if above else "utilisation cap"
    if binding in ("saturated", "queue grows"):
        binding = resource_bound(built)
    return Held(
        built, gpus, replicas, None, factor, failing if above else None, factor * traffic.rate_per_s, sustained, binding,
        at(factor), today, tuple(_tightest(today)), longest, prompt,
    )  # fmt: skip


def _highest(passes: Callable[[float], bool], cap: float) -> tuple[float | None, float]:
    """(highest factor that passes, lowest seen to fail), at most PRECISION apart; (cap, cap) where the cap itself passes.

    >>> low, high = _highest(lambda f: f <= 3.0, 8.0)
    >>> low <= 3.0 < high <= low * PRECISION
    True
    >>> _highest(lambda f: False, 8.0)
    (None, 0.125)
    """
    if passes(cap):
        return cap, cap
    high, low = cap, cap * 0.8
    while not passes(low):
        high = low
        low *= 0.8 if low > cap / 2 else 0.5
        if low < cap * SMALLEST_SHARE:
            if high <= cap * SMALLEST_SHARE * 1.001:
                return None, high
            low = cap * SMALLEST_SHARE
    return _between(passes, low, high)


def _confirmed(
    passes: Callable[[float], bool], glance: tuple[float | None, float], cap: float
) -> tuple[float | None, float]:
    """The bracket that one replication found, moved until full verdicts pass below and fail above.

    >>> low, high = _confirmed(lambda f: f <= 3.0, (3.3, 3.33), 8.0)
    >>> low <= 3.0 < high <= low * PRECISION * 1.0001
    True
    """
    low, high = glance
    if low is None:
        return _highest(passes, cap)
    step = PRECISION
    if passes(low):
        high = min(max(high, low), cap)
        while low < cap and passes(high):
            low, high = high, min(high * step, cap)
            step *= step
    else:
        while not passes(low):
            high, low = low, low / step
            step *= step
            if low < cap * SMALLEST_SHARE:
                return _highest(passes, cap)
    return _between(passes, low, high)


def _between(passes: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    while high > low * PRECISION * (1 + 1e-12):
        middle = math.sqrt(low * high)
        if passes(middle):
            low = middle
        else:
            high = middle
    return low, high


def _glance(built: Machine, scaled: Plan, rate: float, replicas: int) -> bool:
    """Whether one replication passes: enough to come near."""
    simulation = scaled.scenario.simulation.model_copy(update={"replications": 1})
    once = replace(scaled, scenario=scaled.scenario.model_copy(update={"simulation": simulation}))
    return verdict_at(built, once, rate, replicas).passes


def _tightest(today: Verdict) -> list[Tightest]:
    """The simulated percentiles at today's traffic: each is the least limit that its promise could have."""
    made = []
    for outcome in today.outcomes:
        limit, why = outcome.limit, None
        if not today.within_cap:
            why = f"utilisation would be {today.utilisation:.0%}, the cap is {today.max_utilisation:.0%}"
        elif not today.stable:
            why = "the queue grows at today's traffic"
        elif limit.limit_s is None:
            why = "no single time: several limits at once, or one that grows with the prompt"
        elif outcome.value_s is None:
            why = "too few requests finish"
        made.append(Tightest(limit, outcome.met_share, None if why else outcome.value_s, why))
    return made


def _longest_prompt(built: Machine, traffic: Offered, mix: Requests, longest: int | None) -> int | None:
    """By halving: a lone prompt's TTFT never falls with its length."""
    answer = max(int(mix.output_tokens.mean()), 1)
    limits = [bound for limit in traffic.limits for bound in limit.bounds if bound[0] == "ttft"]

    def holds(tokens: int) -> bool:
        alone = built.lone(Requests.of([0.0], tokens, answer))
        return all(float(alone.ttft_s[0]) <= base + growth * tokens for _, base, growth in limits)

    if longest is None:
        return None
    low, high = 0, longest - answer + 1
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low or None


def _rank(held: Held) -> tuple[float, int, float, str]:
    rate = held.rate_per_s or 0.0
    candidate = held.machine.candidate
    pools = zip(candidate.sides, candidate.pools(held.replicas), strict=True)
    busy = sum(side.gpus_per_engine_group * n for side, n in pools)
    return (-rate, busy, held.at.utilisation if held.at else 0.0, held.machine.candidate.candidate_id)


__all__ = ["PRECISION", "Capacity", "Held", "Tightest", "capacity"]
