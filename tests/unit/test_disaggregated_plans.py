"""Candidates with prefill in a pool of its own: the grid, what keeps one from running, the decision against brute force, the lever."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.sizing import bounds, buying
from fleetplan.sizing.apart import build
from fleetplan.sizing.binding import binding_limit, resource_bound
from fleetplan.sizing.candidates import expand
from fleetplan.sizing.capacity import capacity
from fleetplan.sizing.choice import choices, factors
from fleetplan.sizing.decide import Plan, decide, hopeless, plan, verdict_at
from fleetplan.sizing.levers import levers
from fleetplan.sizing.saturation import sustainable_rate_per_s
from fleetplan.sizing.stages.candidates import rows
from fleetplan.spec import loads

APART = {"ratio": ["1:2", "1:1", "2:1"], "link": "50 GB/s", "link_latency": "1 ms"}


def spec(*disaggregated: Any, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "rate": "30 req/s",
        "gpu": ["h100-sxm"],
        "policy": {},
        "tpot": "14 ms",
    } | changes
    return {
        "scenario": "apart",
        "model": "llama-3.1-8b",
        "workload": {
            "classes": [
                {
                    "name": "chat",
                    "arrivals": {"process": "poisson", "rate": settings["rate"]},
                    "prompt_tokens": {"uniform": {"min": 50, "max": 2500}},
                    "output_tokens": {"geometric": {"mean": 60, "max": 300}},
                    "slo": {"ttft": {"p95": "300 ms"}, "tpot": {"p95": settings["tpot"]}},
                }
            ]
        },
        "candidates": {"gpu": settings["gpu"], "disaggregated": ["none", *disaggregated]},
        "step_time": {"roofline": {"efficiency": 0.5, "overhead": "2 ms"}},
        "policy": {"prices": "on-demand-2026-08", "max_replicas": 12, **settings["policy"]},
        "simulation": {"horizon": "40 s", "replications": 1},
        "seed": 3,
    }


def planned(*disaggregated: Any, **changes: Any) -> Plan:
    return plan(loads(json.dumps(spec(*disaggregated, **changes))))


def test_each_ratio_is_a_candidate_with_an_id_of_its_own() -> None:
    subject = planned(APART)
    candidates = [built.candidate for built in subject.machines.values()]
    assert [c.gpus_per_replica for c in candidates] == [1, 3, 2, 3]
    assert [c.split and c.split.ratio for c in candidates] == [None, "1:2", "1:1", "2:1"]
    colocated = loads(json.dumps(spec()))
    assert expand(colocated)[0].candidate_id == candidates[0].candidate_id
    slower = planned({**APART, "link": "25 GB/s"})
    assert set(slower.machines) & set(subject.machines) == {candidates[0].candidate_id}
    table = rows(subject)["candidates"]
    assert [row["layout"] for row in table] == ["colocated"] + ["disaggregated"] * 3
    assert [(row["prefill_ratio"], row["decode_ratio"]) for row in table] == [
        (None, None),
        (1, 2),
        (1, 1),
        (2, 1),
    ]
    assert len({row["label"] for row in table}) == 4


def test_without_ratios_both_counts_are_searched() -> None:
    (left_out, asked) = (
        next(c for c in expand(loads(json.dumps(spec(choice)))) if c.split)
        for choice in ({"link": "50 GB/s"}, {"link": "50 GB/s", "ratio": "search"})
    )
    assert left_out.searched
    assert left_out == asked
    assert left_out.candidate_id == left_out.paired(3, 2).candidate_id


def test_what_a_pool_does_not_say_is_as_the_candidate_has_it() -> None:
    mixed = {
        **APART,
        "ratio": ["2:4"],
        "prefill": {"gpu": "H200", "tensor_parallel": 2, "max_num_batched_tokens": 4096},
        "decode": {"policy": "continuous", "max_num_seqs": 64},
    }
    built = list(planned(mixed).machines.values())[1]
    split = built.candidate.split
    assert split is not None
    assert split.ratio == "1:2"
    assert (split.prefill.gpu, split.prefill.tensor_parallel, split.prefill.max_num_batched_tokens) == (
        "h200-sxm",
        2,
        4096,
    )
    assert (built.candidate.gpu, built.candidate.tensor_parallel, built.candidate.scheduler) == (
        "h100-sxm",
        1,
        "continuous",
    )
    assert built.candidate.mixed
    assert built.candidate.gpus_per_replica == 2 + 2
    assert built.link is not None
    assert built.link.kv_bytes_per_token == 131072  # 2 · 32 layers · 8 heads · 128 · 2 bytes


@pytest.mark.parametrize(
    ("choice", "changes", "status", "told"),
    [
        ({"link": "1 GB/s"}, {}, "infeasible", "would keep the link of 1 GB/s"),
        ({"prefill": {"gpu": "tpu-v5e"}}, {}, "cannot run", "prefill pool: does not fit"),
        ({"decode": {"gpu": "tpu-v5e"}}, {}, "cannot run", "decode pool: does not fit"),
        ({"prefill": {"gpu": "l4"}}, {}, "cannot run", "the price list on-demand-2026-08 has no l4"),
        (
            {},
            {"policy": {"outages": {"replicas": 1, "recovery": "5 min"}}},
            "cannot run",
            "policy.outages is not simulated",
        ),
        (
            {"decode": {"gpu": "h200-sxm"}},
            {"policy": {"stock": {"h200-sxm": 0}}},
            "infeasible",
            "the stock of h200-sxm is 0: short by",
        ),
        ({"link_latency": "2 s", "first_token": "landing"}, {}, "infeasible", "TTFT p95 of chat"),
    ],
)
def test_what_keeps_a_candidate_is_told(
    choice: dict[str, Any], changes: dict[str, Any], status: str, told: str
) -> None:
    decision = decide(planned({**APART, "ratio": ["1:1"], **choice}, **changes))
    (option,) = [o for o in decision.options if o.machine.candidate.split is not None]
    assert option.status == status
    assert told in option.reason


@pytest.mark.parametrize(
    ("choice", "told"),
    [
        ({**APART, "ratio": "1:2"}, "must be search or a list of ratios (got '1:2'), like ['1:2']"),
        ({**APART, "ratio": ["1"]}, "must be prefill to decode replicas (got '1')"),
        ({**APART, "ratio": ["1:1", "2:2"]}, "names the ratio 1:1 twice"),
        ({"ratio": ["1:1"]}, "link"),
        ("yes", "must be none or a mapping (got 'yes')"),
        ({**APART, "prefill": {"gpu": "h1000"}}, "h1000"),
        (
            {**APART, "decode": {"policy": "continuous", "max_num_batched_tokens": 9}},
            "has no token budget",
        ),
    ],
)
def test_a_spec_that_cannot_be(choice: Any, told: str) -> None:
    with pytest.raises(InputError) as error:
        loads(json.dumps(spec(choice)))
    assert told in str(error.value)


@pytest.mark.parametrize(
    "changes",
    [{}, {"rate": "60 req/s", "tpot": "30 ms"}, {"gpu": ["h100-sxm", "h200-sxm"], "tpot": "11 ms"}],
    ids=["tight", "loose", "two kinds"],
)
def test_the_decision_is_that_of_brute_force(changes: dict[str, Any]) -> None:
    """Every count of every candidate is simulated: the cheapest that passes is what the search finds, and one ratio fewer fails."""
    mixed = {**APART, "prefill": {"gpu": "h100-sxm"}, "decode": {"gpu": "h200-sxm", "policy": "continuous"}}
    subject = planned(APART, mixed, **changes)
    decision = decide(subject)
    cheapest = np.inf
    for built in subject.machines.values():
        rate = sustainable_rate_per_s(built, subject.traffic)
        why = hopeless(built, subject)
        for count in range(1, 13):
            if verdict_at(built, subject, rate, count).passes:
                assert why is None
                usd = buying.prices_of(subject.scenario.policy, built.candidate, decision.prices)
                fleet = buying.fleet_of(subject.scenario.policy, built.candidate, count, usd)  # type: ignore[arg-type]
                cheapest = min(cheapest, fleet.usd_per_hour)
                break
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    assert chosen.found is not None
    assert chosen.fleet.usd_per_hour == pytest.approx(cheapest)
    for option in decision.options:
        count = option.found.replicas if option.found else None
        if count is not None and option.found is not None:
            assert option.found.verdicts[count].passes
            assert count == 1 or not option.found.verdicts[count - 1].passes
            assert option.fleet is not None
            each = option.machine.candidate.gpus_per_replica
            assert each is not None
            assert option.fleet.gpus == count * each


def test_bounds_of_two_pools_are_below_every_simulation() -> None:
    subject = planned({**APART, "bypass_tokens": 400, "first_token": "landing"}, {**APART, "link": "8 GB/s"})
    mix = subject.traffic.requests()
    for built in subject.machines.values():
        alone = built.lone(mix)
        for engines in (1, 3):
            run = built.run(mix, engines)
            assert (run.ttft_s >= alone.ttft_s * (1 - 1e-9)).all()
            assert (run.e2e_s >= alone.e2e_s * (1 - 1e-9)).all()
            several = mix.output_tokens > 1
            assert (run.tpot_s[several] >= alone.tpot_s[several] * (1 - 1e-9)).all()
        work = built.least_work_s(mix)
        busy = np.sum(built.run(mix, 1).busy_s) / sum(built.candidate.pools(1)) / len(mix)
        assert work > 0
        assert sustainable_rate_per_s(built, subject.traffic) <= 1 / work * (1 + 1e-9)
        if built.prefill is None:
            assert busy >= work


def test_the_work_of_both_pools_is_that_of_one() -> None:
    """What prefill does and what decode does of a request add up, where a token costs the same in any step."""
    subject = planned(APART)
    built = next(iter(subject.machines.values()))
    assert built.step is not None
    flat = dataclasses.replace(
        built.step,
        memory_s=np.zeros(2),
        memory_slope_s=0.0,
        overhead_s=np.zeros(2),
        overhead_slope_s=0.0,
        kv_token_s=0.0,
    )
    mix = subject.traffic.requests()
    nowhere = np.zeros(len(mix), dtype=bool)
    whole = bounds.least_work_s(mix, flat, 4096)
    decode = bounds.least_work_s(mix, flat, 4096, 1, nowhere)
    prefill = bounds.least_work_s(
        dataclasses.replace(mix, output_tokens=np.ones(len(mix), dtype=np.int64)), flat, 4096
    )
    assert prefill + decode == pytest.approx(whole, rel=1e-6)


def test_the_lever_plans_prefill_apart_and_back() -> None:
    (lever,) = [each for each in levers(decide(planned(tpot="30 ms"))) if each.kind == "disaggregation"]
    assert lever.change == "prefill apart over 50 GB/s"
    assert lever.decision is not None
    assert lever.decision.chosen is not None
    assert lever.decision.chosen.machine.candidate.searched
    alone = {"candidates": {"gpu": ["h100-sxm"], "disaggregated": [APART]}}
    apart = plan(loads(json.dumps(spec(APART, policy={"max_replicas": 40}) | alone)))
    found = [each for each in levers(decide(apart)) if each.kind == "disaggregation"]
    assert [each.change for each in found] == [
        "prefill and decode together",
        f"the count of each pool on its own instead of {decide(apart).chosen.machine.candidate.split.ratio}",  # type: ignore[union-attr]
    ]
    finer = found[1].decision
    assert finer is not None
    assert finer.chosen is not None
    assert finer.chosen.fleet.usd_per_hour <= decide(apart).chosen.fleet.usd_per_hour  # type: ignore[union-attr]


def test_what_pools_do_not_simulate_keeps_the_candidate() -> None:
    subject = planned(APART)
    split = list(subject.machines.values())[1].candidate
    assert subject.model is not None
    mix = dataclasses.replace(subject.traffic.requests(), answers=np.full(len(subject.traffic.requests()), 2))
    built = build(split, subject.scenario, subject.model, mix)  # type: ignore[arg-type]
    assert built.reason == "several answers of one prompt are not simulated in two pools"


def test_prices_of_two_kinds_are_drawn_each() -> None:
    """The cost of the draws of a fleet on two kinds is the sum of each kind's GPUs at its own draws."""
    mixed = {**APART, "ratio": ["3:1"], "decode": {"gpu": "h200-sxm"}}
    unsure = {"uncertainty": {"price_range": "observed", "draws": 0}}
    decision = decide(planned(APART, mixed, rate="20 req/s", policy=unsure))
    made = {each.candidate_id: each for each in choices(decision, None)}
    (option,) = [o for o in decision.options if o.machine.candidate.mixed]
    assert option.fleet is not None
    assert len(option.fleet.lots) == 2
    costs = sum(lot.usd_per_hour * factors(decision, lot.gpu, 3) for lot in option.fleet.lots)
    low = made[option.machine.candidate.candidate_id].low_usd_per_hour
    assert low == pytest.approx(np.quantile(costs, 0.05, method="inverted_cdf"))


def test_a_given_fleet_holds_two_pools_of_its_kind() -> None:
    mixed = {**APART, "ratio": ["3:1"], "decode": {"gpu": "h200-sxm"}}
    found = capacity(planned({**APART, "ratio": ["2:1"]}, mixed, tpot="30 ms"), {"h100-sxm": 6})
    by_label = {held.machine.candidate.label: held for held in found.held}
    apart = next(h for h in by_label.values() if h.machine.candidate.split is not None)
    assert (apart.replicas, apart.machine.candidate.gpus_per_replica) == (2, 3)
    assert apart.rate_per_s is not None
    assert apart.rate_per_s > 0
    assert not any(held.machine.candidate.mixed for held in found.held if held.rate_per_s)


def test_a_given_fleet_of_two_kinds_holds_pools_on_both() -> None:
    mixed = {"link": "50 GB/s", "decode": {"gpu": "h200-sxm"}}
    found = capacity(planned(mixed, tpot="30 ms"), {"h100-sxm": 4, "h200-sxm": 2})
    (apart,) = [h for h in found.held if h.machine.candidate.mixed]
    assert apart.gpus == 6
    assert apart.machine.candidate.pools(apart.replicas) == (4, 2)
    assert apart.rate_per_s is not None
    together = next(h for h in found.held if h.machine.candidate.split is None)
    assert together.gpus == 4


def test_what_binds_two_pools_names_the_pool() -> None:
    subject = planned({**APART, "ratio": ["1:4", "32:1"]})
    found = [resource_bound(built) for built in subject.machines.values()]
    assert found == ["bandwidth", "prefill pool", "decode pool: bandwidth"]
    decision = decide(planned({**APART, "ratio": ["1:4"]}, rate="20 req/s", tpot="30 ms"), prune=False)
    (option,) = [o for o in decision.options if o.machine.candidate.split is not None]
    assert option.found is not None
    assert option.found.replicas is not None
    verdict = option.found.verdicts[option.found.replicas]
    saturated = dataclasses.replace(verdict, utilisation=1.2)
    limit, why = binding_limit(option.machine, (saturated,))
    assert limit == "prefill pool"
    assert "cannot sustain the traffic" in why
