"""JSON traces and benchmark logs: formats, quirks, facts of prefixes, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.trace import command
from fleetplan.errors import InputError
from fleetplan.traffic.facts import summarise
from fleetplan.traffic.patterns import prefix_hit_share
from fleetplan.traffic.traces import read


@pytest.mark.shared
def test_mooncake_is_milliseconds_and_its_figures_come_out(shared: Path) -> None:
    trace = read(shared / "traces/mooncake/synthetic_trace.jsonl")
    got = summarise(trace)
    assert (got.format, trace.time_unit, got.rows, got.span_s) == ("mooncake", "ms", 3993, 1022.025)
    assert got.rate_per_s == pytest.approx(3.9069, abs=5e-5)
    assert got.interarrival_cv == pytest.approx(1.011, abs=5e-4)
    p, o = got.prompt_tokens, got.output_tokens
    assert (p.mean, p.p50, p.p90, p.p95, p.p99, p.max) == pytest.approx(
        (15325.48, 11587, 38611.2, 48904.6, 66456.16, 191378)
    )
    assert (o.mean, o.p50, o.p90, o.p95, o.p99, o.max) == pytest.approx(
        (149.119, 69, 389, 519, 768.08, 893), abs=0.01
    )
    assert trace.block_offsets is not None
    assert trace.block_hashes is not None
    infinite = prefix_hit_share(trace.block_offsets, trace.block_hashes)
    assert infinite == pytest.approx(0.640, abs=5e-4)
    shares = [
        prefix_hit_share(trace.block_offsets, trace.block_hashes, size) or 0
        for size in (100, 1000, 10_000, 10**6)
    ]
    assert shares == sorted(shares)
    assert shares[-1] == infinite


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "span_s", "dropped", "note"),
    [
        ("mooncake_ms", 3, 30.0, {}, ""),
        (
            "mooncake_blank_and_partial_line",
            1,
            0.0,
            {"blank_line": 1, "partial_line": 1},
            "a rate must be given",
        ),
        ("bailian_seconds_blk16", 2, 61.114, {}, "5 hash_ids for 521 tokens"),
    ],
)
def test_a_json_quirk_has_its_stated_outcome(
    shared: Path, name: str, rows: int, span_s: float, dropped: dict[str, int], note: str
) -> None:
    got = summarise(read(shared / f"minimal/{name}.jsonl"))
    assert (got.rows, got.dropped) == (rows, dropped)
    assert got.span_s == pytest.approx(span_s)
    assert note in " ".join(got.notes)


@pytest.mark.shared
def test_blocks_that_do_not_fit_are_refused_and_right_at_16(shared: Path) -> None:
    path = shared / "minimal/mooncake_bad_hash_len.jsonl"
    with pytest.raises(InputError, match=r":1: 2 hash_ids for 20 tokens .*right at blocks of 16"):
        read(path)
    assert read(path, block_tokens=16).hash_block_tokens == 16


@pytest.mark.shared
@pytest.mark.parametrize(
    ("path", "format", "rows", "rate", "prompt_mean"),
    [
        ("sglang-bench/bench_serving_record_issue9585.jsonl", "sglang-bench", 300, None, 4000),
        ("inferencex/glm5_fp8_vllm_tp8_isl1024_osl128_conc16.json", "vllm-bench", 160, None, 1024),
        (
            "inference-perf/vllm+batch_size/stage_3_lifecycle_metrics.json",
            "inference-perf-report",
            6715,
            111.924,
            200.928,
        ),
        ("vllm-requests/RTX4090/Llama-3.1-8B/requests.jsonl", "vllm-requests", 300, 10.3091, 857.463),
        ("aiperf/example_profile_export.jsonl", "aiperf-export", 1, None, 550),
        ("inference-perf/example_trace.csv", "azure-2023", 20, 1.5355, 577.0),
    ],
)
def test_the_tools_own_files_are_recognised(
    shared: Path, path: str, format: str, rows: int, rate: float | None, prompt_mean: float
) -> None:
    got = summarise(read(shared / "traces" / path))
    assert (got.format, got.rows) == (format, rows)
    assert got.rate_per_s == (None if rate is None else pytest.approx(rate, rel=1e-4))
    assert got.prompt_tokens.mean == pytest.approx(prompt_mean, abs=1e-3)


def _lines(tmp_path: Path, *records: object) -> Path:
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(json.dumps(r) for r in records) + "\n")
    return path


def test_a_detailed_vllm_log_has_its_requests(tmp_path: Path) -> None:
    log = {
        "completed": 2, "total_input_tokens": 30, "total_output_tokens": 3, "request_rate": 4.0,
        "input_lens": [10, 20, 5], "output_lens": [1, 2, 0], "start_times": [100.0, 100.5, 101.0],
    }  # fmt: skip
    trace = read(_lines(tmp_path, log))
    assert (trace.format, trace.prompt_tokens.tolist(), trace.dropped) == (
        "vllm-bench",
        [10, 20],
        {"failed_request": 1},
    )
    assert trace.span_s == 0.5


def test_a_saturated_load_generator_is_told(tmp_path: Path) -> None:
    # Field 42: 222.8 requests/s were asked for and 116.3 sent.
    report = {
        "load_summary": {"requested_rate": 222.83, "achieved_rate": 116.319},
        "successes": {"count": 13369, "prompt_len": {"mean": 200.0}, "output_len": {"mean": 60.0}},
    }
    got = summarise(read(_lines(tmp_path, report)))
    assert got.rate_per_s == 116.319
    assert "was not offered" in " ".join(got.notes)


def test_sharegpt_needs_token_counts_and_grows_by_turn(tmp_path: Path) -> None:
    turns = [{"from": who, "tokens": n} for who, n in (("human", 10), ("gpt", 20), ("human", 5), ("gpt", 7))]
    trace = read(_lines(tmp_path, {"id": "x", "conversations": turns}))
    assert (trace.format, trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == (
        "sharegpt",
        [10, 35],
        [20, 7],
    )
    with pytest.raises(InputError, match="without a token count"):
        read(_lines(tmp_path, {"conversations": [{"from": "human", "value": "hello"}]}))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"timestamp": 1, "input_length": 5.5, "output_length": 1}, "prompt_tokens_not_whole"),
        ({"timestamp": 1, "input_length": 5, "output_length": 0}, "output_tokens_below_1"),
        ({"timestamp": 1, "input_length": 5}, "output_tokens_missing"),
        ({"timestamp": None, "input_length": 5, "output_length": 1}, "time_missing"),
        ({"timestamp": "soon", "input_length": 5, "output_length": 1}, "time_unreadable"),
        ({"timestamp": float("nan"), "input_length": 5, "output_length": 1}, "time_unreadable"),
        ([1], "unreadable_line"),
    ],
)
def test_a_bad_record_is_dropped_by_reason_with_its_line(tmp_path: Path, record: object, reason: str) -> None:
    good = {"timestamp": 0, "input_length": 5, "output_length": 1}
    trace = read(_lines(tmp_path, good, record, good | {"timestamp": 2000}))
    assert (trace.format, trace.dropped, trace.faults[0].line, trace.span_s) == (
        "aiperf",
        {reason: 1},
        2,
        2.0,
    )


def _run(*args: object) -> str:
    result = CliRunner().invoke(command, [str(a) for a in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_verbs_write_what_they_read(tmp_path: Path) -> None:
    source = tmp_path / "s.csv"
    source.write_text(
        "arrival_s,prompt_tokens,output_tokens\n"
        + "".join(f"{i + i % 3 / 10},{10 + i % 7},{1 + i % 5}\n" for i in range(300))
    )
    out = tmp_path / "it's.csv"
    _run(
        "convert", source, "--requests", out, "--facts", tmp_path / "f.parquet", "--spec", tmp_path / "w.yaml"
    )
    summary = json.loads(_run("summarise", out, "--json"))
    assert summary == json.loads(_run("summarise", source, "--json"))
    _run("convert", source, "--requests", tmp_path / "o.parquet")
    same = json.loads(_run("summarise", tmp_path / "o.parquet", "--json"))
    assert same | {"format": "csv", "notes": summary["notes"]} == summary
    assert list(summary)[:7] == [
        "format", "rows", "dropped", "rate_per_s", "span_s", "interarrival_cv", "peak_minute_per_s",
    ]  # fmt: skip
    assert list(summary["prompt_tokens"]) == ["mean", "p50", "p90", "p95", "p99", "max"]
    inspected = json.loads(_run("inspect", source, "--json"))
    assert (inspected["time_unit"], inspected["first_rows"][1]["line"]) == ("s", 3)
    assert "process:" in (tmp_path / "w.yaml").read_text()
    assert json.loads(_run("fit", source, "--json"))["goodness"]["rows"] == 300
    assert json.loads(_run("facts", source, "--json"))["prefix_hit_share"] is None
    assert "rate_per_s" in _run("summarise", source)
    assert "usable rows" in _run("inspect", source)


def test_a_fitted_workload_is_a_spec_that_loads(tmp_path: Path) -> None:
    from fleetplan.spec.workload import TrafficClass
    from fleetplan.traffic.fit import fit
    from fleetplan.traffic.generation import generate
    from fleetplan.traffic.model import Workload
    from fleetplan.traffic.traces import Trace
    from fleetplan.traffic.workloads import empirical

    r = generate(empirical("azure-2023-code"), duration_s=3436, seed=1)
    trace = Trace("code", "csv", "", "s", (), r.arrival_s, r.prompt_tokens, r.output_tokens, r.prompt_tokens)
    made = fit(trace)
    from fleetplan.traffic.from_spec import _class

    again = _class(TrafficClass.model_validate(made.spec), tmp_path)
    a, b = (generate(Workload((c,)), n_requests=500, seed=2) for c in (again, made.workload.classes[0]))
    assert a.arrival_s.tolist() == b.arrival_s.tolist()
    assert a.prompt_tokens.tolist() == b.prompt_tokens.tolist()


def test_a_parquet_without_the_columns_is_refused(tmp_path: Path) -> None:
    import duckdb

    duckdb.execute(f"COPY (SELECT 1.5 AS prompt_tokens) TO '{tmp_path}/x.parquet'")
    with pytest.raises(InputError, match=r"'output_tokens' is missing .*\n.*must be of whole numbers"):
        read(tmp_path / "x.parquet")


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"arrival_s": 1e400, "prompt_tokens": 1, "output_tokens": 1}', "time_unreadable"),
        ('{"arrival_s": 1' + "0" * 400 + ', "prompt_tokens": 1, "output_tokens": 1}', "time_unreadable"),
        ('{"arrival_s": [], "prompt_tokens": 1, "output_tokens": 1}', "time_unreadable"),
        ('{"arrival_s": "2024-05-01T10:00:00", "prompt_tokens": 1, "output_tokens": 1}', "time_unreadable"),
        ('{"arrival_s": 1, "prompt_tokens": 1e400, "output_tokens": 1}', "prompt_tokens_not_whole"),
        (
            '{"arrival_s": 1, "prompt_tokens": 1' + "0" * 30 + ', "output_tokens": 1}',
            "prompt_tokens_not_whole",
        ),
        ("[" * 100_000, "unreadable_line"),
    ],
)
def test_a_record_with_what_is_no_time_or_length_is_dropped_and_counted(
    tmp_path: Path, record: str, reason: str
) -> None:
    good = '{{"arrival_s": {}, "prompt_tokens": 5, "output_tokens": 5}}\n'
    path = tmp_path / "x.jsonl"
    path.write_text(good.format(0) + record + "\n" + good.format(2))
    trace = read(path)
    assert trace.dropped == {reason: 1}
    assert trace.line.tolist() == [1, 3]


def test_ids_that_64_bits_do_not_hold_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(
        f'{{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, {2**70}]}}\n'
        '{"timestamp": 10, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n'
    )
    trace = read(path)
    assert trace.block_hashes is not None
    assert trace.block_hashes.tolist() == [1, 2]
