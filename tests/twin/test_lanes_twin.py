"""Pipelines: the kernel against the twin that steps in readable Python, conservation, and one stage against the ordinary engine."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine_twin import COSTS, agree, both, conserve, engines, in_turns, with_pool, workloads

from fleetplan.engine import ROUTERS, ClosedLoop, EngineConfig, Outage, simulate
from fleetplan.engine.lanes import LANE_SCHEDULERS
from fleetplan.engine.lanes_kernel import run_lanes
from fleetplan.engine.lanes_state import make_pipelines
from fleetplan.engine.plain_lanes import PlainLanes
from fleetplan.physics.steptime import StepTime
from fleetplan.sizing.uncertainty import scaled
from fleetplan.traffic.requests import Requests

LANE_ROUTERS = tuple(router for router in ROUTERS if router != "central_queue")


@st.composite
def pipelines(draw: st.DrawFn) -> StepTime:
    """A cost whose longest stage is its even share, or more of it, up to all."""
    cost, stages = COSTS[draw(st.sampled_from(sorted(COSTS)))], draw(st.sampled_from([2, 2, 3, 4]))
    share = draw(st.sampled_from([1 / stages, 0.5, 0.9, 1.0]))
    return replace(cost, stages=stages, stage=scaled(cost, share))


@st.composite
def lanes(draw: st.DrawFn) -> EngineConfig:
    return replace(draw(engines()), scheduler=draw(st.sampled_from(LANE_SCHEDULERS)))


@given(workloads(), lanes(), pipelines())
@settings(max_examples=150)
def test_one_replica(requests: Requests, config: EngineConfig, cost: StepTime) -> None:
    slow, fast = both(requests, cost, config, resolution_s=0.0137123457)
    agree(slow, fast)
    conserve(fast)
    assert fast.counts()["unfinished"] == 0
    assert slow.series is not None
    assert fast.series is not None
    for name in ("running", "waiting", "kv_blocks", "output_tokens"):
        np.testing.assert_array_equal(getattr(fast.series, name), getattr(slow.series, name), err_msg=name)
    if config.kv_blocks is not None:
        assert fast.series.kv_blocks.max() <= config.kv_blocks


@given(
    workloads(), lanes(), pipelines(), st.integers(2, 4), st.sampled_from(LANE_ROUTERS), st.integers(0, 2**31)
)
@settings(max_examples=80)
def test_fleets(
    requests: Requests, config: EngineConfig, cost: StepTime, replicas: int, router: str, seed: int
) -> None:
    slow, fast = both(requests, cost, with_pool(config, router), replicas=replicas, router=router, seed=seed)
    agree(slow, fast)
    conserve(fast)


@given(st.integers(2, 12), st.integers(0, 2**31), st.sampled_from([1, 4, 16]), st.sampled_from([2, 3, 4]))
@settings(max_examples=40)
def test_lanes_that_fight_for_blocks_all_come_to_an_end(
    count: int, seed: int, chunk: int, stages: int
) -> None:
    """Each fits alone and no two together: whoever gives way waits until another has ended."""
    rng = np.random.default_rng(seed)
    requests = Requests.of(np.zeros(count), rng.integers(40, 61, count), rng.integers(1, 21, count))
    cost = replace(COSTS["affine"], stages=stages, stage=scaled(COSTS["affine"], 1 / stages))
    config = EngineConfig(max_num_seqs=8, max_num_batched_tokens=chunk, kv_blocks=80, block_size=1)
    slow, fast = both(requests, cost, config)
    agree(slow, fast)
    assert (fast.outcome == 1).all()


@given(workloads(), lanes(), pipelines(), st.integers(1, 9), st.sampled_from([0.0, 0.03]))
@settings(max_examples=40)
def test_closed_loop(
    requests: Requests, config: EngineConfig, cost: StepTime, users: int, think_s: float
) -> None:
    slow, fast = both(requests, cost, config, closed_loop=ClosedLoop(users, think_s))
    agree(slow, fast)
    conserve(fast)


@given(workloads(), lanes(), pipelines(), st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=40)
def test_sessions(requests: Requests, config: EngineConfig, cost: StepTime, sessions: int, seed: int) -> None:
    turns = in_turns(requests, sessions, seed)
    agree(*both(turns, cost, config, replicas=2, router="prefix_affine"))


@given(
    workloads(), lanes(), pipelines(), st.sampled_from(LANE_ROUTERS),
    st.lists(st.tuples(st.integers(0, 1), st.floats(0, 0.6), st.floats(0.001, 0.5), st.booleans()), min_size=1, max_size=3),
)  # fmt: skip
@settings(max_examples=60)
def test_outages(
    requests: Requests, config: EngineConfig, cost: StepTime, router: str, when: list[Any]
) -> None:
    outages = [Outage(replica, down, down + away, drain) for replica, down, away, drain in when]
    slow, fast = both(
        requests, cost, with_pool(config, router), replicas=2, router=router, outages=outages,
        resolution_s=0.0137123457,
    )  # fmt: skip
    agree(slow, fast)
    np.testing.assert_array_equal(fast.restarts, slow.restarts)
    assert slow.series is not None
    assert fast.series is not None
    np.testing.assert_array_equal(fast.series.running, slow.series.running)


@given(workloads(), lanes(), pipelines(), st.floats(0.0, 1.0))
@settings(max_examples=40)
def test_a_run_that_is_cut_off(
    requests: Requests, config: EngineConfig, cost: StepTime, until_s: float
) -> None:
    slow, fast = both(requests, cost, config, until_s=until_s)
    np.testing.assert_array_equal(fast.outcome, slow.outcome)
    for name in ("first_token_s", "finish_s", "busy_s"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), rtol=1e-9, atol=1e-12)
    assert fast.steps == slow.steps


@given(workloads(), lanes(), st.sampled_from(sorted(COSTS)), st.sampled_from(LANE_ROUTERS))
@settings(max_examples=40)
def test_a_pipeline_of_one_stage_is_the_ordinary_engine(
    requests: Requests, config: EngineConfig, cost: str, router: str
) -> None:
    """`simulate` has another kernel for it, so that both kinds of lanes are run by hand."""
    config = with_pool(config, router)
    ordinary = simulate(requests, COSTS[cost], config, 2, router, 3)
    twin = PlainLanes(requests, COSTS[cost], config, 2, router, 3)
    twin.run()
    kernel = make_pipelines(requests, COSTS[cost], config, 2, ROUTERS.index(router), 3)
    run_lanes(*kernel)
    rows = kernel.state.request
    assert [s.outcome for s in twin.sequences] == rows["outcome"].tolist() == ordinary.outcome.tolist()
    assert [s.preemptions for s in twin.sequences] == rows["preemptions"].tolist()
    assert rows["preemptions"].tolist() == ordinary.preemptions.tolist()
    assert kernel.state.replica["steps"].sum() == ordinary.steps
    np.testing.assert_allclose(kernel.home["busy_s"], ordinary.busy_s, rtol=1e-9)
    finish = np.where(rows["outcome"] == 0, np.nan, rows["finish_s"])
    np.testing.assert_allclose(finish, ordinary.finish_s, rtol=1e-9)
    np.testing.assert_allclose([s.finish_s for s in twin.sequences], ordinary.finish_s, rtol=1e-9)
    np.testing.assert_allclose(rows["first_token_s"], ordinary.first_token_s, rtol=1e-9)
