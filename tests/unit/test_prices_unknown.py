"""Prices that are not known, spot hours that are taken back, tiers of an API: against numbers worked by hand."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fleetplan import prices
from fleetplan.errors import InputError
from fleetplan.sizing import choice, pricing, uncertainty
from fleetplan.sizing.decide import Decision, decide, plan
from fleetplan.sizing.spot import interruptions
from fleetplan.sizing.stages.fleet import fleet_rows
from fleetplan.sizing.stages.sizing import rows
from fleetplan.spec import loads
from fleetplan.spec.paying import Spot
from fleetplan.store.parts import write_part

SPEC = """
scenario: small
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {arrivals}
      prompt_tokens: 100
      output_tokens: 20
      slo: {{ttft: {{p95: 150 ms}}, tpot: {{p95: 30 ms}}}}
candidates: {{gpu: {gpu}, scheduler: [{{max_num_seqs: 8}}]}}
step_time: {{affine: {{fixed: 10 ms, prefill: 0 us/token, decode: 0 us/sequence}}}}
policy: {{prices: on-demand-2026-08, uncertainty: {{draws: {draws}, {uncertain}}}, {policy}}}
simulation: {{horizon: {horizon}, replications: 1}}
"""
POISSON = "{process: poisson, rate: 100 req/s}"
BY_HOURS = (
    "{process: profile, slot: 100 s, inside: {process: poisson, rate: 50 req/s}, factors: [0.2, 1, 2, 0.8]}"
)


def decided(
    uncertain: str = "",
    policy: str = "",
    gpu: str = "[h100-sxm]",
    draws: int = 0,
    arrivals: str = POISSON,
    horizon: str = "60 s",
) -> Decision:
    text = SPEC.format(
        uncertain=uncertain, policy=policy, gpu=gpu, draws=draws, arrivals=arrivals, horizon=horizon
    )
    return decide(plan(loads(text)), prune=False)


def test_a_drawn_price_has_its_median_and_its_percentiles() -> None:
    policy = decided("price_range: {low: 0.8, high: 1.4}").plan.scenario.policy
    sheet = prices.price_list(policy.prices)
    factors = pricing.drawn(3, "h100-sxm", pricing.of_gpu(policy, "h100-sxm", sheet))
    # 1,000 draws: the standard error of a quantile q is √(q(1 − q)/1000) in probability; three of them here.
    for share, factor in ((0.05, 0.8), (0.5, 1.0), (0.95, 1.4)):
        assert (factors < factor).mean() == pytest.approx(
            share, abs=3 * math.sqrt(share * (1 - share) / 1000)
        )
    assert (pricing.drawn(3, "h100-sxm", pricing.Spread(0, 0)) == 1).all()
    again = pricing.drawn(3, "h100-sxm", pricing.of_gpu(policy, "h100-sxm", sheet))
    assert (factors == again).all()
    assert not (factors == pricing.drawn(3, "h200-sxm", pricing.Spread(0.1, 0.1))).any()


def test_the_span_of_a_price_list() -> None:
    policy = decided("price_range: observed").plan.scenario.policy
    sheet = prices.price_list(policy.prices)
    price = sheet.usd_per_gpu_hour["h100-sxm"]
    assert price.low is not None
    assert price.high is not None
    spread = pricing.of_gpu(policy, "h100-sxm", sheet)
    edges = spread.factors(np.array([-pricing.NORMAL_95, pricing.NORMAL_95])) * price.median
    assert edges.tolist() == pytest.approx([price.low, price.high])


def test_the_chance_that_the_choice_stays_the_cheapest() -> None:
    """Two kinds with the same counts: the one at p stays cheaper than the one at q with Φ(ln(q/p) / (s√2))."""
    decision = decided("price_cv: 0.2", gpu="[h100-sxm, a100-80gb-sxm]")
    found = {each.candidate_id: each for each in choice.choices(decision, None)}
    chosen, other = (option for option in decision.options if option.fleet is not None)
    assert chosen.fleet is not None
    assert other.fleet is not None
    assert chosen.fleet.gpus == other.fleet.gpus
    ratio = math.log(other.fleet.usd_per_gpu_hour / chosen.fleet.usd_per_gpu_hour)
    sigma = math.sqrt(math.log1p(0.04))
    expected = 0.5 * math.erfc(-ratio / (sigma * 2))
    mine = found[chosen.machine.candidate.candidate_id]
    assert mine.probability_cheapest == pytest.approx(
        expected, abs=3 * math.sqrt(expected * (1 - expected) / 1000) + 1e-12
    )
    assert sum(each.probability_cheapest for each in found.values()) == pytest.approx(1)
    assert mine.low_usd_per_hour is not None
    assert mine.high_usd_per_hour is not None
    assert mine.low_usd_per_hour < chosen.fleet.usd_per_hour < mine.high_usd_per_hour


def test_rivals_are_counted_anew_on_the_same_draws(tmp_path: Path) -> None:
    decision = decided("rate_cv: 0.3, price_cv: 0.1", gpu="[h100-sxm, a100-80gb-sxm]", draws=6)
    found = uncertainty.interval(decision)
    assert found is not None
    assert len({trial.draw.rate for trial in found.trials}) == 6
    made = choice.choices(decision, found)
    assert [each.basis for each in made] == ["counted anew"] * 2
    assert decision.chosen is not None
    tables = rows(decision.plan, lambda identity: decision.saturation[identity])
    assert len(tables["draws"]) == 6
    assert tables["decisions"][0]["probability_cheapest"] == made[0].probability_cheapest
    for name in ("draws", "choices", "decisions"):
        write_part(tmp_path, "small", name, tables[name], {})


def test_longer_prompts_need_more_replicas() -> None:
    decision = decided("prompt_length_cv: 0.5", draws=3)
    found = uncertainty.interval(decision)
    assert found is not None
    assert len({trial.draw.prompt for trial in found.trials}) == 3
    assert any("prompt lengths" in words for words in uncertainty.sources(decision))


def test_interruptions_are_as_frequent_and_long_as_said() -> None:
    spot = Spot.model_validate({"discount": 0.5, "interruptions_per_day": 12, "restart": "30 min"})
    day, days = 86400.0, 400
    found = interruptions(spot, [0], days * day, [5])
    # A cycle is 2 h of service and half an hour away: 9.6 a day, with a standard deviation of √(9.6) · 0.8 a day.
    assert len(found) / days == pytest.approx(9.6, abs=3 * math.sqrt(9.6) * 0.8 / math.sqrt(days))
    assert spot.away_share == pytest.approx(0.2)
    assert all(b - a == pytest.approx(1800) for _, a, b in found)
    gone = [(0, 0.0, 200 * day)]
    assert all(a >= 200 * day for _, a, _ in interruptions(spot, [0], days * day, [5], gone))


def test_spot_that_is_taken_back_too_often_breaks_a_promise() -> None:
    terms = "autoscaling: {start_up: 5 s}, commitments: {spot_share: 1, spot: {discount: 0.6%s}}"
    held = []
    for more in ("", ", interruptions_per_day: 800, restart: 60 s"):
        decision = decided(policy=terms % more, arrivals=BY_HOURS, horizon="400 s")
        costs = {row["option"]: row for row in fleet_rows(decision)["costs"]}
        row = costs["rented, by commitments"]
        held.append(row["holds"])
        assert row["spot_gpus"] == costs["rented"]["gpus"]
    assert held == [True, False]
    assert row["interrupted_gpus"] == pytest.approx(row["spot_gpus"] * (1 - 1 / (1 + 800 / 86400 * 60)))
    assert "replicas on spot, each taken back 800 times a day" in row["note"]


def test_tiers_of_an_api_are_judged_by_what_they_state() -> None:
    api = (
        "api: {input: 1 USD/Mtoken, output: 2 USD/Mtoken, tiers: ["
        "{name: fast, input: 2 USD/Mtoken, output: 4 USD/Mtoken, ttft: 100 ms, speed: 50 tokens/s}, "
        "{name: flex, input: 0.1 USD/Mtoken, output: 0.2 USD/Mtoken, ttft: 100 ms, speed: 20 tokens/s}]}"
    )
    costs = {row["option"]: row for row in fleet_rows(decided(policy=api))["costs"]}
    assert costs["api"]["holds"] is None  # it states nothing
    assert costs["api, fast"]["holds"] is True
    assert costs["api, flex"]["holds"] is False
    assert "20 tokens/s break TPOT p95 of chat" in costs["api, flex"]["note"]
    assert costs["api, fast"]["cost_usd_per_hour"] == pytest.approx(2 * costs["api"]["cost_usd_per_hour"])
    # The break-even is against the cheapest tariff that is not too slow: 100 · 1e-6 + 20 · 2e-6 USD a request.
    per_request = 100e-6 + 20 * 2e-6
    rented = costs["rented"]
    assert rented["break_even_requests_per_s"] == pytest.approx(
        rented["cost_usd_per_hour"] / 3600 / per_request
    )


@pytest.mark.parametrize(
    ("uncertain", "policy", "says"),
    [
        ("price_cv: 0.1, price_range: observed", "", "takes price_cv or price_range"),
        ("price_range: wide", "", "is observed or a mapping"),
        ("price_range: {low: 1.2, high: 1.3}", "", "uncertainty.price_range.low"),
        ("price_cv: -0.1", "", "uncertainty.price_cv"),
        (
            "",
            "autoscaling: {start_up: 5 s}, commitments: {spot: {discount: 0.5, interruptions_per_day: 1}, spot_share: 0.5}",
            "a restart together",
        ),
        (
            "",
            "api: {input: 1 USD/Mtoken, output: 1 USD/Mtoken, tiers: [{name: a, input: 1 USD/Mtoken, output: 1 USD/Mtoken}, "
            "{name: a, input: 1 USD/Mtoken, output: 1 USD/Mtoken}]}",
            "name of an earlier tier",
        ),
    ],
)
def test_what_is_no_price(uncertain: str, policy: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        decided(uncertain, policy)
    assert says in "\n".join(caught.value.lines)
