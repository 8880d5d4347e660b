"""Pipelines where theory knows the answer: full lanes come round every max(step, p · longest stage)."""

from dataclasses import replace

import numpy as np
import pytest

from fleetplan.engine import ClosedLoop, EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

OUTPUT, USERS, STEP_S = 101, 16, 0.012


@pytest.mark.parametrize("stages", [2, 4])
@pytest.mark.parametrize("stage_s", [0.0031, 0.004, 0.0065, 0.012])
def test_a_saturated_closed_loop_turns_p_micro_batches_a_round(stages: int, stage_s: float) -> None:
    """Every user's sequence emits one token a round of its lane: USERS tokens in max(step, p · stage)."""
    step = replace(affine(STEP_S, 0.0, 0.0), stages=stages, stage=affine(stage_s, 0.0, 0.0))
    requests = Requests.of(np.zeros(4000), 50, OUTPUT)
    run = simulate(
        requests, step, EngineConfig(max_num_seqs=USERS), closed_loop=ClosedLoop(USERS), until_s=200.0
    )
    round_s = max(STEP_S, stages * stage_s)
    done = run.outcome == 1
    middle = done & (run.arrival_s > 20.0) & (run.finish_s < 180.0)
    np.testing.assert_allclose(run.tpot_s[middle], round_s, rtol=1e-9)
    # A lane whose sequence has ended admits the next at its next step, so that no slot is ever empty.
    tokens = OUTPUT * np.count_nonzero((run.finish_s > 20.0) & (run.finish_s <= 180.0))
    error = OUTPUT * USERS  # answers under way at either end
    assert abs(tokens - USERS / round_s * 160.0) <= error
    assert error < 0.15 * tokens
    used = stages * stage_s / round_s
    assert run.busy_s[0] == pytest.approx(used * 200.0, abs=2 * round_s)


def test_one_lane_at_a_time_has_the_throughput_of_no_pipeline() -> None:
    """A longest stage that is the whole step leaves one step in flight."""
    requests = Requests.of(np.zeros(200), 50, 21)
    whole = affine(STEP_S, 0.0, 0.0)
    alone = simulate(requests, whole, EngineConfig(max_num_seqs=8))
    halves = simulate(requests, replace(whole, stages=2, stage=whole), EngineConfig(max_num_seqs=16))
    assert halves.makespan_s == pytest.approx(alone.makespan_s, rel=0.02)
