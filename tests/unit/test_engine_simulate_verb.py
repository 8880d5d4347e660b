"""`fleetplan simulate`: files in, records and JSON out, and every bad file named with its line."""

import csv
import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from fleetplan.cli import main
from fleetplan.cli.simulate import command
from fleetplan.errors import InputError

AFFINE = {"model": "affine", "t_fixed_s": 0.005, "prefill_s_per_token": 2e-5, "decode_s_per_sequence": 5e-4}
KEYS = [
    "requests",
    "finished",
    "rejected",
    "timed_out",
    "unfinished",
    "steps",
    "makespan_s",
    "output_tokens",
    "output_tokens_per_s",
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p99_s",
    "tpot_mean_s",
    "tpot_p95_s",
    "e2e_mean_s",
    "preemptions",
]


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "cost.json").write_text(json.dumps(AFFINE))
    (tmp_path / "requests.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens\n1.0,100,1\n0.0,100,3\n0.0,5000,10\n"
    )
    return tmp_path


def run(folder: Path, *options: str) -> dict:
    arguments = [
        "--requests",
        str(folder / "requests.csv"),
        "--steptime",
        str(folder / "cost.json"),
        "--json",
        *options,
    ]
    answer = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert answer.exit_code == 0
    return json.loads(answer.output)


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_figures_and_records(files: Path, plain: tuple[str, ...]) -> None:
    out = files / "out.csv"
    figures = run(files, "--scheduler", "chunked", "--kv-blocks", "20", "--out", str(out), *plain)
    assert set(KEYS) <= set(figures)
    assert {k: figures[k] for k in KEYS[:6]} == {
        "requests": 3, "finished": 2, "rejected": 1, "timed_out": 0, "unfinished": 0, "steps": 4,
    }  # fmt: skip
    assert figures["makespan_s"] == pytest.approx(1.007)
    assert figures["ttft_p99_s"] is None
    assert "unbounded" in figures["reasons"]["ttft_p99_s"]
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["outcome"] for row in rows] == ["finished", "finished", "rejected"]
    assert [float(row["arrival_s"]) for row in rows] == [1.0, 0.0, 0.0]
    assert rows[2]["finish_s"] == ""
    assert float(rows[1]["finish_s"]) == pytest.approx(0.007 + 2 * 0.0055)
    assert float(rows[0]["first_scheduled_s"]) == 1.0


def test_parquet_holds_the_same_as_csv(files: Path) -> None:
    for name in ("out.csv", "out.parquet"):
        run(
            files,
            "--kv-blocks",
            "20",
            "--replicas",
            "2",
            "--router",
            "least_outstanding",
            "--out",
            str(files / name),
        )
    rows = duckdb.sql(f"SELECT * FROM '{files / 'out.parquet'}'").fetchall()
    text = list(csv.reader((files / "out.csv").read_text().splitlines()))[1:]
    assert [["" if cell is None else str(cell) for cell in row] for row in rows] == text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("arrival_s,prompt_tokens\n0,1\n", ":1: column output_tokens is missing"),
        ("arrival_s,prompt_tokens,output_tokens,colour\n0,1,1,red\n", ":1: unknown column (got 'colour')"),
        ("arrival_s,prompt_tokens,output_tokens\n0,1,1\n0,0,1\n", ":3: prompt_tokens is wrong (got '0')"),
        ("arrival_s,prompt_tokens,output_tokens\n0,1,2.5\n", ":2: output_tokens is wrong (got '2.5')"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,1,1\n", ":2: arrival_s is wrong (got 'nan')"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,1,1\n", ":2: arrival_s is wrong (got '-1')"),
        ("arrival_s,prompt_tokens,output_tokens\n0,1\n", ":2: 2 cells"),
        ("arrival_s,prompt_tokens,output_tokens\n", ":2: no request"),
        ("arrival_s,prompt_tokens,output_tokens\n0,1_000,1\n", ":2: prompt_tokens is wrong (got '1_000')"),
        ("arrival_s,prompt_tokens,output_tokens\n0,\u0661,1\n", ":2: prompt_tokens is wrong"),
        ("arrival_s,prompt_tokens,output_tokens\n1e308,1,1\n", ":2: arrival_s is wrong (got '1e308')"),
        (
            f"arrival_s,prompt_tokens,output_tokens,prefix_id\n0,1,1,{10**30}\n",
            ":2: prefix_id is wrong (got '1000",
        ),
    ],
)
def test_a_bad_file_is_told_with_its_line(files: Path, text: str, told: str) -> None:
    (files / "requests.csv").write_text(text)
    with pytest.raises(InputError, match=r"requests\.csv") as error:
        run(files)
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--scheduler", "chunky"), "near names: chunked"),
        (("--router", "robin"), "router"),
        (("--max-num-seqs", "0"), "--max-num-seqs: must be at least 1"),
        (("--replicas", "0"), "replicas: must be at least 1"),
        (("--out", "x.txt"), ".csv or .parquet"),
        (("--concurrency", "0"), "concurrency must be at least 1"),
        (("--kv-blocks", str(1 << 63)), "--kv-blocks: must be at most"),
        (("--block-size", str(10**30)), "--block-size: must be at most"),
        (("--max-queued-tokens", str(10**30)), "--max-queued-tokens: must be at most"),
        (("--replicas", str(10**9)), "give fewer replicas"),
        (("--acceptance", "0.5"), "--acceptance: says how to speculate"),
        (("--drafts", "3"), "it is never assumed"),
        (("--drafts", "3", "--acceptance", "half"), "no list of numbers"),
        (("--drafts", "3", "--acceptance", "0.5,0.4", "--draft-cost", "0"), "2 values for 3 drafts"),
        (("--drafts", "3", "--acceptance", "0.5,0.4,nan", "--draft-cost", "0"), "each must be in 0..1"),
        (("--drafts", "3", "--acceptance", "0.5"), "--draft-cost: give it or --draft-steptime"),
        (
            ("--drafts", "3", "--acceptance", "0.5", "--draft-cost", "-1"),
            "--draft-cost: must be a number from 0",
        ),
    ],
)
def test_a_bad_option_is_told(files: Path, options: tuple[str, ...], told: str) -> None:
    with pytest.raises(InputError) as error:
        run(files, *options)
    assert told in str(error.value)


@pytest.mark.parametrize("option", ["--until-s", "--start-up-s", "--think-s", "--timeout-s"])
@pytest.mark.parametrize("value", ["-1", "nan", "1e308", "soon"])
def test_a_time_that_the_clock_cannot_hold_is_told(files: Path, option: str, value: str) -> None:
    given = ["--requests", str(files / "requests.csv"), "--steptime", str(files / "cost.json")]
    answer = CliRunner().invoke(command, [*given, option, value], catch_exceptions=False)
    assert answer.exit_code == 2
    assert f"'{option}'" in answer.output
    assert f"(got {value})" in answer.output


def test_steps_that_would_take_less_than_no_time_are_refused(files: Path) -> None:
    vectors = {name: [time_s] * 8192 for name, time_s in (("O", 0.01), ("C", 0.0), ("M", 0.0))}
    model = {"model": "vectors", **vectors, "c": 0, "m": 0, "sigma": 0}
    (files / "cost.json").write_text(json.dumps({**model, "delta": -0.004}))
    with pytest.raises(
        InputError, match=r"a step of 3 tokens with 3 decoding sequences would take -0\.002 s"
    ):
        run(files)
    # Two sequences at most leave every step its time.
    assert run(files, "--max-num-seqs", "2")["finished"] == 3


def test_a_file_that_cannot_be_written_is_told_without_a_traceback(
    files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--requests", str(files / "requests.csv"), "--steptime", str(files / "cost.json")]
    out = files / "cost.json" / "out.csv"
    monkeypatch.setattr("sys.argv", ["fleetplan", "simulate", *given, "--out", str(out)])
    with pytest.raises(SystemExit) as exit_:
        main()
    assert exit_.value.code == 2
    assert "cost.json: cannot be read or written (" in capsys.readouterr().err


def test_drafts_that_are_all_accepted_take_fewer_steps(files: Path) -> None:
    alone = run(files)
    drafted = run(files, "--drafts", "4", "--acceptance", "1", "--draft-cost", "0.1")
    assert drafted["steps"] < alone["steps"]
    assert drafted["output_tokens"] == alone["output_tokens"]
    own = run(files, "--drafts", "4", "--acceptance", "1", "--draft-steptime", str(files / "cost.json"))
    assert own["steps"] == drafted["steps"]
    assert own["e2e_mean_s"] > drafted["e2e_mean_s"]


def test_who_finds_the_queue_full_comes_back(files: Path) -> None:
    full = ["--max-num-seqs", "1", "--max-queued-requests", "0"]
    assert "retries" not in run(files, *full)
    again = run(
        files, *full, "--retries", "2", "--retry-backoff-s", "0.001", "--out", str(files / "rows.csv")
    )
    assert again["rejected"] == 3
    assert (again["retries"], again["fast_rejects"]) == (6, 9)
    with (files / "rows.csv").open() as written:
        assert [(row["attempts"], row["refusals"]) for row in csv.DictReader(written)] == [("3", "3")] * 3
    with pytest.raises(InputError, match="give retries or drop them"):
        run(files, "--retry-backoff-s", "3")


def test_the_most_urgent_goes_first_unless_told_otherwise(files: Path) -> None:
    """As in a scenario: priorities that differ count."""
    (files / "urgent.csv").write_text(
        "arrival_s,prompt_tokens,output_tokens,priority\n0,10,2,1\n0.001,10,2,1\n0.002,10,2,0\n"
    )

    def finished(*options: str) -> list[float]:
        out = files / "out.csv"
        given = ("--requests", str(files / "urgent.csv"), "--steptime", str(files / "cost.json"), "--plain")
        asked = (*given, "--max-num-seqs", "1", "--out", str(out), *options)
        assert CliRunner().invoke(command, asked, catch_exceptions=False).exit_code == 0
        return [float(row["finish_s"]) for row in csv.DictReader(out.read_text().splitlines())]

    by_urgency = finished()
    assert by_urgency[2] < by_urgency[1]
    assert finished("--priority", "strict") == by_urgency
    in_turn = finished("--priority", "none")
    assert in_turn[1] < in_turn[2]


def test_too_few_arrivals_do_not_tell_whether_the_queue_grows(files: Path) -> None:
    answer = run(files)
    assert answer["stable"] is None
    assert "too few arrivals" in answer["stability"]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "ttft_p99_s"), [("conv", 19366, (0.15, 0.5)), ("code", 8819, (1.0, 40.0))]
)
def test_the_azure_traces_on_a_real_step_time(
    shared: Path, tmp_path: Path, name: str, rows: int, ttft_p99_s: tuple[float, float]
) -> None:
    """Llama 3.1 8B on one H100, calibrated: a batch of tens for the conversation; the code trace's bursts wait for seconds."""
    from fleetplan.cli.steptime import command as steptime

    cost = tmp_path / "cost.json"
    arguments = ["--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--out", str(cost), "--json"]
    assert CliRunner().invoke(steptime, arguments, catch_exceptions=False).exit_code == 0
    trace = shared / f"traces/azure2023/AzureLLMInferenceTrace_{name}.csv"
    answer = CliRunner().invoke(
        command,
        ["--requests", str(trace), "--steptime", str(cost), "--max-num-seqs", "256", "--max-num-batched-tokens", "8192",
         "--kv-blocks", "27000", "--out", str(tmp_path / "rows.csv"), "--json"],
        catch_exceptions=False,
    )  # fmt: skip
    assert answer.exit_code == 0
    figures = json.loads(answer.output)
    assert (figures["requests"], figures["finished"], figures["rejected"]) == (rows, rows, 0)
    assert figures["stable"] is True
    assert ttft_p99_s[0] < figures["ttft_p99_s"] < ttft_p99_s[1]
    assert figures["makespan_s"] == pytest.approx(3500, rel=0.03)
    with (tmp_path / "rows.csv").open() as written:
        records = list(csv.DictReader(written))
    assert len(records) == rows
    assert {row["outcome"] for row in records} == {"finished"}
