"""Rows of the stage `sizing` about money: every way to pay, the draws of what is not known, and which candidate stays the cheapest."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetplan.sizing import money
from fleetplan.sizing.choice import Choice
from fleetplan.sizing.cost import HOURS_PER_MONTH, HOURS_PER_YEAR, Fleet
from fleetplan.sizing.decide import Decision, Plan
from fleetplan.sizing.uncertainty import Interval
from fleetplan.sizing.ways import Bill, Way, api_usd_per_request, spreads, watts, ways

Row = dict[str, Any]


def fleet_money(fleet: Fleet | None, subject: Plan) -> Row:
    """The columns MONEY of the data dictionary; null without a fleet."""
    return _money(None if fleet is None else fleet.usd_per_hour, subject)


def costs(bill: Bill) -> list[Row]:
    """A row a way to pay."""
    drawn = spreads(bill)
    found = list(ways(bill))
    tail = (1 - bill.policy.uncertainty.level) / 2
    rows = [_cost(bill, way) for way in found]
    allowed = [way.option for way in found if way.holds is not False and way.option in drawn]
    firsts = np.array([drawn[option] for option in allowed]).argmin(axis=0) if allowed else None
    for row in rows:
        costs_ = drawn.get(row["option"])
        low, high = (None, None) if costs_ is None else np.quantile(costs_, [tail, 1 - tail]).tolist()
        share = None
        if firsts is not None:
            option = row["option"]
            share = float((firsts == allowed.index(option)).mean()) if option in allowed else 0.0
        row |= {"cost_low_usd_per_hour": low, "cost_high_usd_per_hour": high, "probability_cheapest": share}
    return rows


def draws(decision: Decision, found: Interval | None) -> list[Row]:
    """A row a draw of the Monte Carlo: what was drawn, and what the chosen candidate needs then."""
    chosen = decision.chosen
    if found is None or chosen is None:
        return []
    return [
        {
            "draw": trial.draw.number,
            "rate_factor": trial.draw.rate,
            "output_length_factor": trial.draw.length,
            "prompt_length_factor": trial.draw.prompt,
            "acceptance_factor": trial.draw.luck,
            "step_time_factor": trial.time,
            "replicas": trial.replicas,
        }
        for trial in found.trials
    ]


def choices(found: tuple[Choice, ...]) -> list[Row]:
    """A row a candidate: what its fleet may cost, and how probably it is the cheapest."""
    return [
        {
            "candidate_id": each.candidate_id,
            "basis": each.basis,
            "cost_low_usd_per_hour": each.low_usd_per_hour,
            "cost_p50_usd_per_hour": each.median_usd_per_hour,
            "cost_high_usd_per_hour": each.high_usd_per_hour,
            "probability_cheapest": each.probability_cheapest,
        }
        for each in found
    ]


def _tokens_per_s(subject: Plan) -> tuple[float, float]:
    """(prompt, output) tokens/s at the planned traffic."""
    mix, rate = subject.traffic.requests(), subject.traffic.rate_per_s
    return rate * float(mix.prompt_tokens.mean()), rate * float(mix.generated_tokens.mean())


def _money(usd: float | None, subject: Plan) -> Row:
    """Costs by time and by what is served, from USD/h; all null without it, by token of an endpoint that is no LLM."""
    prompt_per_s, output_per_s = _tokens_per_s(subject)

    def per(tokens_per_s: float) -> float | None:
        return None if usd is None or subject.model is None else usd / (3600 * tokens_per_s) * 1e6

    return {
        "cost_usd_per_hour": usd,
        "cost_usd_per_month": None if usd is None else usd * HOURS_PER_MONTH,
        "cost_usd_per_year": None if usd is None else usd * HOURS_PER_YEAR,
        "cost_usd_per_million_input_tokens": per(prompt_per_s),
        "cost_usd_per_million_output_tokens": per(output_per_s),
        "cost_usd_per_million_tokens": per(prompt_per_s + output_per_s),
        "cost_usd_per_request": None if usd is None else usd / 3600 / subject.traffic.rate_per_s,
    }


def _cost(bill: Bill, way: Way) -> Row:
    policy, subject = bill.policy, bill.decision.plan
    own = 1.0 - way.api_share
    mean = watts(bill.decision, way.kinds, own)
    energy = None
    if mean is not None and own > 0 and subject.model is not None:
        energy = money.wh_per_million(mean, own * sum(_tokens_per_s(subject)))
    carbon = policy.power.carbon_g_per_kwh if policy.power else None
    fleet_only = policy.api is not None and way.api_share == 0
    return {
        "option": way.option,
        "gpus": way.gpus,
        "reserved_gpus": way.reserved_gpus,
        "spot_gpus": way.spot_gpus,
        "interrupted_gpus": way.interrupted_gpus,
        "api_share": way.api_share,
        **_money(way.usd_per_hour, subject),
        "capital_usd": way.capital_usd,
        "break_even_requests_per_s": money.break_even_per_s(
            way.usd_per_hour, api_usd_per_request(bill.decision)
        )
        if fleet_only
        else None,
        "power_w": mean,
        "energy_wh_per_million_tokens": energy,
        "carbon_g_per_million_tokens": None if energy is None or carbon is None else energy / 1000 * carbon,
        "holds": way.holds,
        "note": way.note,
    }
