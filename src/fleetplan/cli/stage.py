"""What the verbs of the plan's stages share: a spec in, the parts of the stage's tables out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from fleetplan.errors import InputError

HELP = {
    "candidates": "Expand SPEC into candidates: what fits, and why the rest cannot run.",
    "roofline": "Bounds and decode steps, by batch, of every candidate of SPEC that can run.",
    "batching": "Simulate one replica of every candidate of SPEC that can run, by load.",
    "sizing": "Decide how many GPUs SPEC needs, with the evidence at N − 1, N and N + 1. Run `batching` before.",
}


def stage_command(stage: str) -> click.Command:
    """The click command of a stage."""

    @click.command(name=stage, help=HELP[stage])
    @click.argument("spec", type=click.Path(path_type=Path))
    @click.option("--parts", type=click.Path(path_type=Path, file_okay=False), default=Path("results/parts"), show_default=True, help="The folder of Parquet parts.")  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="Print the rows too, as JSON by table.")
    def command(spec: Path, parts: Path, as_json: bool) -> None:
        from fleetplan.spec import load
        from fleetplan.store.meaning import part_meta
        from fleetplan.store.parts import write_part

        scenario = load(spec)
        tables = _rows(stage, scenario, parts)
        meta = part_meta(scenario, stage)
        for table, rows in tables.items():
            write_part(parts, scenario.scenario, table, rows, meta)
        if as_json:
            click.echo(json.dumps(tables, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            click.echo(
                f"{scenario.scenario}: " + ", ".join(f"{len(rows)} {table}" for table, rows in tables.items())
            )
            if stage == "sizing":
                click.echo(_told(tables["decisions"][0]))

    return command


def _rows(stage: str, scenario: Any, parts: Path) -> dict[str, list[dict[str, Any]]]:
    from fleetplan.sizing.decide import plan

    subject = plan(scenario)
    if stage == "candidates":
        from fleetplan.sizing.stages import candidates

        return candidates.rows(subject)
    if stage == "roofline":
        from fleetplan.sizing.stages import roofline

        return roofline.rows(subject)
    if stage == "batching":
        from fleetplan.sizing.stages import batching

        return batching.rows(subject)
    from fleetplan.sizing.stages import sizing
    from fleetplan.store.parts import read_part

    known = {
        row["candidate_id"]: row["sustainable_requests_per_s"]
        for row in read_part(parts, scenario.scenario, "saturation")
    }

    def saturation(candidate_id: str) -> float:
        if candidate_id not in known:
            raise InputError(
                f"{parts}: the part saturation of {scenario.scenario} is of another grid (lacks candidate {candidate_id}); "
                "run `fleetplan batching` on the spec again"
            )
        return float(known[candidate_id])

    return sizing.rows(subject, saturation)


def _told(decision: dict[str, Any]) -> str:
    if decision["verdict"] != "feasible":
        return f"infeasible: {decision['reason']}\n{decision['nearest_change']}"
    spare = f" + {decision['spare_replicas']} spare" if decision["spare_replicas"] else ""
    bare = (decision["replicas"] + decision["spare_replicas"]) * decision["gpus_per_replica"]
    rounded = f" = {bare}, rounded up to what is bought at a time" if bare != decision["gpus"] else ""
    return (
        f"{decision['gpus']} × {decision['gpu']} = ({decision['replicas']} replicas{spare}) × {decision['gpus_per_replica']} GPUs{rounded}, "
        f"{decision['cost_usd_per_hour']:.2f} USD/h; binds: {decision['binding_limit']}"
    )
