"""What a stage's digest leaves out must not change what the stage makes, on the real stages."""

import pytest
from click.testing import CliRunner

from fleetplan import spec
from fleetplan.cli import group
from fleetplan.store import meaning, parts, tables

BASE = """\
scenario: tiny
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 2 req/s}
      prompt_tokens: 200
      output_tokens: 20
      slo: {ttft: {p90: 1 s}}
candidates:
  gpu: [h100-sxm]
  speculation: [none, {draft: eagle3, tokens: 2, acceptance: [0.7]}]
step_time: {roofline: {efficiency: 0.7}}
policy: {prices: on-demand-2026-08}
simulation: {horizon: 60 s, replications: 1}
seed: 1
"""
CHANGES = {
    "slo": ("p90: 1 s", "p95: 0.4 s"),
    "policy": (
        "{prices: on-demand-2026-08}",
        "{prices: on-demand-2026-05, max_utilisation: 0.5, confidence: 0.9}",
    ),
    "policy.prices": ("on-demand-2026-08", "on-demand-2026-05"),
    "policy.spare_replicas": ("on-demand-2026-08}", "on-demand-2026-08, spare_replicas: 3}"),
    "simulation": ("horizon: 60 s", "horizon: 50 s"),
    "seed": ("seed: 1", "seed: 2"),
    "capacity": ("seed: 1", "seed: 1\ncapacity: {h100-sxm: 2}"),
}
EARLIER = ("candidates", "roofline", "batching", "speculation", "sizing", "queueing")


def run(folder, text):
    path = folder / "tiny.yaml"
    path.write_text(text)
    for stage in EARLIER:
        done = CliRunner().invoke(group, [stage, str(path), "--parts", str(folder)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    scenario = spec.load(path)
    rows = {
        stage: {each.name: parts.read_part(folder, "tiny", each.name) for each in tables.stage_tables(stage)}
        for stage in EARLIER
    }
    return rows, {stage: meaning.stage_digest(scenario, stage) for stage in EARLIER}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return run(tmp_path_factory.mktemp("base"), BASE)


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_digest_ignores_changes_no_row(base, tmp_path, change):
    old, new = CHANGES[change]
    assert old in BASE
    rows, digests = run(tmp_path, BASE.replace(old, new))
    stages = {stage for stage in EARLIER if change in meaning.IGNORED[stage]}
    stages |= {
        stage for stage in EARLIER if change.startswith("policy") and "policy" in meaning.IGNORED[stage]
    }
    assert {stage for stage in EARLIER if digests[stage] == base[1][stage]} == stages
    for stage in stages:
        assert rows[stage] == base[0][stage], stage


def test_every_ignored_part_is_varied_here():
    ignored = {path for paths in meaning.IGNORED.values() for path in paths}
    assert {path for path in ignored if path not in CHANGES and not path.startswith("policy.")} == set()
