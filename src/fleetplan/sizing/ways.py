"""Ways to pay for the traffic of a decided fleet: rented, by commitments, owned, an API and its tiers, or both."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from fleetplan import catalog, prices
from fleetplan.errors import InputError
from fleetplan.sizing import buying, money, pricing
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.curve import Curve
from fleetplan.sizing.decide import Decision, Option, Plan
from fleetplan.sizing.saturation import rates_of
from fleetplan.sizing.schedule import Schedule, absences
from fleetplan.sizing.spot import held
from fleetplan.spec.paying import Ownership, Spot, Tariff, Terms, Tier
from fleetplan.spec.policy import Policy

WAY_DRAWS = 300
"""Draws of prices that the spread of a way's cost is of."""


@dataclass(frozen=True)
class Rates:
    """Factors on the prices that are planned with."""

    gpu: Mapping[str, float] = field(default_factory=dict)
    """By kind; 1 of one that is not there."""
    spot: float = 1.0
    electricity: float = 1.0

    def of(self, fleet: Fleet) -> dict[str, float]:
        """USD/h of a GPU of each of the fleet's kinds."""
        return {gpu: usd * self.gpu.get(gpu, 1.0) for gpu, usd in fleet.prices.items()}


@dataclass(frozen=True)
class Way:
    """One way to pay."""

    option: str
    usd_per_hour: float
    note: str
    kinds: Mapping[str, float] = field(default_factory=dict)
    """GPUs of each kind, mean over the period."""
    reserved_gpus: float = 0.0
    spot_gpus: float = 0.0
    interrupted_gpus: float = 0.0
    """Of the spot GPUs, mean number that are away."""
    api_share: float = 0.0
    capital_usd: float | None = None
    holds: bool | None = None
    """Whether its simulation (or, of an API, what it states) keeps the promises; None: not known."""

    @property
    def gpus(self) -> float:
        """GPUs of every kind."""
        return sum(self.kinds.values())


@dataclass(frozen=True, eq=False)
class Bill:
    """A decided fleet with what its ways to pay hang on."""

    decision: Decision
    chosen: Option
    fleet: Fleet
    shape: Curve | None
    plan: Schedule | None
    _held: dict[tuple[str, int], bool] = field(default_factory=dict)

    @property
    def policy(self) -> Policy:
        """That of the scenario."""
        return self.decision.plan.scenario.policy


def ways(bill: Bill, rates: Rates = Rates()) -> Iterator[Way]:
    """Every way that the policy asks about, at these prices; the first is renting every GPU all the time."""
    policy, fleet = bill.policy, bill.fleet
    if not (policy.autoscaling or policy.power or policy.ownership or policy.api):
        return
    usd = rates.of(fleet)
    if len(usd) == 1:
        words = f"{fleet.gpus} GPUs at {next(iter(usd.values())):g} USD/h, all the time"
    else:
        each = " and ".join(f"{lot.gpus} {lot.gpu} at {usd[lot.gpu]:g}" for lot in fleet.lots)
        words = f"{each} USD/h, all the time"
    whole = sum(lot.gpus * usd[lot.gpu] for lot in fleet.lots)
    yield Way("rented", whole, words, bought(fleet), holds=True)
    if bill.plan is not None:
        yield from _over_time(bill, bill.plan, rates)
    if policy.ownership is not None:
        yield _owned(bill, rates)
    if policy.api is not None:
        yield from _by_api(bill, rates)


def spreads(bill: Bill) -> dict[str, np.ndarray]:
    """Costs [USD/h] of every way by draw of the prices that are not known; shape (WAY_DRAWS,); empty: all are known."""
    policy = bill.policy
    if not pricing.asked(policy):
        return {}
    given, seed = policy.uncertainty, bill.decision.plan.scenario.seed
    kinds = [lot.gpu for lot in bill.fleet.lots]
    by_kind = (pricing.drawn(seed, gpu, pricing.of_gpu(policy, gpu, bill.decision.prices)) for gpu in kinds)
    factors = zip(
        zip(*by_kind, strict=True),
        pricing.drawn(seed, "spot", pricing.of_cv(given.spot_price_cv)),
        pricing.drawn(seed, "electricity", pricing.of_cv(given.electricity_cv)),
        strict=True,
    )
    found: dict[str, list[float]] = {}
    for _, (drawn, spot, electricity) in zip(range(WAY_DRAWS), factors, strict=False):
        gpu = {kind: float(price) for kind, price in zip(kinds, drawn, strict=True)}
        for way in ways(bill, Rates(gpu, float(spot), float(electricity))):
            found.setdefault(way.option, []).append(way.usd_per_hour)
    return {option: np.array(costs) for option, costs in found.items()}


def blocks(chosen: Option, policy: Policy, plan: Schedule) -> tuple[money.Floats, int]:
    """(GPUs that each replica of the schedule adds, GPUs of the spares, which are always paid)."""
    assert chosen.fleet is not None
    candidate, spares = chosen.machine.candidate, chosen.fleet.spares
    counts = range(len(plan.paid_s) + 1)
    steps = [sum(buying.gpus_of(policy, candidate, n, spares).values()) for n in counts]
    return np.diff(np.array(steps, dtype=np.float64)), steps[0]


def bought(fleet: Fleet) -> dict[str, float]:
    """Its GPUs by kind."""
    return {lot.gpu: float(lot.gpus) for lot in fleet.lots}


def watts(decision: Decision, kinds: Mapping[str, float], own_share: float) -> float | None:
    """Mean power [W] of GPUs by kind that serve a share of the traffic; None: not asked, not known, or no GPUs."""
    power, chosen = decision.plan.scenario.policy.power, decision.chosen
    assert chosen is not None
    if power is None or not sum(kinds.values()):
        return None
    rate = own_share * decision.plan.traffic.rate_per_s
    total = 0.0
    for gpu, count in kinds.items():
        tdp = catalog.gpu(gpu).tdp_w
        if tdp is None:
            return None
        busy = sum(rate / made * gpus for kind, made, gpus in _loads(chosen, decision.plan) if kind == gpu)
        total += money.power_w(tdp, count, busy, power.host_w, power.pue)
    return total


@functools.lru_cache(maxsize=4)
def _loads(chosen: Option, subject: Plan) -> tuple[tuple[str, float, int], ...]:
    """(kind, requests/s that one replica makes which always has work, its GPUs) of each pool: offered over that is how busy they are."""
    built, sides = chosen.machine, chosen.machine.candidate.sides
    if isinstance(built, Apart):
        rates = built.rates or rates_of(built, subject.traffic)
        made: tuple[float, ...] = (rates.prefill, rates.decode)
    else:
        assert chosen.sustainable_per_s is not None
        made = (chosen.sustainable_per_s,)
    return tuple((side.gpu, each, side.gpus_per_engine_group) for side, each in zip(sides, made, strict=True))


def api_usd_per_request(decision: Decision) -> float:
    """Of the cheapest tariff that is not known to be too slow; of the cheapest at all where each is."""
    return min(
        _tariffs(decision), key=lambda item: (item.holds is False, item.usd_per_request)
    ).usd_per_request


@dataclass(frozen=True)
class _Priced:
    option: str
    usd_per_request: float
    note: str
    holds: bool | None


def _tariffs(decision: Decision) -> tuple[_Priced, ...]:
    given, mix = decision.plan.scenario.policy.api, decision.plan.traffic.requests()
    assert given is not None
    if decision.plan.model is None:
        raise InputError("policy.api: prices tokens, and an endpoint that is no LLM has none; drop it")
    prompt, output = float(mix.prompt_tokens.mean()), float(mix.generated_tokens.mean())
    tariffs: tuple[Tariff, ...] = (given, *given.tiers)
    found = []
    for tariff in tariffs:
        cached = money.cached_share(tariff, given.cached_share, mix)
        usd = money.api_usd_per_request(tariff, prompt, output, cached)
        holds, slow = _fast_enough(decision, tariff)
        words = f"{usd:.3g} USD a request" + (f", {cached:.0%} of the input cached" if cached else "") + slow
        name = f"api, {tariff.name}" if isinstance(tariff, Tier) else "api"
        found.append(_Priced(name, usd, words, holds))
    return tuple(found)


def _fast_enough(decision: Decision, tariff: Tariff) -> tuple[bool | None, str]:
    """(whether what the tariff states keeps every promise, None: it does not state enough; what it does not keep, in words)."""
    sure = True
    for limit in decision.plan.traffic.limits:
        for metric, bound, growth in limit.bounds:
            if metric == "ttft" and tariff.ttft_s is not None and growth == 0:
                if tariff.ttft_s > bound:
                    return False, f"; its TTFT of {tariff.ttft_s:g} s breaks {limit.name}"
            elif metric in ("tpot", "itl") and tariff.speed_tokens_per_s is not None:
                if 1 / tariff.speed_tokens_per_s > bound * (1 + 1e-12):
                    return False, f"; its {tariff.speed_tokens_per_s:g} tokens/s break {limit.name}"
            else:
                sure = False
    return (True if sure else None), ""


def _over_time(bill: Bill, plan: Schedule, rates: Rates) -> Iterator[Way]:
    policy, fleet = bill.policy, bill.fleet
    sizes, always = blocks(bill.chosen, policy, plan)
    every = np.concatenate([[float(always)], sizes])
    shares = np.concatenate([[1.0], plan.paid_shares])
    holds = True if plan.verdict is None else plan.verdict.passes
    ((gpu, usd),) = rates.of(fleet).items()  # one pool: others have no schedule
    factor = rates.gpu.get(gpu, 1.0)
    whole = money.cheapest_mix(every, shares, None, usd)
    serving = f"{int(plan.serving.min())} to {int(plan.serving.max())} replicas by the slot"
    if plan.added_replicas:
        serving += f", {plan.added_replicas} more than the load takes"
    yield Way("rented, autoscaled", whole.usd_per_hour, serving, {gpu: whole.flexible_gpus}, holds=holds)
    given = policy.commitments
    if given is None:
        return
    reserved = None if given.reserved is None else _terms(bill, given.reserved, factor)
    spot = usd if given.spot is None else min(_terms(bill, given.spot, factor * rates.spot), usd)
    share = given.spot_share if spot < usd else 0.0
    flexible = (1 - share) * usd + share * spot
    for name, taken, parts in (
        ("rented, by commitments", np.array([float(fleet.gpus)]), np.ones(1)),
        ("rented, autoscaled, by commitments", every, shares),
    ):
        mix = money.cheapest_mix(taken, parts, reserved, flexible)
        on_spot = mix.flexible_gpus * share
        paid = (
            ("reserved", float(mix.reserved_gpus), reserved),
            ("on demand", mix.flexible_gpus * (1 - share), usd),
            ("spot", on_spot, spot),
        )
        words = [f"{gpus:.4g} {kind} at {price:g} USD/h" for kind, gpus, price in paid if gpus]
        way = Way(
            name,
            mix.usd_per_hour,
            "GPUs: " + ", ".join(words),
            {gpu: mix.reserved_gpus + mix.flexible_gpus},
            mix.reserved_gpus,
            on_spot,
            holds=holds if len(taken) > 1 else True,
        )
        yield _interrupted(bill, way, given.spot, plan if len(taken) > 1 else None)


def _interrupted(bill: Bill, way: Way, spot: Spot | None, plan: Schedule | None) -> Way:
    """The way with what its interruptions put at risk, its promises judged by a simulation in which they happen."""
    if spot is None or not spot.away_share or not way.spot_gpus:
        return way
    each = way.gpus / (
        plan.serving.mean() if plan is not None else bill.fleet.replicas + bill.fleet.spare_replicas
    )
    count = int(plan.serving.max()) if plan is not None else bill.fleet.replicas + bill.fleet.spare_replicas
    risky = min(int(np.ceil(way.spot_gpus / each - 1e-9)), count)
    key = way.option, risky
    if key not in bill._held:
        traffic, given = bill.decision.plan.traffic, bill.policy.autoscaling
        gone = (
            list(absences(plan, given, traffic.duration_s)) if plan is not None and given is not None else []
        )
        verdict = held(bill.decision, spot, count, range(count - risky, count), gone)
        bill._held[key] = verdict.stable and all(outcome.holds for outcome in verdict.outcomes)
    away = way.spot_gpus * spot.away_share
    said = (
        f"; {risky} of {count} replicas on spot, each taken back {spot.interruptions_per_day:g} times a day for "
        f"{(spot.restart_s or 0) / 60:g} min, {away:.2g} GPUs away on average"
    )
    return replace(
        way, interrupted_gpus=away, holds=bool(way.holds) and bill._held[key], note=way.note + said
    )


def _terms(bill: Bill, terms: Terms, factor: float) -> float:
    """USD/h of a GPU under these terms."""
    if terms.discount is not None:
        return bill.fleet.usd_per_gpu_hour * (1 - terms.discount) * factor
    gpu, scenario = bill.chosen.machine.candidate.gpu, bill.decision.plan.scenario
    assert terms.prices is not None
    sheet = prices.price_list(terms.prices, scenario.folder)
    price = sheet.of(gpu)
    if price is None:
        raise InputError(
            f"policy.commitments: the price list {sheet.name} has no {gpu}, which the decision takes"
        )
    return price.median * factor


def _owned(bill: Bill, rates: Rates) -> Way:
    policy, fleet = bill.policy, bill.fleet
    given, power = policy.ownership, policy.power
    assert given is not None
    assert power is not None
    assert power.electricity_usd_per_kwh is not None
    kinds = []
    for lot in fleet.lots:
        tdp = catalog.gpu(lot.gpu).tdp_w
        if tdp is None:
            raise InputError(
                f"policy.ownership: the power of {lot.gpu} is not known (no TDP in the catalogue), so its electricity has no price"
            )
        kinds.append(money.Owned(lot.gpus, _price_of(given, lot.gpu), tdp))
    mean = watts(bill.decision, bought(fleet), 1.0)
    assert mean is not None
    electricity = power.electricity_usd_per_kwh * rates.electricity
    usd = money.owned_usd_per_hour(given, kinds, power.host_w, mean, electricity)
    capital = sum(kind.gpus * kind.gpu_usd for kind in kinds)
    years = given.amortisation_s / 3600 / 8760
    note = f"{fleet.gpus} GPUs bought for {capital:,.0f} USD, written off over {years:g} years"
    return Way("owned", usd, note, bought(fleet), capital_usd=capital, holds=True)


def _price_of(given: Ownership, gpu: str) -> float:
    """What one GPU of this kind is bought for."""
    if not isinstance(given.gpu_usd, dict):
        return float(given.gpu_usd)
    for name, usd in given.gpu_usd.items():
        if catalog.gpu(name).name == gpu:
            return float(usd)
    raise InputError(f"policy.ownership: gpu: has no price of {gpu}, which the decision takes, add it")


def _by_api(bill: Bill, rates: Rates) -> Iterator[Way]:
    policy, traffic, chosen = bill.policy, bill.decision.plan.traffic, bill.chosen
    tariffs = _tariffs(bill.decision)
    for tariff in tariffs:
        usd = traffic.rate_per_s * 3600 * tariff.usd_per_request
        yield Way(tariff.option, usd, tariff.note, api_share=1.0, holds=tariff.holds)
    assert chosen.mean_per_s is not None
    if bill.shape is None:
        rates_per_s = np.array([traffic.rate_per_s])
        loads = rates_per_s / chosen.mean_per_s
    else:
        rates_per_s, loads = bill.shape.rate_per_s, bill.shape.load_replicas
    candidate, prices_now = chosen.machine.candidate, rates.of(bill.fleet)
    most = int(np.ceil(loads.max() / policy.max_utilisation)) + 1
    bare = (0,) * len(candidate.sides)
    sizes = [buying.gpus_of(policy, candidate, n, bare) for n in range(most + 1)]
    costs = np.array([sum(count * prices_now[gpu] for gpu, count in each.items()) for each in sizes])
    best = money.cheapest_overflow(
        loads, rates_per_s, policy.max_utilisation, costs, api_usd_per_request(bill.decision)
    )
    yield Way(
        "rented, overflow to api",
        best.usd_per_hour,
        f"{best.replicas} replicas without spares, to {policy.max_utilisation:.0%} of what they sustain; what is above goes to the API",
        {gpu: float(count) for gpu, count in sizes[best.replicas].items()},
        api_share=best.api_share,
    )
