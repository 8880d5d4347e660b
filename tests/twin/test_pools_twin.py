"""Disaggregated pools: the event-skipping kernel against the twin that steps every iteration and every crossing of the link."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS, in_turns

from fleetplan.engine import (
    ROUTERS,
    ClosedLoop,
    EngineConfig,
    Link,
    Pool,
    Result,
    Speculation,
    simulate,
    simulate_pools,
)
from fleetplan.traffic.requests import Requests

DRAFTS = Speculation.of([0.7, 0.5, 0.5], draft_cost=0.1, off_above=4)
LINKS = (Link(), Link(latency_s=0.003), Link(1e8, 1e5, 0.001), Link(1e6, 2e3), Link(2e7, 1e5, 0.05))


@st.composite
def workloads(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrival = {
        "poisson": np.cumsum(rng.exponential(draw(st.sampled_from([0.003, 0.05, 0.5])), count)),
        "burst": np.repeat(np.cumsum(rng.exponential(0.5, count)), rng.integers(1, 9, count))[:count],
        "together": np.zeros(count),
        "alone": np.arange(count) * 30.0,
        "grid": rng.integers(0, 40, count) * 0.0095,
    }[draw(st.sampled_from(["poisson", "burst", "together", "alone", "grid"]))]
    timeouts = draw(st.sampled_from([math.inf, math.inf, 0.02, 0.3]))
    most_hidden = draw(st.sampled_from([0, 0, 5, 60]))
    return Requests.of(
        arrival,
        rng.integers(1, draw(st.sampled_from([1, 20, 120])) + 1, count),
        rng.integers(1, draw(st.sampled_from([1, 4, 30, 90])) + 1, count),
        timeout_s=rng.uniform(0, timeouts, count) if timeouts < math.inf else math.inf,
        class_index=rng.integers(0, 2, count),
        classes=("chat", "code"),
        prefix_id=rng.integers(-1, 4, count),
        hidden_tokens=rng.integers(0, most_hidden + 1, count),
    )


@st.composite
def pools(draw: st.DrawFn, stage: str) -> Pool:
    router = draw(st.sampled_from([r for r in ROUTERS if stage == "prefill" or r != "central_queue"]))
    blocks = draw(st.sampled_from([None, 8, 13, 40, 400]))
    if router == "least_kv":
        blocks = blocks or 40
    scheduler = draw(st.sampled_from(["continuous", "chunked", "prefill_first"]))
    if router == "central_queue" and scheduler == "chunked":
        blocks = None
    config = EngineConfig(
        scheduler,
        max_num_seqs=draw(st.sampled_from([1, 2, 5, 64])),
        max_num_batched_tokens=draw(st.sampled_from([1, 3, 16, 64, 512])),
        kv_blocks=blocks,
        block_size=draw(st.sampled_from([1, 4, 16])),
        max_queued_requests=draw(st.sampled_from([None, None, 3])) if stage == "prefill" else None,
        max_queued_tokens=draw(st.sampled_from([None, None, 200])) if stage == "prefill" else None,
        speculation=draw(st.sampled_from([None, None, DRAFTS])) if stage == "decode" else None,
    )
    return Pool(COSTS[draw(st.sampled_from(sorted(COSTS)))], config, draw(st.integers(1, 3)), router)


def both(*given_: Any, **options: Any) -> tuple[Result, Result]:
    return simulate_pools(*given_, plain=True, **options), simulate_pools(*given_, **options)


def agree(slow: Result, fast: Result) -> None:
    assert fast.handoff is not None
    assert slow.handoff is not None
    for name in ("outcome", "reason", "preemptions", "replica"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("prefill_replica", "decode_replica"):
        np.testing.assert_array_equal(getattr(fast.handoff, name), getattr(slow.handoff, name), err_msg=name)
    for name in ("prefilled_s", "reserved_s", "sent_s", "landed_s"):
        np.testing.assert_allclose(
            getattr(fast.handoff, name), getattr(slow.handoff, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    for name in ("arrival_s", "first_scheduled_s", "first_token_s", "first_visible_s", "finish_s", "busy_s"):
        np.testing.assert_allclose(
            getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert fast.steps == slow.steps
    for one, other in zip(fast.itl, slow.itl, strict=True):
        assert one.count == other.count
        if other.mean_s is not None:
            np.testing.assert_allclose(one.mean_s or 0.0, other.mean_s, rtol=1e-9)
            np.testing.assert_allclose(
                one.percentile_s(90) or 0.0, other.percentile_s(90) or 0.0, rtol=2e-3, atol=1e-9
            )


def conserve(run: Result, prefill: Pool, decode: Pool, link: Link) -> None:
    """Every request ends; each token has its gap; memory is never over-full; the link carries one prompt at a time, in order."""
    counts, way = run.counts(), run.handoff
    assert way is not None
    assert counts["unfinished"] == 0
    done = run.outcome == 1
    assert sum(h.count for h in run.itl) == (run.requests.output_tokens[done] - 1).sum()
    np.testing.assert_allclose(
        sum(h.count * (h.mean_s or 0) for h in run.itl),
        (run.finish_s - run.first_token_s)[done].sum(),
        rtol=1e-9,
        atol=1e-9,
    )
    went = np.flatnonzero(np.isfinite(way.landed_s))
    prompt = run.requests.prompt_tokens
    assert (way.prefilled_s[went] <= way.reserved_s[went] + 1e-9).all()
    assert (way.reserved_s[went] <= way.sent_s[went] + 1e-9).all()
    crossing = prompt[went] * link.s_per_token
    np.testing.assert_allclose(
        way.landed_s[went] - way.sent_s[went], crossing + link.latency_s, rtol=1e-9, atol=1e-9
    )
    order = np.lexsort((way.landed_s[went], way.sent_s[went]))
    assert (way.sent_s[went][order][1:] >= (way.sent_s[went] + crossing)[order][:-1] - 1e-9).all()
    assert (way.landed_s[went] < run.finish_s[went]).all()
    for pool, replica, begin, end, tokens in (
        (prefill, way.prefill_replica, way.prefilled_s, way.landed_s, prompt),
        (decode, way.decode_replica, way.reserved_s, run.finish_s, prompt + run.requests.output_tokens - 1),
    ):
        # What waits for the link, and what was reserved for a whole life, by replica, at every reservation.
        whole = pool is prefill or pool.config.scheduler == "continuous"
        if pool.config.kv_blocks is None or not whole or run.preemptions.any():
            continue
        for r in range(pool.replicas):
            mine = went[replica[went] == r]
            held = -(-tokens[mine] // pool.config.block_size)
            for i in mine:
                now = begin[i] + 1e-9
                assert held[(begin[mine] <= now) & (end[mine] > now)].sum() <= pool.config.kv_blocks


@given(
    workloads(), pools("prefill"), pools("decode"), st.sampled_from(LINKS), st.sampled_from([0, 0, 8, 60]), st.booleans()
)  # fmt: skip
@settings(max_examples=400)
def test_every_request_alike(
    requests: Requests, prefill: Pool, decode: Pool, link: Link, bypass: int, at_landing: bool
) -> None:
    first_token = "landing" if at_landing else "prefill"
    slow, fast = both(requests, prefill, decode, link, bypass_tokens=bypass, first_token=first_token, seed=5)
    agree(slow, fast)
    conserve(fast, prefill, decode, link)


@given(
    workloads(), pools("prefill"), pools("decode"), st.sampled_from(LINKS), st.integers(1, 9), st.sampled_from([0.0, 0.03])
)  # fmt: skip
@settings(max_examples=80)
def test_closed_loop(
    requests: Requests, prefill: Pool, decode: Pool, link: Link, users: int, think_s: float
) -> None:
    loop = ClosedLoop(users, think_s)
    slow, fast = both(requests, prefill, decode, link, bypass_tokens=8, closed_loop=loop)
    agree(slow, fast)
    conserve(fast, prefill, decode, link)


@given(workloads(), pools("prefill"), pools("decode"), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=80)
def test_sessions(requests: Requests, prefill: Pool, decode: Pool, sessions: int, seed: int) -> None:
    turns = in_turns(requests, sessions, seed)
    slow, fast = both(turns, prefill, decode, LINKS[2], bypass_tokens=8)
    agree(slow, fast)


@given(workloads(), pools("prefill"), pools("decode"), st.floats(0.0, 1.0))
@settings(max_examples=80)
def test_a_run_that_is_cut_off(requests: Requests, prefill: Pool, decode: Pool, until_s: float) -> None:
    slow, fast = both(requests, prefill, decode, LINKS[2], until_s=until_s, bypass_tokens=8)
    np.testing.assert_array_equal(fast.outcome, slow.outcome)
    for name in ("first_token_s", "finish_s"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9)
    np.testing.assert_allclose(fast.handoff.landed_s, slow.handoff.landed_s, rtol=1e-9)  # type: ignore[union-attr]
    assert fast.steps == slow.steps


@given(workloads(), pools("prefill"), pools("decode"))
@settings(max_examples=60)
def test_a_pool_alone_is_a_plain_fleet(requests: Requests, prefill: Pool, decode: Pool) -> None:
    """Answers of one token never leave prefill, and where every prompt bypasses it decode is a fleet of its own."""
    roomy = Pool(COSTS["affine"], EngineConfig("continuous"))
    # What never fits is refused before it is routed, and leaves round robin as it was: here all fit.
    config = decode.config
    decode = replace(decode, config=replace(config, kv_blocks=None if config.kv_blocks is None else 400))
    short = replace(requests, output_tokens=np.ones(len(requests), dtype=np.int64))
    for pool, alone, run in (
        (prefill, short, simulate_pools(short, prefill, roomy, seed=3)),
        (decode, requests, simulate_pools(requests, roomy, decode, bypass_tokens=1000, seed=2)),
    ):
        fleet = simulate(alone, pool.steptime, pool.config, pool.replicas, pool.router, 3)
        np.testing.assert_array_equal(run.outcome, fleet.outcome)
        np.testing.assert_array_equal(run.preemptions, fleet.preemptions)
        for name in ("first_scheduled_s", "first_token_s", "finish_s"):
            np.testing.assert_allclose(getattr(run, name), getattr(fleet, name), rtol=1e-9, err_msg=name)
        assert run.steps == fleet.steps
