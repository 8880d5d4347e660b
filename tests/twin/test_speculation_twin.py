"""Speculation: the kernel against the twin on random workloads, and tokens per step and speed-up against theory."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from test_engine_twin import (
    COSTS,
    Faults,
    agree,
    both,
    conserve,
    engines,
    faults,
    through,
    workloads,
)

from fleetplan.engine import (
    ROUTERS,
    ClosedLoop,
    EngineConfig,
    Speculation,
    drafting,
    simulate,
    speculate,
)
from fleetplan.errors import InputError
from fleetplan.physics.steptime import linear
from fleetplan.traffic.requests import Requests

DRAFTS = {
    "free": {"draft_cost": 0.0},
    "a share": {"draft_cost": 0.15},
    "all at once": {"draft_cost": 0.2, "passes": 1},
    "a model": {"draft_step": COSTS["vectors"]},
}


@st.composite
def speculations(draw: st.DrawFn) -> Speculation:
    acceptance = draw(st.sampled_from([[0.0], [1.0], [0.6], [0.9, 0.5, 0.2], [0.75, 0.7]]))
    drafts = draw(st.integers(1, 4)) if len(acceptance) == 1 else len(acceptance)
    return Speculation.of(
        acceptance, drafts, off_above=draw(st.sampled_from([None, None, 0, 2])),
        **DRAFTS[draw(st.sampled_from(sorted(DRAFTS)))],
    )  # fmt: skip


@given(workloads(), engines(), st.sampled_from(sorted(COSTS)), speculations())
@settings(max_examples=250)
def test_one_replica(requests: Requests, config: EngineConfig, cost: str, speculation: Speculation) -> None:
    config = replace(config, speculation=speculation)
    slow, fast = both(requests, COSTS[cost], config, resolution_s=0.0137123457)
    agree(slow, fast)
    conserve(fast)
    assert slow.series is not None
    assert fast.series is not None
    for name in ("running", "waiting", "kv_blocks", "output_tokens"):
        np.testing.assert_array_equal(getattr(fast.series, name), getattr(slow.series, name), err_msg=name)
    if config.kv_blocks is not None:
        assert fast.series.kv_blocks.max(initial=0) <= config.kv_blocks
    assert fast.series.output_tokens.sum() == requests.output_tokens[fast.outcome == 1].sum()


@given(workloads(), engines(), speculations(), st.sampled_from(ROUTERS), st.integers(1, 3), faults(3))
@settings(max_examples=150)
def test_fleets_and_outages(
    requests: Requests,
    config: EngineConfig,
    speculation: Speculation,
    router: str,
    replicas: int,
    outages: Faults,
) -> None:
    slow, fast = through(requests, replace(config, speculation=speculation), router, replicas, outages)
    agree(slow, fast)
    conserve(fast)


@given(workloads(), engines(), speculations(), st.integers(1, 9), st.floats(0.1, 3.0))
@settings(max_examples=60)
def test_closed_loops_and_cuts(
    requests: Requests, config: EngineConfig, speculation: Speculation, users: int, until_s: float
) -> None:
    config = replace(config, speculation=speculation)
    slow, fast = both(requests, COSTS["memory"], config, closed_loop=ClosedLoop(users, 0.03), until_s=until_s)
    np.testing.assert_array_equal(fast.outcome, slow.outcome)
    np.testing.assert_allclose(fast.first_token_s, slow.first_token_s, rtol=1e-9)
    assert fast.steps == slow.steps


@njit
def _drawn(seed: int, row: int, generated: int) -> float:
    return drafting.draw(seed, row, generated)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31), st.integers(0, 2**31))
@settings(max_examples=300)
def test_twin_and_kernel_draw_alike(seed: int, row: int, generated: int) -> None:
    assert _drawn(seed, row, generated) == speculate.draw(seed, row, generated)


def test_drafts_that_are_never_accepted_cost_and_give_nothing() -> None:
    requests = Requests.of([0.0, 0.0], 50, 40)
    plain = simulate(requests, COSTS["memory"], EngineConfig())
    for name, draft in DRAFTS.items():
        run = simulate(requests, COSTS["memory"], EngineConfig(speculation=Speculation.of([0.0], 4, **draft)))
        assert run.steps == plain.steps, name
        assert (run.finish_s > plain.finish_s).all(), name


def test_off_above_a_batch_is_no_speculation_there() -> None:
    requests = Requests.of(np.zeros(8), 50, 40)
    plain = simulate(requests, COSTS["memory"], EngineConfig())
    off = simulate(
        requests,
        COSTS["memory"],
        EngineConfig(speculation=Speculation.of([1.0], 4, draft_cost=0.1, off_above=7)),
    )
    np.testing.assert_allclose(off.finish_s, plain.finish_s, rtol=1e-12)
    on = simulate(
        requests,
        COSTS["memory"],
        EngineConfig(speculation=Speculation.of([1.0], 4, draft_cost=0.1, off_above=8)),
    )
    assert on.steps < off.steps / 4


@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked", "prefill_first"])
def test_drafts_that_are_always_accepted_give_all_of_them(scheduler: str) -> None:
    outputs = np.array([1, 2, 5, 6, 7, 41])
    for output in outputs:
        config = EngineConfig(scheduler, speculation=Speculation.of([1.0], 4, draft_cost=0.0))
        run = simulate(Requests.of([0.0], 9, output), COSTS["memory"], config)
        assert run.steps == 1 + -(-(output - 1) // 5)


def test_tokens_a_step_and_speed_up_as_in_theory() -> None:
    """One sequence whose step takes as long to verify as to decode: E tokens a step, speed-up E/(1 + Kc)."""
    step, c, output = linear(5e-3, 0.0, 0.0, 0.0, 0.0, 0.0), 0.15, 400_001
    speculation = Speculation.of([0.75, 0.70, 0.66], draft_cost=c)
    run = simulate(Requests.of([0.0], 10, output), step, EngineConfig(speculation=speculation))
    alone = simulate(Requests.of([0.0], 10, output), step, EngineConfig())
    survival = np.array(speculation.survival)
    expected = 1 + survival.sum()
    chances = -np.diff(np.concatenate([[1.0], survival, [0.0]]))
    variance = (chances * (1 + np.arange(4) - expected) ** 2).sum()
    steps = run.steps - 1
    error = math.sqrt(variance / steps)
    tokens_a_step = (output - 1) / steps
    assert abs(tokens_a_step - expected) < 3 * error
    assert error < 0.005
    speedup = float(alone.tpot_s[0] / run.tpot_s[0])
    assert speedup == pytest.approx(tokens_a_step / (1 + 3 * c), rel=1e-9)
    assert abs(speedup - expected / (1 + 3 * c)) < 3 * error / (1 + 3 * c)


def test_every_position_and_request_survives_as_it_should() -> None:
    """Draws of different requests and of different tokens of one request are uniform and do not go together."""
    rows, tokens = 400, 250
    uniform = np.array([[speculate.draw(3, i, g) for g in range(tokens)] for i in range(rows)])
    count = uniform.size
    for threshold in (0.75, 0.5, 0.1):
        error = math.sqrt(threshold * (1 - threshold) / count)
        assert abs((uniform < threshold).mean() - threshold) < 3 * error
    for one, other in ((uniform[:-1], uniform[1:]), (uniform[:, :-1], uniform[:, 1:])):
        together = ((one - 0.5) * (other - 0.5)).mean()
        assert abs(together) < 3 / 12 / math.sqrt(one.size)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (lambda: Speculation((), draft_cost=0.1), "survival"),
        (lambda: Speculation((0.5, 0.6), draft_cost=0.1), "position 2"),
        (lambda: Speculation((0.5,)), "own step time"),
        (lambda: Speculation((0.5,), draft_cost=-1.0), "draft_cost"),
        (lambda: Speculation((0.5,), draft_cost=0.1, passes=2), "passes"),
        (lambda: Speculation((0.5,), draft_cost=0.1, off_above=-1), "off_above"),
        (lambda: Speculation.of([0.5, 0.4], 3, draft_cost=0.1), "acceptance"),
        (lambda: Speculation.of([1.5], 3, draft_cost=0.1), "acceptance"),
    ],
)
def test_what_cannot_be_is_said(made: object, told: str) -> None:
    with pytest.raises(InputError, match=told):
        made()  # type: ignore[operator]
