"""The workflow: a run, a rerun that does nothing, and changes that rerun just what they must."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

pytestmark = pytest.mark.workflow

AFTER_SLO = {"batching", "queueing", "sizing", "capacity", "load", "report"}
STAGES = {"candidates", "roofline", "batching", "queueing", "speculation", "sizing", "capacity"}


def test_a_run_fills_the_store_and_reports(planned):
    answer = planned.fleetplan("sql", "SELECT scenario, replicas FROM decisions", "--json")
    assert json.loads(answer.stdout) == [{"scenario": "tiny", "replicas": 1}], answer.stderr
    manifest = json.loads((planned.folder / "reports/tiny/manifest.json").read_text())
    assert (planned.folder / "reports" / manifest["path"]).is_file()
    logs = {path.stem for path in (planned.folder / "results/logs/tiny").iterdir()}
    assert logs == {*STAGES, "report"}


@pytest.mark.parametrize(
    ("file", "old", "new", "rules"),
    [
        ("data/scenarios/tiny.yaml", "", "", set()),
        ("data/scenarios/tiny.yaml", "seed", "seed", set()),
        ("data/scenarios/tiny.yaml", "model:", "# a comment\nmodel:", set()),
        ("data/scenarios/tiny.yaml", "ttft: {p90: 1 s}", "ttft: {p90: 1000 ms}", set()),
        ("data/scenarios/tiny.yaml", "scenario: tiny\nmodel: llama-3.1-8b\n", "model: llama-3.1-8b\nscenario: tiny\n", set()),
        ("data/scenarios/tiny.yaml", "p90: 1 s", "p90: 2 s", AFTER_SLO),
        ("data/scenarios/tiny.yaml", "rate: 1 req/s", "rate: 2 req/s", STAGES | AFTER_SLO),
        ("data/prices.yaml", "h100-sxm: {median: 3.0", "h100-sxm: {median: 4.0", {"sizing", "queueing", "load", "report"}),
        ("data/prices.yaml", "l4: {median: 1.0", "l4: {median: 2.0", {"sizing", "queueing", "load", "report"}),  # levers
        ("src/fleetplan/errors.py", '"""One sentence', '# a comment\n    """Another sentence', set()),
    ],
    ids=["nothing", "touched", "comment", "unit", "order", "slo", "rate", "price", "price of another GPU", "docstring"],
)  # fmt: skip
def test_a_change_reruns_just_what_hangs_on_its_meaning(planned, file, old, new, rules):
    path = planned.folder / file
    text = path.read_text()
    assert old in text or old == "seed"
    try:
        path.write_text(text.replace(old, new, 1) if old else text)
        assert planned.would_run() == rules
    finally:
        path.write_text(text)


def test_an_endpoint_goes_through_the_same_stages(planned):
    text = planned.spec.read_text()
    endpoint = """\
scenario: tiny
endpoint: [{gpu: h100-sxm, service_time: {mean: 4 ms}}]
workload: {classes: [{name: query, arrivals: {process: poisson, rate: 9 req/s}, slo: {e2e: {p95: 1 s}}}]}
policy: {prices: test}
"""
    try:
        planned.spec.write_text(endpoint)
        assert planned.would_run() == STAGES | AFTER_SLO
    finally:
        planned.spec.write_text(text)


def test_faults_of_a_spec_are_told_without_a_traceback(planned):
    text = planned.spec.read_text()
    try:
        planned.spec.write_text(text.replace("policy:", "polizy:"))
        code, out = planned.run("--dry-run")
    finally:
        planned.spec.write_text(text)
    assert code == 2
    assert "data/scenarios/tiny.yaml:13:1: polizy" in out
    assert "Traceback" not in out
    assert "File " not in out


def test_an_unknown_scenario_is_refused(planned):
    code, out = planned.run("--config", "scenario=tiney")
    assert (code, "near names: tiny" in out, "Traceback" in out) == (2, True, False)


def test_a_killed_run_is_named_while_its_children_live_and_then_mended(planned):
    marker = planned.folder / "began-candidates"
    marker.unlink()
    shutil.rmtree(planned.folder / "results")
    process = planned.start(STAND_IN_SLEEP_S="300")
    deadline = time.monotonic() + 60
    while not marker.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert marker.exists()
    code, out = planned.run()
    assert (code, f"process {process.pid} " in out) == (2, True), out
    children = subprocess.run(
        ["ps", "-o", "pid=", "-s", str(process.pid)], capture_output=True, text=True, check=True
    )
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()
    code, out = planned.run()
    assert code == 2, out
    assert f"the run of process {process.pid} is dead, but process" in out
    for pid in map(int, children.stdout.split()):
        if pid != process.pid:
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    code, out = planned.run()
    assert code == 0, out
    assert planned.would_run() == set()
    left = [path for path in (planned.folder / "results").rglob(".*") if path.is_file()]
    assert left == []
