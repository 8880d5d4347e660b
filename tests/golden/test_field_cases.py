"""Faults that people met in benchmarks, percentiles, traces and counts; each test names its row in cases/field.md.

Rows of memory are in unit/test_memory.py, of report and store in their own tests.
"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from fleetplan.calibration.reader_checks import Run
from fleetplan.calibration.readers import read as read_benchmark
from fleetplan.cli.trace import command as trace_verb
from fleetplan.engine import EngineConfig, simulate
from fleetplan.engine.histogram import from_values
from fleetplan.engine.outcome import FINISHED, REJECTED, Reason
from fleetplan.engine.result import Promise, Result
from fleetplan.engine.summary import nearest_rank
from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.spec import validate
from fleetplan.spec.arrivals import GammaGaps
from fleetplan.traffic.facts import summarise
from fleetplan.traffic.requests import Requests
from fleetplan.traffic.traces import read


def answered(
    ttft_s: list[float],
    gap_s: list[float],
    output_tokens: list[int],
    rejected: int = 0,
    class_of: list[int] | None = None,
) -> Result:
    """A run, written by hand, whose requests all arrive at 0; the last `rejected` ones are refused."""
    n = len(ttft_s) + rejected
    fill = [np.nan] * rejected
    first = np.array([*ttft_s, *fill])
    gaps = np.array([*gap_s, *fill])
    output = np.array(output_tokens + [1] * rejected)
    classes = tuple(f"c{i}" for i in range(max(class_of or [0]) + 1))
    requests = Requests.of(np.zeros(n), 1, output, classes=classes, class_index=class_of or [0] * n)
    nothing = np.zeros(n, dtype=np.int32)
    refused = np.arange(n) >= n - rejected
    itl = tuple(
        from_values(
            np.repeat(gaps, output - 1)[np.repeat(~refused & (requests.class_index == k), output - 1)]
        )
        for k in range(len(classes))
    )
    return Result(
        requests=requests,
        arrival_s=requests.arrival_s,
        first_scheduled_s=first,
        first_token_s=first,
        finish_s=first + gaps * (output - 1),
        preemptions=nothing,
        replica=nothing,
        outcome=np.where(refused, REJECTED, FINISHED).astype(np.int8),
        reason=nothing.astype(np.int8),
        steps=1,
        busy_s=np.ones(1),
        itl=itl,
    )


def runs(path: Path) -> list[Run]:
    found = read_benchmark(path)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("scheduler", ["static", "continuous", "chunked", "prefill_first"])
def test_25_a_request_longer_than_the_pool_is_refused_with_its_reason(scheduler: str, plain: bool) -> None:
    pool = 26_800 // 16
    requests = Requests.of([0.0, 0.1, 0.2], [29_000, 1_000, 26_790], [1_000, 10, 11])
    run = simulate(requests, affine(0.01, 1e-6, 1e-4), EngineConfig(scheduler, kv_blocks=pool), plain=plain)
    assert run.outcome.tolist() == [REJECTED, FINISHED, FINISHED]
    assert run.reason.tolist() == [Reason.NEVER_FITS, Reason.NONE, Reason.NONE]
    figures = run.summary()
    assert (figures["requests"], figures["finished"], figures["rejected"]) == (3, 2, 1)
    assert (figures["ttft_p99_s"], figures["reasons"]["ttft_p99_s"][:9]) == (None, "unbounded")


@pytest.mark.parametrize("plain", [True, False])
def test_42_latency_counts_from_the_intended_start(plain: bool) -> None:
    requests = Requests.of(np.arange(100) / 10, 1, 1)
    run = simulate(requests, affine(0.19, 0.0, 0.0), EngineConfig("static", max_num_seqs=1), plain=plain)
    np.testing.assert_allclose(run.e2e_s, 0.19 + 0.09 * np.arange(100), rtol=1e-9)
    assert np.percentile(run.e2e_s, [50, 99]) == pytest.approx([4.645, 9.011], abs=5e-4)
    assert nearest_rank(run.e2e_s, 50) == pytest.approx(4.60)
    np.testing.assert_allclose(run.finish_s - run.first_scheduled_s, 0.19, rtol=1e-9)


def test_44_tpot_weighs_requests_and_itl_weighs_tokens() -> None:
    figures = answered([1.0, 1.0], [0.100, 0.010], [2, 101]).summary()
    assert figures["tpot_mean_s"] == pytest.approx(0.055)
    assert figures["itl_mean_s"] == pytest.approx(1.1 / 101)


@pytest.mark.shared
def test_44_the_tools_own_tpot_is_not_taken_for_itl(shared: Path, tmp_path: Path) -> None:
    report = json.loads((shared / "traces/llm-d-benchmark/guidellm_report_v2.json").read_text())
    for bench in report["benchmarks"]:
        # The mock run never reached its rate; as a closed loop its latencies can be read.
        bench["config"]["strategy"]["type_"] = "concurrent"
    path = tmp_path / "report.json"
    path.write_text(json.dumps(report))
    first = runs(path)[0]
    metrics = report["benchmarks"][0]["metrics"]
    assert metrics["time_per_output_token_ms"]["successful"]["mean"] == pytest.approx(2.442, abs=5e-4)
    assert first.tpot_s == pytest.approx(1.151e-3, abs=5e-7)


@pytest.mark.parametrize("plain", [True, False])
def test_45_a_stall_shows_in_pooled_gaps(plain: bool) -> None:
    # The second request's prompt of 960 tokens joins the step of the first one's third gap.
    requests = Requests.of([0.0, 0.025], [1, 960], [5, 1])
    run = simulate(requests, affine(0.010, 1e-3, 0.0), EngineConfig("chunked"), plain=plain)
    figures = run.summary()
    assert run.tpot_s[0] == pytest.approx(0.250)
    assert figures["itl_p99_s"] == pytest.approx(0.970)
    assert figures["itl_p50_s"] == pytest.approx(0.010)


def test_47_errors_are_in_the_percentiles_as_infinite() -> None:
    figures = answered([0.1] * 98, [0.0] * 98, [1] * 98, rejected=2).summary(percentiles=(98, 99))
    assert figures["ttft_p98_s"] == 0.1
    assert figures["ttft_p99_s"] is None
    assert figures["reasons"]["ttft_p99_s"].startswith("unbounded")
    json.dumps(figures, allow_nan=False)


def test_47_gaps_that_were_never_had_are_infinite_too() -> None:
    """98 answers of two tokens, and two refused requests that should have had one gap each at least."""
    run = answered([0.1] * 98, [0.02] * 98, [2] * 98, rejected=2)
    figures = run.summary({"c0": [Promise("itl", 99, 0.03)]}, percentiles=(98, 99))
    assert figures["itl_p98_s"] == pytest.approx(0.02)
    assert figures["itl_mean_s"] == pytest.approx(0.02)
    assert figures["itl_p99_s"] is None
    assert figures["reasons"]["itl_p99_s"].startswith("unbounded")
    assert not figures["classes"]["c0"]["promises"][0]["met"]
    json.dumps(figures, allow_nan=False)


def test_48_attainment_counts_the_sent_and_the_promised_only() -> None:
    run = answered([0.1] * 5 + [9.0], [0.0] * 6, [1] * 6, rejected=4)
    promises = {"c0": [Promise("ttft", 50, 1.0)]}
    assert run.summary(promises)["attainment"] == 0.5
    two = answered(
        [0.1] * 5 + [9.0] + [0.1] * 30,
        [0.0] * 36,
        [1] * 36,
        rejected=4,
        class_of=[0] * 6 + [1] * 30 + [0] * 4,
    )
    figures = two.summary(promises)
    assert figures["attainment"] == 0.5
    assert "attainment" not in figures["classes"]["c1"]


def test_50_a_single_token_has_no_tpot() -> None:
    figures = answered([1.0, 1.0], [0.010, 0.010], [1, 101]).summary()
    assert figures["tpot_mean_s"] == pytest.approx(0.010)
    assert figures["tpot_p50_s"] == pytest.approx(0.010)
    assert figures["itl_mean_s"] == pytest.approx(0.010)


def test_51_percentiles_of_requests_are_nearest_rank_and_of_lengths_linear(tmp_path: Path) -> None:
    values = np.array([0.0428, 0.0429, 0.4257])
    assert (nearest_rank(values, 50), nearest_rank(values, 99)) == (0.0429, 0.4257)
    assert np.percentile(values, 99) == pytest.approx(0.418044)
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,428,1\n1,429,1\n2,4257,1\n")
    lengths = summarise(read(path)).prompt_tokens
    assert (lengths.p50, lengths.p99) == (429, pytest.approx(4180.44))


def test_53_a_ttft_above_its_promise_is_not_met_however_good_the_tpot() -> None:
    run = answered([1.52157], [0.0294655], [1000])
    assert run.e2e_s[0] == pytest.approx(30.9576, abs=5e-5)
    ttft, tpot = run.summary({"c0": [Promise("ttft", 99, 1.0), Promise("tpot", 99, 0.030)]})["classes"]["c0"][
        "promises"
    ]
    assert (ttft["met"], tpot["met"]) == (False, True)
    assert 1 / tpot["value_s"] == pytest.approx(33.94, abs=5e-3)


@pytest.mark.shared
def test_54_an_infinite_rate_is_no_rate_and_the_answer_is_strict_json(shared: Path) -> None:
    path = shared / "traces/sglang-bench/bench_serving_record_issue9585.jsonl"
    assert '"request_rate": Infinity' in path.read_text()
    answer = CliRunner().invoke(trace_verb, ["summarise", str(path), "--json"], catch_exceptions=False)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    got = json.loads(answer.output, parse_constant=refuse)
    assert got["rate_per_s"] is None
    assert "without a rate" in " ".join(got["notes"])


def bench(**more: object) -> dict[str, object]:
    base = {
        "completed": 160,
        "duration": 50.7457,
        "total_input_tokens": 163_840,
        "total_output_tokens": 20_480,
    }
    return base | {"request_rate": "inf", "max_concurrency": 16} | more


def test_56_seconds_without_a_unit_are_said_and_seconds_under_ms_refused(tmp_path: Path) -> None:
    path = tmp_path / "bench.json"
    path.write_text(json.dumps(bench(median_ttft=0.2914, median_tpot=0.03361)))
    (run,) = runs(path)
    assert (run.ttft_s, run.tpot_s, run.open_loop) == (0.2914, 0.03361, False)
    assert "without a unit" in run.notes[0]
    path.write_text(json.dumps(bench(median_ttft_ms=0.2914, median_tpot_ms=0.03361)))
    with pytest.raises(InputError, match="in seconds under a name in ms"):
        read_benchmark(path)


def test_57_mooncake_times_are_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "conversation_trace.jsonl"
    times = np.linspace(0, 3_536_999, 12_031).astype(int)
    path.write_text(
        "".join(
            f'{{"timestamp": {t}, "input_length": 20, "output_length": 5, "hash_ids": [0]}}\n' for t in times
        )
    )
    as_ms, as_s = summarise(read(path)), summarise(read(path, time_unit="s"))
    assert as_ms.span_s == pytest.approx(3536.999)
    assert round(as_ms.rate_per_s or 0, 4) == 3.4015
    assert (round((as_s.span_s or 0) / 86_400, 1), round(as_s.rate_per_s or 0, 4)) == (40.9, 0.0034)


def test_59_a_missing_column_is_named_and_no_usable_row_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("TIMESTAMP,ContextTokens\n2023-11-16 00:00:00,5\n")
    with pytest.raises(InputError, match=r"'GeneratedTokens' .* is missing"):
        read(path)
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 00:00:00,0,0\n")
    with pytest.raises(InputError, match="no usable row"):
        read(path)


@pytest.mark.parametrize(
    ("arrivals", "says"),
    [
        ("{process: poisson, rate: 0 req/s}", r"arrivals\.rate: must be more than 0"),
        ("{process: gamma, rate: 5 req/s, burstiness: 0}", r"burstiness: must be"),
        ("{process: gamma, rate: 5 req/s, burstiness: .inf}", r"burstiness: .* are process: constant"),
        ("{process: gamma, rate: 5 req/s, cv: .nan}", r"cv: must be a finite number"),
    ],
)
def test_62_64_a_rate_or_shape_that_cannot_be_is_refused_with_its_place(
    project: Path, tmp_path: Path, arrivals: str, says: str
) -> None:
    text = (project / "data/scenarios/examples/chat-70b-h100.yaml").read_text()
    path = tmp_path / "chat.yaml"
    path.write_text(text.replace("{process: poisson, rate: 50 req/s}", arrivals))
    assert arrivals in path.read_text()
    (line,) = validate([path])
    assert line.startswith(f"{path}:9:")
    assert re.search(says, line), line


@pytest.mark.parametrize(("burstiness", "cv"), [(0.25, 2.0), (1, 1.0), (1 / 13.151**2, 13.151)])
def test_64_burstiness_is_the_gamma_shape(burstiness: float, cv: float) -> None:
    got = GammaGaps.model_validate({"process": "gamma", "rate": "5 req/s", "burstiness": burstiness})
    assert got.gap_cv == pytest.approx(cv)


def test_64_poisson_understates_the_tail_of_bursty_traffic() -> None:
    """One server of fixed service at 70% load: gamma gaps of CV 3 against CV 1, TTFT p99 several times as high."""
    rng = np.random.default_rng(64)
    n, rate = 60_000, 7.0
    p99 = []
    for shape in (1.0, 1 / 9):
        arrivals = np.cumsum(rng.gamma(shape, 1 / (shape * rate), n))
        run = simulate(
            Requests.of(arrivals, 1, 1), affine(0.1, 0.0, 0.0), EngineConfig("static", max_num_seqs=1)
        )
        p99.append(run.summary()["ttft_p99_s"])
    assert 4 < p99[1] / p99[0] < 12
