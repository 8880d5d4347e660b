"""Every handed trace and log through `trace inspect`, `summarise` and `convert`: read as what it is, or refused with what is wrong."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.trace import command
from fleetplan.errors import InputError
from fleetplan.traffic.traces import read

# file: (format, usable rows), or what the refusal says
OUTCOMES: dict[str, tuple[str, int] | str] = {
    "traces/aiperf/example_profile_export.jsonl": ("aiperf-export", 1),
    "traces/azure2023/AzureLLMInferenceTrace_code.csv": ("azure-2023", 8819),
    "traces/azure2023/AzureLLMInferenceTrace_conv.csv": ("azure-2023", 19366),
    "traces/guidellm/scenarios": "holds no requests",
    "traces/inference-perf/example_trace.csv": ("azure-2023", 20),
    "traces/inference-perf/vllm+batch_size/stage_0_lifecycle_metrics.json": ("inference-perf-report", 60),
    "traces/inference-perf/vllm+batch_size/stage_1_lifecycle_metrics.json": ("inference-perf-report", 2278),
    "traces/inference-perf/vllm+batch_size/stage_3_lifecycle_metrics.json": ("inference-perf-report", 6715),
    "traces/inference-perf/workload_interactive-chat.json": "holds no requests",
    "traces/inference-perf/workload_reasoning.json": "holds no requests",
    "traces/inferencex/glm5_fp8_vllm_tp8_isl10240_osl128_conc4.json": ("vllm-bench", 40),
    "traces/inferencex/glm5_fp8_vllm_tp8_isl1024_osl128_conc16.json": ("vllm-bench", 160),
    "traces/llm-d-benchmark/guidellm_report_v2.json": ("guidellm-report", 4),
    "traces/llm-d-benchmark/inference_perf_lifecycle.yaml": ("inference-perf-report", 3),
    "traces/mooncake/synthetic_trace.jsonl": ("mooncake", 3993),
    "traces/sglang-bench/bench_serving_record_issue9585.jsonl": ("sglang-bench", 300),
    "traces/vllm-requests/RTX4090/Llama-3.1-8B/requests.jsonl": ("vllm-requests", 300),
    "traces/vllm-requests/RTXPRO6000/Llama-3.1-8B/requests.jsonl": ("vllm-requests", 300),
    "traces/vllm-requests": "no format has these",  # the engine's settings and its state by the second
    "minimal/all_same_timestamp.csv": ("azure-2023", 3),
    "minimal/bailian_seconds_blk16.jsonl": ("bailian", 2),
    "minimal/bom_crlf_no_final_newline.csv": ("azure-2023", 2),
    "minimal/burstgpt_6col.csv": ("burstgpt", 3),
    "minimal/burstgpt_8col.csv": ("burstgpt", 2),
    "minimal/decimals_after_sniff_window.csv": ("azure-2023", 25000),
    "minimal/dst_local_time.csv": ("azure-2023", 3),
    "minimal/duplicate_column.csv": "column 'ContextTokens' is there 2 times",
    "minimal/empty.csv": "the file is empty",
    "minimal/header_only_crlf.csv": "no usable row",
    "minimal/header_repeated_midfile.csv": ("azure-2023", 2),
    "minimal/label_script_close.csv": "no format has these columns",
    "minimal/missing_column.csv": "column 'GeneratedTokens' (output) is missing",
    "minimal/mixed_fraction_digits.csv": ("azure-2023", 3),
    "minimal/mooncake_bad_hash_len.jsonl": "it would be right at blocks of 16",
    "minimal/mooncake_blank_and_partial_line.jsonl": ("mooncake", 1),
    "minimal/mooncake_ms.jsonl": ("mooncake", 3),
    "minimal/single_row.csv": ("azure-2023", 1),
    "minimal/tz_2024_style.csv": ("azure-2024", 2),
    "minimal/unsorted.csv": ("azure-2023", 3),
    "minimal/yaml_sci_and_norway.yaml": "no format has these keys",
    "minimal/zero_and_negative_tokens.csv": ("azure-2023", 1),
}
TOTALS = ("inference-perf-report", "guidellm-report")


def outcome(name: str) -> tuple[str, int] | str | None:
    """That of the file, else of the nearest folder above it."""
    path = Path(name)
    return next((OUTCOMES[str(p)] for p in (path, *path.parents) if str(p) in OUTCOMES), None)


def trace(verb: str, *arguments: str) -> str:
    done = CliRunner().invoke(command, [verb, *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.shared
def test_every_handed_file_has_its_outcome(shared: Path, tmp_path: Path) -> None:
    files = [
        f for folder in ("traces", "minimal") for f in sorted((shared / folder).rglob("*")) if f.is_file()
    ]
    for file in files:
        if file.suffix == ".md":
            continue
        name = str(file.relative_to(shared))
        wanted = outcome(name)
        assert wanted is not None, f"{name}: no outcome is stated"
        if isinstance(wanted, str):
            for verb in ("summarise", "inspect", "convert"):
                with pytest.raises(InputError) as said:
                    trace(
                        verb,
                        str(file),
                        *(("--requests", str(tmp_path / "out.csv")) if verb == "convert" else ()),
                    )
                assert wanted in said.value.lines[0], name
                assert str(file) in said.value.lines[0]
            continue
        format, rows = wanted
        summary = json.loads(trace("summarise", str(file), "--json"))
        assert (summary["format"], summary["rows"]) == wanted, name
        inspected = json.loads(trace("inspect", str(file), "--json"))
        assert (inspected["format"], inspected["rows"], inspected["dropped"]) == (
            format,
            rows,
            summary["dropped"],
        )
        out = tmp_path / "out.csv"
        if format in TOTALS or summary["prompt_tokens"]["p50"] is None:
            with pytest.raises(InputError, match="totals"):
                trace("convert", str(file), "--requests", str(out))
            continue
        trace("convert", str(file), "--requests", str(out))
        again = json.loads(trace("summarise", str(out), "--json"))
        assert (again["rows"], again["prompt_tokens"], again["output_tokens"]) == (
            rows, summary["prompt_tokens"], summary["output_tokens"],
        ), name  # fmt: skip
        for figure in ("rate_per_s", "interarrival_cv", "peak_minute_per_s"):
            assert again[figure] == (
                None if summary[figure] is None else pytest.approx(summary[figure], rel=1e-6)
            ), name


def run(
    rate: float, sent: float, requests: list[dict[str, object]], kind: str = "constant"
) -> dict[str, object]:
    count = {"mean": 60.0, "max": 90.0, "percentiles": {"p50": 50.0, "p99": 90.0}}
    return {
        "config": {"strategy": {"type_": kind, "rate": rate}},
        "metrics": {
            "request_totals": {"successful": 3, "errored": 1, "incomplete": 0, "total": 4},
            "requests_per_second": {"successful": {"mean": sent}},
            "prompt_token_count": {"successful": count},
            "output_token_count": {"successful": count},
        },
        "requests": {"successful": requests, "errored": [], "incomplete": []},
    }


LISTED: list[dict[str, object]] = [
    {"request_start_time": 10.0, "prompt_tokens": 50, "output_tokens": 5},
    {
        "request_start_time": 12.0,
        "input_metrics": {"total_tokens": 70},
        "output_metrics": {"total_tokens": 7},
    },
    {"request_start_time": 14.0, "prompt_tokens": 0, "output_tokens": 5},
]


@pytest.mark.parametrize(
    ("runs", "rows", "rate", "prompt_mean", "note"),
    [
        ([run(2, 2, LISTED)], 2, 1.0, 60.0, "asked for 2 requests/s"),
        ([run(2, 2, LISTED), run(4, 4, LISTED)], 4, None, 60.0, "each run has a clock of its own"),
        ([run(2, 0.4, [])], 3, 0.4, 60.0, "not the rate that was asked for"),
        ([run(2, 2, []), run(4, 4, [])], 6, None, 60.0, "means of all its runs"),
        ([run(0, 9.0, [], "throughput")], 3, None, 60.0, "not an arrival rate"),
    ],
    ids=["listed", "two runs listed", "totals", "two runs", "closed loop"],
)  # fmt: skip
def test_a_guidellm_report_gives_requests_where_it_lists_them(
    tmp_path: Path, runs: list[object], rows: int, rate: float | None, prompt_mean: float, note: str
) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"metadata": {}, "benchmarks": runs}))
    summary = json.loads(trace("summarise", str(file), "--json"))
    assert (summary["format"], summary["rows"]) == ("guidellm-report", rows)
    assert (summary["rate_per_s"], summary["prompt_tokens"]["mean"]) == (rate, prompt_mean)
    assert any(note in each for each in summary["notes"])
    assert any("1 requests failed" in each or "2 requests failed" in each for each in summary["notes"])


def test_a_guidellm_report_without_a_success_is_refused(tmp_path: Path) -> None:
    failed = run(2, 0, [])
    failed["metrics"]["request_totals"]["successful"] = 0  # type: ignore[index]
    file = tmp_path / "report.json"
    file.write_text(json.dumps({"benchmarks": [failed]}))
    with pytest.raises(InputError, match="no successful request"):
        read(file)
