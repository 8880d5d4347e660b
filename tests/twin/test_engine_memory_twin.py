"""Answers in parallel, LoRA adapters and preemption by swap: kernel against twin, alone and together."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS as STEPS

from fleetplan.engine import EngineConfig, Outage, PrefixCache, Result, simulate
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

SCHEDULERS = ("static", "continuous", "chunked", "prefill_first")
COSTS = {name: STEPS[name] for name in ("turning", "vectors")}


@st.composite
def workloads(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    arrival = np.sort(rng.exponential(draw(st.sampled_from([0.005, 0.05, 0.5])), count).cumsum())
    if draw(st.booleans()):
        arrival = np.round(arrival, 1)
    widest = draw(st.sampled_from([1, 2, 5]))
    return Requests.of(
        arrival,
        rng.integers(1, draw(st.sampled_from([12, 60])) + 1, count),
        rng.integers(1, draw(st.sampled_from([2, 20, 60])) + 1, count),
        answers=rng.integers(1, widest + 1, count),
        adapter_id=rng.integers(-1, draw(st.sampled_from([0, 5])), count),
        prefix_id=rng.integers(-1, 2, count),
        prefix_tokens=rng.integers(0, 50, count),
        timeout_s=rng.uniform(0, 0.3, count) if draw(st.sampled_from([False, False, True])) else math.inf,
        class_index=rng.integers(0, 2, count),
        classes=("chat", "code"),
    )


@st.composite
def engines(draw: st.DrawFn) -> EngineConfig:
    scheduler = draw(st.sampled_from(SCHEDULERS))
    swaps = scheduler in ("chunked", "prefill_first") and draw(st.booleans())
    caches = scheduler != "static" and not swaps and draw(st.booleans())
    return EngineConfig(
        scheduler,
        max_num_seqs=draw(st.sampled_from([1, 4, 9, 64])),
        max_num_batched_tokens=draw(st.sampled_from([3, 7, 16, 64, 512])),
        kv_blocks=draw(st.sampled_from([None, 13, 25, 40, 200])),
        block_size=draw(st.sampled_from([1, 4, 5, 16])),
        prefix_cache=PrefixCache() if caches else None,
        preemption="swap" if swaps else "recompute",
        swap_blocks=draw(st.sampled_from([3, 30])) if swaps else 0,
        swap_block_s=2e-4 if swaps else 0.0,
        max_adapters=draw(st.sampled_from([1, 2, 4])),
        adapter_load_s=draw(st.sampled_from([0.0, 0.01])),
    )


def agree(slow: Result, fast: Result) -> None:
    for name in ("outcome", "reason", "preemptions", "replica"):
        np.testing.assert_array_equal(getattr(fast, name), getattr(slow, name), err_msg=name)
    for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "busy_s"):
        np.testing.assert_allclose(
            getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12, err_msg=name
        )
    assert fast.steps == slow.steps
    for one, other in zip(fast.itl, slow.itl, strict=True):
        assert one.count == other.count
        if other.mean_s is not None:
            assert one.mean_s == pytest.approx(other.mean_s, rel=1e-9)
    if slow.prefix_hit_tokens is not None:
        np.testing.assert_array_equal(fast.prefix_hit_tokens, slow.prefix_hit_tokens)


@given(
    workloads(), engines(), st.sampled_from(sorted(COSTS)), st.integers(1, 2),
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 2), st.sampled_from([0.05, math.inf]), st.booleans()), max_size=2),
)  # fmt: skip
@settings(max_examples=100)
def test_all_together(
    requests: Requests,
    config: EngineConfig,
    cost: str,
    replicas: int,
    outages: list[tuple[int, float, float, bool]],
) -> None:
    if config.preemption == "swap":
        requests = replace(requests, answers=np.ones(len(requests), dtype=np.int64))
    away = [Outage(r % replicas, down, down + length, drain) for r, down, length, drain in outages]
    options: dict = {"replicas": replicas, "router": "least_outstanding", "outages": away}
    slow = simulate(requests, COSTS[cost], config, plain=True, resolution_s=0.0137123457, **options)
    fast = simulate(requests, COSTS[cost], config, resolution_s=0.0137123457, **options)
    agree(slow, fast)
    assert slow.series is not None
    assert fast.series is not None
    if not away:
        for name in ("running", "waiting", "kv_blocks", "output_tokens"):
            np.testing.assert_array_equal(
                getattr(fast.series, name), getattr(slow.series, name), err_msg=name
            )


STEP = affine(0.005, 2e-5, 5e-4)


@pytest.mark.parametrize("plain", [True, False])
def test_answers_share_one_prefill(plain: bool) -> None:
    """100 prompt tokens once, then 3 tokens a step: 7 ms, and twice 5 ms + 3 · 0.5 ms."""
    run = simulate(Requests.of([0.0], 100, 3, answers=3), STEP, EngineConfig(), plain=plain)
    assert run.first_token_s[0] == pytest.approx(0.007)
    assert run.finish_s[0] == pytest.approx(0.007 + 2 * 0.0065)
    assert run.summary()["output_tokens"] == 9
    assert sum(h.count for h in run.itl) == 6


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize(
    ("blocks", "seqs", "outcome", "reason"),
    [(6 + 4 * 2, 4, 1, 0), (6 + 4 * 2 - 1, 4, 2, 1), (999, 3, 2, 5)],
)
def test_what_answers_never_fit(plain: bool, blocks: int, seqs: int, outcome: int, reason: int) -> None:
    """100 tokens are 6 whole blocks; each of 4 answers holds the rest of 4 and 19 more tokens, 2 blocks."""
    config = EngineConfig(max_num_seqs=seqs, kv_blocks=blocks)
    run = simulate(Requests.of([0.0], 100, 20, answers=4), STEP, config, plain=plain)
    assert (run.outcome[0], run.reason[0]) == (outcome, reason)


@pytest.mark.parametrize("plain", [True, False])
def test_an_adapter_is_loaded_once_while_it_is_used(plain: bool) -> None:
    requests = Requests.of([0.0, 0.0, 1.0, 2.0, 3.0], 100, 1, adapter_id=[7, 7, 8, 7, 9])
    config = EngineConfig(max_adapters=2, adapter_load_s=0.1)
    run = simulate(requests, STEP, config, plain=plain)
    np.testing.assert_allclose(run.ttft_s, [0.109, 0.109, 0.107, 0.007, 0.107])
    one = simulate(requests, STEP, EngineConfig(max_adapters=1, adapter_load_s=0.1), plain=plain)
    np.testing.assert_allclose(one.ttft_s, [0.109, 0.109, 0.107, 0.107, 0.107])


@pytest.mark.parametrize("plain", [True, False])
def test_an_adapter_in_use_stays(plain: bool) -> None:
    requests = Requests.of([0.0, 0.001], 100, [5, 1], adapter_id=[1, 2])
    run = simulate(requests, STEP, EngineConfig(max_adapters=1), plain=plain)
    assert run.first_scheduled_s[1] == pytest.approx(run.finish_s[0])
    both = simulate(requests, STEP, EngineConfig(max_adapters=2), plain=plain)
    assert both.first_scheduled_s[1] == pytest.approx(0.007)


@pytest.mark.parametrize("plain", [True, False])
def test_swap_brings_back_what_recompute_computes_again(plain: bool) -> None:
    """Of two sequences with 48 tokens, 3 blocks each, of 7, the later gives way until the first has finished."""
    requests = Requests.of([0.0, 0.0], 32, 40)
    again = simulate(requests, STEP, EngineConfig(kv_blocks=7), plain=plain)
    config = EngineConfig(kv_blocks=7, preemption="swap", swap_blocks=9, swap_block_s=1e-3)
    swapped = simulate(requests, STEP, config, plain=plain)
    assert swapped.preemptions.tolist() == again.preemptions.tolist() == [0, 1]
    out_s = back_s = 3e-3
    assert swapped.finish_s[0] - again.finish_s[0] == pytest.approx(out_s)
    # then one token is decoded where 49 were computed again
    later_s = out_s + back_s + 5e-4 - 49 * 2e-5
    assert swapped.finish_s[1] - again.finish_s[1] == pytest.approx(later_s)
    full = replace(config, swap_blocks=2)
    np.testing.assert_array_equal(simulate(requests, STEP, full, plain=plain).finish_s, again.finish_s)


@pytest.mark.parametrize(
    ("config", "requests", "told"),
    [
        ({"preemption": "swap"}, {}, "swap_blocks"),
        ({"preemption": "wait"}, {}, "recompute or swap"),
        ({"swap_blocks": 4}, {}, "preemption swap"),
        ({"preemption": "swap", "swap_blocks": 4, "prefix_cache": PrefixCache()}, {}, "prefix cache"),
        ({"scheduler": "continuous", "preemption": "swap", "swap_blocks": 4}, {}, "never preempts"),
        ({"scheduler": "static", "prefix_cache": PrefixCache()}, {}, "static"),
        ({"max_adapters": 0}, {}, "max_adapters"),
        ({}, {"adapter_id": 3}, "max_adapters"),
        ({"preemption": "swap", "swap_blocks": 4}, {"answers": 2}, "answers"),
    ],
)
def test_what_does_not_combine_is_refused(config: dict, requests: dict, told: str) -> None:
    with pytest.raises(InputError, match=told):
        simulate(Requests.of([0.0], 10, 2, **requests), STEP, EngineConfig(**config))
