"""Rows of the stage `sizing` about the decided fleet: faults, the day and the week, growth, money and power."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fleetplan import catalog, prices
from fleetplan.errors import InputError
from fleetplan.sizing import buying, money
from fleetplan.sizing.cost import HOURS_PER_MONTH, HOURS_PER_YEAR, Fleet
from fleetplan.sizing.curve import Curve, curve
from fleetplan.sizing.decide import Decision, Option
from fleetplan.sizing.growth import months
from fleetplan.sizing.resilience import resilience
from fleetplan.sizing.schedule import Schedule, schedule
from fleetplan.spec.policy import Policy, Terms

Row = dict[str, Any]


def fleet_rows(decision: Decision) -> dict[str, list[Row]]:
    """Table → rows of what the policy asks about the decided fleet; without a fleet, or unasked, none.

    Raises InputError where autoscaling is asked of traffic that has no profile.
    """
    made: dict[str, list[Row]] = {"resilience": [], "schedule": [], "growth": [], "costs": []}
    chosen, policy = decision.chosen, decision.plan.scenario.policy
    if chosen is None or chosen.fleet is None or not chosen.sustainable_per_s:
        return made
    shape = None
    if policy.autoscaling is not None or policy.api is not None:
        shape = curve(decision.plan, chosen.machine, chosen.sustainable_per_s)
    plan = None
    if policy.autoscaling is not None:
        if shape is None:
            raise InputError(
                decision.plan.scenario.line(
                    ("policy", "autoscaling"),
                    "follows a profile that the traffic does not have (got one rate), give arrivals with process: profile, or drop it",
                )
            )
        plan = schedule(decision, shape, policy.autoscaling)
        made["schedule"] = list(_schedule(chosen, policy, plan))
    made["resilience"] = list(_resilience(decision))
    made["growth"] = list(_growth(decision))
    made["costs"] = [_cost(decision, way) for way in _ways(decision, chosen, chosen.fleet, shape, plan)]
    return made


def _resilience(decision: Decision) -> Iterator[Row]:
    count = decision.chosen.fleet.replicas if decision.chosen and decision.chosen.fleet else 0
    for found in resilience(decision):
        faced = found.faced
        for share in faced.shares:
            yield {
                "event": faced.event.name,
                "class": share.limit.class_name,
                "metric": share.limit.metric,
                "percentile": round(share.limit.share * 100, 9),
                "replicas": faced.replicas,
                "lost_replicas": faced.event.lost(faced.replicas),
                "down_s": faced.down_s,
                "up_s": faced.up_s,
                "lost_requests": faced.lost_requests,
                "requests": share.requests,
                "promised_share": share.limit.share,
                "during_share": share.during_share,
                "run_share": share.run_share,
                "holds": share.holds,
                "needed_spare_replicas": None
                if found.needed_replicas is None
                else found.needed_replicas - count,
                "needed_replicas": found.needed_replicas,
            }


def _schedule(chosen: Option, policy: Policy, plan: Schedule) -> Iterator[Row]:
    assert chosen.fleet is not None
    blocks, always = _blocks(chosen, policy, plan)
    paid = always + blocks @ plan.paid_s / plan.curve.slot_s
    for slot, serving in enumerate(plan.serving.tolist()):
        yield {
            "slot": slot,
            "start_h": slot * plan.curve.slot_s / 3600,
            "mean_requests_per_s": float(plan.curve.rate_per_s[slot]),
            "load_replicas": float(plan.curve.load_replicas[slot]),
            "static_replicas": chosen.fleet.replicas,
            "serving_replicas": serving,
            "static_gpus": chosen.fleet.gpus,
            "paid_gpus": float(paid[slot]),
        }


def _blocks(chosen: Option, policy: Policy, plan: Schedule) -> tuple[money.Floats, int]:
    """(GPUs that each replica of the schedule adds, GPUs of the spares, which are always paid)."""
    assert chosen.fleet is not None
    packed, spares = buying.packing(policy, chosen.machine.candidate), chosen.fleet.spare_replicas
    steps = np.array([packed.gpus(spares + n) for n in range(len(plan.paid_s) + 1)], dtype=np.float64)
    return np.diff(steps), int(steps[0])


def _growth(decision: Decision) -> Iterator[Row]:
    before: int | None = None
    for month in months(decision):
        fleet = month.fleet
        yield {
            "month": month.month,
            "mean_requests_per_s": month.rate_per_s,
            "replicas": fleet.replicas if fleet else None,
            "spare_replicas": fleet.spare_replicas if fleet else None,
            "gpus": fleet.gpus if fleet else None,
            "more_gpus": fleet.gpus - (fleet.gpus if before is None else before) if fleet else None,
            "needed_from_month": month.needed_from,
            "utilisation": month.utilisation,
            "cost_usd_per_hour": fleet.usd_per_hour if fleet else None,
            "reason": month.reason,
        }
        before = fleet.gpus if fleet else before


@dataclass(frozen=True)
class _Way:
    """One way to pay."""

    option: str
    usd_per_hour: float
    note: str
    gpus: float = 0.0
    reserved_gpus: float = 0.0
    api_share: float = 0.0
    capital_usd: float | None = None
    holds: bool | None = None


def _ways(
    decision: Decision, chosen: Option, fleet: Fleet, shape: Curve | None, plan: Schedule | None
) -> Iterator[_Way]:
    policy = decision.plan.scenario.policy
    if not (policy.autoscaling or policy.power or policy.ownership or policy.api):
        return
    candidate = chosen.machine.candidate
    rented = f"{fleet.gpus} GPUs at {fleet.usd_per_gpu_hour:g} USD/h"
    yield _Way("rented", fleet.usd_per_hour, f"{rented}, all the time", fleet.gpus, holds=True)
    if plan is not None:
        yield from _over_time(decision, chosen, fleet, plan)
    if policy.ownership is not None and policy.power is not None:
        tdp = catalog.gpu(candidate.gpu).tdp_w
        if tdp is None:
            raise InputError(
                f"policy.ownership: the power of {candidate.gpu} is not known (no TDP in the catalogue), so its electricity has no price"
            )
        watts = _watts(decision, fleet.gpus, 1.0)
        assert watts is not None
        assert policy.power.electricity_usd_per_kwh is not None
        usd = money.owned_usd_per_hour(
            policy.ownership,
            fleet.gpus,
            tdp,
            policy.power.host_w,
            watts,
            policy.power.electricity_usd_per_kwh,
        )
        capital = fleet.gpus * policy.ownership.gpu_usd
        note = f"{fleet.gpus} GPUs bought for {capital:,.0f} USD, written off over {policy.ownership.amortisation_s / 3600 / 8760:g} years"
        yield _Way("owned", usd, note, fleet.gpus, capital_usd=capital, holds=True)
    if policy.api is not None:
        yield from _by_api(decision, chosen, fleet, shape)


def _over_time(decision: Decision, chosen: Option, fleet: Fleet, plan: Schedule) -> Iterator[_Way]:
    policy = decision.plan.scenario.policy
    blocks, always = _blocks(chosen, policy, plan)
    every = np.concatenate([[float(always)], blocks])
    shares = np.concatenate([[1.0], plan.paid_shares])
    holds = True if plan.verdict is None else plan.verdict.passes
    usd = fleet.usd_per_gpu_hour
    whole = money.cheapest_mix(every, shares, None, usd)
    serving = f"{int(plan.serving.min())} to {int(plan.serving.max())} replicas by the slot"
    if plan.added_replicas:
        serving += f", {plan.added_replicas} more than the load takes"
    yield _Way("rented, autoscaled", whole.usd_per_hour, serving, whole.flexible_gpus, holds=holds)
    given = policy.commitments
    if given is None:
        return
    reserved = None if given.reserved is None else _terms(decision, given.reserved, chosen, usd)
    spot = usd if given.spot is None else min(_terms(decision, given.spot, chosen, usd), usd)
    share = given.spot_share if spot < usd else 0.0
    flexible = (1 - share) * usd + share * spot
    for name, sizes, parts in (
        ("rented, by commitments", np.array([float(fleet.gpus)]), np.ones(1)),
        ("rented, autoscaled, by commitments", every, shares),
    ):
        mix = money.cheapest_mix(sizes, parts, reserved, flexible)
        parts_paid = (
            ("reserved", float(mix.reserved_gpus), reserved),
            ("on demand", mix.flexible_gpus * (1 - share), usd),
            ("spot", mix.flexible_gpus * share, spot),
        )
        words = [f"{gpus:.4g} {kind} at {price:g} USD/h" for kind, gpus, price in parts_paid if gpus]
        yield _Way(
            name,
            mix.usd_per_hour,
            "GPUs: " + ", ".join(words),
            mix.reserved_gpus + mix.flexible_gpus,
            mix.reserved_gpus,
            holds=holds if len(sizes) > 1 else True,
        )


def _terms(decision: Decision, terms: Terms, chosen: Option, usd: float) -> float:
    """USD/h of a GPU under these terms."""
    if terms.discount is not None:
        return usd * (1 - terms.discount)
    gpu, scenario = chosen.machine.candidate.gpu, decision.plan.scenario
    assert terms.prices is not None
    sheet = prices.price_list(terms.prices, scenario.folder)
    price = sheet.of(gpu)
    if price is None:
        raise InputError(
            f"policy.commitments: the price list {sheet.name} has no {gpu}, which the decision takes"
        )
    return price.median


def _by_api(decision: Decision, chosen: Option, fleet: Fleet, shape: Curve | None) -> Iterator[_Way]:
    policy, traffic = decision.plan.scenario.policy, decision.plan.traffic
    per_request, cached = _api_usd_per_request(decision)
    words = f"{per_request:.3g} USD a request" + (f", {cached:.0%} of the input cached" if cached else "")
    yield _Way("api", traffic.rate_per_s * 3600 * per_request, words, api_share=1.0)
    assert chosen.sustainable_per_s is not None
    if shape is None:
        rates = np.array([traffic.rate_per_s])
        loads = rates / chosen.sustainable_per_s
    else:
        rates, loads = shape.rate_per_s, shape.load_replicas
    packed = buying.packing(policy, chosen.machine.candidate)
    most = int(np.ceil(loads.max() / policy.max_utilisation)) + 1
    sizes = np.array([packed.gpus(n) for n in range(most + 1)], dtype=np.float64)
    best = money.cheapest_overflow(
        loads, rates, policy.max_utilisation, sizes, fleet.usd_per_gpu_hour, per_request
    )
    yield _Way(
        "rented, overflow to api",
        best.usd_per_hour,
        f"{best.replicas} replicas without spares, to {policy.max_utilisation:.0%} of what they sustain; what is above goes to the API",
        float(sizes[best.replicas]),
        api_share=best.api_share,
    )


def _api_usd_per_request(decision: Decision) -> tuple[float, float]:
    given, mix = decision.plan.scenario.policy.api, decision.plan.traffic.requests()
    assert given is not None
    cached = money.cached_share(given, mix)
    prompt, output = float(mix.prompt_tokens.mean()), float(mix.output_tokens.mean())
    return money.api_usd_per_request(given, prompt, output, cached), cached


def _watts(decision: Decision, gpus: float, own_share: float) -> float | None:
    """Mean power [W] of this many GPUs that serve a share of the traffic; None: not asked, not known, or no GPUs."""
    power, chosen = decision.plan.scenario.policy.power, decision.chosen
    assert chosen is not None
    assert chosen.sustainable_per_s is not None
    candidate = chosen.machine.candidate
    tdp = catalog.gpu(candidate.gpu).tdp_w
    if power is None or tdp is None or not gpus:
        return None
    busy = (
        own_share * decision.plan.traffic.rate_per_s / chosen.sustainable_per_s * candidate.gpus_per_replica
    )
    return money.power_w(tdp, gpus, busy, power.host_w, power.pue)


def _cost(decision: Decision, way: _Way) -> Row:
    policy, traffic = decision.plan.scenario.policy, decision.plan.traffic
    mix, rate = traffic.requests(), traffic.rate_per_s
    prompt, output = rate * float(mix.prompt_tokens.mean()), rate * float(mix.output_tokens.mean())
    own = 1.0 - way.api_share
    watts = _watts(decision, way.gpus, own)
    energy = None if watts is None or own <= 0 else money.wh_per_million(watts, own * (prompt + output))
    carbon = policy.power.carbon_g_per_kwh if policy.power else None
    fleet_only = policy.api is not None and way.api_share == 0
    per_hour = way.usd_per_hour
    return {
        "option": way.option,
        "gpus": way.gpus,
        "reserved_gpus": way.reserved_gpus,
        "api_share": way.api_share,
        "cost_usd_per_hour": per_hour,
        "cost_usd_per_month": per_hour * HOURS_PER_MONTH,
        "cost_usd_per_year": per_hour * HOURS_PER_YEAR,
        "cost_usd_per_million_input_tokens": per_hour / (3600 * prompt) * 1e6,
        "cost_usd_per_million_output_tokens": per_hour / (3600 * output) * 1e6,
        "cost_usd_per_million_tokens": per_hour / (3600 * (prompt + output)) * 1e6,
        "cost_usd_per_request": per_hour / 3600 / rate,
        "capital_usd": way.capital_usd,
        "break_even_requests_per_s": money.break_even_per_s(per_hour, _api_usd_per_request(decision)[0])
        if fleet_only
        else None,
        "power_w": watts,
        "energy_wh_per_million_tokens": energy,
        "carbon_g_per_million_tokens": None if energy is None or carbon is None else energy / 1000 * carbon,
        "holds": way.holds,
        "note": way.note,
    }
