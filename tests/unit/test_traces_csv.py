"""CSV traces: the published figures of the Azure files and the stated outcome of every quirk."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from fleetplan.errors import InputError
from fleetplan.traffic.facts import summarise
from fleetplan.traffic.traces import read

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def _written(tmp_path: Path, text: str | bytes, name: str = "t.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


AZURE = {
    "code": (8819, 3435.948, 2.5667, 13.151, 632 / 60, 67,
             (2047.85, 1469, 5187.6, 7303.3, 7436, 7437), (27.88, 13, 55, 90, 251.5, 1899)),
    "conv": (19366, 3501.722, 5.5304, 1.094, 507 / 60, 16,
             (1154.70, 1020, 2734.5, 4083, 4142, 14050), (211.13, 129, 424, 451, 601, 1000)),
}  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize("name", AZURE)
def test_the_published_figures_of_azure_2023_come_out(shared: Path, name: str) -> None:
    rows, span, rate, cv, minute, second, prompt, output = AZURE[name]
    got = summarise(read(shared / f"traces/azure2023/AzureLLMInferenceTrace_{name}.csv"))
    assert (got.format, got.rows, got.dropped) == ("azure-2023", rows, {})
    assert got.span_s == pytest.approx(span, abs=5e-4)
    assert got.rate_per_s == pytest.approx(rate, abs=5e-5)
    assert got.interarrival_cv == pytest.approx(cv, abs=5e-4)
    assert got.peak_minute_per_s == pytest.approx(minute)
    assert got.peak_second_per_s == second
    for facts, want in ((got.prompt_tokens, prompt), (got.output_tokens, output)):
        values = (facts.mean, facts.p50, facts.p90, facts.p95, facts.p99, facts.max)
        assert values == pytest.approx(want, abs=0.05)


MINIMAL = [
    ("bom_crlf_no_final_newline", 2, 4.314579, {}, ""),
    ("unsorted", 3, 4.541877, {}, "not in order of time: 1 step back, the first by 4.31458 s at line 3"),
    ("zero_and_negative_tokens", 1, 0, {"output_tokens_below_1": 1, "prompt_tokens_below_1": 2}, "a rate must be given"),
    ("header_repeated_midfile", 2, 1.0, {"repeated_header": 1}, ""),
    ("tz_2024_style", 2, 0.007405, {}, ""),
    ("mixed_fraction_digits", 3, 1.25, {}, ""),
    ("dst_local_time", 3, 3599, {}, "local time may repeat"),
    ("decimals_after_sniff_window", 25000, 24999, {"prompt_tokens_not_whole": 1, "output_tokens_not_whole": 1}, ""),
    ("burstgpt_6col", 3, 113, {"output_tokens_below_1": 1}, ""),
    ("burstgpt_8col", 2, 40, {}, ""),
    ("single_row", 1, 0, {}, "a rate must be given"),
    ("all_same_timestamp", 3, 0, {}, "a rate must be given"),
]  # fmt: skip


@pytest.mark.shared
@pytest.mark.parametrize(("name", "rows", "span_s", "dropped", "note"), MINIMAL)
def test_a_quirk_has_its_stated_outcome(
    shared: Path, name: str, rows: int, span_s: float, dropped: dict[str, int], note: str
) -> None:
    trace = read(shared / f"minimal/{name}.csv")
    summary = summarise(trace)
    assert (summary.rows, summary.dropped) == (rows, dropped)
    assert summary.span_s == pytest.approx(span_s, abs=1e-9)
    assert note in " ".join(summary.notes)
    if not span_s:
        assert summary.rate_per_s is summary.interarrival_cv is summary.peak_minute_per_s is None


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("empty", "the file is empty"),
        ("header_only_crlf", "no usable row"),
        ("missing_column", ":1: column 'GeneratedTokens' (output) is missing"),
        ("duplicate_column", ":1: column 'ContextTokens' is there 2 times"),
        ("label_script_close", ":1: no format has these columns (got name, value)"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_what_is_wrong(shared: Path, name: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(shared / f"minimal/{name}.csv")
    assert said in str(caught.value)
    assert f"{name}.csv" in str(caught.value)


def test_faults_keep_their_line_numbers_across_blank_lines_and_mixed_ends(tmp_path: Path) -> None:
    text = (
        HEADER
        + "2023-11-16 00:00:00,5,5\r\n\n2023-11-16 00:00:01,12.7,5\n2023-11-16 00:00:02,5\n2023-11-16 00:00:03,5,5,5\nnan,5,5\nyesterday,5,5"
    )
    trace = read(_written(tmp_path, text))
    assert [(f.line, f.reason) for f in trace.faults] == [
        (3, "blank_line"), (4, "prompt_tokens_not_whole"), (5, "partial_line"), (6, "too_many_cells"),
        (7, "time_missing"), (8, "time_unreadable"),
    ]  # fmt: skip
    assert len(trace) == 1


@pytest.mark.parametrize(
    ("first", "second", "gap_s"),
    [
        ("2024-05-10 00:00:00+02:00", "2024-05-09 22:00:01Z", 1.0),
        ("2024-05-10T00:00:00.1234567", "2024-05-10T00:00:00.1234568", 1e-7),
        ("2024-05-10 00:00", "2024-05-10 00:01", 60.0),
        ("2024-05-10 00:00:00.25Z", "2024-05-10 02:00:00.75 +02:00", 0.5),
        ("2024-05-10 00:00:00.000009930+00:00", "2024-05-10 00:00:00.0000099315+00:00", 1e-9),
        ("2024-05-10 05:30:00+0530", "2024-05-09 17:00:00.5-07:00", 0.5),
    ],
)
def test_times_keep_offset_and_seventh_digit(tmp_path: Path, first: str, second: str, gap_s: float) -> None:
    trace = read(_written(tmp_path, f"{HEADER}{first},1,1\n{second},1,1\n"))
    assert trace.span_s == pytest.approx(gap_s, rel=1e-9)


def test_token_counts_are_read_strictly(tmp_path: Path) -> None:
    cells = ["007", "374.0", "1e2", "12.7", "-5", "0", "", "abc", "99999999999"]
    text = HEADER + "".join(f"2023-11-16 00:00:0{i},{cell},5\n" for i, cell in enumerate(cells))
    trace = read(_written(tmp_path, text))
    assert trace.prompt_tokens.tolist() == [7, 374]
    assert trace.dropped == {
        "prompt_tokens_not_whole": 4,
        "prompt_tokens_below_1": 2,
        "prompt_tokens_missing": 1,
    }


def test_quoted_cells_and_other_delimiters_are_read(tmp_path: Path) -> None:
    text = 'arrival_s;prompt_tokens;output_tokens;note\n0.5;"10";2;"a;b"\n1.5;"11";3;c\n'
    trace = read(_written(tmp_path, text))
    assert (trace.format, trace.prompt_tokens.tolist(), trace.span_s) == ("csv", [10, 11], 1.0)


def test_a_quote_far_down_is_still_read(tmp_path: Path) -> None:
    lines = [f"{i},10,2\n" for i in range(1500)]
    trace = read(
        _written(tmp_path, "arrival_s,prompt_tokens,output_tokens\n" + "".join(lines) + '1500,"12",3\n')
    )
    assert (len(trace), int(trace.prompt_tokens[-1]), trace.dropped) == (1501, 12, {})


@pytest.mark.parametrize(
    ("name", "values", "unit", "span_s"),
    [
        ("arrival_ms", (0, 1500), "ms", 1.5),
        ("timestamp", (1_700_000_000_000, 1_700_000_000_250), "ms", 0.25),
        ("timestamp", (1_700_000_000, 1_700_000_002), "s", 2.0),
        ("arrival_time", (0.25, 0.5), "s", 0.25),
    ],
)
def test_the_unit_of_time_is_found_and_said(
    tmp_path: Path, name: str, values: tuple[float, float], unit: str, span_s: float
) -> None:
    trace = read(
        _written(tmp_path, f"{name},prompt_tokens,output_tokens\n{values[0]},1,1\n{values[1]},1,1\n")
    )
    assert (trace.time_unit, trace.span_s) == (unit, pytest.approx(span_s))


def test_a_clock_without_unit_that_makes_no_sense_in_seconds_is_refused(tmp_path: Path) -> None:
    path = _written(tmp_path, "timestamp,prompt_tokens,output_tokens\n0,1,1\n500,1,1\n30000,1,1\n")
    with pytest.raises(InputError, match="unit is unclear"):
        read(path)
    assert read(path, time_unit="ms").span_s == 30.0


def test_vidur_without_arrivals_and_own_column_names(tmp_path: Path) -> None:
    trace = read(_written(tmp_path, "num_prefill_tokens,num_decode_tokens\n10,2\n", "v.csv"))
    assert (trace.format, trace.arrival_s) == ("vidur", None)
    assert summarise(trace).rate_per_s is None
    own = read(
        _written(tmp_path, "when,in,out\n0.5,10,2\n1,9,2\n", "own.csv"),
        columns={"time": "when", "prompt": "in", "output": "out"},
        time_unit="s",
    )
    assert own.prompt_tokens.tolist() == [10, 9]


def test_an_unknown_format_is_refused_with_near_names(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="near names: azure-2023"):
        read(_written(tmp_path, HEADER), "azure2023")


def test_a_date_that_the_clock_does_not_hold_is_unreadable(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text(HEADER + "0001-01-01 00:00:00,1,1\n2023-11-16 18:15:46,1,1\n9999-12-31 23:59:59,1,1\n")
    trace = read(path)
    assert trace.dropped == {"time_unreadable": 2}
    assert trace.line.tolist() == [3]


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("x.csv.gz", HEADER.encode(), "is no whole gzip file"),
        ("x.csv.gz", gzip.compress(HEADER.encode() * 100)[:40], "is no whole gzip file"),
        (
            "x.csv",
            b"arrival_s,prompt_tokens,output_tokens\n0,1,1\n1e300,1,1\n",
            ":3: is 1e+300 s after the first",
        ),
        ("x.csv", b"a" * 200_000 + b"\n1\n", ":1: is no header"),
    ],
)
def test_a_file_that_cannot_be_a_trace_is_refused(tmp_path: Path, name: str, data: bytes, told: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(InputError) as error:
        read(path)
    assert f"{path}{told if told[0] == ':' else ': ' + told}" in str(error.value)
