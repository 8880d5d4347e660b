"""What a hostile but realistic user gives by mistake is refused by name, and what a lost replica did is in the series."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from fleetplan.cli.simulate import command
from fleetplan.engine import EngineConfig, Outage, PrefixCache, Speculation, simulate
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.spec import check
from fleetplan.traffic.requests import Requests

STEP = affine(0.005, 2e-5, 5e-4)
SPEC = """scenario: mistaken
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 2 req/s}
      prompt_tokens: 512
      output_tokens: 64
      slo: {ttft: {p99: 500 ms}}
candidates:
  gpu: [h100-sxm]
  CHANGED
policy: {prices: on-demand-2026-08}
"""


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"class_index": 7}, "class_index must be below the 1 classes"),
        ({"class_index": -1}, "class_index must be at least 0"),
        ({"hidden_tokens": -3}, "hidden_tokens must be at least 0"),
        ({"prefix_id": 0, "prefix_tokens": -50}, "prefix_tokens must be at least 0"),
        ({"timeout_s": np.nan}, "timeout_s must be at least 0"),
        ({"session_id": 1, "gap_s": [np.nan, -1.0]}, "gap_s must be finite and at least 0"),
        ({"history_tokens": -9}, "history_tokens must be at least -1"),
        ({"block_offsets": [0, 5, 9], "block_hashes": [1, 2], "hash_block_tokens": 16}, "block_offsets must rise"),
        ({"block_offsets": [0, 2, 1], "block_hashes": [1, 2], "hash_block_tokens": 16}, "block_offsets must rise"),
        ({"block_offsets": [0, 1, 2], "block_hashes": [1, 2], "hash_block_tokens": 0}, "hash_block_tokens must be at least 1"),
    ],
)  # fmt: skip
def test_requests_that_cannot_be(columns: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Requests.of([0.0, 1.0], 100, 5, **columns)


@pytest.mark.parametrize("plain", [True, False])
def test_a_gap_needs_a_turn_before_it(plain: bool) -> None:
    requests = Requests.of([0.0, 1.0], 100, 5, session_id=1, gap_s=1.0)
    with pytest.raises(InputError, match="row 0 has a gap_s but no turn before it"):
        simulate(requests, STEP, EngineConfig(prefix_cache=PrefixCache()), plain=plain)


@pytest.mark.parametrize("seed", [-1, 1 << 63])
def test_a_seed_that_no_generator_takes(seed: int) -> None:
    with pytest.raises(InputError, match="seed: must be from 0"):
        simulate(Requests.of([0.0], 100, 5), STEP, EngineConfig(), router="random", seed=seed)


@pytest.mark.parametrize(
    ("drafts", "cost", "told"), [(10**8, 0.0, "drafts: at most 32"), (3, 1e308, "draft_cost: must be")]
)
def test_drafts_beyond_reason(drafts: int, cost: float, told: str) -> None:
    with pytest.raises(InputError, match=told):
        Speculation.of([0.5], drafts, draft_cost=cost)


@pytest.mark.parametrize(
    "option", ["--host-block-s", "--disk-block-s", "--swap-block-s", "--adapter-load-s", "--link-latency-s"]
)
def test_times_that_no_clock_holds(option: str) -> None:
    run = CliRunner().invoke(command, ["--requests", "r.csv", "--steptime", "s.json", option, "1e300"])
    assert run.exit_code == 2
    assert "is no time (got 1e300)" in run.output


def test_a_prefix_length_without_its_prefix(tmp_path: Path) -> None:
    file = tmp_path / "r.csv"
    file.write_text("arrival_s,prompt_tokens,output_tokens,prefix_tokens\n0,100,5,50\n")
    run = CliRunner().invoke(command, ["--requests", str(file), "--steptime", "s.json"])
    assert isinstance(run.exception, InputError)
    assert "r.csv:1: column prefix_tokens" in str(run.exception)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("scheduler: [{max_num_seqs: 999999999999}]", "12:30: candidates.scheduler[0].max_num_seqs: must be at most"),
        (
            "disaggregated: [{link: 50 GB/s, decode: {max_num_seqs: 999999999999}}]",
            "candidates.disaggregated[0].decode.max_num_seqs: must be at most",
        ),
        ("speculation: [{draft: p99, tokens: 3, acceptance: [0.7]}]", "12:25: candidates.speculation[0].draft: unknown draft (got 'p99')"),
        (
            "speculation: [{draft: eagle3, tokens: 3, acceptance_from: nonsense}]",
            "12:61: candidates.speculation[0].acceptance_from: unknown row of measured acceptance (got 'nonsense')",
        ),
    ],
)  # fmt: skip
def test_a_spec_names_what_is_there(tmp_path: Path, changed: str, told: str) -> None:
    file = tmp_path / "mistaken.yaml"
    file.write_text(SPEC.replace("CHANGED", changed))
    (faults,) = check([file]).values()
    assert len(faults) == 1
    assert told in faults[0]


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked", "prefill_first"])
def test_what_a_lost_replica_ran_is_in_the_series(plain: bool, scheduler: str) -> None:
    """7 ms of prompt, then 5.5 ms a token: lost at 60 ms, within the tenth decode step."""
    config = EngineConfig(scheduler, kv_blocks=100)
    away = [Outage(0, 0.06)]
    run = simulate(Requests.of([0.0], 100, 40), STEP, config, outages=away, resolution_s=0.0031, plain=plain)
    assert run.series is not None
    before = run.series.time_s < 0.06
    assert run.series.running[before].tolist() == [1] * 20
    assert run.series.output_tokens.sum() == 1 + 9
    assert run.busy_s[0] == pytest.approx(0.06)


@pytest.mark.parametrize("plain", [True, False])
def test_time_in_a_step_that_is_broken_off_counts(plain: bool) -> None:
    run = simulate(Requests.of([0.0], 100, 40), STEP, EngineConfig(), until_s=0.06, plain=plain)
    assert run.busy_s[0] == pytest.approx(0.06)
