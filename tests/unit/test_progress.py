"""Signs of life: lines in a job's log, one line on a terminal, and nothing where nobody waits."""

import io
import json
import os
import pty
import subprocess
import sys

import pytest

from fleetplan import progress

SPEC = """\
scenario: small
model: llama-3.1-8b
workload:
  classes:
    - {name: chat, arrivals: {process: poisson, rate: 1 req/s}, prompt_tokens: 100, output_tokens: 10, slo: {ttft: {p90: 1 s}}}
candidates: {gpu: [h100-sxm, l40s]}
step_time: {roofline: {efficiency: 0.7}}
policy: {prices: on-demand-2026-08}
simulation: {replications: 1}
"""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work() -> None:
    for item in progress.each(["a", "b"], "candidate"):
        with progress.during("3 replicas"):
            progress.say("replication 1")
        progress.say(f"{item} is done")
    progress.say("all is done")


def test_a_log_has_the_outermost_steps_with_the_time(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setenv("FLEETPLAN_PROGRESS", "999")  # a descriptor that nobody opened
    with progress.shown():
        work()
    lines = [line.split(" s  ") for line in log.getvalue().splitlines()]
    assert all(float(seconds) >= 0 for seconds, _ in lines)
    assert [words for _, words in lines] == [
        "candidate 1 of 2: a: a is done",
        "candidate 2 of 2: b: b is done",
        "all is done",
    ]


def test_a_log_that_has_long_been_silent_hears_of_details_and_so_does_the_terminal(monkeypatch):
    log, (read, write) = io.StringIO(), os.pipe()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "SILENT_S", 0.0)
    monkeypatch.setattr(progress, "TERMINAL_S", 0.0)
    monkeypatch.setenv("FLEETPLAN_PROGRESS", str(write))
    monkeypatch.setenv("FLEETPLAN_PROGRESS_OF", "sizing of small")
    with progress.shown():
        work()
    os.close(write)
    with os.fdopen(read) as terminal:
        told = terminal.read()
    assert "candidate 1 of 2: a: 3 replicas: replication 1" in log.getvalue()
    assert "sizing of small:" in told
    assert "candidate 1 of 2: a: 3 replicas: replication 1" in told


def test_a_terminal_has_one_line_that_is_gone_in_the_end(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.delenv("FLEETPLAN_PROGRESS", raising=False)
    with progress.shown():
        work()
    assert "\n" not in terminal.getvalue()
    assert "candidate 2 of 2: b: 3 replicas: replication 1" in terminal.getvalue()
    assert terminal.getvalue().endswith("\r\x1b[K")


@pytest.mark.parametrize(
    ("stream", "asked"), [(io.StringIO, ""), (Terminal, "off")], ids=["no terminal", "off"]
)
def test_nothing_is_said_where_nobody_waits(monkeypatch, stream, asked):
    silent = stream()
    monkeypatch.setattr(sys, "stderr", silent)
    monkeypatch.setenv("FLEETPLAN_PROGRESS", asked)
    with progress.shown():
        work()
    assert silent.getvalue() == ""


def test_the_command_line_tells_how_far_it_is_and_keeps_its_json_and_parts(tmp_path):
    spec = tmp_path / "small.yaml"
    spec.write_text(SPEC)
    told, made = {}, {}
    for where in ("pipe", "terminal"):
        ours, theirs = pty.openpty()
        done = subprocess.Popen(
            [sys.executable, "-m", "fleetplan", "candidates", str(spec), "--parts", str(tmp_path / where), "--json"],
            stdout=subprocess.PIPE, stderr=theirs if where == "terminal" else subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith("FLEETPLAN_PROGRESS")},
        )  # fmt: skip
        out, err = done.communicate(timeout=300)
        os.close(theirs)
        told[where] = err.decode() if where == "pipe" else os.read(ours, 100_000).decode()
        os.close(ours)
        assert done.returncode == 0, told
        made[where] = (
            json.loads(out),
            [p.read_bytes() for p in sorted((tmp_path / where).rglob("*.parquet"))],
        )
    assert told["pipe"] == ""
    assert "candidate 2 of 2: " in told["terminal"]
    assert made["pipe"] == made["terminal"]
