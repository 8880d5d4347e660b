"""`fleetplan simulate` of a pipeline: stages in the step-time file, or beside it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.simulate import command
from fleetplan.errors import InputError

STEP = {"model": "affine", "t_fixed_s": 0.01, "prefill_s_per_token": 0.0, "decode_s_per_sequence": 0.0}
STAGE = {**STEP, "t_fixed_s": 0.004}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "step.json").write_text(json.dumps(STEP))
    (tmp_path / "stage.json").write_text(json.dumps(STAGE))
    (tmp_path / "whole.json").write_text(json.dumps({**STEP, "stages": 2, "stage": STAGE}))
    (tmp_path / "requests.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,16,5\n0,16,5\n")
    return tmp_path


def run(folder: Path, step: str, *options: str) -> dict:
    where = ("--requests", str(folder / "requests.csv"), "--steptime", str(folder / step), "--json")
    given = [str(folder / o) if o.endswith(".json") else o for o in options]
    answer = CliRunner().invoke(command, (*where, "--max-num-seqs", "2", *given), catch_exceptions=False)
    assert answer.exit_code == 0
    return json.loads(answer.output)


@pytest.mark.parametrize("plain", [(), ("--plain",)])
def test_stages_in_the_file_or_beside_it(files: Path, plain: tuple[str, ...]) -> None:
    inside = run(files, "whole.json", *plain)
    assert inside == run(files, "step.json", "--stages", "2", "--stage-steptime", "stage.json", *plain)
    assert inside["steps"] == 10
    assert inside["ttft_p99_s"] == pytest.approx(0.014)
    assert inside["makespan_s"] == pytest.approx(0.054)


@pytest.mark.parametrize(
    ("step", "options", "said"),
    [
        ("step.json", ("--stages", "2"), r"a pipeline takes both \(got --stages 2\)"),
        ("step.json", ("--stage-steptime", "stage.json"), "a pipeline takes both"),
        (
            "whole.json",
            ("--stages", "2", "--stage-steptime", "stage.json"),
            "whole.json says its stages itself",
        ),
        ("step.json", ("--stages", "0", "--stage-steptime", "stage.json"), "a whole number from 1 up"),
        ("stage.json", ("--stages", "2", "--stage-steptime", "step.json"), "a stage is part of a step"),
        (
            "step.json",
            ("--stages", "2", "--stage-steptime", "stage.json", "--scheduler", "disaggregated"),
            "not simulated for disaggregated pools",
        ),
        ("whole.json", ("--scheduler", "disaggregated"), "a pipeline is not simulated in pools"),
        ("whole.json", ("--scheduler", "static"), "scheduler: static is not simulated in a pipeline"),
    ],
)
def test_what_does_not_go_together(files: Path, step: str, options: tuple[str, ...], said: str) -> None:
    with pytest.raises(InputError, match=said):
        run(files, step, *options)
