"""`workflow/job`, which runs each command of the plan: what it says of one that ends, fails, or is stopped by a person."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest


def started(project: Path, log: Path, *command: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["bash", str(project / "workflow" / "job"), "sizing of small", str(log), *command],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [("true", 0, "done in"), ("echo why; exit 3", 3, "says:\n    why")],
)
def test_what_a_job_came_to(project: Path, tmp_path: Path, command: str, code: int, says: str) -> None:
    job = started(project, tmp_path / "log", "bash", "-c", command)
    _, told = job.communicate(timeout=60)
    assert job.returncode == code
    assert says in told


def test_a_job_that_a_person_stops_has_not_failed(project: Path, tmp_path: Path) -> None:
    job = started(project, tmp_path / "log", "bash", "-c", "echo here; exec sleep 60")
    while not (tmp_path / "log").exists() or "here" not in (tmp_path / "log").read_text():
        assert job.poll() is None
        time.sleep(0.02)
    os.killpg(job.pid, signal.SIGTERM)  # not INT, which who runs the tests may have told all to ignore
    _, told = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "stopped after" in told
    assert "failed" not in told
