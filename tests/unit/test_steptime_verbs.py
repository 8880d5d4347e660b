"""The verbs steptime, calibrate and validate-model, as a user calls them."""

import json

import duckdb
import pytest
from click.testing import CliRunner

from fleetplan.cli.calibrate import command as calibrate
from fleetplan.cli.steptime import command as steptime
from fleetplan.cli.validate_model import command as validate_model
from fleetplan.errors import InputError
from fleetplan.physics.steptime import from_json


def run(command, *arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)


def test_steptime_explains_terms_that_add_up(tmp_path):
    out = tmp_path / "step.json"
    made = run(
        steptime,
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100",
        "--batch",
        16,
        "--context",
        900,
        "--explain",
        "--json",
        "--out",
        out,
    )
    document = json.loads(made.output)
    assert sum(term["us"] for term in document["terms"]) == pytest.approx(document["step_us"])
    assert sum(term["share"] for term in document["terms"]) == pytest.approx(1.0)
    again = from_json(out)
    assert float(again.step_s(16, 16, 16, 16 * 900, 16 * 900)) * 1e6 == pytest.approx(
        document["step_us"], rel=1e-9
    )
    text = run(steptime, "--model", "llama-3.1-8b", "--gpu", "a100", "--explain").output
    assert "matmul" in text
    assert "nearest" in text


def test_steptime_roofline_is_at_most_the_calibrated_step():
    options = (
        "--model",
        "llama-3.3-70b",
        "--gpu",
        "h100",
        "--tp",
        4,
        "--weights",
        "fp8",
        "--batch",
        32,
        "--json",
    )
    bound = json.loads(run(steptime, *options, "--cost-model", "roofline").output)["step_us"]
    assert 0 < bound < json.loads(run(steptime, *options).output)["step_us"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h100", "--batch", "0"), "at least one token"),
        (("--gpu", "h1000"), "near names"),
        (("--gpu", "h100", "--without", "matmuls"), "near names: matmul"),
        (("--gpu", "h100", "--efficiency", "0.5"), "belongs to --cost-model roofline"),
        (("--gpu", "h100", "--context", "0"), "at least 1"),
        (("--gpu", "h100", "--tensor-parallel", 3), "a divisor of the 32 query heads is needed"),
        (("--gpu", "h100", "--pipeline-parallel", 33), "at most the 32 layers"),
    ],
)
def test_steptime_refuses(arguments, said):
    with pytest.raises(InputError, match=said):
        run(steptime, "--model", "llama-3.1-8b", *arguments)


HEADER = (
    "model_path,system,backend,precision,mode,isl,osl,concurrency,tp_size,silicon_ttft_ms,silicon_tpot_ms\n"
)


def test_validate_model_prints_the_keys_asked_for_and_writes_its_rows(tmp_path):
    points = tmp_path / "points.csv"
    points.write_text(
        HEADER
        + "".join(
            f"Qwen/Qwen3-32B,h100_sxm,trtllm,fp8,agg,1024,512,{c},2,100,{9 + c / 8}\n" for c in (4, 8, 16)
        )
        + "Qwen/Qwen3-32B,h100_sxm,trtllm,fp8,disagg,1024,512,8,2,100,10\n"
    )
    page, parts = tmp_path / "accuracy.html", tmp_path / "parts"
    made = run(validate_model, "--points", points, "--json", "--html", page, "--parts", parts)
    document = json.loads(made.output)
    assert document["points"] == 3
    assert document["excluded"] == {"disaggregated serving": 1}
    for metric in ("tpot", "ttft", "output_tokens_per_s"):
        assert set(document[metric]) == {"median", "mean", "p90"}
    assert {"model", "gpu", "engine", "regime"} <= set(document["by"])
    assert "http" not in page.read_text().replace("http-equiv", "")
    parquet = parts / "points" / "validate-model" / "accuracy.parquet"
    with duckdb.connect() as con:
        assert con.execute(f"SELECT count(*), max(concurrency) FROM '{parquet}'").fetchall() == [(3, 16)]
    assert "all" in run(validate_model, "--points", points).output


def test_validate_model_of_a_file_without_a_usable_row_says_so(tmp_path):
    points = tmp_path / "points.csv"
    points.write_text(HEADER + "no/model,h100_sxm,trtllm,fp8,agg,1024,512,8,2,100,10\n")
    document = json.loads(run(validate_model, "--points", points, "--json").output)
    assert document["points"] == 0
    assert document["tpot"] is None


def _bench(path, concurrency, tpot_ms):
    path.write_text(
        json.dumps(
            {
                "completed": 100,
                "duration": 100 * (0.08 + 199 * tpot_ms / 1e3) / concurrency,
                "total_input_tokens": 100_000,
                "total_output_tokens": 20_000,
                "max_concurrency": concurrency,
                "mean_ttft_ms": 80.0,
                "mean_tpot_ms": tpot_ms,
            }
        )
    )
    return path


def test_calibrate_fits_four_runs_and_its_file_moves_the_prediction(tmp_path):
    runs = [_bench(tmp_path / f"{c}.json", c, 1.3 * (7.5 + c / 12)) for c in (1, 4, 16, 32, 64)]
    out = tmp_path / "mine.yaml"
    options = ("--model", "llama-3.1-8b", "--gpu", "h100")
    document = json.loads(run(calibrate, *runs, *options, "--out", out, "--json").output)
    before, after = document["residuals"]["before"]["tpot"], document["residuals"]["after"]["tpot"]
    assert after["mean"] < 0.75 * before["mean"]
    assert document["held_out_error"]["deployment"]["all"]["points"] == 5
    shipped = json.loads(run(steptime, *options, "--batch", 16, "--json").output)
    own = json.loads(run(steptime, *options, "--batch", 16, "--calibration", out, "--json").output)
    assert own["step_us"] > shipped["step_us"]
    assert own["calibration"]["basis"] == "deployment"


def test_calibrate_compares_but_does_not_fit_three_runs(tmp_path):
    runs = [_bench(tmp_path / f"{c}.json", c, 8 + c / 12) for c in (1, 4, 16)]
    with pytest.raises(InputError, match="fewer than 4") as error:
        run(calibrate, *runs, "--model", "llama-3.1-8b", "--gpu", "h100")
    assert "measured" in str(error.value)


def test_calibrate_counts_a_run_once(tmp_path):
    one = _bench(tmp_path / "a.json", 4, 8)
    two = _bench(tmp_path / "b.json", 4, 8)
    with pytest.raises(InputError, match="the same content"):
        run(calibrate, one, two, "--model", "llama-3.1-8b", "--gpu", "h100")
