"""The worked capacity cases of the study texts: prefill counts, and a lever is a plan made anew."""

import pytest

from fleetplan import catalog
from fleetplan.physics.form import linear
from fleetplan.physics.roofline import roofline
from fleetplan.sizing.instant import decode_step_s, instant

GIB = 2**30


def test_llama2_7b_on_h100_needs_two_replicas_because_prefill_counts():
    architecture, gpu = catalog.model("llama-2-7b").architecture, catalog.gpu("h100-sxm")
    step = roofline(architecture, gpu, weights="bf16", kv_cache="bf16", efficiency=0.7)
    kv_bytes = 80 * GIB - 2 * architecture.parameters_total
    got = instant(
        step,
        kv_tokens=kv_bytes / 524288,
        prompt_tokens=512,
        output_tokens=256,
        rate_per_s=20,
        tpot_limit_s=0.030,
        prefill_s=512 * 2 * architecture.parameters_total / (0.7 * 989e12),
    )
    assert (got.max_batch_memory, got.max_batch_slo) == (179, 169)
    assert got.tpot_s == pytest.approx(0.029929, abs=5e-7)
    assert got.tokens_per_s == pytest.approx(5646.67, abs=5e-3)
    assert got.decode_load == pytest.approx(0.9067, abs=5e-5)
    assert got.prefill_load == pytest.approx(0.1993, abs=5e-5)
    assert got.total_load == pytest.approx(1.1061, abs=5e-5)
    assert got.replicas == 2


def chat_13b(weights_bytes=26e9, kv_bytes_per_token=819200.0):
    return linear(0.0, 2 * 13e9 / 312e12, weights_bytes / 2.04e12, 0.0, kv_bytes_per_token / 2.04e12, 0.0)


def chat_13b_instant(step, kv_bytes=50e9, kv_bytes_per_token=819200.0, headroom=1.3):
    return instant(
        step,
        kv_tokens=kv_bytes // kv_bytes_per_token,
        prompt_tokens=512,
        output_tokens=256,
        rate_per_s=10,
        tpot_limit_s=0.050,
        prefill_s=512 * 2 * 13e9 / (0.5 * 312e12),
        headroom=headroom,
    )


def test_chat_13b_on_a100():
    got = chat_13b_instant(chat_13b())
    assert 50e9 // 819200 == 61035
    assert (got.max_batch_memory, got.max_batch_slo, got.batch) == (79, 144, 79)
    assert 61035 // 4096 == 14
    assert got.prefill_s == pytest.approx(0.0853, abs=5e-5)
    assert got.residence_s == pytest.approx(8.51, abs=5e-3)
    assert got.concurrent_sequences == pytest.approx(85, abs=0.5)
    assert got.prefill_load == pytest.approx(0.85, abs=5e-3)
    assert got.decode_load == pytest.approx(1.07, abs=5e-3)
    assert got.replicas == 3


@pytest.mark.parametrize(
    ("batch", "step_ms", "tokens_per_s"),
    [(1, 13.002, 76.9), (14, 16.343, 856.6), (79, 33.048, 2390.4), (144, 49.754, 2894.3)],
)
def test_chat_13b_decode_step(batch, step_ms, tokens_per_s):
    time_s = decode_step_s(chat_13b(), batch, 640)
    assert time_s * 1e3 == pytest.approx(step_ms, abs=5e-4)
    assert batch / time_s == pytest.approx(tokens_per_s, abs=0.05)


@pytest.mark.parametrize(
    ("kv_per_token", "sequences", "step_ms", "tokens_per_s"),
    [(819200.0, 100, 32.07, 3117.9), (409600.0, 200, 32.07, 6235.8)],
    ids=["int8 weights", "int8 weights, fp8 KV"],
)
def test_chat_13b_levers(kv_per_token, sequences, step_ms, tokens_per_s):
    step = chat_13b(weights_bytes=13e9, kv_bytes_per_token=kv_per_token)
    got = chat_13b_instant(step, kv_bytes=63e9, kv_bytes_per_token=kv_per_token)
    assert got.max_batch_memory == sequences
    time_s = decode_step_s(step, sequences, 640)
    # The text charges the weights' bytes and the KV only: compute stays below both here.
    assert max(time_s, (13e9 + sequences * 640 * kv_per_token) / 2.04e12) * 1e3 == pytest.approx(
        step_ms, abs=5e-3
    )
    assert sequences / time_s == pytest.approx(tokens_per_s, abs=0.05)
