"""No calibrated step, whatever model, GPU, precision, degree and batch, is below FLOP/peak or bytes/bandwidth."""

import itertools

import numpy as np
import pytest

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.physics.calibrated import SWITCHABLE, calibrate_step, calibrated, explain
from fleetplan.physics.constants import ENGINES
from fleetplan.physics.roofline import peak_flop_per_s, replica_work
from fleetplan.physics.work import Layout

BATCHES = np.array([1, 2, 7, 32, 150, 512, 1000])
CONTEXT = 3000


@pytest.mark.parametrize("model", [m.name for m in catalog.models()])
def test_no_step_is_faster_than_the_hardware(model):
    architecture = catalog.model(model).architecture
    checked = 0
    for index, gpu in enumerate(catalog.gpus()):
        for weights, degree in itertools.product(("bf16", "fp8", "nvfp4", "int4"), (1, 2, 8)):
            engine = ENGINES[(index + degree) % 3]
            made = calibrate_step(
                architecture,
                gpu,
                weights=weights,
                kv_cache="bf16",
                tensor_parallel=degree,
                engine=engine,
                max_tokens=8192,
            ).step
            work = replica_work(architecture, gpu, weights=weights, kv_cache="bf16", layout=Layout(degree))
            peak = max(peak_flop_per_s(gpu, dtype) for dtype in (*work.operators.dtype, work.head_dtype))
            seen = np.minimum(CONTEXT, work.window_tokens or CONTEXT)
            decode = made.step_s(
                BATCHES,
                BATCHES,
                BATCHES,
                BATCHES * CONTEXT,
                BATCHES * CONTEXT,
                BATCHES * seen,
                BATCHES * seen,
            )
            flop = work.operators.flop_per_token.sum() * BATCHES + work.head_flop_per_sequence * BATCHES
            touched = (work.operators.bytes * work.operators.touched(BATCHES)).sum(axis=1) + work.head_bytes
            read = touched + BATCHES * (
                work.kv_bytes_per_token * CONTEXT + work.window_kv_bytes_per_token * seen
            )
            assert (decode >= flop / peak).all(), (gpu.name, weights, degree)
            assert (decode >= read / gpu.bandwidth_bytes_per_s).all(), (gpu.name, weights, degree)
            prompt = float(
                made.step_s(8192, 1, 0, 8192, 8192 * 8193 / 2, min(8192, work.window_tokens or 8192), 0)
            )
            prompt_flop = work.operators.flop_per_token.sum() * 8192 + work.flop_per_pair * 8192 * 8193 / 2
            assert prompt >= prompt_flop / peak
            checked += 1
    assert checked == len(catalog.gpus()) * 12


@pytest.mark.parametrize("term", SWITCHABLE)
def test_switching_a_term_off_never_makes_a_step_longer(term):
    architecture, gpu = catalog.model("mixtral-8x7b").architecture, catalog.gpu("h100")
    kwargs = {
        "weights": "bf16",
        "kv_cache": "bf16",
        "tensor_parallel": 2,
        "data_parallel": 2,
        "expert_parallel": 4,
        "max_tokens": 2048,
    }
    full = calibrated(architecture, gpu, **kwargs)
    less = calibrated(architecture, gpu, without=[term], **kwargs)
    step = (64, 64, 64, 64 * 900, 64 * 900)
    if term in ("experts_touched", "routing_correlation"):
        assert float(less.step_s(*step)) >= float(full.step_s(*step))
    else:
        assert float(less.step_s(*step)) <= float(full.step_s(*step)) * (1 + 1e-12)


def test_explained_terms_add_up_to_the_step():
    made = calibrate_step(
        catalog.model("llama-3.1-8b").architecture,
        catalog.gpu("h100"),
        weights="bf16",
        kv_cache="bf16",
        tensor_parallel=2,
    )
    total = sum(value for _, value in explain(made, batch=48, context_tokens=1500, prompt_tokens=700))
    pairs = 48 * 1500 + 700 * 701 / 2
    assert total == pytest.approx(float(made.step.step_s(748, 49, 48, 48 * 1500 + 700, pairs)), rel=1e-9)


def test_an_unknown_term_or_engine_is_refused_with_near_names():
    architecture, gpu = catalog.model("llama-3.1-8b").architecture, catalog.gpu("h100")
    with pytest.raises(InputError, match="near names: all_reduce"):
        calibrated(architecture, gpu, weights="bf16", kv_cache="bf16", without=["allreduce"])
    with pytest.raises(InputError, match="vllm"):
        calibrated(architecture, gpu, weights="bf16", kv_cache="bf16", engine="vlm")


def test_a_pair_without_data_is_named_as_nearest_and_carries_a_wider_band():
    architecture = catalog.model("llama-3.1-8b").architecture
    known = calibrate_step(
        architecture, catalog.gpu("h100"), weights="bf16", kv_cache="bf16", engine="trtllm"
    ).calibration
    unseen = calibrate_step(
        architecture, catalog.gpu("a100"), weights="bf16", kv_cache="bf16", engine="vllm"
    ).calibration
    assert known.basis == "deployment"
    assert unseen.basis == "nearest"
    assert "nearest" in unseen.named
    assert unseen.tpot.high / unseen.tpot.low > known.tpot.high / known.tpot.low
