"""What the verbs of the plan's stages share: a spec in, the parts of the stage's tables out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

HELP = {
    "candidates": "Expand SPEC into candidates: what fits, and why the rest cannot run.",
    "roofline": "Bounds and decode steps, by batch, of every candidate of SPEC that can run.",
    "batching": "Simulate one replica of every candidate of SPEC that can run, by load.",
    "sizing": "Decide how many GPUs SPEC needs, with the evidence at N − 1, N and N + 1. Run `batching` before.",
    "queueing": "Closed forms of waiting, TTFT and TPOT about the decided count; their error against the engine; goodput by batch cap. Run `sizing` before.",
    "speculation": "Where speculative decoding pays for every candidate of SPEC that can run, and where it stops; drafts that SPEC does not state are a what-if.",
}


Rows = dict[str, list[dict[str, Any]]]


def stage_command(
    stage: str,
    rows: Callable[[Any, Path], Rows],
    told: Callable[[Rows], str] | None = None,
    planned: bool = True,
) -> click.Command:
    """The click command of a stage; `rows` makes its tables from the plan (or the scenario alone) and the folder of parts, `told` a line about them."""

    @click.command(name=stage, help=HELP[stage])
    @click.argument("spec", type=click.Path(path_type=Path))
    @click.option("--parts", type=click.Path(path_type=Path, file_okay=False), default=Path("results/parts"), show_default=True, help="The folder of Parquet parts.")  # fmt: skip
    @click.option("--json", "as_json", is_flag=True, help="Print the rows too, as JSON by table.")
    def command(spec: Path, parts: Path, as_json: bool) -> None:
        from fleetplan.spec import load
        from fleetplan.store.meaning import part_meta
        from fleetplan.store.parts import write_part

        scenario = load(spec)
        subject: Any = scenario
        if planned:
            from fleetplan.sizing.decide import plan

            subject = plan(scenario)
        tables = rows(subject, parts)
        meta = part_meta(scenario, stage)
        for table, made in tables.items():
            write_part(parts, scenario.scenario, table, made, meta)
        if as_json:
            click.echo(json.dumps(tables, indent=2, ensure_ascii=False, allow_nan=False))
        else:
            click.echo(
                f"{scenario.scenario}: " + ", ".join(f"{len(made)} {table}" for table, made in tables.items())
            )
            if told is not None:
                click.echo(told(tables))

    return command
