"""How fast the engine is: requests and output tokens simulated a second, and how many times faster than the twin."""

import time

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from fleetplan.engine import EngineConfig, Link, Pool, Result, simulate, simulate_pools
from fleetplan.physics.steptime import linear
from fleetplan.traffic.requests import Requests

# Llama-3.1-8B in bf16 on one H100: 80% of its bandwidth, 60% of its FLOP/s, 1 ms a step, 20 µs a sequence.
COST = linear(
    1e-3, 2 * 8.03e9 / (0.6 * 989e12), 16.06e9 / (0.8 * 3.35e12), 0.0, 131072 / (0.8 * 3.35e12), 2e-5
)
POOL, SMALL_POOL = 26_000, 3_000


def poisson(rate_per_s: float, count: int, mean_output: float = 200.0) -> Requests:
    rng = np.random.default_rng(0)
    return Requests.of(
        np.cumsum(rng.exponential(1 / rate_per_s, count)),
        np.minimum(1 + rng.exponential(511, count), 8000).astype(np.int64),
        np.minimum(rng.geometric(1 / mean_output, count), 40 * int(mean_output)),
    )


def told(name: str, requests: Requests, run: Result, seconds: float) -> str:
    tokens = requests.output_tokens.sum()
    return (
        f"\n{name}: {len(requests) / seconds:,.0f} requests/s, {tokens / seconds:,.0f} output tokens/s, "
        f"{run.preemptions.sum()} preemptions, mean batch {tokens / run.steps:.0f}"
    )


CASES = {
    "a: Poisson 5/s": (5.0, POOL, 1, "round_robin"),
    "a: Poisson 20/s": (20.0, POOL, 1, "round_robin"),
    "a: saturated": (60.0, POOL, 1, "round_robin"),
    "b: saturated, small KV pool": (60.0, SMALL_POOL, 1, "round_robin"),
    "c: 64 replicas, least outstanding": (64 * 20.0, POOL, 64, "least_outstanding"),
}


@pytest.mark.parametrize("case", CASES)
def test_requests_a_second(case: str, benchmark: BenchmarkFixture) -> None:
    rate, pool, replicas, router = CASES[case]
    requests = poisson(rate, 1_000_000)
    config = EngineConfig(kv_blocks=pool)
    simulate(requests.take(np.arange(1000)), COST, config, replicas, router)
    run = benchmark.pedantic(simulate, (requests, COST, config, replicas, router), rounds=3)
    print(told(case, requests, run, benchmark.stats.stats.min))
    assert (run.outcome == 1).all()


@pytest.mark.parametrize("rate", [20.0, 60.0])
def test_ratio_to_the_twin(rate: float, benchmark: BenchmarkFixture) -> None:
    requests = poisson(rate, 500)
    config = EngineConfig(kv_blocks=POOL)
    start = time.process_time()
    slow = simulate(requests, COST, config, plain=True)
    plain_s = (time.process_time() - start) / 500
    many = poisson(rate, 500_000)
    fast = benchmark.pedantic(simulate, (many, COST, config), rounds=3)
    ratio = plain_s * 500_000 / benchmark.stats.stats.min
    print(
        f"\nd: the twin at {rate}/s: {1 / plain_s:,.0f} requests/s; the kernel is {ratio:,.0f} times as fast"
    )
    assert slow.steps > 0
    assert fast.steps > 0


def test_flat_in_output_length(benchmark: BenchmarkFixture) -> None:
    config = EngineConfig(kv_blocks=None)
    short, long = poisson(20.0, 300_000, 200.0), poisson(2.0, 300_000, 2000.0)
    simulate(short.take(np.arange(1000)), COST, config)
    times = []
    for requests in (short, long):
        start = time.process_time()
        simulate(requests, COST, config)
        times.append(time.process_time() - start)
    benchmark.pedantic(simulate, (long, COST, config), rounds=1)
    print(f"\nflat in output length: outputs ten times as long cost {times[1] / times[0]:.2f} times the time")


def test_pools_and_their_ratio_to_the_twin(benchmark: BenchmarkFixture) -> None:
    """One prefill and two decode replicas of (a), a link of 50 GB/s, at 20 requests/s."""
    prefill = Pool(COST, EngineConfig(kv_blocks=POOL))
    decode = Pool(COST, EngineConfig(kv_blocks=POOL), 2)
    link = Link(50e9, 131072, 1e-3)
    few, many = poisson(20.0, 500), poisson(20.0, 500_000)
    start = time.process_time()
    slow = simulate_pools(few, prefill, decode, link, plain=True)
    plain_s = (time.process_time() - start) / 500
    fast = benchmark.pedantic(simulate_pools, (many, prefill, decode, link), rounds=3)
    seconds = benchmark.stats.stats.min
    print(told("e: disaggregated, 1 + 2 replicas", many, fast, seconds))
    print(
        f"   the twin: {1 / plain_s:,.0f} requests/s; the kernel is {plain_s * 500_000 / seconds:,.0f} times as fast"
    )
    assert slow.steps > 0
    assert (fast.outcome == 1).all()
