"""Disaggregated pools where theory knows the answer: M/G/1 at prefill, M/D/1 on the link, and a tandem worked out by hand."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetplan.engine import EngineConfig, Link, Pool, Result, simulate, simulate_pools
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

COUNT, GROUPS = 200_000, 40
ROOMY = Pool(affine(1e-6, 0.0, 0.0), EngineConfig("continuous", max_num_seqs=4096))
"""Every step takes a microsecond."""


def within_three_standard_errors(values: NDArray[np.float64], theory: float) -> None:
    groups = values[COUNT // 10 :].reshape(GROUPS, -1).mean(axis=1)
    error = groups.std(ddof=1) / math.sqrt(GROUPS)
    assert error < 0.05 * theory
    assert abs(groups.mean() - theory) < 3 * error


def poisson(rate_per_s: float, prompt: NDArray[np.int64] | int, output: int, seed: int) -> Requests:
    rng = np.random.default_rng(seed)
    return Requests.of(np.cumsum(rng.exponential(1 / rate_per_s, COUNT)), prompt, output)


@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_prefill_alone_waits_as_in_m_g_1(rho: float) -> None:
    rng = np.random.default_rng(7)
    prompt = np.maximum(1, np.ceil(rng.exponential(10_000, COUNT))).astype(np.int64)
    one = Pool(affine(0.0, 1e-5, 0.0), EngineConfig("continuous", max_num_seqs=1))
    run = simulate_pools(poisson(rho / 0.1, prompt, 2, 1), one, ROOMY)
    within_three_standard_errors(run.first_scheduled_s - run.arrival_s, rho * 0.1 / (1 - rho))
    assert run.busy_s[0] == pytest.approx(prompt.sum() * 1e-5, rel=1e-9)  # work is conserved


@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_the_link_is_m_d_1(rho: float) -> None:
    """A prompt of 1,000 tokens of 100 kB occupies 1 GB/s for 0.1 s; the latency occupies nothing."""
    run = simulate_pools(poisson(rho / 0.1, 1000, 2, 2), ROOMY, ROOMY, Link(1e9, 1e5, 0.7))
    way = run.handoff
    assert way is not None
    within_three_standard_errors(way.sent_s - way.reserved_s, rho * 0.1 / (2 * (1 - rho)))
    np.testing.assert_allclose(way.landed_s - way.sent_s, 0.8, rtol=1e-6)


def test_no_link_and_no_limit_is_prefill_and_decode_one_after_the_other() -> None:
    """With room for all, prefill is a fleet that answers one token, and decode one that goes on where it ended."""
    rng = np.random.default_rng(3)
    requests = Requests.of(
        np.cumsum(rng.exponential(0.05, 2000)), rng.integers(1, 900, 2000), rng.integers(2, 300, 2000)
    )
    cost = affine(0.004, 2e-5, 1e-4)
    run = simulate_pools(
        requests, Pool(cost, EngineConfig("chunked")), Pool(cost, EngineConfig("chunked", max_num_seqs=4096))
    )
    alone = simulate(
        Requests.of(requests.arrival_s, requests.prompt_tokens, 1), cost, EngineConfig("chunked")
    )
    np.testing.assert_allclose(run.first_token_s, alone.first_token_s, rtol=1e-12)
    # A decode step of B sequences takes 4 ms + 0.1 ms·B: its time is that of the steps and of the sequence-steps.
    steps = run.steps - alone.steps
    gaps = (requests.output_tokens - 1).sum()
    assert run.busy_s[1] == pytest.approx(0.004 * steps + 1e-4 * gaps, rel=1e-9)


def tandem(**options: object) -> Result:
    """Steps of 10 ms; prefill holds one prompt of 16 tokens, decode one sequence of 20; the link takes 5 ms for a prompt."""
    step = affine(0.01, 0.0, 0.0)
    prefill = Pool(step, EngineConfig("chunked", kv_blocks=1))
    decode = Pool(step, EngineConfig("continuous", kv_blocks=2))
    return simulate_pools(
        Requests.of([0.0, 0.0, 0.0], 16, 5), prefill, decode, Link(16.0, 5e-3), **options  # type: ignore[arg-type]
    )  # fmt: skip


@pytest.mark.parametrize("plain", [False, True])
def test_a_full_decode_pool_pushes_back_on_prefill(plain: bool) -> None:
    run = tandem(plain=plain)
    way = run.handoff
    assert way is not None
    for found, expected in (
        (
            run.first_token_s,
            [0.010, 0.025, 0.070],
        ),  # the third prompt waits for memory that the second's KV holds
        (way.reserved_s, [0.010, 0.055, 0.100]),
        (way.landed_s, [0.015, 0.060, 0.105]),
        (run.finish_s, [0.055, 0.100, 0.145]),
    ):
        np.testing.assert_allclose(found, expected, atol=1e-8)
    assert run.replica.tolist() == [1, 1, 1]
    landing = tandem(plain=plain, first_token="landing")
    np.testing.assert_allclose(landing.first_token_s, way.landed_s, atol=1e-12)
    np.testing.assert_allclose(landing.tpot_s, 0.01, atol=1e-8)


@pytest.mark.parametrize(
    ("prompt", "output", "bypass_tokens"),
    [(17, 5, 0), (16, 18, 0), (16, 18, 16)],
    ids=["a prompt that prefill cannot hold", "a sequence that decode cannot hold", "bypass"],
)
@pytest.mark.parametrize("plain", [False, True])
def test_what_can_never_have_its_blocks_is_refused(
    prompt: int, output: int, bypass_tokens: int, plain: bool
) -> None:
    step = affine(0.01, 0.0, 0.0)
    run = simulate_pools(
        Requests.of([0.0], prompt, output),
        Pool(step, EngineConfig("chunked", kv_blocks=1)),
        Pool(step, EngineConfig("chunked", kv_blocks=2)),
        bypass_tokens=bypass_tokens,
        plain=plain,
    )
    assert run.counts()["rejected"] == 1
    assert run.reason.tolist() == [1]
