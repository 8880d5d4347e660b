"""Strict priorities at a batch of one wait as in a non-preemptive priority M/G/1 queue (Cobham 1954)."""

import math

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

COST = affine(0.0, 1e-5, 0.0)
"""A prompt token takes 10 µs, and the only output token nothing more."""
COUNT, GROUPS = 400_000, 40


@pytest.mark.parametrize("service", ["constant", "exponential"])
def test_every_level_waits_as_cobham_says(service: str) -> None:
    shares, rho, mean_s = np.array([0.3, 0.3, 0.4]), 0.8, 0.1
    rng = np.random.default_rng(11)
    arrival = np.cumsum(rng.exponential(mean_s / rho, COUNT))
    level = rng.choice(3, COUNT, p=shares)
    prompt = np.full(COUNT, 10_000)
    if service == "exponential":
        prompt = np.maximum(1, np.ceil(rng.exponential(10_000, COUNT))).astype(np.int64)
    config = EngineConfig("continuous", max_num_seqs=1, priority="strict")
    run = simulate(Requests.of(arrival, prompt, 1, priority=level), COST, config)
    assert (run.outcome == 1).all()
    wait = run.first_scheduled_s - run.arrival_s
    # W_k = W_0 / ((1 − σ_{k−1})(1 − σ_k)), W_0 = λ E[S²]/2, σ_k the load of levels up to k.
    second = mean_s**2 * (2 if service == "exponential" else 1)
    residual = rho / mean_s * second / 2
    load = np.concatenate([[0.0], np.cumsum(shares * rho)])
    for k in range(3):
        theory = residual / ((1 - load[k]) * (1 - load[k + 1]))
        # Batch means over stretches of time that are long enough to be independent, each weighed by its requests of the level.
        rows = np.flatnonzero(level[COUNT // 10 :] == k) + COUNT // 10
        groups = np.array_split(wait[rows], GROUPS)
        means = np.array([g.mean() for g in groups])
        error = means.std(ddof=1) / math.sqrt(GROUPS)
        assert error < 0.06 * theory
        assert abs(means.mean() - theory) < 3 * error, (k, means.mean(), theory, error)
