"""Candidates that draft: simulated like the others, their draft charged in memory and time, never with an acceptance that nobody gave."""

import dataclasses

import numpy as np
import pytest

from fleetplan import catalog, spec
from fleetplan.sizing import decide, drafting, levers, uncertainty
from fleetplan.sizing.decide import Decision, Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.stages import candidates as candidate_rows
from fleetplan.speculation.measured import measured, measured_table
from fleetplan.traffic.requests import Requests

SPEC = """
scenario: drafted
model: llama-3.1-70b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: %(rate)s req/s}
      prompt_tokens: 512
      output_tokens: {geometric: {mean: 200, max: 1000}}
      slo: {ttft: {p95: 2 s}, tpot: {p95: %(tpot)s}}
candidates:
  gpu: [h100-sxm]
  tensor_parallel: [4]
  weights: [fp8]
  scheduler: [{policy: chunked, max_num_seqs: 256}]
  speculation: [%(speculation)s]
step_time: %(step)s
policy: {prices: on-demand-2026-08, spare_replicas: 0, uncertainty: {draws: %(draws)d, acceptance_cv: %(cv)s}}
simulation: {horizon: 100 s, replications: 1}
seed: 5
"""
EAGLE = "{draft: eagle3, tokens: 3, acceptance: [0.75, 0.70, 0.66]}"
LLAMA = "{draft: llama-3.2-1b, tokens: 3, acceptance: [0.75, 0.70, 0.66]}"
ROOFLINE = "{roofline: {efficiency: 0.6}}"


def planned(
    speculation: str,
    rate: str = "2",
    tpot: str = "40 ms",
    step: str = ROOFLINE,
    draws: int = 0,
    cv: float = 0.0,
) -> Plan:
    text = SPEC % {
        "speculation": speculation,
        "rate": rate,
        "tpot": tpot,
        "step": step,
        "draws": draws,
        "cv": cv,
    }
    return decide.plan(spec.loads(text, "drafted.yaml"))


def only(subject: Plan) -> Machine:
    (built,) = subject.machines.values()
    return built


def needed(decision: Decision) -> dict[str, int | None]:
    return {
        "none" if o.machine.candidate.drafts is None else o.machine.candidate.drafts.draft: o.found.replicas
        if o.found
        else None
        for o in decision.options
    }


def test_speculation_wins_at_a_small_batch_and_loses_at_a_large_one() -> None:
    tight = decide.decide(planned(f"none, {EAGLE}", tpot="7 ms"), prune=False)
    assert needed(tight) == {"none": None, "eagle3": 1}
    assert tight.chosen is not None
    assert tight.chosen.machine.candidate.speculation != "none"
    full = decide.decide(planned(f"none, {EAGLE}", rate="33", tpot="100 ms"), prune=False)
    assert needed(full) == {"none": 1, "eagle3": 2}


def test_the_lever_plans_the_other_way_to_draft() -> None:
    subject = planned(f"none, {EAGLE}", tpot="7 ms")
    chosen = decide.decide(subject)
    found = {lever.change: lever for lever in levers.levers(chosen) if lever.kind == "speculation"}
    assert set(found) == {"no speculation"}
    assert found["no speculation"].decision is not None
    assert found["no speculation"].decision.chosen is None
    assert "no number of replicas mends it" in found["no speculation"].note


def test_a_draft_model_takes_its_weights_and_its_kv_off_the_pool() -> None:
    alone, drafted = (only(planned(choice)).memory for choice in ("none", LLAMA))
    assert alone is not None
    assert drafted is not None
    small = catalog.model("llama-3.2-1b").architecture
    assert drafted.draft_bytes == pytest.approx(
        small.parameters_total / 4 * 1.21, rel=0.05
    )  # fp8 but for the head
    # 16 layers of 8 KV heads of 64 in bf16, K and V, on four GPUs.
    assert drafted.kv_bytes_per_token - alone.kv_bytes_per_token == 16 * 2 * 2 * 64 * 2
    assert drafted.left_bytes == pytest.approx(alone.left_bytes - drafted.draft_bytes)
    assert drafted.planned_blocks < alone.planned_blocks


def test_a_head_takes_one_layer_and_its_projections() -> None:
    alone, drafted = (only(planned(choice)).memory for choice in ("none", EAGLE))
    assert alone is not None
    assert drafted is not None
    d, ffn, kv = 8192, 28672, 8 * 128
    layer = 2 * d * d + 2 * d * kv + 3 * d * ffn
    assert drafted.draft_bytes == pytest.approx(2 * layer / 4 + 2 * 4 * d * d, rel=1e-3)
    assert drafted.kv_bytes_per_token == pytest.approx(alone.kv_bytes_per_token * 81 / 80)


@pytest.mark.parametrize(
    ("choice", "taken"),
    [
        ("{draft: ngram, tokens: 4, acceptance: [0.5]}", 0.0),
        ("{draft: medusa, tokens: 4, acceptance: [0.5]}", 4 * 2.0 * 8192**2),
        ("{draft: eagle3, tokens: 3, acceptance: [0.5], draft_memory: 3 GB}", 3e9),
        ("{draft: draft_model, tokens: 3, acceptance: [0.5], draft_cost: 0.1, draft_memory: 1 GB}", 1e9),
    ],
)
def test_memory_of_other_ways_to_draft(choice: str, taken: float) -> None:
    built = only(planned(choice))
    assert built.reason is None
    assert built.memory is not None
    assert built.memory.draft_bytes == taken


@pytest.mark.parametrize(
    ("choice", "step", "told"),
    [
        ("{draft: draft_model, tokens: 3, acceptance: [0.5]}", ROOFLINE, "needs its cost"),
        ("{draft: draft_model, tokens: 3, acceptance: [0.5], draft_cost: 0.1}", ROOFLINE, "needs its memory"),
        (
            LLAMA,
            "{affine: {fixed: 5 ms, prefill: 20 us/token, decode: 500 us/sequence}}",
            "give the draft_cost",
        ),
    ],
)
def test_what_is_not_known_is_said(choice: str, step: str, told: str) -> None:
    built = only(planned(choice, step=step))
    assert told in str(built.reason)


def test_acceptance_is_the_spec_s_or_a_row_of_the_table() -> None:
    built = only(
        planned(
            "{draft: eagle3, tokens: 3, acceptance_from: mtp-glm-5.2-coding-thinking, draft_memory: 0 GB}"
        )
    )
    assert built.config is not None
    assert built.config.speculation is not None
    from fleetplan.speculation.measured import measured

    row = measured("mtp-glm-5.2-coding-thinking")
    np.testing.assert_allclose(built.config.speculation.survival, row.survival[:3])


def test_bounds_hold_for_drafts_that_are_always_accepted() -> None:
    subject = planned("{draft: ngram, tokens: 4, acceptance: [1.0]}")
    built = only(subject)
    mix = subject.traffic.requests()
    run = built.run(mix, 1)
    alone = built.lone(mix)
    assert (run.ttft_s >= alone.ttft_s * (1 - 1e-9)).all()
    several = mix.output_tokens > 1
    assert (run.tpot_s[several] >= alone.tpot_s[several] * (1 - 1e-9)).all()
    # A lone request has no less than half again its bound: five tokens a step are all there are.
    one = Requests.of([0.0], 512, 501)
    assert built.run(one, 1).tpot_s[0] < 1.1 * built.lone(one).tpot_s[0]
    assert built.least_work_s(mix) * len(mix) <= run.busy_s.sum()


def test_acceptance_is_part_of_what_is_uncertain() -> None:
    sure, unsure = (
        decide.decide(planned(EAGLE, rate="30", tpot="8.5 ms", draws=12, cv=cv)) for cv in (0.0, 0.5)
    )
    assert "acceptance of drafts (CV 0.5)" in uncertainty.sources(unsure)
    assert not any("acceptance" in words for words in uncertainty.sources(sure))
    known, spread = uncertainty.interval(sure), uncertainty.interval(unsure)
    assert known is not None
    assert spread is not None
    assert len(spread.needed) + spread.beyond > len(known.needed) + known.beyond


def test_the_table_of_candidates_says_what_a_step_gives() -> None:
    rows = candidate_rows.rows(planned(f"none, {EAGLE}"))["candidates"]
    assert [row["expected_step_tokens"] for row in rows] == [1.0, pytest.approx(2.6215)]
    assert rows[0]["draft_bytes"] == 0
    assert rows[1]["draft_bytes"] > 0


def test_a_step_that_does_not_pay_is_left_undrafted() -> None:
    always = only(planned("{draft: eagle3, tokens: 3, acceptance: [0.3]}"))
    adaptive = only(planned("{draft: eagle3, tokens: 3, acceptance: [0.3], off_above: 4}"))
    assert adaptive.config is not None
    assert (
        dataclasses.replace(adaptive.config.speculation, off_above=None).survival
        == always.config.speculation.survival
    )  # type: ignore
    burst = Requests.of(np.zeros(200), 100, 100)
    assert adaptive.run(burst, 1).makespan_s < always.run(burst, 1).makespan_s  # type: ignore[operator]


@pytest.mark.parametrize(
    ("model", "draft", "of_its_own"),
    [("gpt-oss-20b", "eagle3", True), ("llama-3.3-70b", "eagle3", False), ("deepseek-v3", "mtp", False)],
)
def test_what_is_assumed_of_drafts_is_the_least_that_was_measured(
    model: str, draft: str, of_its_own: bool
) -> None:
    given = drafting.assumed(catalog.model(model))
    assert (given.draft, given.tokens) == (draft, 3)
    assert given.acceptance_from is not None
    row = measured(given.acceptance_from)
    assert row.method == draft
    assert (row.model == model) is of_its_own
    others = [
        r
        for r in measured_table().values()
        if r.method == draft and len(r.survival) >= 3 and (r.model == model or not of_its_own)
    ]
    assert row.survival[:3].sum() == min(r.survival[:3].sum() for r in others)


def test_a_lever_speculates_where_the_scenario_does_not() -> None:
    found = [lever for lever in levers.levers(decide.decide(planned("none"))) if lever.kind == "speculation"]
    (lever,) = found
    assert "eagle3 × 3" in lever.change
    assert "assumed" in lever.change
    assert lever.verdict == "feasible"
    assert lever.decision is not None
    assert lever.decision.chosen is not None
    assert lever.decision.chosen.machine.candidate.drafts is not None
