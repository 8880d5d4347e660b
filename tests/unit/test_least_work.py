"""The least work of a request is a bound below what the engine takes, and above 0 where a decode is charged less than its slot."""

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, Speculation, simulate
from fleetplan.physics.steptime import StepTime
from fleetplan.sizing.bounds import least_work_s
from fleetplan.traffic.requests import Requests

STEP = StepTime(
    np.array([0.0, 0.00487]), np.zeros(2), np.zeros(2), 2.47e-4, -2.21e-4, 6e-10, 0.0, 2.4e-8, 0.0, 0.0,
    0, 1.2e-5, 0.0, 0.0,
)  # fmt: skip
"""Calibrated steps have σ above 0 and δ below, which nearly cancel."""


@pytest.mark.parametrize("acceptance", [0.0, 0.7, 1.0])
def test_with_drafts_it_is_above_nothing_and_below_what_is_simulated(acceptance: float) -> None:
    requests = Requests.of(np.zeros(40), 500, 64)
    config = EngineConfig(max_num_seqs=40, speculation=Speculation.of([acceptance], 3, draft_cost=0.0))
    run = simulate(requests, STEP, config, plain=True)
    least = least_work_s(requests, STEP, 8192, 4)
    assert 0 < least <= run.busy_s[0] / len(requests)
