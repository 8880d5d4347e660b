"""Step times of 10,000 (candidate, batch) pairs."""

import numpy as np
import pytest

from fleetplan import catalog
from fleetplan.physics.calibrated import calibrated

BATCHES = np.arange(1, 101)


@pytest.fixture(scope="module")
def candidates():
    models = [
        catalog.model(name).architecture
        for name in ("llama-3.1-8b", "llama-3.3-70b", "mixtral-8x7b", "qwen3-32b", "deepseek-v3")
    ]
    gpus = [catalog.gpu(name) for name in ("a100", "h100", "h200", "b200", "mi300x")]
    return [(m, g, t) for m in models for g in gpus for t in (1, 2, 4, 8)]


def _all(candidates):
    total = 0.0
    for architecture, gpu, degree in candidates:
        step = calibrated(
            architecture, gpu, weights="bf16", kv_cache="bf16", tensor_parallel=degree, max_tokens=8192
        )
        total += float(step.step_s(BATCHES, BATCHES, BATCHES, BATCHES * 1000, BATCHES * 1000).sum())
    return total


def test_ten_thousand_step_times(benchmark, candidates):
    assert len(candidates) * len(BATCHES) == 10_000
    assert benchmark(_all, candidates) > 0
