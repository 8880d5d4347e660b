"""The stages of a pipeline: together they are the step but for its sends, and the longest of them is bounded from above and tightly."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.physics.calibrated import calibrate_step, calibrated
from fleetplan.physics.collectives import send_s
from fleetplan.physics.form import linear
from fleetplan.physics.pipeline import decode_turn_s, longest, pipeline
from fleetplan.physics.roofline import roofline

MODELS = ("llama-3.3-70b", "llama-3.2-1b", "gpt-oss-120b", "mixtral-8x7b", "deepseek-v3", "gemma-2-9b")
SCALARS = (
    "sequence_s", "decode_s", "pair_s", "window_pair_s", "kv_token_s", "window_kv_token_s", "state_s",
    "overhead_slope_s", "compute_slope_s", "memory_slope_s",
)  # fmt: skip
VECTORS = ("overhead_s", "compute_s", "memory_s")


def parts(monkeypatch, build):
    """(the pipeline's step, its stages) of a cost model."""
    seen = []

    def record(latency, stages):
        seen.append(tuple(stages))
        return pipeline(latency, stages)

    for module in ("calibrated", "roofline"):
        monkeypatch.setattr(f"fleetplan.physics.{module}.pipeline", record)
    return build(), seen[0]


@pytest.mark.parametrize("stages", [2, 3, 5])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("model", ["calibrated", "roofline"])
def test_the_stages_add_up_to_the_step_less_its_sends(name, stages, model, monkeypatch):
    shape, gpu = catalog.model(name).architecture, catalog.gpu("h100")
    kwargs = {"weights": "bf16", "kv_cache": "bf16", "tensor_parallel": 2, "pipeline_parallel": stages, "max_tokens": 600}  # fmt: skip
    make = {"calibrated": calibrated, "roofline": roofline}[model]
    less = {"without": ["sends"]} if model == "calibrated" else {"overhead_s": 0.004}
    step, each = parts(monkeypatch, lambda: make(shape, gpu, **kwargs, **less))
    assert len(each) == step.stages == stages
    for vector in VECTORS:
        added = np.sum([getattr(stage, vector) for stage in each], axis=0)
        np.testing.assert_allclose(added, getattr(step, vector), rtol=1e-9)
    for scalar in SCALARS:
        added = sum(getattr(stage, scalar) for stage in each)
        assert added == pytest.approx(getattr(step, scalar), rel=1e-9, abs=1e-18)
    assert {stage.window_tokens for stage in each} == {step.window_tokens}


@pytest.mark.parametrize(
    ("gpu", "tensor", "stages", "inside", "across"),
    [("h100", 4, 2, 1, 0), ("h100", 8, 2, 0, 1), ("h100", 4, 4, 2, 1), ("gb200", 8, 4, 3, 0), ("h100", 1, 16, 14, 1)],
)  # fmt: skip
def test_a_step_sends_between_its_stages_by_the_link_that_joins_them(gpu, tensor, stages, inside, across):
    shape, chip = catalog.model("llama-3.3-70b").architecture, catalog.gpu(gpu)
    kwargs = {"weights": "bf16", "kv_cache": "bf16", "tensor_parallel": tensor, "pipeline_parallel": stages, "max_tokens": 300}  # fmt: skip
    full, less = calibrated(shape, chip, **kwargs), calibrated(shape, chip, without=["sends"], **kwargs)
    n = np.arange(1, 301)
    sent = 2 * shape.d * n
    wanted = inside * send_s(sent, "nvlink", chip.link.bytes_per_s_per_direction)
    wanted = wanted + across * send_s(sent, "network", 50e9)
    constant = (full.overhead_s - less.overhead_s)[1:] / wanted
    assert constant.max() == pytest.approx(constant.min(), rel=1e-6)
    assert constant[0] > 0
    # A send is between stages: no stage is longer for it.
    np.testing.assert_array_equal(full.beat.overhead_s, less.beat.overhead_s)


def test_nodes_as_stated_take_the_place_of_the_catalogues():
    shape, gpu = catalog.model("llama-3.3-70b").architecture, catalog.gpu("l40s")
    kwargs = {"weights": "fp8", "kv_cache": "bf16", "tensor_parallel": 4, "pipeline_parallel": 2, "max_tokens": 300}  # fmt: skip
    together = calibrate_step(shape, gpu, **kwargs).step
    with pytest.raises(
        InputError, match=r"a replica of 8 GPUs spans nodes of 4 l40s, whose network .* candidates\.network"
    ):
        calibrate_step(shape, gpu, node_gpus=4, **kwargs)  # fmt: skip
    slow, fast = (
        calibrate_step(shape, gpu, node_gpus=4, network_bytes_per_s=speed, **kwargs).step
        for speed in (1e9, 1e12)
    )
    assert slow.overhead_s[300] > together.overhead_s[300] > fast.overhead_s[300]


def test_more_stages_than_layers_are_refused():
    shape, gpu = catalog.model("llama-3.2-1b").architecture, catalog.gpu("h100")
    for model in (roofline, calibrated):
        with pytest.raises(InputError, match="pipeline_parallel: got 17, at most the 16 layers"):
            model(shape, gpu, weights="bf16", kv_cache="bf16", pipeline_parallel=17)


@pytest.mark.parametrize("stages", [2, 4, 6])
@pytest.mark.parametrize("name", MODELS)
def test_the_longest_stage_is_bounded_from_above_and_tightly(name, stages, monkeypatch):
    """It is above the true maximum by at most what two layers are of a stage (of one kind that split evenly: not at all)."""
    shape = catalog.model(name).architecture
    if stages > shape.layer_count // 4:
        pytest.skip("fewer than four layers a stage")
    step, each = parts(
        monkeypatch,
        lambda: calibrated(
            shape, catalog.gpu("h100"), weights="bf16", kv_cache="bf16", pipeline_parallel=stages, max_tokens=4096
        ),
    )  # fmt: skip
    rng = np.random.default_rng(stages)
    decoding = rng.integers(1, 257, 400)
    prompt = rng.integers(0, 3800, 400) * rng.integers(0, 2, 400)
    context = rng.integers(1, 30000, 400)
    read, window = decoding * context, decoding * np.minimum(context, step.window_tokens)
    held = (decoding + prompt, decoding + (prompt > 0), decoding, read + prompt, read + prompt * (prompt + 1) / 2, window, window)  # fmt: skip
    truth = np.max([stage.step_s(*held) for stage in each], axis=0)
    bound = step.beat.step_s(*held)
    assert (bound >= truth * (1 - 1e-12)).all()
    layers = -(-shape.layer_count // stages)
    alike = len(shape.layers) == 1 and shape.layer_count % stages == 0
    assert (bound / truth).max() <= 1 + (1e-12 if alike else 2 / layers)
    assert (bound <= step.step_s(*held)).all()


coefficients = st.tuples(*[st.floats(0, 1e-2, allow_subnormal=False)] * 6)


@settings(max_examples=60, deadline=None)
@given(st.lists(coefficients, min_size=2, max_size=4), st.integers(1, 400), st.integers(1, 30), st.data())
def test_no_stage_is_longer_than_the_longest_and_one_that_dominates_is_it(rows, tokens, sequences, data):
    each = [linear(*row) for row in rows]
    held = (tokens, sequences, data.draw(st.integers(0, sequences)), data.draw(st.integers(1, 10**6)), 5)
    top = longest(each)
    for stage in each:
        assert float(stage.step_s(*held)) <= float(top.step_s(*held)) * (1 + 1e-12)
    above = linear(*(max(column) for column in zip(*rows, strict=True)))
    assert float(longest([*each, above]).step_s(*held)) == pytest.approx(
        float(above.step_s(*held)), rel=1e-12
    )


def test_a_turn_is_the_round_of_all_micro_batches_or_the_latency_of_one():
    stage = linear(0.001, 0, 0.004, 0, 1e-7, 0)
    step = pipeline(linear(0.0021, 0, 0.008, 0, 2e-7, 0), [stage, stage])
    one = float(decode_turn_s(step, 1, 100))
    assert one == pytest.approx(0.0021 + 0.008 + 2e-7 * 100)  # alone it goes through both stages
    eight = float(decode_turn_s(step, 8, 100))
    assert eight == pytest.approx(max(2 * (0.005 + 1e-7 * 400), 0.0101 + 2e-7 * 400))
    seven = float(decode_turn_s(step, 7, 60_000))
    large, small = 0.005 + 1e-7 * 240_000, 0.005 + 1e-7 * 180_000
    assert seven == pytest.approx(max(large + small, 0.0101 + 2e-7 * 240_000))


@settings(max_examples=60, deadline=None)
@given(coefficients, st.integers(2, 8), st.integers(1, 60), st.floats(1, 1e4))
def test_a_turn_never_falls_with_the_batch_and_never_beats_its_beats(row, stages, batch, context):
    stage = linear(*row)
    step = pipeline(linear(*(stages * value for value in row)), [stage] * stages)
    turn, more = decode_turn_s(step, [batch, batch + 1], context)
    assert more >= turn * (1 - 1e-12)
    micro = -(-batch // stages)
    assert turn >= float(step.step_s(micro, micro, micro, micro * context, micro * context)) * (1 - 1e-12)
