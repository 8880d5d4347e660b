"""`fleetplan simulate --scheduler disaggregated`: its options, its columns, and what does not go together."""

import csv
import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.simulate import command
from fleetplan.engine import EngineConfig, Link, Pool, simulate_pools
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.traffic.requests import Requests

STEP = {"model": "affine", "t_fixed_s": 0.01, "prefill_s_per_token": 0.0, "decode_s_per_sequence": 0.0}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "cost.json").write_text(json.dumps(STEP))
    (tmp_path / "slow.json").write_text(json.dumps({**STEP, "t_fixed_s": 0.02}))
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0.5,4,2\n0,16,5\n0,16,5\n")
    return tmp_path


def run(folder: Path, *options: str) -> dict:
    where = ("--requests", str(folder / "requests.csv"), "--steptime", str(folder / "cost.json"), "--json")
    answer = CliRunner().invoke(command, (*where, *options), catch_exceptions=False)
    assert answer.exit_code == 0
    return json.loads(answer.output)


POOLS = (
    "--scheduler", "disaggregated", "--kv-blocks", "1", "--decode-kv-blocks", "2", "--link", "16 B/s",
    "--kv-bytes-per-token", "0.005", "--bypass-tokens", "4",
)  # fmt: skip


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_figures_and_records(files: Path, plain: tuple[str, ...]) -> None:
    out = files / "out.csv"
    figures = run(files, *POOLS, "--out", str(out), *plain)
    assert (figures["finished"], figures["handoffs"]) == (3, 2)
    assert figures["handoff_mean_s"] == pytest.approx((0.005 + 0.035) / 2, abs=1e-6)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["prefill_replica"] for row in rows] == ["-1", "0", "0"]
    assert [row["replica"] for row in rows] == ["1", "1", "1"]
    assert rows[0]["landed_s"] == ""  # it bypassed prefill
    assert [float(row["landed_s"]) for row in rows[1:]] == pytest.approx([0.015, 0.060], abs=1e-6)
    assert [float(row["finish_s"]) for row in rows] == pytest.approx([0.52, 0.055, 0.100], abs=1e-6)


def test_the_decode_pool_may_be_other_hardware(files: Path) -> None:
    figures = run(files, *POOLS, "--decode-steptime", str(files / "slow.json"), "--decode-replicas", "2")
    assert figures["tpot_p95_s"] == pytest.approx((0.005 + 4 * 0.02) / 4, abs=2e-3)


@pytest.mark.parametrize(
    ("latency", "told"), [((), "at once"), (("--link-latency-s", "1"), "after its latency")]
)
def test_a_missing_link_is_told(files: Path, latency: tuple[str, ...], told: str) -> None:
    where = ("--requests", str(files / "requests.csv"), "--steptime", str(files / "cost.json"))
    options = (*where, "--scheduler", "disaggregated", *latency, "--plain")
    answer = CliRunner().invoke(command, options, catch_exceptions=False)
    assert f"link: none given, KV is at decode {told}, whatever its bytes" in answer.stderr
    assert "link" not in answer.stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--link", "50 GB/s"), "--link: only for --scheduler disaggregated (got chunked)"),
        ((*POOLS, "--replicas", "2"), "--replicas: disaggregated has two pools"),
        ((*POOLS, "--link", "50"), "--link: needs a unit"),
        ((*POOLS, "--prefill-scheduler", "static"), "prefill: scheduler static is none that a pool can have"),
        ((*POOLS, "--decode-router", "central_queue"), "decode: central_queue cannot say"),
        ((*POOLS, "--first-token", "never"), "--first-token: unknown choice (got 'never')"),
        ((*POOLS, "--start-up-s", "3"), "--start-up-s: not simulated"),
        ((*POOLS, "--kv-bytes-per-token", "0"), "link: kv_bytes_per_token is missing"),
        ((*POOLS, "--decode-replicas", "0"), "decode: replicas must be at least 1 (got 0)"),
    ],
)
def test_what_does_not_go_together_is_told(files: Path, options: tuple[str, ...], told: str) -> None:
    with pytest.raises(InputError) as error:
        run(files, *options)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("link", "told"),
    [
        ({"bytes_per_s": 0.0}, "bytes_per_s must be above 0"),
        ({"bytes_per_s": math.nan}, "bytes_per_s must be above 0"),
        ({"latency_s": -1.0}, "latency_s must be finite and at least 0"),
        ({"bytes_per_s": 1e9}, "kv_bytes_per_token is missing"),
    ],
)
def test_a_link_that_cannot_be(link: dict[str, float], told: str) -> None:
    with pytest.raises(InputError, match=told):
        Link(**link)


def test_pools_that_cannot_be() -> None:
    step = affine(0.01, 0.0, 0.0)
    with pytest.raises(InputError) as error:
        simulate_pools(
            Requests.of([0.0], 1, 1),
            Pool(step, EngineConfig("chunked", kv_blocks=3), router="central_queue"),
            Pool(step, EngineConfig("chunked", max_queued_requests=3), router="least_kv"),
            bypass_tokens=-1,
        )
    assert [line.split(":")[0] for line in error.value.lines] == [
        "decode",
        "prefill",
        "decode",
        "bypass_tokens",
    ]
