"""The prefix cache: kernel against twin, which counts its blocks at every step, on random shared prefixes, sessions and hashes."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS as STEPS

from fleetplan.engine import EngineConfig, Outage, PrefixCache, Result, simulate
from fleetplan.engine.speculate import Speculation
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

SCHEDULERS = ("continuous", "chunked", "prefill_first")
COSTS = {name: STEPS[name] for name in ("memory", "turning", "vectors")}


@st.composite
def alike(draw: st.DrawFn) -> Requests:
    """Requests that have prefixes, turns or hashed blocks in common, or all of these."""
    count = draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrival = np.sort(rng.exponential(draw(st.sampled_from([0.01, 0.1, 1.0])), count).cumsum())
    if draw(st.booleans()):
        arrival = np.round(arrival, 1)
    prompt = rng.integers(1, draw(st.sampled_from([12, 60, 120])) + 1, count)
    output = rng.integers(1, draw(st.sampled_from([2, 20, 60])) + 1, count)
    columns: dict[str, object] = {}
    kind = draw(st.sampled_from(["prefix", "sessions", "hashes", "all"]))
    if kind in ("prefix", "all"):
        columns["prefix_id"] = rng.integers(-1, 3, count)
        long = draw(st.sampled_from([8, 48, 100]))
        columns["prefix_tokens"] = (
            np.full(count, long) if draw(st.booleans()) else rng.integers(0, long, count)
        )
    if kind in ("sessions", "all"):
        owner = rng.integers(0, draw(st.integers(1, 6)), count)
        columns["session_id"] = np.where(rng.random(count) < 0.2, -1, owner)
        waits = draw(st.booleans())
        first = np.zeros(count, dtype=bool)
        first[np.unique(owner, return_index=True)[1]] = True
        if waits:
            columns["session_id"] = owner
            columns["gap_s"] = np.where(first, np.nan, rng.exponential(0.05, count))
        history = draw(st.sampled_from(["whole", "part", "none"]))
        if history == "whole":  # prompts that hold the turn before
            for k in np.unique(owner):
                rows = np.flatnonzero(owner == k)
                prompt[rows] = np.cumsum(prompt[rows] % 17 + 1) + np.append(0, np.cumsum(output[rows])[:-1])
        elif history == "part":
            columns["history_tokens"] = rng.integers(-1, 70, count)
        else:
            columns["history_tokens"] = np.zeros(count, dtype=np.int64)
    if kind in ("hashes", "all") and draw(st.booleans()):
        width = draw(st.sampled_from([2, 4, 6, 16]))
        blocks = rng.integers(0, 5, count) if kind == "all" else -(-prompt // width)
        columns["block_offsets"] = np.concatenate([[0], np.cumsum(blocks)])
        columns["block_hashes"] = rng.integers(0, 2, columns["block_offsets"][-1])  # type: ignore[index]
        columns["hash_block_tokens"] = width
    if draw(st.sampled_from([False, False, True])):
        columns["timeout_s"] = rng.uniform(0, 0.3, count)
    return Requests.of(arrival, prompt, output, **columns)  # type: ignore[arg-type]


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    host = draw(st.sampled_from([0, 0, 3, 20]))
    return EngineConfig(
        draw(st.sampled_from(SCHEDULERS)),
        max_num_seqs=draw(st.sampled_from([1, 2, 5, 64])),
        max_num_batched_tokens=draw(st.sampled_from([1, 3, 16, 64, 512])),
        kv_blocks=draw(st.sampled_from([None, 13, 25, 40, 90, 400])),
        block_size=draw(st.sampled_from([1, 4, 5, 16])),
        speculation=draw(st.sampled_from([None, None, Speculation.of([0.8, 0.6, 0.5], draft_cost=0.1)])),
        prefix_cache=PrefixCache(host, 1e-3, draw(st.sampled_from([0, 7, 50])) if host else 0, 4e-3),
    )


def both(
    requests: Requests, cost: StepTime, config: EngineConfig, **options: object
) -> tuple[Result, Result]:
    slow = simulate(requests, cost, config, plain=True, **options)  # type: ignore[arg-type]
    return slow, simulate(requests, cost, config, **options)  # type: ignore[arg-type]


def agree(slow: Result, fast: Result) -> None:
    for name in ("outcome", "reason", "preemptions", "replica", "prefix_hit_tokens"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "busy_s"):
        np.testing.assert_allclose(
            getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert fast.steps == slow.steps
    assert [h.count for h in fast.itl] == [h.count for h in slow.itl]


@given(alike(), engines(), st.sampled_from(sorted(COSTS)))
@settings(max_examples=120)
def test_one_replica(requests: Requests, config: EngineConfig, cost: str) -> None:
    slow, fast = both(requests, COSTS[cost], config, resolution_s=0.0137123457)
    agree(slow, fast)
    assert slow.series is not None
    assert fast.series is not None
    for name in ("running", "waiting", "kv_blocks", "output_tokens"):
        np.testing.assert_array_equal(getattr(fast.series, name), getattr(slow.series, name), err_msg=name)


@given(
    alike(), engines(), st.sampled_from(["round_robin", "least_outstanding", "prefix_affine", "power_of_two"]), st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 2), st.floats(0, 2), st.sampled_from([0.05, 1.0, math.inf]), st.booleans()), max_size=3),
)  # fmt: skip
@settings(max_examples=80)
def test_replicas_that_come_and_go(
    requests: Requests,
    config: EngineConfig,
    router: str,
    replicas: int,
    outages: list[tuple[int, float, float, bool]],
) -> None:
    away = [Outage(r % replicas, down, down + length, drain) for r, down, length, drain in outages]
    slow, fast = both(requests, COSTS["memory"], config, replicas=replicas, router=router, outages=away)
    agree(slow, fast)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_nothing_in_common_is_as_without_a_cache(scheduler: str) -> None:
    rng = np.random.default_rng(5)
    requests = Requests.of(
        np.cumsum(rng.exponential(0.05, 300)), rng.integers(1, 200, 300), rng.integers(1, 60, 300)
    )
    roomy = EngineConfig(scheduler, kv_blocks=4000)
    without = simulate(requests, COSTS["memory"], roomy)
    with_cache = simulate(
        requests, COSTS["memory"], EngineConfig(scheduler, kv_blocks=4000, prefix_cache=PrefixCache())
    )
    np.testing.assert_array_equal(with_cache.finish_s, without.finish_s)
    assert with_cache.prefix_hit_tokens is not None
    assert with_cache.prefix_hit_tokens.sum() == 0
