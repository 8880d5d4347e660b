"""The fleet once it is decided: schedule and faults by hand on small cases, the shipped example end to end."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.sizing.curve import Curve, curve
from fleetplan.sizing.decide import Decision, decide, plan
from fleetplan.sizing.growth import months
from fleetplan.sizing.resilience import busiest_s, events, face, resilience
from fleetplan.sizing.schedule import Schedule, away_s, least_serving, paid_s
from fleetplan.sizing.stages.fleet import fleet_rows
from fleetplan.spec import load, loads
from fleetplan.spec.policy import Autoscaling
from fleetplan.store import tables
from fleetplan.store.parts import write_part

# A step takes 10 ms with up to eight sequences, and each answer 20 steps: a replica sustains about 40 requests/s.
SPEC = """
scenario: small
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {arrivals}
      prompt_tokens: 100
      output_tokens: 20
      slo: {{ttft: {{p95: 150 ms}}}}
candidates: {{gpu: [h100-sxm], scheduler: [{{max_num_seqs: 8}}]}}
step_time: {{affine: {{fixed: 10 ms, prefill: 0 us/token, decode: 0 us/sequence}}}}
policy: {{prices: on-demand-2026-08, uncertainty: {{draws: 0}}, {policy}}}
simulation: {{horizon: {horizon}, replications: 1}}
"""
POISSON = "{process: poisson, rate: 100 req/s}"
BY_HOURS = (
    "{process: profile, slot: 100 s, inside: {process: poisson, rate: 50 req/s}, factors: [0.2, 1, 2, 0.8]}"
)


def decided(policy: str, arrivals: str = POISSON, horizon: str = "200 s") -> Decision:
    return decide(plan(loads(SPEC.format(arrivals=arrivals, policy=policy, horizon=horizon))))


def flat(*loads_: float, slot_s: float = 3600.0) -> Curve:
    return Curve(slot_s, np.array(loads_) * 10, np.array(loads_))


def given(start_up: str, hold: str = "0 s", minimum: int = 1) -> Autoscaling:
    return Autoscaling.model_validate({"start_up": start_up, "hold": hold, "minimum": minimum})


def test_replicas_by_slot() -> None:
    shape = flat(0.0, 0.8, 1.7, 9.0)
    assert least_serving(shape, 0.8, 1, 6).tolist() == [1, 1, 3, 6]
    assert least_serving(shape, 0.8, 2, 6, added=1).tolist() == [2, 2, 4, 6]


@pytest.mark.parametrize(
    ("start_up", "hold", "hours", "by_slot"),
    [
        ("0 s", "0 s", 8.0, [1, 3, 3, 1]),
        # Two replicas are kept a quarter of an hour into slot 3 and asked for half an hour before slot 1.
        ("30 min", "15 min", 9.5, [2, 3, 3, 1.5]),
        ("30 min", "90 min", 12.0, [3, 3, 3, 3]),  # no time is left to be off
    ],
)
def test_what_is_paid(start_up: str, hold: str, hours: float, by_slot: list[float]) -> None:
    shape, serving = flat(1, 3, 3, 1), np.array([1, 3, 3, 1])
    paid = paid_s(shape, serving, given(start_up, hold))
    assert paid.sum() / 3600 == pytest.approx(hours)
    assert (paid.sum(axis=0) / 3600).tolist() == pytest.approx(by_slot)
    assert Schedule(shape, serving, paid, 0).paid_shares[0] == 1.0


def test_a_replica_is_away_from_the_end_of_its_hold_until_it_is_needed() -> None:
    found = list(away_s(flat(1, 2, 1, 2), np.array([1, 2, 1, 2]), given("10 min", "5 min")))
    assert found == [(1, 7500.0, 10200.0, 10800.0), (1, 14700.0, 17400.0, 18000.0)]


def test_the_curve_of_a_profile() -> None:
    decision = decided("max_utilisation: 0.8", BY_HOURS, "400 s")
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.sustainable_per_s is not None
    shape = curve(decision.plan, chosen.machine, chosen.sustainable_per_s)
    assert shape is not None
    assert shape.rate_per_s.tolist() == pytest.approx([10, 50, 100, 40])
    assert shape.load_replicas.tolist() == pytest.approx(
        (shape.rate_per_s / chosen.sustainable_per_s).tolist()
    )
    assert curve(decided("spare_replicas: 0").plan, chosen.machine, chosen.sustainable_per_s) is None


def test_a_schedule_is_simulated_and_cheaper() -> None:
    rows = fleet_rows(
        decided("autoscaling: {start_up: 5 s}, commitments: {reserved: {discount: 0.4}}", BY_HOURS, "400 s")
    )
    serving = [row["serving_replicas"] for row in rows["schedule"]]
    assert serving[2] == max(serving) == rows["schedule"][0]["static_replicas"]
    assert serving[0] < serving[2]
    costs = {row["option"]: row for row in rows["costs"]}
    assert costs["rented, autoscaled"]["holds"]
    assert costs["rented, autoscaled"]["cost_usd_per_hour"] < costs["rented"]["cost_usd_per_hour"]
    assert costs["rented, by commitments"]["cost_usd_per_hour"] == pytest.approx(
        0.6 * costs["rented"]["cost_usd_per_hour"]
    )
    least = min(costs.values(), key=lambda row: row["cost_usd_per_hour"])
    assert least["option"] == "rented, autoscaled, by commitments"


def test_the_busiest_window() -> None:
    times = np.array([0.0, 1.0, 4.0, 5.0, 5.5, 9.0, 9.1, 9.2, 9.3])
    assert busiest_s(times, 2.0, 0.0, 10.0) == 4.0  # the window from 9 does not fit
    assert busiest_s(times, 2.0, 0.0, 12.0) == 9.0
    assert busiest_s(times, 50.0, 2.0, 12.0) == 2.0


def test_who_is_lost() -> None:
    decision = decided("outages: {replicas: 2, recovery: 20 s, zones: 3, rolling_restart: 5 s}")
    fails, zone, rolling = events(decision.plan.scenario.policy)
    assert [event.lost(7) for event in (fails, zone, rolling)] == [2, 3, 1]
    assert [event.lost(1) for event in (fails, zone, rolling)] == [1, 1, 1]
    assert zone.away(4) == ((0, 0.0, 20.0), (3, 0.0, 20.0))
    assert rolling.away(2) == ((0, 0.0, 5.0), (1, 5.0, 10.0))


def test_a_fault_at_the_peak() -> None:
    decision = decided("max_utilisation: 0.95, outages: {replicas: 1, recovery: 30 s}")
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    count = chosen.fleet.replicas
    (found,) = resilience(decision)
    # 100 requests/s on 40 a replica: three serve, and with one of them away two are 1.25 times overloaded.
    assert count == 3
    assert not found.faced.passes
    assert found.faced.lost_requests > 0
    assert found.needed_replicas is not None
    assert found.needed_replicas > count
    (event,) = events(decision.plan.scenario.policy)
    assert face(decision.plan, chosen.machine, event, found.needed_replicas).passes
    assert not face(decision.plan, chosen.machine, event, found.needed_replicas - 1).passes
    (row,) = fleet_rows(decision)["resilience"]
    assert row["during_share"] < row["run_share"] < 1


def test_growth_month_by_month() -> None:
    decision = decided("growth: {per_month: 0.3, months: 4}, stock: {h100-sxm: 6}, spare_replicas: 1")
    found = list(months(decision))
    assert [month.rate_per_s for month in found] == pytest.approx([100 * 1.3**m for m in range(5)])
    counts = [month.fleet.replicas for month in found if month.fleet]
    assert counts == sorted(counts)
    # 285.6 requests/s at 40 a replica and 80% are nine replicas, and six GPUs are to be had.
    assert found[-1].fleet is None
    assert found[-1].reason is not None
    assert "short by" in found[-1].reason
    # A replica more is needed when the rate passes a cap of 80% of the replicas before it (nothing else binds here), to a sixteenth month.
    sustainable = decision.chosen.sustainable_per_s if decision.chosen else None
    assert sustainable is not None
    grown = [month for month in found if month.needed_from is not None]
    assert grown
    for month in grown:
        before = found[month.month - 1].fleet
        assert before is not None
        reached = math.log(0.8 * sustainable * before.replicas / 100, 1.3)
        assert reached <= (month.needed_from or 0) <= reached + 1 / 16


def test_what_is_not_asked_for_yields_no_rows() -> None:
    assert fleet_rows(decided("spare_replicas: 1")) == {
        "resilience": [],
        "schedule": [],
        "growth": [],
        "costs": [],
    }


def test_autoscaling_needs_a_profile() -> None:
    with pytest.raises(InputError, match=r"policy\.autoscaling: follows a profile"):
        fleet_rows(decided("autoscaling: {start_up: 5 s}"))


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("outages: {replicas: 1}", "policy.outages: has no recovery"),
        ("stock: {h100-sxmm: 8}", "policy.stock.h100-sxmm: unknown GPU"),
        ("instances: [{gpu: h100-sxm, gpus: 8}, {gpu: H100 SXM, gpus: 4}]", "is the same GPU as"),
        ("commitments: {reserved: {discount: 0.4}}", "without autoscaling"),
        (
            "autoscaling: {start_up: 1 s}, commitments: {spot: {prices: nope}, spot_share: 0.5}",
            "unknown price list",
        ),
        ("ownership: {gpu: 1 USD, amortisation: 1 year}", "without a price of electricity"),
        ("api: {input: 1 USD/Mtoken, output: 1 USD/Mtoken, cached_share: 0.5}", "has no cached_input"),
    ],
)
def test_what_does_not_fit_together(policy: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(SPEC.format(arrivals=POISSON, policy=policy, horizon="200 s"))
    assert says in "\n".join(caught.value.lines)


def test_the_shipped_example(project: Path, tmp_path: Path) -> None:
    path = project / "data/scenarios/examples/fleet-over-time.yaml"
    assert load(path).policy.growth is not None
    text = path.read_text(encoding="utf-8").replace("months: 9", "months: 2")
    scenario = loads(text, str(path))
    decision = decide(plan(scenario))
    rows: dict[str, list[dict[str, Any]]] = fleet_rows(decision)
    for name, found in rows.items():
        assert found, name
        write_part(tmp_path, scenario.scenario, name, found, {})
    assert set(rows) <= set(tables.TABLES)
    costs = {row["option"]: row for row in rows["costs"]}
    assert list(costs) == [
        "rented",
        "rented, autoscaled",
        "rented, by commitments",
        "rented, autoscaled, by commitments",
        "owned",
        "api",
        "api, fast",
        "api, flex",
        "rented, overflow to api",
    ]
    assert costs["api"]["power_w"] is None
    assert [costs[name]["holds"] for name in ("api", "api, fast", "api, flex")] == [True, True, False]
    assert costs["rented"]["cost_low_usd_per_hour"] < costs["rented"]["cost_usd_per_hour"]
    assert sum(row["probability_cheapest"] for row in rows["costs"]) == pytest.approx(1)
    assert costs["rented, autoscaled, by commitments"]["interrupted_gpus"] > 0
    rented = costs["rented"]
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    assert chosen.fleet.gpus % 8 == 0
    # 700 W of TDP, 200 W of host, PUE 1.3; busy GPUs = 2.04 req/s / 0.98 req/s · 8.
    busy = 8 * decision.plan.traffic.rate_per_s / (chosen.sustainable_per_s or 1)
    watts = 1.3 * (rented["gpus"] * (0.43 * 700 + 200) + busy * 0.43 * 700)
    assert rented["power_w"] == pytest.approx(watts)
    assert rented["carbon_g_per_million_tokens"] == pytest.approx(
        0.38 * rented["energy_wh_per_million_tokens"]
    )
    zone = next(row for row in rows["resilience"] if row["event"] == "1 of 3 zones is lost")
    assert zone["lost_replicas"] == -(-zone["replicas"] // 3)
