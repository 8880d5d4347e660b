"""What `validate-model` finds is asked for in SQL as a plan is: part, load, query; and calibrations serve as engines."""

import csv
import importlib
import json

import pytest
from click.testing import CliRunner

from fleetplan.calibration import evidence
from fleetplan.calibration.validate import own_points
from fleetplan.store.load import load
from fleetplan.store.query import ask


def run(verb, *words):
    command = importlib.import_module(f"fleetplan.cli.{verb.replace('-', '_')}").command
    return CliRunner().invoke(command, [str(word) for word in words])


@pytest.fixture
def some(tmp_path):
    """Every fortieth public point as a file of its own."""
    with own_points().open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    path = tmp_path / "mine.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows[::40])
    return path


def test_points_errors_and_ablation_are_loaded_and_answered(some, tmp_path):
    done = run("validate-model", "--points", some, "--parts", tmp_path / "accuracy", "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.output)
    (tmp_path / "parts").mkdir()
    store = tmp_path / "fleet.duckdb"
    load(tmp_path / "parts", store, evidence_dir=tmp_path / "accuracy")
    rows = ask("SELECT scenario, count(*), median(abs(tpot_error)) FROM accuracy GROUP BY 1", store).rows
    assert rows == [("mine", document["points"], pytest.approx(document["tpot"]["median"]))]
    asked = "SELECT error_median FROM accuracy_held_out WHERE left_out = 'pair' AND points_of = 'moe' AND metric = 'tpot'"
    assert ask(asked, store).rows == [(document["held_out"]["pair"]["moe"]["tpot"]["median"],)]
    assert ask("SELECT DISTINCT part FROM parts ORDER BY 1", store).rows == [
        ("accuracy",),
        ("accuracy_ablation",),
        ("accuracy_held_out",),
    ]


def test_the_shipped_ablation_is_of_the_whole_model_and_every_term_is_in_it():
    rows = evidence.ablation_rows(evidence.own_ablation())
    whole = {row["left_out"]: row for row in rows if row["without"] == "nothing"}
    assert set(whole) == {"deployment", "pair"}
    assert {"recipes", "layers", "moe_layers", "all_reduce", "client", "robust loss"} <= {
        row["without"] for row in rows
    }
    # The terms that first fits found to pay still do.
    for name in ("layers", "moe_layers", "recipes"):
        left = next(row for row in rows if row["without"] == name and row["left_out"] == "pair")
        assert left["tpot_error_mean"] >= whole["pair"]["tpot_error_mean"], name


SPEC = """
scenario: own-engine
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {{process: poisson, rate: 2 req/s}}
      prompt_tokens: 1000
      output_tokens: 100
      slo: {{ttft: {{p99: 1 s}}}}
candidates:
  gpu: [h100-sxm]
  engine: [{engine}]
policy: {{prices: on-demand-2026-08}}
"""


def calibrated(folder, tpot_ms):
    """A calibration from five runs of a benchmark tool."""
    for clients, tpot in zip((1, 4, 16, 64, 128), tpot_ms, strict=True):
        (folder / f"run{clients}.json").write_text(
            json.dumps(
                {
                    "completed": 10 * clients,
                    "duration": 10 * (0.05 + 0.199 * tpot),
                    "total_input_tokens": 10_000 * clients,
                    "total_output_tokens": 2_000 * clients,
                    "max_concurrency": clients,
                    "mean_ttft_ms": 50.0,
                    "mean_tpot_ms": tpot,
                    "mean_e2el_ms": 50.0 + 199 * tpot,
                }
            )
        )
    runs = sorted(folder.glob("run*.json"))
    words = (
        "--model",
        "llama-3.1-8b",
        "--gpu",
        "h100-sxm",
        "--engine",
        "vllm",
        "--out",
        folder / "mine.yaml",
    )
    return run("calibrate", *runs, *words)


def test_a_calibration_is_told_in_words_and_serves_as_an_engine(tmp_path):
    from fleetplan.sizing.candidates import expand
    from fleetplan.sizing.machine import machine
    from fleetplan.spec import load as load_spec

    told = calibrated(tmp_path, (9.0, 10.0, 12.5, 19.0, 30.0))
    assert told.exit_code == 0, told.output
    assert "5 runs (vllm)" in told.output
    assert "held out (deployment, all): TPOT" in told.output
    assert "{" not in told.output
    spec = tmp_path / "own.yaml"
    spec.write_text(SPEC.format(engine="./mine.yaml, vllm"))
    scenario = load_spec(spec)
    from fleetplan import catalog

    own, shipped = expand(scenario)
    assert (own.engine, own.calibration, shipped.calibration) == ("vllm", "./mine.yaml", "")
    assert "vllm (./mine.yaml)" in own.label
    model = catalog.model("llama-3.1-8b")
    made = machine(own, scenario, model, 1100, 1050)
    plain = machine(shipped, scenario, model, 1100, 1050)
    assert made.made.calibration.basis == "deployment"
    assert float(made.step.step_s(1, 1, 1, 1000, 1000)) > float(plain.step.step_s(1, 1, 1, 1000, 1000))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "names a file that is not there"),
        ("schema: 1\n", "keys missing: name, effects, bands"),
        ("schema: 1\nname: x\neffects: {}\nbands: {}\n", "names no engine that it was fitted for"),
    ],
)
def test_a_path_that_is_no_calibration_of_one_engine_is_refused_at_its_line(tmp_path, content, said):
    from fleetplan.spec import validate

    spec = tmp_path / "own.yaml"
    spec.write_text(SPEC.format(engine="./mine.yaml"))
    if content is not None:
        (tmp_path / "mine.yaml").write_text(content)
    (line,) = validate([spec])
    assert line.startswith(f"{spec}:13:12: candidates.engine[0]: ")
    assert said in line
