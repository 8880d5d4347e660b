"""Broken specs, one file a kind of fault, and the lines that each must print, to the word and the column."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.validate import command
from fleetplan.errors import InputError
from fleetplan.spec import load, validate
from fleetplan.spec.document import read

FOLDER = Path(__file__).parent / "broken_specs"
SPECS = sorted(p for p in FOLDER.glob("*.yaml"))


def expected(spec: Path) -> Path:
    return spec.with_suffix(".expected")


@pytest.mark.parametrize("spec", SPECS, ids=lambda p: p.stem)
def test_lines(spec: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(spec)
    lines = [line.removeprefix(f"{spec.parent}/") for line in caught.value.lines]
    if os.environ.get("FLEETPLAN_UPDATE") == "1":
        expected(spec).write_text("\n".join(lines) + "\n", encoding="utf-8")
    wanted = expected(spec).read_text(encoding="utf-8").splitlines()
    # a catalogue grows: what is near a misspelt name is compared up to its first near name
    assert [line.split(", ")[0] if "near names" in line else line for line in lines] == [
        line.split(", ")[0] if "near names" in line else line for line in wanted
    ]


def test_there_are_specs_of_every_promised_kind() -> None:
    promised = {
        "unknown_key", "unknown_names", "missing_unit", "negative_rate", "duplicate_key", "empty_section",
        "wrong_type_in_list", "slo_of_zero", "prompt_too_long", "yaml_1_1_traps",
    }  # fmt: skip
    assert promised <= {p.stem for p in SPECS}
    assert all(expected(p).is_file() for p in SPECS)


def test_command_prints_every_fault_and_exits_with_2() -> None:
    result = CliRunner().invoke(command, [str(p) for p in SPECS])
    assert result.exit_code == 2
    lines = result.output.splitlines()
    assert lines == [line for p in SPECS for line in validate([p])]
    assert all(line.startswith(f"{FOLDER}/") and line.split(":")[1].isdigit() for line in lines)


def test_command_accepts_the_shipped_specs(project: Path) -> None:
    shipped = [str(p) for p in sorted((project / "data/scenarios").rglob("*.yaml"))]
    result = CliRunner().invoke(command, shipped)
    assert (result.exit_code, result.output.splitlines()) == (0, [f"{p}: ok" for p in shipped])


def test_two_specs_of_one_name_are_refused(project: Path, tmp_path: Path) -> None:
    text = (project / "data/scenarios/azure-conversation.yaml").read_text(encoding="utf-8")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (line,) = validate([tmp_path / "a.yaml", tmp_path / "b.yaml"])
    assert line.startswith(f"{tmp_path}/b.yaml:")
    assert "give each file a name of its own" in line


@pytest.mark.parametrize(
    ("make", "says"),
    [(lambda p: None, "no such file"), (lambda p: p.mkdir(), "is a folder")],
    ids=["absent", "folder"],
)
def test_no_file(tmp_path: Path, make, says: str) -> None:
    make(tmp_path / "x.yaml")
    with pytest.raises(InputError, match=says):
        read(tmp_path / "x.yaml")
