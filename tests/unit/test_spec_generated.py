"""Schemas and the reference page are what the models say; FLEETPLAN_UPDATE=1 rewrites them."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli.schema import command
from fleetplan.spec.reference import page
from fleetplan.spec.schema import SCHEMAS, schemas


@pytest.mark.parametrize("name", SCHEMAS)
def test_schema_is_up_to_date(project: Path, name: str) -> None:
    path = project / "schemas" / name
    if os.environ.get("FLEETPLAN_UPDATE") == "1":
        path.write_text(schemas()[name], encoding="utf-8")
    assert path.read_text(encoding="utf-8") == schemas()[name], "run `fleetplan schema`"


def test_schema_check_tells_drift(tmp_path: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(command, ["--out", str(tmp_path)]).exit_code == 0
    assert runner.invoke(command, ["--out", str(tmp_path), "--check"]).exit_code == 0
    (tmp_path / "scenario.v1.json").write_text("{}", encoding="utf-8")
    assert runner.invoke(command, ["--out", str(tmp_path), "--check"]).exit_code != 0


def test_reference_is_up_to_date(project: Path) -> None:
    path = project / "docs" / "scenario.md"
    if os.environ.get("FLEETPLAN_UPDATE") == "1":
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert text == page(text), "run the tests with FLEETPLAN_UPDATE=1"


def test_every_key_of_every_section_is_described() -> None:
    from fleetplan.spec.schema import schema

    body = schema("scenario.v1.json")
    for section, part in {**body["$defs"], "Scenario": body}.items():
        assert part.get("description"), section
        for key, prop in part["properties"].items():
            assert prop.get("description"), f"{section}.{key}"
