"""The worked batching numbers of the study texts, recomputed: rng seed 0, 300 requests, affine step cost."""

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

COST = affine(0.005, 2e-5, 5e-4)
TABLE = {
    ("static", 8): (333, 21.54),
    ("static", 16): (374, 18.09),
    ("static", 32): (380, 16.85),
    ("continuous", 8): (833, 5.51),
    ("continuous", 16): (1097, 2.89),
    ("continuous", 32): (1277, 1.78),
}


def textbook_requests() -> Requests:
    rng = np.random.default_rng(0)
    arrivals = np.cumsum(rng.exponential(1 / 30, 300))
    output = np.maximum(1, rng.geometric(1 / 64, 300))
    return Requests.of(arrivals, rng.integers(32, 256, 300), output)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(("scheduler", "slots"), TABLE)
def test_batching_table(scheduler: str, slots: int, plain: bool) -> None:
    run = simulate(textbook_requests(), COST, EngineConfig(scheduler, max_num_seqs=slots), plain=plain)
    tokens_per_s, latency_s = TABLE[scheduler, slots]
    assert run.summary()["output_tokens_per_s"] == pytest.approx(tokens_per_s, abs=0.5)
    assert float(run.e2e_s.mean()) == pytest.approx(latency_s, abs=0.005)


@pytest.mark.parametrize("plain", [True, False])
def test_identical_requests_together_are_served_alike_by_static_and_continuous(plain: bool) -> None:
    requests = Requests.of(np.zeros(32), 100, 20)
    runs = [
        simulate(requests, COST, EngineConfig(s, max_num_seqs=8), plain=plain)
        for s in ("static", "continuous")
    ]
    assert runs[0].steps == runs[1].steps == 4 * 20
    np.testing.assert_allclose(runs[0].finish_s, runs[1].finish_s, rtol=1e-12)


@pytest.mark.parametrize("plain", [True, False])
def test_static_slots_are_wasted_by_the_longest_member(plain: bool) -> None:
    lengths = np.array([10, 20, 50, 200])
    run = simulate(
        Requests.of(np.zeros(4), 1, lengths), COST, EngineConfig("static", max_num_seqs=4), plain=plain
    )
    assert lengths.sum() / (4 * run.steps) == pytest.approx(0.35)
