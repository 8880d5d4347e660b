"""Facts of the planned traffic in the store: what a cache holds already, dispersion over scales, the hours of the day."""

from pathlib import Path

import numpy as np
import pytest

from fleetplan.prices import price_list
from fleetplan.sizing.decide import Decision, Option, plan
from fleetplan.sizing.stages.traffic import traffic_rows
from fleetplan.spec import loads
from fleetplan.traffic.patterns import cached_share
from fleetplan.traffic.requests import Requests


def _at(n: int) -> list[float]:
    return [float(i) for i in range(n)]


def test_a_shared_prefix_is_held_after_its_first_prompt() -> None:
    r = Requests.of(_at(5), 100, 10, prefix_id=[0, 0, 1, 0, -1], prefix_tokens=[80, 80, 60, 80, 0])
    assert cached_share(r) == pytest.approx(160 / 500)


def test_a_turn_begins_with_all_that_was_said() -> None:
    r = Requests.of(_at(3), [100, 150, 300], [20, 30, 10], session_id=[4, 4, 4])
    assert cached_share(r) == pytest.approx((120 + 180) / 550)


def test_a_closed_loop_shares_nothing() -> None:
    r = Requests.of(_at(3), 100, 10, session_id=[0, 0, 0], history_tokens=[0, 0, 0])
    assert cached_share(r) is None
    assert cached_share(Requests.of(_at(3), 100, 10)) is None


def test_what_was_used_least_recently_is_dropped_first() -> None:
    """Two prefixes of 80 in turn: 100-token prompts of one token leave 21 tokens of their own each."""
    r = Requests.of(_at(6), 100, 1, prefix_id=[0, 1, 0, 1, 0, 1], prefix_tokens=80)
    assert cached_share(r, 10**6) == cached_share(r) == pytest.approx(4 * 80 / 600)
    assert cached_share(r, 230) == pytest.approx(4 * 80 / 600)
    assert cached_share(r, 150) == 0
    shares = [cached_share(r, tokens) or 0 for tokens in range(50, 400, 10)]
    assert shares == sorted(shares)


def test_hashed_blocks_are_counted_as_blocks() -> None:
    offsets, hashes = [0, 2, 4, 6], [1, 2, 1, 3, 1, 2]
    r = Requests.of(_at(3), 1024, 1, block_offsets=offsets, block_hashes=hashes, hash_block_tokens=512)
    assert cached_share(r) == pytest.approx(3 / 6)
    assert cached_share(r, 1024) == pytest.approx(2 / 6)


SPEC = """\
scenario: day
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: profile, inside: {process: poisson, rate: 0.5 req/s}, factors: [0.5, 0.5, 0.5, 1, 2, 2, 1, 0.5], slot: 3 h, start: 6 h}
      prompt_tokens: {lognormal: {mean: 400, p99: 1500}}
      output_tokens: {geometric: {mean: 60, max: 500}}
      correlation: 0.5
      shared_prefix: {tokens: 100, share: 0.5, count: 20}
      slo: {ttft: {p90: 1 s}}
candidates: {gpu: [h100-sxm]}
step_time: {roofline: {efficiency: 0.7}}
policy: {prices: on-demand-2026-08}
simulation: {replications: 1}
"""


def test_the_day_is_told_by_hour_and_burstiness_by_scale(project: Path) -> None:
    subject = plan(loads(SPEC))
    (machine,) = subject.machines.values()
    sheet = price_list("on-demand-2026-08", project)
    made = traffic_rows(Decision(subject, Option(machine, "chosen", ""), (), sheet))
    (facts,) = made["workloads"]
    assert facts["peak_minute_over_mean"] == pytest.approx(
        facts["peak_minute_requests_per_s"] / facts["mean_requests_per_s"]
    )
    assert facts["length_rank_correlation"] == pytest.approx(0.5, abs=0.03)
    assert 0 < facts["prefix_hit_share_cached"] <= facts["prefix_hit_share"] < 0.5
    assert facts["cache_tokens"] > 10_000
    hours = {row["hour_h"]: row["mean_requests_per_s"] for row in made["hours"]}
    assert sorted(hours) == list(range(24))
    # 6 h into the profile the simulation begins; hour 13 lies in the slot of factor 2, hour 1 in one of 0.5
    for hour, factor in ((13, 2.0), (1, 0.5), (22, 0.5), (10, 1.0)):
        assert hours[hour] == pytest.approx(0.5 * factor, abs=5 * np.sqrt(0.5 * factor / 3600))
    scales = {row["scale_s"]: row["dispersion"] for row in made["dispersions"]}
    assert sorted(scales) == [1.0, 3.0, 10.0, 30.0, 100.0, 300.0]
    assert scales[300.0] > 10 > 1.5 > scales[1.0]
