"""Pipelines by hand: as many lanes as stages, each with its own running set, on one queue and one pool of blocks."""

from dataclasses import replace

import numpy as np
import pytest

from fleetplan.engine import (
    EngineConfig,
    Outage,
    Pool,
    PrefixCache,
    Result,
    Speculation,
    simulate,
    simulate_pools,
)
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime, affine
from fleetplan.traffic.requests import Requests

FLAT = replace(affine(0.010, 0.0, 0.0), stages=2, stage=affine(0.004, 0.0, 0.0))
"""Every step takes 10 ms, and its longest stage 4 ms."""
BY_TOKEN = replace(affine(0.0, 1e-4, 1e-4), stages=2, stage=affine(0.0, 5e-5, 5e-5))
"""Every step takes 0.1 ms a token, and its longest stage half of it."""

pytestmark = pytest.mark.parametrize("plain", [True, False], ids=["twin", "kernel"])


def run(requests: Requests, step: StepTime, plain: bool, **settings: object) -> Result:
    config = EngineConfig(**settings)  # type: ignore[arg-type]
    return simulate(requests, step, config, plain=plain)


def test_a_lone_request_waits_for_the_whole_pipeline(plain: bool) -> None:
    alone = run(Requests.of([1.0], 100, 5), BY_TOKEN, plain)
    assert alone.ttft_s == pytest.approx([0.010])
    assert alone.tpot_s == pytest.approx([1e-4])
    assert alone.steps == 5
    assert alone.busy_s == pytest.approx([0.005 + 4 * 5e-5])


def test_every_lane_decodes_at_the_latency_of_its_step(plain: bool) -> None:
    four = run(Requests.of([0.0] * 4, 10, 11), FLAT, plain, max_num_seqs=4)
    assert four.first_scheduled_s == pytest.approx([0, 0, 0.004, 0.004])
    assert four.first_token_s == pytest.approx([0.010, 0.010, 0.014, 0.014])
    assert four.tpot_s == pytest.approx([0.010] * 4)
    assert [h.mean_s for h in four.itl] == pytest.approx([0.010])
    assert four.steps == 22
    assert four.busy_s == pytest.approx([22 * 0.004])


def test_stages_that_are_full_bound_every_lane(plain: bool) -> None:
    """Three lanes of 4 ms take 12 ms a round, which is longer than a step's 10 ms."""
    three = run(Requests.of([0.0] * 3, 10, 11), replace(FLAT, stages=3), plain, max_num_seqs=3)
    assert three.first_token_s == pytest.approx([0.010, 0.014, 0.018])
    assert three.tpot_s == pytest.approx([0.012] * 3)
    assert [h.mean_s for h in three.itl] == pytest.approx([0.012])


def test_a_long_prompt_delays_the_next_lane_by_its_longest_stage(plain: bool) -> None:
    pair = run(Requests.of([0.0, 0.001], [1000, 10], 2), BY_TOKEN, plain)
    assert pair.first_scheduled_s == pytest.approx([0.0, 0.050])
    assert pair.first_token_s == pytest.approx([0.100, 0.051])
    assert pair.finish_s == pytest.approx([0.1001, 0.0511])


def test_an_arrival_starts_an_idle_lane_and_a_later_one_joins_whose_turn_it_is(plain: bool) -> None:
    """Lane 0 starts at 0, 10, 20 ms; lane 1 is idle until 12 ms, and the longest stage is free at 14 ms; who comes at 15 ms joins lane 0."""
    late = run(Requests.of([0.0, 0.012, 0.015], 10, [4, 2, 1]), FLAT, plain)
    assert late.first_scheduled_s == pytest.approx([0.0, 0.014, 0.020])
    assert late.finish_s == pytest.approx([0.040, 0.034, 0.030])


def test_the_lane_that_started_longest_ago_goes_first(plain: bool) -> None:
    """Both lanes are idle at 1 s: lane 0 started last at 0 s, lane 1 at 4 ms."""
    both = run(
        Requests.of([0.0, 0.0, 1.0, 1.0], 10, [1, 1, 2, 2]), FLAT, plain, max_num_seqs=2, kv_blocks=100
    )
    assert both.first_scheduled_s == pytest.approx([0, 0.004, 1.0, 1.004])


@pytest.mark.parametrize(
    ("most", "scheduled_s"), [(8, [0] * 4), (5, [0, 0, 0.004, 0.004]), (1, [0, 0.004, 0.010, 0.014])]
)
def test_a_lane_holds_its_share_of_max_num_seqs(plain: bool, most: int, scheduled_s: list[float]) -> None:
    four = run(Requests.of([0.0] * 4, 10, 1), FLAT, plain, max_num_seqs=most)
    assert four.first_scheduled_s == pytest.approx(scheduled_s)


def test_a_lane_preempts_its_own_latest_and_it_comes_back_where_all_of_it_has_room(plain: bool) -> None:
    """Ten blocks of one token, and three sequences of two tokens each: lane 0 has the first two, lane 1 the third.

    At 20 ms one block is left for the two of lane 0, the later of which gives way; it knows four tokens, and comes back at 30 ms, when
    the first has ended and six are free. At 44 ms the third finds none, and gives up its five; it knows six, and comes back at 60 ms.
    """
    three = run(Requests.of([0.0] * 3, 2, [3, 5, 7]), FLAT, plain, max_num_seqs=4, kv_blocks=10, block_size=1)
    assert three.preemptions.tolist() == [0, 1, 1]
    assert three.finish_s == pytest.approx([0.030, 0.060, 0.090])


def test_a_lane_whose_only_sequence_cannot_grow_gives_it_up(plain: bool) -> None:
    """Two prompts of 60 tokens in chunks of 10, on 80 blocks of one token: they cannot both be there, and do not take turns for ever."""
    pair = run(
        Requests.of([0.0, 0.0], 60, 2),
        FLAT,
        plain,
        max_num_seqs=2,
        max_num_batched_tokens=10,
        kv_blocks=80,
        block_size=1,
    )
    assert pair.preemptions.tolist() == [1, 0]
    assert pair.finish_s == pytest.approx([0.144, 0.074])


def test_a_deadline_frees_the_queue_of_all_lanes(plain: bool) -> None:
    requests = Requests.of(
        [0.0, 0.0, 0.001, 0.002], [50, 50, 100, 20], [9, 9, 1, 1], timeout_s=[np.inf, np.inf, 0.010, np.inf]
    )
    late = run(requests, FLAT, plain, max_num_seqs=8, kv_blocks=130, block_size=1, max_num_batched_tokens=64)
    assert late.outcome.tolist() == [1, 1, 3, 1]
    assert late.first_scheduled_s[3] == pytest.approx(0.014)


def test_a_replica_that_fails_loses_every_lane(plain: bool) -> None:
    """Both are under way at 12 ms, one in each lane; at 20 ms the replica is back and both begin anew."""
    requests = Requests.of([0.0, 0.0], 10, 3)
    config = EngineConfig(max_num_seqs=2, kv_blocks=4)
    lost = simulate(requests, FLAT, config, outages=[Outage(0, 0.012, 0.020)], plain=plain)
    assert lost.restarts is not None
    assert lost.restarts.tolist() == [1, 1]
    assert lost.first_token_s == pytest.approx([0.030, 0.034])
    assert lost.finish_s == pytest.approx([0.050, 0.054])
    drained = simulate(requests, FLAT, config, outages=[Outage(0, 0.012, 0.020, drain=True)], plain=plain)
    assert drained.finish_s == pytest.approx([0.030, 0.034])


@pytest.mark.parametrize(
    ("settings", "options", "said"),
    [
        ({"scheduler": "static"}, {}, "scheduler: static is not simulated in a pipeline of 2 stages"),
        ({"prefix_cache": PrefixCache()}, {}, "prefix_cache: is not simulated in a pipeline"),
        ({"preemption": "swap", "swap_blocks": 5}, {}, "preemption: swap: is not"),
        ({"max_adapters": 2}, {}, "max_adapters: is not"),
        ({"speculation": Speculation.of([0.5], draft_cost=0.1)}, {}, "speculation: is not"),
        ({"priority": "strict"}, {}, "priority: strict: is not"),
        ({"retries": 1}, {}, "retries: is not"),
        ({}, {"router": "central_queue"}, "router: central_queue: is not"),
    ],
)
def test_what_is_not_simulated_is_refused_by_name(
    plain: bool, settings: dict, options: dict, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        simulate(Requests.of([0.0], 10, 2), FLAT, EngineConfig(**settings), plain=plain, **options)


def test_answers_and_pools_are_refused(plain: bool) -> None:
    with pytest.raises(InputError, match="answers above 1: is not simulated in a pipeline"):
        simulate(Requests.of([0.0], 10, 2, answers=2), FLAT, EngineConfig(), plain=plain)
    one = Pool(affine(0.01, 0.0, 0.0), EngineConfig())
    with pytest.raises(InputError, match="decode: a pipeline is not simulated in pools"):
        simulate_pools(Requests.of([0.0], 10, 2), one, Pool(FLAT, EngineConfig()), plain=plain)
