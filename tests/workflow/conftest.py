"""A copy of the project in a folder with a space and a quote, with a small scenario and stages that cost nothing."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

STAGES = ("candidates", "roofline", "batching", "queueing", "speculation", "sizing", "capacity")

SPEC = """\
scenario: tiny
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 1 req/s}
      prompt_tokens: 100
      output_tokens: 10
      slo: {ttft: {p90: 1 s}}
candidates:
  gpu: [h100-sxm]
step_time: {roofline: {efficiency: 0.7}}
policy: {prices: test}
"""
PRICES = """\
test: {title: Test, date: "2026-08", commitment: on-demand, source: test, gpu_usd_per_hour: {h100-sxm: {median: 3.0, low: 2.0, high: 4.0, observations: 3}, l4: {median: 1.0, low: 1.0, high: 1.0, observations: 1}}}
"""
STAND_IN = """
import os, pathlib, time
import click

@click.command()
@click.argument("spec")
@click.option("--parts")
def command(spec, parts):
    from fleetplan.spec import load
    from fleetplan.store import tables
    from fleetplan.store.meaning import part_meta
    from fleetplan.store.parts import write_part
    scenario = load(spec)
    pathlib.Path("began-{stage}").touch()
    time.sleep(float(os.environ.get("STAND_IN_SLEEP_S", "0")))
    one = {{"VARCHAR": "x", "BIGINT": 1, "DOUBLE": 1.5, "BOOLEAN": True}}
    for table in tables.stage_tables("{stage}"):
        row = {{c.name: one.get(c.type, []) for c in table.columns if c.name != "scenario"}}
        write_part(parts, scenario.scenario, table.name, [row], part_meta(scenario, "{stage}"))
"""


@dataclass(frozen=True)
class Copy:
    """The copy: its folder, and Snakemake run in it as the Makefile does."""

    folder: Path

    @property
    def spec(self) -> Path:
        return self.folder / "data/scenarios/tiny.yaml"

    def start(self, *arguments: str, **environment: str) -> "subprocess.Popen[str]":
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--workflow-profile",
            "workflow/profiles/default",
            *arguments,
        ]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment() | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("FLEETPLAN_", "SNAKEMAKE"))}
        return kept | {"PYTHONPATH": str(self.folder / "src"), "FLEETPLAN_DATA": str(self.folder / "data")}

    def run(self, *arguments: str) -> tuple[int, str]:
        process = self.start(*arguments)
        out, _ = process.communicate(timeout=400)
        return process.returncode, out

    def would_run(self) -> set[str]:
        """The rules that a dry run lists, without `all`."""
        code, out = self.run("--dry-run")
        assert code == 0, out
        return {
            line.split()[1].rstrip(":")
            for line in out.splitlines()
            if line.startswith(("rule ", "localrule "))
        } - {"all"}

    def fleetplan(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "fleetplan", *arguments],
            cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip


def copy_of(project: Path, folder: Path) -> Copy:
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", "engine")
    for name in ("src", "workflow", "data/models"):
        shutil.copytree(project / name, folder / name, ignore=skipped)
    # The engine is the project's own, with its compiled kernels.
    (folder / "src/fleetplan/engine").symlink_to(project / "src/fleetplan/engine", target_is_directory=True)
    for name in ("Snakefile", "data/gpus.yaml", "data/engines.yaml"):
        if (project / name).is_file():
            shutil.copy(project / name, folder / name)
    (folder / "data/scenarios").mkdir()
    (folder / "data/scenarios/tiny.yaml").write_text(SPEC)
    (folder / "data/prices.yaml").write_text(PRICES)
    return Copy(folder)


@pytest.fixture(scope="module")
def planned(project: Path, tmp_path_factory: pytest.TempPathFactory) -> Copy:
    """The copy after a first run; stages are stand-ins, so that what is tested is the workflow."""
    copy = copy_of(project, tmp_path_factory.mktemp("cap plan") / "it's")
    for stage in STAGES:
        (copy.folder / f"src/fleetplan/cli/{stage}.py").write_text(STAND_IN.format(stage=stage))
    code, out = copy.run()
    assert code == 0, out
    return copy
