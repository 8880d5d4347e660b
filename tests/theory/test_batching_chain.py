"""Continuous batching as a birth–death chain against the engine, by load: how near it is, and where it stops being near."""

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import linear
from fleetplan.queueing.batching import continuous_batching
from fleetplan.traffic.requests import Requests

F, BW, P, K = 989e12 * 0.7, 3.35e12 * 0.7, 6738415616, 524288
LLAMA_2_7B_H100 = linear(0.0, 2 * P / F, 2 * P / BW, 0.0, K / BW, 0.0)


def both(load, cap, output_cv, count=6000):
    full = continuous_batching(
        1e-6, LLAMA_2_7B_H100, 512, 256, max_num_seqs=cap, output_cv=output_cv
    ).capacity_per_s
    rng = np.random.default_rng(3)
    outputs = np.full(count, 256) if output_cv == 0 else rng.geometric(1 / 256, count)
    rate = load * full * 256 / outputs.mean()
    theory = continuous_batching(
        rate, LLAMA_2_7B_H100, 512, float(outputs.mean()), max_num_seqs=cap,
        output_cv=float(outputs.std() / outputs.mean()),
    )  # fmt: skip
    requests = Requests.of(np.cumsum(rng.exponential(1 / rate, count)), 512, outputs)
    run = simulate(requests, LLAMA_2_7B_H100, EngineConfig("chunked", max_num_seqs=cap))
    kept = slice(count // 5, None)
    decode = (run.finish_s - run.first_token_s)[kept]
    return theory, float(run.ttft_s[kept].mean()), float(decode.sum() / (outputs[kept] - 1).sum())


@pytest.mark.parametrize(
    ("load", "ttft_within", "tpot_within"), [(0.2, 0.05, 0.02), (0.5, 0.12, 0.03), (0.7, 0.25, 0.06)]
)
@pytest.mark.parametrize("cap", [32, 128])
@pytest.mark.parametrize("output_cv", [0, 1], ids=["fixed", "geometric"])
def test_error_by_load(load, cap, output_cv, ttft_within, tpot_within):
    theory, ttft, tpot = both(load, cap, output_cv)
    assert theory.ttft_mean_s == pytest.approx(ttft, rel=ttft_within)
    assert theory.tpot_mean_s == pytest.approx(tpot, rel=tpot_within)


def test_little_and_conservation():
    result = continuous_batching(8.0, LLAMA_2_7B_H100, 512, 256, max_num_seqs=64)
    n = np.arange(len(result.law))
    assert result.law.sum() == pytest.approx(1)
    assert result.running_mean + result.waiting_mean == pytest.approx(float(result.law @ n), rel=1e-6)
    held = float(result.law @ np.minimum(n, 64))
    done = float(result.law[1:] @ result.rates.completions_per_s[np.minimum(n[1:], 64) - 1])
    assert done == pytest.approx(8.0, rel=1e-6)
    assert held == pytest.approx(result.running_mean)


def test_past_a_full_batch_it_is_unstable_unless_the_queue_is_limited():
    full = continuous_batching(1e-6, LLAMA_2_7B_H100, 512, 256, max_num_seqs=64).capacity_per_s
    over = continuous_batching(1.1 * full, LLAMA_2_7B_H100, 512, 256, max_num_seqs=64)
    assert not over.stable
    assert over.ttft_mean_s is None
    assert "unstable" in over.reason
    assert over.ttft_percentile_s(0.99) is None
    limited = continuous_batching(1.1 * full, LLAMA_2_7B_H100, 512, 256, max_num_seqs=64, queue_limit=100)
    assert limited.stable
    assert limited.loss_share == pytest.approx(1 - 1 / 1.1, abs=0.01)
    assert limited.ttft_attainment(1e9) == pytest.approx(1 - limited.loss_share)


def test_memory_may_be_what_bounds_the_batch():
    result = continuous_batching(
        1.0, LLAMA_2_7B_H100, 512, 256, max_num_seqs=256, kv_tokens=64 * 640, output_cv=0
    )
    assert (result.cap, result.bound_by) == (64, "kv_memory")


def test_attainment_rises_with_the_promise_and_meets_its_percentile():
    result = continuous_batching(14.0, LLAMA_2_7B_H100, 512, 256, max_num_seqs=128)
    values = [result.ttft_attainment(t) for t in np.geomspace(1e-3, 10, 30)]
    assert np.all(np.diff(values) >= -1e-12)
    p99 = result.ttft_percentile_s(0.99)
    assert result.ttft_attainment(p99 * 1.001) >= 0.99 > result.ttft_attainment(p99 * 0.95)
