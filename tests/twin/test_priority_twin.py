"""Priorities: the kernel against the twin on random workloads, who gives way, and the bound on starvation."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS, Faults, agree, both, conserve, engines, faults, through, workloads

from fleetplan.engine import ROUTERS, ClosedLoop, EngineConfig, Speculation, simulate
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests


@st.composite
def ranked(draw: st.DrawFn) -> tuple[Requests, EngineConfig]:
    """A random workload with priorities, and an engine that minds them."""
    requests, config = draw(workloads()), draw(engines())
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    requests = replace(
        requests, priority=rng.integers(0, draw(st.sampled_from([1, 2, 3])) + 1, len(requests))
    )
    way = draw(st.sampled_from(["strict", "weighted"]))
    if config.scheduler in ("chunked", "prefill_first") and draw(st.booleans()):
        config = replace(config, preemption="swap", swap_blocks=20, swap_block_s=1e-3)
    return requests, replace(
        config, priority=way, priority_weights=(5.0, 2.0, 1.0, 0.3) if way == "weighted" else (),
        max_wait_s=draw(st.sampled_from([math.inf, 0.05, 0.5])),
        speculation=draw(st.sampled_from([None, None, None, Speculation.of([0.7, 0.5], draft_cost=0.1)])),
    )  # fmt: skip


@given(ranked(), st.sampled_from(sorted(COSTS)))
@settings(max_examples=250)
def test_one_replica(case: tuple[Requests, EngineConfig], cost: str) -> None:
    slow, fast = both(case[0], COSTS[cost], case[1])
    agree(slow, fast)
    conserve(fast)


@given(ranked(), st.sampled_from(ROUTERS), st.integers(1, 3), faults(3))
@settings(max_examples=150)
def test_fleets_and_outages(
    case: tuple[Requests, EngineConfig], router: str, replicas: int, outages: Faults
) -> None:
    slow, fast = through(*case, router, replicas, outages)
    agree(slow, fast)
    conserve(fast)


@given(ranked(), st.integers(1, 9))
@settings(max_examples=50)
def test_closed_loops(case: tuple[Requests, EngineConfig], users: int) -> None:
    slow, fast = both(case[0], COSTS["memory"], case[1], closed_loop=ClosedLoop(users, 0.03))
    agree(slow, fast)
    conserve(fast)


@given(workloads(), engines(), st.sampled_from(["strict", "weighted"]))
@settings(max_examples=40)
def test_one_level_is_first_come_first_served(requests: Requests, config: EngineConfig, way: str) -> None:
    weights = (3.0, 1.0) if way == "weighted" else ()
    agree(
        simulate(requests, COSTS["memory"], config),
        simulate(requests, COSTS["memory"], replace(config, priority=way, priority_weights=weights)),
    )


SLOW = affine(0.01, 0.0, 0.0)


def test_the_least_urgent_gives_way_though_it_came_first() -> None:
    # Two sequences of 16 + 40 tokens on five blocks of 16: one must give way.
    requests = Requests.of([0.0, 0.001], 16, 40, priority=[1, 0])
    for way, preempted in (("none", [0, 1]), ("strict", [1, 0])):
        run = simulate(requests, SLOW, EngineConfig(kv_blocks=5, priority=way))
        assert (run.preemptions > 0).tolist() == [bool(n) for n in preempted], way


def test_nobody_starves_beyond_the_bound() -> None:
    """An urgent stream that fills the engine: without a bound the other waits for its end, with it not much longer than that."""
    urgent = np.arange(400) * 0.01
    requests = Requests.of(
        np.append(urgent, 0.005), np.full(401, 10), np.ones(401), priority=np.append(np.zeros(400), 1)
    )
    one = EngineConfig("continuous", max_num_seqs=1, priority="strict")
    late = int(np.flatnonzero(requests.priority == 1)[0])
    waits = {
        bound: simulate(requests, SLOW, replace(one, max_wait_s=bound)).first_scheduled_s[late] - 0.005
        for bound in (math.inf, 1.0)
    }
    assert waits[math.inf] > 3.9
    assert 1.0 - 1e-9 <= waits[1.0] <= 1.0 + 0.02


def test_weighted_levels_share_admissions_as_their_weights_say() -> None:
    count = 900
    requests = Requests.of(np.zeros(count), 10, 1, priority=np.arange(count) % 3)
    config = EngineConfig("continuous", max_num_seqs=1, priority="weighted", priority_weights=(4.0, 2.0, 1.0))
    run = simulate(requests, SLOW, config)
    first = requests.priority[np.argsort(run.first_scheduled_s, kind="stable")[:350]]
    assert np.bincount(first).tolist() == [200, 100, 50]


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ({"priority": "stricter"}, "near names: strict"),
        ({"priority": "weighted"}, "priority_weights"),
        ({"priority": "strict", "priority_weights": (1.0,)}, "priority_weights"),
        ({"priority": "weighted", "priority_weights": (1.0, 0.0)}, "above 0"),
        ({"max_wait_s": 1.0}, "max_wait_s"),
        ({"priority": "strict", "max_wait_s": 0.0}, "max_wait_s"),
    ],
)
def test_what_cannot_be_is_said(made: dict[str, object], told: str) -> None:
    with pytest.raises(InputError, match=told):
        EngineConfig(**made)  # type: ignore[arg-type]


def test_a_priority_without_a_weight_is_told() -> None:
    config = EngineConfig(priority="weighted", priority_weights=(2.0, 1.0))
    with pytest.raises(InputError, match="a request of priority 2"):
        simulate(Requests.of([0.0], 10, 1, priority=2), SLOW, config)
