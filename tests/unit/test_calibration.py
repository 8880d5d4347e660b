"""Closed loops, serving points, readers of other tools' results, engines and fits."""

import json
import math

import numpy as np
import pytest

from fleetplan import catalog
from fleetplan.calibration.accuracy import folds
from fleetplan.calibration.basis import basis, usable_points
from fleetplan.calibration.closedloop import Benchmark, compose
from fleetplan.calibration.fit import Fit, fit
from fleetplan.calibration.hierarchy import effects
from fleetplan.calibration.points import layout_of, read_points
from fleetplan.calibration.readers import RequestLog, read
from fleetplan.calibration.validate import own_points, predict, validate
from fleetplan.engines import engine, holds
from fleetplan.errors import InputError
from fleetplan.physics.calibrated import calibrate_step
from fleetplan.physics.terms import CLASSES


@pytest.mark.parametrize("policy", ["chunked", "whole", "prefill_first"])
@pytest.mark.parametrize("kv_tokens", [0, 20_000])
def test_a_closed_loops_weights_count_every_token_once(policy, kv_tokens):
    made = compose(Benchmark(16, 1024, 128, policy=policy, kv_tokens=kv_tokens, max_num_batched_tokens=2048))
    assert made is not None
    # A token's gap spans one step, more where prompts interrupt; no step is without a token.
    assert made.tpot.sum() >= 1 - 1e-9
    assert made.ttft.sum() >= 1 - 1e-9
    assert (made.steps[:, 0] >= made.steps[:, 1]).all()
    assert (made.steps[:, 1] >= made.steps[:, 2]).all()
    if policy != "prefill_first":
        assert made.tpot.sum() == pytest.approx(1.0)


def test_one_client_meets_its_own_prompt_alone_and_decodes_alone():
    made = compose(Benchmark(1, 100, 10, low=1.0))
    assert made is not None
    prompt = made.steps[made.ttft > 0]
    assert prompt[:, 0] == pytest.approx([100.0])
    assert made.steps[made.tpot > 0][:, 0] == pytest.approx(1.0)


def test_a_request_larger_than_the_pool_is_no_run():
    assert compose(Benchmark(1, 1000, 100, kv_tokens=500)) is None


def test_predictions_from_the_basis_equal_the_step_time_model():
    points, _ = read_points(own_points())
    point = next(p for p in points if p.model == "llama-3.1-8b" and p.concurrency == 16)
    predicted, chosen = predict([point])
    step = calibrate_step(
        point.architecture,
        point.gpu,
        weights=point.weights,
        kv_cache=point.kv_cache,
        tensor_parallel=point.layout.tensor_parallel,
        engine=point.engine,
        max_tokens=16384,
        release=point.release,
    )
    assert chosen[0].basis == "deployment"
    made = compose(
        Benchmark(
            point.concurrency,
            point.prompt_tokens,
            point.output_tokens,
            "whole",
            max(8192, point.prompt_tokens + point.concurrency),
            point.concurrency - 1,
        )
    )
    assert made is not None
    rows = made.steps[made.tpot > 0]
    tokens = np.maximum(np.round(rows[:, 0]), 1).astype(int)
    direct = float(
        (
            step.step.step_s(tokens, rows[:, 1], rows[:, 2], rows[:, 3], rows[:, 4])
            * made.tpot[made.tpot > 0]
        ).sum()
    )
    assert predicted[0, 0] == pytest.approx(direct, rel=0.01)


def test_a_fit_recovers_constants_from_points_made_by_them():
    points, _ = read_points(own_points())
    some = [p for p in points if p.model == "llama-3.1-70b"][::4]
    rows = basis(some)
    used = [p.keys for p in some]
    chosen = effects(used, ("engine",))
    z = np.random.default_rng(1).normal(0, 0.1, len(chosen))
    truth = rows.predict(Fit(tuple(chosen), z).constants(used))
    made = fit(rows, truth, used, chosen, np.ones_like(truth))
    error = np.abs(rows.predict(made.constants(used)) / truth - 1)
    # At the scales of real measurements a TTFT that is 1% off weighs nothing against the prior, which draws each constant by a tenth or so.
    assert np.median(error) < 0.01
    assert np.median(error[:, 0]) < 0.004
    # At scales that points without noise warrant, the points alone decide.
    exact = fit(rows, truth, used, chosen, np.ones_like(truth), tpot_scale=0.001, ttft_scale=0.001)
    assert np.abs(rows.predict(exact.constants(used)) / truth - 1).max() < 3e-4


def test_the_gradient_is_that_of_the_predictions():
    points, _ = read_points(own_points())
    rows = basis(points[:3])
    constants = np.full((3, len(CLASSES)), 1.3)
    value, gradient = rows.gradient(constants)
    assert value == pytest.approx(rows.predict(constants))
    assert gradient.sum(axis=2) == pytest.approx(value)


@pytest.mark.parametrize(
    ("row", "layout"),
    [
        ({"tp_size": "8", "moe_tp_size": "8", "n_gpus": "8", "attention_dp_size": "1"}, (8, 1, 1)),
        (
            {
                "tp_size": "64",
                "moe_tp_size": "8",
                "moe_ep_size": "8",
                "n_gpus": "8",
                "attention_dp_size": "1",
            },
            (8, 1, 8),
        ),
        ({"tp_size": "1", "attention_dp_size": "8", "moe_ep_size": "8", "n_gpus": "8"}, (1, 8, 8)),
        ({"tp_size": "2", "attention_dp_size": "2", "moe_ep_size": "4", "n_gpus": "4"}, (2, 2, 4)),
        ({}, (1, 1, 1)),
    ],
)
def test_layouts_follow_the_gpu_count(row, layout):
    made = layout_of(row)
    assert (made.tensor_parallel, made.data_parallel, made.expert_parallel) == layout


def test_points_are_left_out_by_rule_and_counted(tmp_path):
    header = (
        "model_path,system,backend,precision,mode,isl,osl,concurrency,tp_size,silicon_ttft_ms,silicon_tpot_ms"
    )
    rows = [
        "meta-llama/Llama-3.1-8B,h100_sxm,vllm,bf16,agg,1024,1024,8,1,40,8",
        "meta-llama/Llama-3.1-8B,h100_sxm,vllm,bf16,disagg,1024,1024,8,1,40,8",
        "no/such-model,h100_sxm,vllm,bf16,agg,1024,1024,8,1,40,8",
        "meta-llama/Llama-3.1-8B,z9000,vllm,bf16,agg,1024,1024,8,1,40,8",
        "meta-llama/Llama-3.1-8B,h100_sxm,vllm,bf16,agg,1024,1024,8,1,,8",
        "meta-llama/Llama-3.1-8B,h100_sxm,triton,bf16,agg,1024,1024,8,1,40,8",
        "meta-llama/Llama-3.1-8B,mi300x,vllm,bf16,agg,1024,1024,8,1,40,8",
    ]
    path = tmp_path / "points.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    document, each = validate(path)
    assert document["points"] == 2
    assert sum(document["excluded"].values()) == 5
    assert {row["calibration"] for row in each} == {"pair", "nearest"}
    assert json.loads(json.dumps(document, allow_nan=False))["tpot"]["median"] >= 0
    path.write_text(header.replace("silicon_tpot_ms", "tpot") + "\n" + rows[0] + "\n")
    with pytest.raises(
        InputError,
        match=r"points\.csv:1: columns missing: silicon_tpot_ms \(got .*\); add them, like silicon_tpot_ms 7\.24",
    ):
        read_points(path)
    path.write_text(header + "\n" + rows[0].replace(",8,1,40", ",8,two,40") + "\n")
    with pytest.raises(
        InputError, match=r"points\.csv:2: column tp_size: must be a number \(got 'two'\), like 1"
    ):
        read_points(path)
    path.write_text(header + "\n" + rows[0].replace(",8,1,40", ",eight,1,40") + "\n")
    with pytest.raises(
        InputError, match=r"points\.csv:2: column concurrency: must be a number \(got .eight.\), like 16"
    ):
        read_points(path)


VLLM = {
    "completed": 100,
    "num_prompts": 100,
    "duration": 100.0,
    "total_input_tokens": 100_000,
    "total_output_tokens": 20_000,
    "max_concurrency": 4,
    "mean_ttft_ms": 50.0,
    "mean_tpot_ms": 10.0,
    "mean_e2el_ms": 2040.0,
}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"mean_ttft_ms": 0.05, "mean_e2el_ms": None}, "is it in seconds under a name in ms"),
        ({"mean_tpot_ms": 10_000.0, "mean_e2el_ms": None}, "unit cannot be what the names say"),
        ({"mean_e2el_ms": 9000.0}, "they must agree"),
        ({"max_concurrency": None, "request_rate": 10.0}, "the load was never offered"),
        ({"completed": 0}, "at least one is needed"),
        ({"mean_ttft_ms": "fast"}, "a finite number is needed"),
    ],
)
def test_a_result_that_cannot_be_right_is_refused(tmp_path, change, said):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**VLLM, **change}))
    with pytest.raises(InputError, match=r"bench\.json") as error:
        read(path)
    assert said in str(error.value)


def test_a_vllm_result_is_read_in_seconds(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({**VLLM, "request_rate": "inf"}))
    (run,) = read(path)
    assert (run.ttft_s, run.tpot_s, run.prompt_tokens, run.output_tokens, run.concurrency) == (
        0.05,
        0.01,
        1000,
        200,
        4,
    )


def test_duplicate_keys_are_refused(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text('{"completed": 1, "completed": 2, "duration": 3}')
    with pytest.raises(InputError, match="'completed' is given twice"):
        read(path)


@pytest.mark.shared
@pytest.mark.parametrize(
    ("file", "outcome"),
    [
        ("aiperf/example_profile_export.jsonl", "given twice"),
        ("llm-d-benchmark/guidellm_report_v2.json", "never offered"),
        ("llm-d-benchmark/inference_perf_lifecycle.yaml", 1),
        ("inference-perf/vllm+batch_size/stage_0_lifecycle_metrics.json", 1),
        ("inference-perf/vllm+batch_size/stage_3_lifecycle_metrics.json", 1),
        ("inferencex/glm5_fp8_vllm_tp8_isl1024_osl128_conc16.json", 1),
        ("sglang-bench/bench_serving_record_issue9585.jsonl", 1),
        ("vllm-requests/RTX4090/Llama-3.1-8B", 300),
        ("vllm-requests/RTXPRO6000/Llama-3.1-8B", 300),
        ("mooncake/synthetic_trace.jsonl", "no benchmark result"),
        ("guidellm/scenarios/concurrent-1k-1k-equal.json", "finite number"),
    ],
)
def test_each_real_result_is_read_or_refused_with_a_reason(shared, file, outcome):
    path = shared / "traces" / file
    if isinstance(outcome, str):
        with pytest.raises(InputError, match=outcome):
            read(path)
        return
    found = read(path)
    assert (len(found.arrival_s) if isinstance(found, RequestLog) else len(found)) == outcome


@pytest.mark.shared
@pytest.mark.parametrize("gpu", ["RTX4090", "RTXPRO6000"])
def test_a_request_log_replays_within_the_errors_asked_for(shared, gpu):
    from fleetplan.calibration.deployment import fit_log

    path = shared / "traces" / "vllm-requests" / gpu / "Llama-3.1-8B"
    log = read(path)
    assert isinstance(log, RequestLog)
    document = fit_log(log, "own", path)
    held = document["held_out_error"]["deployment"]["median_relative_error_a_request"]
    assert held["e2e"] <= 0.02
    assert held["ttft"] <= 0.03
    assert held["tpot"] <= 0.035


def test_engines_differ_in_what_their_memory_factor_multiplies():
    assert engine("vLLM")[1].memory.utilisation_of == "total"
    assert engine("TensorRT-LLM", "1.2.0rc6")[1].memory.utilisation_of == "free"
    assert engine("vllm", "0.19.0")[1].memory.default == 0.9
    assert not holds(">=0.8,<0.22", "0.7.3")
    with pytest.raises(InputError, match="no range holds"):
        engine("vllm", "0.1.0")
    with pytest.raises(InputError, match="near names: vllm"):
        engine("vlm")


def test_folds_keep_a_name_together():
    names = ["a"] * 5 + ["b"] * 3 + ["c"] * 2 + ["d"]
    made = folds(names, 3)
    for name in set(names):
        assert len({int(made[i]) for i, n in enumerate(names) if n == name}) == 1


def test_every_public_point_is_read_and_known():
    points, excluded = usable_points(own_points())
    assert len(points) == 576
    assert list(excluded) == ["more sequences at once than memory holds, and no wait in TTFT"]
    assert len({p.group for p in points}) == 22
    assert all(math.isfinite(p.output_tokens_per_s) for p in points)
    assert catalog.gpu("b200_sxm").name == "b200-sxm"
