"""The workflow as a person meets it: faulty neighbours, jobs that fail, scenarios that are gone, fleets, what the terminal says."""

import json
import re
import shutil
from pathlib import Path

import pytest

pytestmark = pytest.mark.workflow


@pytest.fixture
def beside(planned):
    """Writes further spec files and takes them away again."""
    written: list[Path] = []

    def write(file: str, text: str) -> None:
        path = planned.folder / file
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        written.append(path)

    yield write
    for path in written:
        path.unlink(missing_ok=True)


def test_faulty_neighbours_are_left_out_of_a_chosen_plan_and_refuse_a_whole_one(planned, beside):
    text = planned.spec.read_text()
    beside("data/scenarios/other.yaml", text.replace("tiny", "other"))
    beside("data/scenarios/wrong.yaml", text.replace("tiny", "wrong").replace("policy:", "polizy:"))
    beside("data/scenarios/torn.yaml", "scenario: torn\nmodel: [\n")
    beside("data/scenarios/twin.yaml", text.replace("tiny", "other"))
    beside("data/scenarios/strayed.yaml", "fleet: strayed\nscenarios: [tiny.yaml]\nbudget: 9 USD/h\n")
    beside("data/fleets/both.yaml", "fleet: both\nscenarios: [../scenarios/nowhere.yaml]\nbudget: 9 USD/h\n")
    faults = (
        "data/scenarios/wrong.yaml:13:1: polizy",
        "data/scenarios/torn.yaml:3:1: ",
        "data/scenarios/twin.yaml:1:11: scenario: is the name of data/scenarios/other.yaml too",
        "data/scenarios/strayed.yaml: holds a fleet, which belongs into data/fleets",
        "data/fleets/both.yaml:2:13: scenarios[0]",
    )
    code, out = planned.run("--dry-run", "--config", "scenario=tiny")
    assert code == 0, out
    for fault in faults:
        assert fault in out
        assert f"{fault.partition(':')[0]}: left out of this plan" in out
    code, out = planned.run("--dry-run", "--config", "scenario=tiny,torn")
    assert (code, faults[1] in out, faults[0] in out, "unknown scenario" in out) == (2, True, False, False)
    code, out = planned.run("--dry-run")
    assert (code, "Traceback" in out, "left out" in out) == (2, False, False)
    for fault in faults:
        assert fault in out


def test_what_a_failed_job_took_with_it_is_made_again(planned):
    """The job's output is gone and what hangs on it is older: that must not pass for "nothing to be done"."""
    stage = planned.folder / "src/fleetplan/cli/roofline.py"
    code_before, text = stage.read_text(), planned.spec.read_text()
    try:
        planned.spec.write_text(text.replace("rate: 1 req/s", "rate: 3 req/s"))
        stage.write_text(code_before + "\nraise RuntimeError('a stage that fails')\n")
        code, out = planned.run("--quiet", "host", "progress", "rules")
        assert code == 1
        assert "roofline of tiny: failed after" in out
        assert "a stage that fails" in out
        stage.write_text(code_before)
        assert {"roofline", "sizing", "load", "report"} <= planned.would_run()
        code, out = planned.run("--quiet", "host", "progress", "rules")
        assert code == 0, out
        assert not re.search("Building DAG|Select jobs|Execute", out)
        for stage_name in ("roofline", "sizing", "report"):
            assert re.search(rf"^\d\d:\d\d:\d\d  {stage_name} of tiny$", out, re.MULTILINE), out
            assert re.search(rf"^\d\d:\d\d:\d\d  {stage_name} of tiny: done in \d+ s$", out, re.MULTILINE), (
                out
            )
    finally:
        stage.write_text(code_before)
        planned.spec.write_text(text)


def test_a_shared_fleet_is_planned_with_the_rest_and_what_has_no_spec_is_told(planned, beside):
    shutil.copytree(planned.folder / "results/parts/tiny", planned.folder / "results/parts/gone")
    text = planned.spec.read_text().replace("gpu: [h100-sxm]", "gpu: [h100-sxm, l4]")
    text += "simulation: {replications: 1}\n"
    beside("data/fleets/models/one.yaml", text.replace("tiny", "one"))
    beside("data/fleets/models/two.yaml", text.replace("tiny", "two"))
    beside(
        "data/fleets/both.yaml",
        "fleet: both\nscenarios: [models/one.yaml, models/two.yaml]\nstock: {l4: 1, h100-sxm: 1}\n",
    )
    code, out = planned.run("--quiet", "host", "progress", "rules")
    assert code == 0, out
    assert "fleet of both: done in" in out
    rows = planned.fleetplan("sql", "SELECT fleet, verdict, cost_usd_per_hour FROM fleets", "--json").stdout
    assert json.loads(rows) == [{"fleet": "both", "verdict": "feasible", "cost_usd_per_hour": 4.0}]
    assert "results/parts/gone: no spec has this name any more" in out
    rows = planned.fleetplan("sql", "SELECT scenario FROM decisions", "--json").stdout
    assert json.loads(rows) == [{"scenario": "tiny"}]
    code, out = planned.run("--dry-run", "--config", "scenario=both")
    assert (code, "both is a fleet" in out) == (2, True)
