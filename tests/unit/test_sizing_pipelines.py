"""Pipelines from the spec to the decision: what runs, what is refused, what no simulation beats, and who wins without a fast link."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fleetplan import catalog, spec
from fleetplan.physics.pipeline import decode_turn_s
from fleetplan.physics.steptime import affine, to_json
from fleetplan.sizing import buying, decide, levers, resilience
from fleetplan.sizing.binding import resource_bound
from fleetplan.sizing.bounds import least_work_s
from fleetplan.sizing.decide import Plan, sustainable_rate_per_s
from fleetplan.sizing.instant import instant
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.stages import queueing, roofline, sizing, speculation

GRID: dict[str, Any] = {
    "gpu": ["l40s"],
    "tensor_parallel": [2],
    "pipeline_parallel": [2],
    "weights": ["fp8"],
    "kv_cache": ["fp8"],
}


def planned(
    grid: dict[str, Any] | None = None,
    *,
    chat: dict[str, Any] | None = None,
    folder: str = ".",
    **changes: Any,
) -> Plan:
    one = {
        "name": "chat",
        "arrivals": {"process": "poisson", "rate": "2 req/s"},
        "prompt_tokens": 1500,
        "output_tokens": 12,
        "slo": {"ttft": {"p95": "4 s"}, "tpot": {"p95": "1500 ms"}},
    }
    document = {
        "scenario": "pipes",
        "model": "llama-3.3-70b",
        "workload": {"classes": [one | (chat or {})]},
        "candidates": GRID | (grid or {}),
        "policy": {"prices": "on-demand-2026-08", "spare_replicas": 0, "uncertainty": {"draws": 0}},
        "simulation": {"horizon": "60 s", "replications": 1},
        "seed": 4,
    }
    for key, value in changes.items():
        document[key] = {**document[key], **value} if isinstance(document.get(key), dict) else value  # type: ignore[dict-item]
    return decide.plan(spec.loads(json.dumps(document), "pipes.yaml", folder))


def only(subject: Plan) -> Machine:
    (built,) = subject.machines.values()
    return built


def test_a_pipeline_runs_with_its_longest_stage() -> None:
    built = only(planned())
    assert built.reason is None
    assert built.step is not None
    assert built.step.stages == 2
    assert built.candidate.gpus_per_replica == 4
    assert built.candidate.label.startswith("NVIDIA L40S 48GB, TP 2 PP 2,")
    assert built.roof is not None
    assert built.roof.stages == 2
    flat = only(planned({"pipeline_parallel": [1], "tensor_parallel": [4]}))
    assert flat.step is not None
    assert flat.step.stage is None


@pytest.mark.parametrize(
    ("grid", "changes", "said"),
    [
        ({"scheduler": [{"policy": "static"}]}, {}, "static is not simulated in a pipeline of 2 stages"),
        ({"engine": [{"name": "vllm", "prefix_caching": True}]}, {}, "prefix_cache is not simulated in a pipeline"),
        ({"speculation": [{"draft": "eagle3", "tokens": 2, "acceptance": [0.7]}]}, {}, "speculation is not simulated in a pipeline"),
        (
            {"scheduler": [{"preemption": {"swap": "64 GB", "link": "25 GB/s"}}]},
            {}, "preemption: swap is not simulated in a pipeline",
        ),
        (
            {"scheduler": [{"max_adapters": 4, "adapter_load": "30 ms"}]},
            {"chat": {"adapters": {"count": 9, "zipf": 1.1, "rank": 8}}}, "max_adapters is not simulated in a pipeline",
        ),
        ({}, {"chat": {"answers": 2}}, "requests: answers above 1 is not simulated in a pipeline"),
        ({}, {"step_time": {"affine": {"fixed": "5 ms", "prefill": "40 us/token", "decode": "0.5 ms/sequence"}}}, "step_time.affine: is of one stage"),
        ({"tensor_parallel": [8]}, {}, "a replica of 16 GPUs spans nodes of 8 l40s, whose network the catalogue does not know: .*candidates.network"),
        ({"pipeline_parallel": [81]}, {}, "pipeline_parallel: got 81, at most the 80 layers"),
    ],
)  # fmt: skip
def test_what_is_not_simulated_in_a_pipeline_is_kept_with_the_reason(
    grid: dict[str, Any], changes: dict[str, Any], said: str
) -> None:
    built = only(planned(grid, **changes))
    assert built.reason is not None
    assert re.search(said, built.reason), built.reason


def test_ranked_classes_and_clients_that_send_again_are_refused_too() -> None:
    chat = {"arrivals": {"process": "poisson", "rate": "1 req/s"}, "prompt_tokens": 500, "output_tokens": 10}
    two = [{"name": name, "priority": rank, **chat} for rank, name in enumerate(("first", "second"))]
    two[0]["slo"] = {"ttft": {"p95": "3 s"}}
    ranked = only(planned(workload={"classes": two}))
    assert ranked.reason is not None
    assert "priority: strict is not simulated in a pipeline" in ranked.reason
    alike = [dict(one, priority=0) for one in two]
    assert only(planned(workload={"classes": alike})).reason is None
    alike = [dict(one, timeout="9 s") for one in alike]
    again = only(planned(workload={"classes": alike, "clients": {"retries": 2, "backoff": "1 s"}}))
    assert again.reason is not None
    assert "retries is not simulated in a pipeline" in again.reason


def test_a_decided_pipeline_is_simulated_through_its_faults() -> None:
    """A pipeline that fails takes its two stages with it; what it had is served by the others, who need a spare for it."""
    subject = planned(
        {"weights": ["bf16"], "scheduler": [{"max_num_batched_tokens": 2048}]},
        chat={"arrivals": {"process": "poisson", "rate": "4 req/s"}, "output_tokens": 4},
        policy={"outages": {"replicas": 1, "recovery": "20 s"}},
        simulation={"horizon": "60 s", "replications": 1},
    )
    candidate = only(subject).candidate
    assert buying.refused(subject.scenario.policy, candidate) is None
    found = decide.decide(subject)
    assert found.chosen is not None
    assert found.chosen.fleet is not None
    (faced,) = resilience.resilience(found)
    assert faced.needed_replicas is not None
    assert faced.needed_replicas >= found.chosen.fleet.replicas
    assert faced.needed_replicas <= found.chosen.fleet.replicas + 2


def test_a_pool_of_pipelines_is_refused() -> None:
    apart = {"prefill": {"tensor_parallel": 4}, "ratio": ["1:1"], "link": "25 GB/s"}
    built = only(planned({"disaggregated": [apart]}))
    assert built.reason is not None
    assert "a pipeline is not simulated in two pools" in built.reason


def test_the_network_between_nodes_is_the_one_that_is_stated() -> None:
    wide = {"gpu": ["l40s"], "tensor_parallel": [4], "pipeline_parallel": [4]}
    slow, fast = (only(planned(wide | {"network": speed})) for speed in ("1 GB/s", "100 GB/s"))
    assert slow.step is not None
    assert fast.step is not None
    sent = 2 * catalog.model("llama-3.3-70b").architecture.d * 1000
    found = (slow.step.overhead_s - fast.step.overhead_s)[1000]
    assert found == pytest.approx(sent / 1e9 - sent / 100e9, rel=0.3)  # times the constant of collectives
    cut = {
        "policy": {"instances": [{"gpu": "l40s", "gpus": 4}]}
    }  # two stages of four are on two instances there
    across = only(planned({"tensor_parallel": [4], "network": "1 GB/s"}, **cut))
    inside = only(planned({"tensor_parallel": [4], "network": "1 GB/s"}))
    assert across.step is not None
    assert inside.step is not None
    assert across.step.overhead_s[1000] > inside.step.overhead_s[1000]


def test_a_step_time_file_must_be_of_as_many_stages(tmp_path: Any) -> None:
    whole, stage = affine(0.020, 2e-4, 1e-3), affine(0.011, 1e-4, 5e-4)
    to_json(replace(whole, stages=2, stage=stage), tmp_path / "two.json")
    to_json(whole, tmp_path / "one.json")

    def built(file: str, stages: int) -> Machine:
        return only(planned({"pipeline_parallel": [stages]}, step_time={"table": file}, folder=str(tmp_path)))

    two = built("two.json", 2)
    assert two.step is not None
    assert two.step.stages == 2
    for file, stages, said in (
        ("one.json", 2, "its step time is of 1 stage (got pipeline_parallel 2), state stages: 2"),
        ("two.json", 4, "its step time is of 2 stages (got pipeline_parallel 4)"),
    ):
        reason = built(file, stages).reason
        assert reason is not None
        assert said in reason
    flat = only(
        planned({"pipeline_parallel": [1], "tensor_parallel": [4]}, step_time={"table": "two.json"}, folder=str(tmp_path))
    )  # fmt: skip
    assert flat.reason is not None
    assert "plan it with the pipeline_parallel that it is of" in flat.reason


def test_the_least_work_is_the_longest_stage_or_a_share_of_the_latency() -> None:
    built, mix = only(planned()), planned().traffic.requests()
    assert built.step is not None
    assert built.step.stage is not None
    most = built.most_tokens(mix)
    stage, whole = (least_work_s(mix, step, most) for step in (built.step.stage, built.step))
    assert built.least_work_s(mix) == max(stage, whole / 2)
    assert stage < whole < 2.02 * stage
    slow = replace(built.step, overhead_s=built.step.overhead_s + 9.0)  # sends that take longer than stages
    sent = replace(built, step=slow)
    assert sent.least_work_s(mix) == pytest.approx(least_work_s(mix, slow, most) / 2)


@pytest.mark.parametrize("seqs", [1, 3, 8, 64])
def test_no_burst_is_served_faster_than_the_least_work(seqs: int) -> None:
    subject = planned(
        {"scheduler": [{"max_num_seqs": seqs, "max_num_batched_tokens": 2048}], "pipeline_parallel": [2, 4]},
        step_time={"roofline": {"efficiency": 0.6, "overhead": "1 ms", "attention_flops": True}},
        chat={"prompt_tokens": {"uniform": {"min": 50, "max": 900}}},
    )
    for built in subject.machines.values():
        least = built.least_work_s(subject.traffic.requests())
        burst = subject.traffic.burst(20 + 8 * seqs)
        run = built.run(burst, 1)
        done = np.sort(run.finish_s)
        assert built.least_work_s(burst) * len(done) <= done[-1] * (1 + 1e-9)
        assert sustainable_rate_per_s(built, subject.traffic) <= 1 / least * (1 + 1e-9)


def test_the_rows_of_a_pipeline_are_of_micro_batches() -> None:
    subject = planned({"scheduler": [{"max_num_seqs": 33}]})
    rows = roofline.rows(subject)
    built = only(subject)
    assert built.step is not None
    steps = {row["batch"]: row for row in rows["rooflines"]}
    assert max(steps) == 32  # two lanes of 16 are all that 33 give
    assert [steps[b]["step_sequences"] for b in (1, 2, 24, 32)] == [1, 1, 12, 16]
    for batch, row in steps.items():
        turn = float(decode_turn_s(built.step, batch, 1506.0))
        assert row["throughput_tokens_per_s"] == pytest.approx(batch / turn)
        assert row["beat_s"] < row["step_s"] <= turn * (1 + 1e-12)
    flat = roofline.rows(planned({"pipeline_parallel": [1], "tensor_parallel": [4]}))
    assert all(r["beat_s"] == r["step_s"] and r["step_sequences"] == r["batch"] for r in flat["rooflines"])
    (bound,) = rows["bounds"]
    assert bound["throughput_tokens_per_s"] == max(r["throughput_tokens_per_s"] for r in rows["rooflines"])


def test_the_instant_answer_counts_stages_and_waits_for_latencies() -> None:
    built = only(planned())
    assert built.step is not None
    assert built.step.stage is not None
    shape = {
        "kv_tokens": 1e6,
        "prompt_tokens": 1500,
        "output_tokens": 12,
        "rate_per_s": 2.0,
        "tpot_limit_s": 0.2,
    }
    got = instant(built.step, **shape)  # type: ignore[arg-type]
    held = (1500, 1, 0, 1500.0, 1500 * 1501 / 2, 0.0, 0.0)
    assert got.prefill_s == pytest.approx(float(built.step.stage.step_s(*held)))
    assert got.residence_s == pytest.approx(float(built.step.step_s(*held)) + 11 * got.tpot_s)
    assert got.tpot_s <= 0.2
    assert got.tokens_per_s == pytest.approx(got.batch / got.tpot_s)


def test_closed_forms_and_drafts_leave_pipelines_out() -> None:
    subject = planned({"pipeline_parallel": [1, 2], "tensor_parallel": [4]})
    flat = next(name for name, m in subject.machines.items() if m.candidate.pipeline_parallel == 1)
    pipe = next(name for name, m in subject.machines.items() if m.candidate.pipeline_parallel == 2)
    made = queueing.rows(subject, pipe, 2)
    assert {row["candidate_id"] for row in made["queueing"]} == {flat}
    assert {row["candidate_id"] for row in made["room"]} == {flat}
    assert {row["candidate_id"] for row in speculation.rows(subject.scenario)["speculation"]} == {flat}  # type: ignore[arg-type]


def test_without_a_fast_link_half_the_width_in_two_stages_is_cheaper() -> None:
    """Llama-3.3-70B on PCIe: TP 4 pays its all-reduces over the shared root; TP 2 × PP 2 on the same four GPUs less, and two GPUs hold no bf16."""
    subject = planned(
        {"tensor_parallel": [2, 4], "pipeline_parallel": [1, 2], "weights": ["bf16"]}, chat={"arrivals": {"process": "poisson", "rate": "4 req/s"}}
    )  # fmt: skip
    found = decide.decide(subject)
    assert found.chosen is not None
    assert found.chosen.fleet is not None
    candidate = found.chosen.machine.candidate
    assert (candidate.tensor_parallel, candidate.pipeline_parallel) == (2, 2)
    brute = decide.decide(subject, prune=False)
    assert brute.chosen is not None
    assert brute.chosen.machine.candidate == candidate
    fleets = {
        (o.machine.candidate.tensor_parallel, o.machine.candidate.pipeline_parallel): o.fleet.usd_per_hour
        for o in brute.options
        if o.fleet is not None
    }
    assert found.chosen.fleet.usd_per_hour == min(fleets.values())
    assert fleets[4, 1] > fleets[2, 2]
    assert resource_bound(found.chosen.machine) in ("compute", "bandwidth", "KV memory")
    offered = {
        change for kind, change, _ in levers._run_otherwise(candidate, found) if kind == "pipeline parallel"
    }
    assert offered == {"TP 1 × PP 4", "TP 4 × PP 1"}


def test_who_has_no_pipelines_and_a_fast_link_is_offered_none() -> None:
    subject = planned({"gpu": ["h100-sxm"], "pipeline_parallel": [1], "tensor_parallel": [4]})
    found = decide.decide(subject)
    assert found.chosen is not None
    kinds = {kind for kind, _, _ in levers._run_otherwise(found.chosen.machine.candidate, found)}
    assert "pipeline parallel" not in kinds


def test_the_rows_of_a_decided_pipeline_have_its_certificate_and_its_levers() -> None:
    subject = planned(
        {"weights": ["bf16"], "scheduler": [{"max_num_batched_tokens": 2048}]},
        chat={"arrivals": {"process": "poisson", "rate": "4 req/s"}, "output_tokens": 4},
        policy={"max_utilisation": 0.9, "prices": "on-demand-2026-08"},
        simulation={"horizon": "30 s", "replications": 1},
    )
    built = only(subject)
    rate = sustainable_rate_per_s(built, subject.traffic)
    made = sizing.rows(subject, lambda _: rate)
    (decision,) = made["decisions"]
    assert decision["verdict"] == "feasible"
    assert decision["gpus_per_replica"] == 4
    assert {row["replicas"] for row in made["evidence"]} >= {decision["replicas"] - 1, decision["replicas"]}
    assert not any(row["holds"] for row in made["evidence"] if row["replicas"] < decision["replicas"])
    other = {row["change"]: row for row in made["levers"] if row["lever"] == "pipeline parallel"}
    assert set(other) == {"TP 1 × PP 4", "TP 4 × PP 1"}
    assert other["TP 4 × PP 1"]["cost_usd_per_hour"] > decision["cost_usd_per_hour"]
    apart = [row["note"] for row in made["levers"] if row["lever"] == "disaggregation"]
    assert any("a pipeline is not simulated in two pools" in note for note in apart)
    assert made["timeseries"]
