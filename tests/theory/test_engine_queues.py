"""The engine as a queue of theory: with a batch of one its waiting times are M/D/1, M/M/1 and, by the central queue, M/M/c."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

COST = affine(0.0, 1e-5, 0.0)
"""A prompt token takes 10 µs and the only output token nothing more: service is 10 µs · prompt."""
COUNT, GROUPS = 400_000, 40


def waits(service: str, rate_per_s: float, replicas: int, router: str, seed: int) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    arrival = np.cumsum(rng.exponential(1 / rate_per_s, COUNT))
    mean_tokens = 10_000
    prompt = np.full(COUNT, mean_tokens)
    if service == "exponential":  # ceil of an exponential: a geometric length, mean 10,000.5 tokens
        prompt = np.maximum(1, np.ceil(rng.exponential(mean_tokens, COUNT))).astype(np.int64)
    config = EngineConfig("continuous", max_num_seqs=1)
    run = simulate(Requests.of(arrival, prompt, 1), COST, config, replicas=replicas, router=router)
    assert (run.outcome == 1).all()
    assert run.busy_s.sum() == pytest.approx(prompt.sum() * 1e-5, rel=1e-9)
    return run.first_scheduled_s - run.arrival_s


def within_three_standard_errors(values: NDArray[np.float64], theory: float) -> None:
    """Batch means of the last nine tenths: the standard error is that of groups long enough to be independent."""
    groups = values[COUNT // 10 :].reshape(GROUPS, -1).mean(axis=1)
    error = groups.std(ddof=1) / math.sqrt(GROUPS)
    assert error < 0.05 * theory
    assert abs(groups.mean() - theory) < 3 * error


def erlang_c(c: int, load: float) -> float:
    terms = [load**k / math.factorial(k) for k in range(c)]
    last = load**c / math.factorial(c) / (1 - load / c)
    return last / (sum(terms) + last)


@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_constant_service_waits_as_in_m_d_1(rho: float) -> None:
    within_three_standard_errors(
        waits("constant", rho / 0.1, 1, "round_robin", 1), rho * 0.1 / (2 * (1 - rho))
    )


@pytest.mark.parametrize("rho", [0.4, 0.8])
def test_exponential_service_waits_as_in_m_g_1(rho: float) -> None:
    # Pollaczek–Khinchine: λE[S²]/(2(1 − ρ)), E[S²] = 2 s² for an exponential service of mean s.
    theory = rho / 0.1 * 2 * 0.1**2 / (2 * (1 - rho))
    within_three_standard_errors(waits("exponential", rho / 0.1, 1, "round_robin", 2), theory)


@pytest.mark.parametrize("c", [2, 5])
def test_one_central_queue_waits_as_in_m_m_c(c: int) -> None:
    rho = 0.8
    theory = erlang_c(c, c * rho) * 0.1 / (c * (1 - rho))
    within_three_standard_errors(waits("exponential", c * rho / 0.1, c, "central_queue", 3), theory)


def test_one_central_queue_of_constant_service_waits_as_in_m_d_c() -> None:
    # M/D/2: each server of the FCFS queue takes every second arrival, so it is E2/D/1 with Lindley's recursion.
    rho, c = 0.8, 2
    rng = np.random.default_rng(9)
    gaps = rng.gamma(c, 0.1 / (c * rho), 4_000_000)
    walk = np.concatenate([[0.0], np.cumsum(0.1 - gaps)])
    lindley = walk - np.minimum.accumulate(walk)
    within_three_standard_errors(
        waits("constant", c * rho / 0.1, c, "central_queue", 4), float(lindley.mean())
    )


def test_a_random_split_waits_as_in_m_g_1() -> None:
    theory = 0.7 / 0.1 * 2 * 0.1**2 / (2 * 0.3)
    within_three_standard_errors(waits("exponential", 4 * 0.7 / 0.1, 4, "random", 5), theory)
