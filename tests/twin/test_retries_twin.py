"""Retries: the kernel against the twin on random workloads, and what they do in cases worked by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS, Faults, agree, both, conserve, engines, faults, through, workloads

from fleetplan.engine import (
    ROUTERS,
    ClosedLoop,
    EngineConfig,
    Pool,
    PrefixCache,
    Result,
    Speculation,
    simulate,
    simulate_pools,
)
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

SLOW = affine(0.01, 0.0, 0.0)
REJECTED, TIMED_OUT = 2, 3


@st.composite
def impatient(draw: st.DrawFn) -> tuple[Requests, EngineConfig]:
    """A random workload with little patience, before small queues, and clients who come back."""
    requests, config = draw(workloads()), draw(engines())
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    patience = draw(st.sampled_from([0.004, 0.02, 0.1, math.inf]))
    if patience < math.inf:
        requests = replace(requests, timeout_s=rng.uniform(0, patience, len(requests)))
    level = draw(st.sampled_from([0, 0, 1]))
    requests = replace(requests, priority=rng.integers(0, level + 1, len(requests)))
    if config.scheduler in ("chunked", "prefill_first") and draw(st.booleans()):
        config = replace(config, preemption="swap", swap_blocks=20, swap_block_s=1e-3)
    return requests, replace(
        config,
        max_queued_requests=draw(st.sampled_from([None, 0, 1, 3])),
        max_queued_tokens=draw(st.sampled_from([None, 30, 200])),
        retries=draw(st.sampled_from([1, 2, 5])),
        retry_backoff_s=draw(st.sampled_from([1e-6, 0.004, 0.05, 1.0])),
        retry_growth=draw(st.sampled_from([1.0, 1.5, 2.0])),
        priority="strict" if level else "none",
        max_wait_s=draw(st.sampled_from([math.inf, 0.05])) if level else math.inf,
        speculation=draw(st.sampled_from([None, None, Speculation.of([0.7, 0.5], draft_cost=0.1)])),
    )


def alike(slow: Result, fast: Result) -> None:
    """The same to each request, and its attempts add up."""
    agree(slow, fast)
    conserve(fast)
    assert fast.attempts is not None
    assert fast.refusals is not None
    assert slow.attempts is not None
    assert slow.refusals is not None
    np.testing.assert_array_equal(fast.attempts, slow.attempts)
    np.testing.assert_array_equal(fast.refusals, slow.refusals)
    if fast.restarts is None:
        assert (fast.refusals <= fast.attempts).all()
        assert (fast.refusals[fast.outcome == REJECTED] >= 1).all()


@given(impatient(), st.sampled_from(sorted(COSTS)))
@settings(max_examples=250)
def test_one_replica(case: tuple[Requests, EngineConfig], cost: str) -> None:
    slow, fast = both(case[0], COSTS[cost], case[1], resolution_s=0.0137123457)
    alike(slow, fast)
    gave_up = (fast.outcome == TIMED_OUT) | ((fast.outcome == REJECTED) & (fast.reason != 1))
    assert fast.attempts is not None
    assert (fast.attempts[gave_up] == case[1].retries + 1).all()


@given(impatient(), st.sampled_from(ROUTERS), st.integers(1, 3), faults(3))
@settings(max_examples=200)
def test_fleets_and_outages(
    case: tuple[Requests, EngineConfig], router: str, replicas: int, outages: Faults
) -> None:
    alike(*through(*case, router, replicas, outages))


@given(impatient(), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_a_run_that_is_cut_off(case: tuple[Requests, EngineConfig], until_s: float) -> None:
    slow, fast = both(case[0], COSTS["memory"], case[1], until_s=until_s)
    for name in ("outcome", "attempts", "refusals"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("arrival_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, err_msg=name)


@given(impatient(), st.integers(1, 9))
@settings(max_examples=60)
def test_closed_loops(case: tuple[Requests, EngineConfig], users: int) -> None:
    alike(*both(case[0], COSTS["memory"], case[1], closed_loop=ClosedLoop(users, 0.03)))


@given(impatient(), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=60)
def test_sessions(case: tuple[Requests, EngineConfig], sessions: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    session = rng.integers(0, sessions, len(case[0]))
    first = np.zeros(len(session), dtype=bool)
    first[np.unique(session, return_index=True)[1]] = True
    gaps = np.where(first, math.nan, rng.exponential(0.1, len(session)))
    alike(*both(replace(case[0], session_id=session, gap_s=gaps), COSTS["memory"], case[1]))


@pytest.mark.parametrize("plain", [True, False])
def test_refused_three_times_by_hand(plain: bool) -> None:
    """One slot of a second a request and one place to wait: the backoffs of 0.5 s and 1 s lead to 0.5 s and 1.5 s."""
    config = EngineConfig("continuous", 1, max_queued_requests=1, retries=2, retry_backoff_s=0.5)
    run = simulate(Requests.of(np.zeros(4), 10, 100), SLOW, config, plain=plain)
    assert run.attempts is not None
    assert run.refusals is not None
    assert run.outcome.tolist() == [1, 1, 1, REJECTED]
    assert run.attempts.tolist() == [1, 2, 3, 3]
    assert run.refusals.tolist() == [0, 1, 2, 3]
    assert run.ttft_s.tolist() == pytest.approx([0.01, 1.01, 2.01, math.inf])
    summary = run.summary()
    assert (summary["retries"], summary["fast_rejects"], summary["rejected"]) == (5, 6, 1)


@pytest.mark.parametrize("plain", [True, False])
def test_each_attempt_has_its_own_deadline_by_hand(plain: bool) -> None:
    config = EngineConfig("continuous", 1, retries=2, retry_backoff_s=0.5)
    run = simulate(Requests.of(np.zeros(4), 10, 100, timeout_s=0.5), SLOW, config, plain=plain)
    assert run.attempts is not None
    assert run.outcome.tolist() == [1, 1, 1, TIMED_OUT]
    assert run.attempts.tolist() == [1, 2, 3, 3]
    assert run.finish_s.tolist() == pytest.approx([1.0, 2.0, 3.5, 3.0])
    assert run.arrival_s.tolist() == [0.0] * 4


@pytest.mark.parametrize("plain", [True, False])
def test_who_times_out_in_a_step_is_sent_again_at_its_end(plain: bool) -> None:
    """Steps of 1 s, patience of 0.4 s, backoff of 0.1 s: it leaves at 1 s, comes back then, and so on."""
    config = EngineConfig("continuous", 1, retries=2, retry_backoff_s=0.1, retry_growth=1.0)
    step = affine(1.0, 0.0, 0.0)
    run = simulate(Requests.of([0.0], 10, 1, timeout_s=0.4), step, config, plain=plain)
    assert run.finish_s[0] == pytest.approx(2.4)
    assert (run.first_scheduled_s[0], run.steps) == (pytest.approx(2.0), 3)


def test_random_routers_draw_anew_for_each_attempt() -> None:
    """Of 64 at once on 64 replicas, some find a queue that is full: they come to replicas that nobody was sent to before."""
    requests, config = Requests.of(np.zeros(64), 10, 1), EngineConfig("continuous", 1, max_queued_requests=1)
    served = []
    for tried in (config, replace(config, retries=1)):
        run = simulate(requests, SLOW, tried, replicas=64, router="random", seed=3)
        served.append(set(run.replica[run.outcome == 1].tolist()))
    assert served[0] < served[1]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"retries": -1}, "retries: must be from 0"),
        ({"retries": 101}, "retries: must be from 0"),
        ({"retries": 1, "retry_backoff_s": 0.0}, "retry_backoff_s"),
        ({"retries": 1, "retry_growth": 0.5}, "retry_growth"),
        ({"retry_backoff_s": 3.0}, "give retries or drop them"),
        ({"retries": 60, "retry_growth": 10.0}, "give fewer"),
    ],
)
def test_what_cannot_be_is_said(made: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        EngineConfig(**made)  # type: ignore[arg-type]


def test_what_does_not_combine_is_said() -> None:
    requests = Requests.of([0.0], 10, 1, timeout_s=1.0)
    config = EngineConfig(retries=1, prefix_cache=PrefixCache(), kv_blocks=100)
    with pytest.raises(InputError, match="retries: of requests that time out"):
        simulate(requests, SLOW, config)
    with pytest.raises(InputError, match="retries in pools"):
        simulate_pools(requests, Pool(SLOW, EngineConfig(retries=1)), Pool(SLOW, EngineConfig()))
