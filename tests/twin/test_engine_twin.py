"""The event-skipping kernel against the one-step-at-a-time twin, and conservation laws, on random workloads."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetplan.engine import ROUTERS, ClosedLoop, EngineConfig, Outage, Result, simulate
from fleetplan.physics.steptime import StepTime, affine, linear
from fleetplan.traffic.requests import Requests

SCHEDULERS = ("static", "continuous", "chunked", "prefill_first")
COSTS = {
    "affine": affine(0.005, 2e-5, 5e-4),
    "memory": linear(1e-3, 2e-5, 6e-3, 0.0, 5e-8, 2e-5),
    "turning": linear(1e-3, 1e-5, 6e-3, 3e-6, 1e-6, 2e-5),
    "vectors": StepTime(
        np.linspace(0, 1e-3, 9), np.linspace(0, 2e-3, 9) ** 1.5, np.full(9, 2e-3), 1e-5, 1e-6, 1e-7, 3e-7, 4e-7, 2e-6, 1e-6,
        12, 1e-5, 2e-5, 0.0,
    ),
}  # fmt: skip


@st.composite
def workloads(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 40))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    kind = draw(st.sampled_from(["poisson", "burst", "together", "alone", "grid"]))
    arrival = {
        "poisson": np.cumsum(rng.exponential(draw(st.sampled_from([0.003, 0.05, 0.5])), count)),
        "burst": np.repeat(np.cumsum(rng.exponential(0.5, count)), rng.integers(1, 9, count))[:count],
        "together": np.zeros(count),
        "alone": np.arange(count) * 30.0,
        "grid": rng.integers(0, 40, count) * 0.0095,
    }[kind]
    longest = draw(st.sampled_from([1, 4, 30, 90]))
    timeouts = draw(st.sampled_from([math.inf, 0.02, 0.3]))
    most_hidden = draw(st.sampled_from([0, 0, 5, 60]))
    return Requests.of(
        arrival,
        rng.integers(1, draw(st.sampled_from([1, 20, 120])) + 1, count),
        rng.integers(1, longest + 1, count),
        timeout_s=rng.uniform(0, timeouts, count) if timeouts < math.inf else math.inf,
        class_index=rng.integers(0, 2, count),
        classes=("chat", "code"),
        prefix_id=rng.integers(-1, 4, count),
        hidden_tokens=rng.integers(0, most_hidden + 1, count),
    )


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    return EngineConfig(
        draw(st.sampled_from(SCHEDULERS)),
        max_num_seqs=draw(st.sampled_from([1, 2, 5, 64])),
        max_num_batched_tokens=draw(st.sampled_from([1, 3, 16, 64, 512])),
        kv_blocks=draw(st.sampled_from([None, 8, 13, 40, 400])),
        block_size=draw(st.sampled_from([1, 4, 16])),
        max_queued_requests=draw(st.sampled_from([None, None, 3])),
        max_queued_tokens=draw(st.sampled_from([None, None, 200])),
    )


def with_pool(config: EngineConfig, router: str) -> EngineConfig:
    """Least KV compares blocks, so that it needs a pool."""
    return replace(config, kv_blocks=config.kv_blocks or 40) if router == "least_kv" else config


def both(
    requests: Requests, cost: StepTime, config: EngineConfig, **options: object
) -> tuple[Result, Result]:
    slow = simulate(requests, cost, config, plain=True, **options)  # type: ignore[arg-type]
    fast = simulate(requests, cost, config, **options)  # type: ignore[arg-type]
    return slow, fast


def agree(slow: Result, fast: Result) -> None:
    for name in ("outcome", "reason", "preemptions", "replica"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("arrival_s", "first_scheduled_s", "first_token_s", "first_visible_s", "finish_s", "busy_s"):
        np.testing.assert_allclose(
            getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert fast.steps == slow.steps
    for one, other in zip(fast.itl, slow.itl, strict=True):
        assert one.count == other.count
        if other.mean_s is not None:
            assert one.mean_s == pytest.approx(other.mean_s, rel=1e-9)
            assert one.percentile_s(90) == pytest.approx(other.percentile_s(90), rel=2e-3)


def conserve(run: Result) -> None:
    """Every request ends once, in order of its times; Little's law holds; each token has its gap; work is not lost."""
    counts = run.counts()
    assert (
        counts["requests"]
        == counts["finished"] + counts["rejected"] + counts["timed_out"] + counts["unfinished"]
    )
    done = run.outcome == 1
    output = run.requests.output_tokens[done]
    assert (run.first_scheduled_s[done] >= run.arrival_s[done] - 1e-9).all()
    assert (run.first_token_s[done] > run.first_scheduled_s[done]).all()
    assert (run.finish_s[done] >= run.first_token_s[done]).all()
    visible = done & ~run.all_hidden
    assert (run.first_visible_s[visible] >= run.first_token_s[visible]).all()
    assert (run.first_visible_s[visible] <= run.finish_s[visible]).all()
    assert np.isnan(run.first_visible_s[done & run.all_hidden]).all()
    if run.restarts is None and counts["unfinished"] == 0:
        assert sum(h.count for h in run.itl) == (output - 1).sum()
        assert sum(h.count * (h.mean_s or 0) for h in run.itl) == pytest.approx(
            (run.finish_s - run.first_token_s)[done].sum(), rel=1e-9, abs=1e-9
        )
    if done.any():
        # L = λW: the integral of the number in the system is the sum of the times in it.
        times = np.sort(np.concatenate([run.arrival_s[done], run.finish_s[done]]))
        inside = np.searchsorted(np.sort(run.arrival_s[done]), times, side="right") - np.searchsorted(
            np.sort(run.finish_s[done]), times, side="right"
        )
        assert (inside[:-1] * np.diff(times)).sum() == pytest.approx(
            run.e2e_s[done].sum(), rel=1e-9, abs=1e-9
        )
        assert (
            run.busy_s.max() <= (run.makespan_s or 0) * (1 + 1e-9) + 1e-9
            or counts["timed_out"] + counts["unfinished"]
        )


@given(workloads(), engines(), st.sampled_from(sorted(COSTS)))
@settings(max_examples=300)
def test_one_replica(requests: Requests, config: EngineConfig, cost: str) -> None:
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


@given(workloads(), engines(), st.sampled_from(ROUTERS), st.integers(1, 4))
@settings(max_examples=200)
def test_replicas_behind_every_router(
    requests: Requests, config: EngineConfig, router: str, replicas: int
) -> None:
    config = with_pool(config, router)
    slow, fast = both(requests, COSTS["memory"], config, replicas=replicas, router=router, seed=3)
    agree(slow, fast)
    conserve(fast)


@given(workloads(), engines(), st.integers(1, 9), st.sampled_from([0.0, 0.03, 2.0]), st.integers(1, 2))
@settings(max_examples=100)
def test_closed_loop(
    requests: Requests, config: EngineConfig, users: int, think_s: float, replicas: int
) -> None:
    loop = ClosedLoop(users, think_s)
    slow, fast = both(
        requests, COSTS["memory"], config, closed_loop=loop, replicas=replicas, router="least_outstanding"
    )
    agree(slow, fast)
    conserve(fast)


def in_turns(requests: Requests, sessions: int, seed: int) -> Requests:
    """The requests as turns of so many sessions."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, sessions, len(requests))
    first = np.zeros(len(requests), dtype=bool)
    first[np.unique(owner, return_index=True)[1]] = True
    gap = np.where(first, np.nan, rng.exponential(0.05, len(requests)))
    return Requests.of(
        requests.arrival_s, requests.prompt_tokens, requests.output_tokens, session_id=owner, gap_s=gap,
        timeout_s=requests.timeout_s,
    )  # fmt: skip


@given(workloads(), engines(), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=100)
def test_sessions(requests: Requests, config: EngineConfig, sessions: int, seed: int) -> None:
    turns = in_turns(requests, sessions, seed)
    slow, fast = both(turns, COSTS["affine"], config, replicas=2, router="prefix_affine")
    agree(slow, fast)
    conserve(fast)


Faults = list[tuple[int, float, float, bool]]
"""Replica, when it goes down [s], for how long [s], and whether it drains."""


def faults(most: int) -> st.SearchStrategy[Faults]:
    lengths = st.sampled_from([0.05, 1.0, math.inf])
    return st.lists(st.tuples(st.integers(0, 2), st.floats(0, 2), lengths, st.booleans()), max_size=most)


def through(
    requests: Requests, config: EngineConfig, router: str, replicas: int, outages: Faults
) -> tuple[Result, Result]:
    """Both engines through the outages; one queue for all does not swap."""
    away = [Outage(r % replicas, down, down + length, drain) for r, down, length, drain in outages]
    config = with_pool(config, router)
    if router == "central_queue":
        config = replace(config, preemption="recompute", swap_blocks=0, swap_block_s=0.0)
    return both(requests, COSTS["memory"], config, replicas=replicas, router=router, outages=away)


@given(workloads(), engines(), st.sampled_from(ROUTERS), st.integers(1, 3), faults(4))
@settings(max_examples=200)
def test_outages(
    requests: Requests, config: EngineConfig, router: str, replicas: int, outages: Faults
) -> None:
    slow, fast = through(requests, config, router, replicas, outages)
    agree(slow, fast)
    conserve(fast)


@given(workloads(), engines(), st.floats(0.0, 1.0))
@settings(max_examples=60)
def test_a_run_that_is_cut_off(requests: Requests, config: EngineConfig, until_s: float) -> None:
    slow, fast = both(requests, COSTS["memory"], config, until_s=until_s)
    np.testing.assert_array_equal(fast.outcome, slow.outcome)
    np.testing.assert_allclose(fast.first_token_s, slow.first_token_s, rtol=1e-9)
    np.testing.assert_allclose(fast.first_visible_s, slow.first_visible_s, rtol=1e-9)
    assert fast.steps == slow.steps
