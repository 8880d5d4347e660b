"""`fleetplan fleet`: several scenarios on one stock of GPUs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fleetplan.sizing.pool import Assignment, Sized
    from fleetplan.spec.fleet import SharedFleet


@click.command()
@click.argument("fleet", type=click.Path(path_type=Path))
@click.option("--parts", type=click.Path(path_type=Path, file_okay=False), help="Write the tables fleets, fleet_stock and fleet_plans to this folder of parts.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(fleet: Path, parts: Path | None, as_json: bool) -> None:
    """Give each scenario of FLEET one of its plans, at least cost under the shared stock and budget."""
    from fleetplan.sizing.pool import assign, size
    from fleetplan.spec.fleet import load_fleet

    spec = load_fleet(fleet)
    sized = [size(scenario) for scenario in spec.loaded]
    found = assign({one.scenario: one.choices for one in sized}, spec.limits(), spec.budget_usd_per_hour)
    if parts is not None:
        from fleetplan.sizing.stages.shared import rows
        from fleetplan.store.meaning import fleet_meta
        from fleetplan.store.parts import write_part

        meta = fleet_meta(spec)
        for table, made in rows(spec, sized, found).items():
            write_part(parts, spec.fleet, table, made, meta)
    if as_json:
        click.echo(json.dumps(document(spec, sized, found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(told(spec, sized, found))


def document(spec: SharedFleet, sized: list[Sized], found: Assignment) -> dict[str, Any]:
    """The whole answer as strict JSON."""
    return {
        "fleet": spec.fleet,
        "verdict": "feasible" if found.feasible else "infeasible",
        "reason": found.reason,
        "cost_usd_per_hour": found.usd_per_hour,
        "budget_usd_per_hour": spec.budget_usd_per_hour,
        "short_usd_per_hour": found.short_usd_per_hour,
        "stock_gpus": spec.limits(),
        "taken_gpus": found.gpus,
        "short_gpus": dict(found.short_gpus or {}),
        "assigned": [asdict(choice) for choice in found.chosen],
        "plans": [asdict(choice) for one in sized for choice in one.choices],
        "refused": {one.scenario: dict(one.refused) for one in sized if one.refused},
    }


def told(spec: SharedFleet, sized: list[Sized], found: Assignment) -> str:
    """The answer for people."""
    from tabulate import tabulate

    limits = spec.limits()
    if not found.feasible:
        lines = [f"{spec.fleet}: infeasible: {found.reason}"]
    else:
        taken = ", ".join(
            f"{count} × {gpu}" + (f" of {limits[gpu]}" if gpu in limits else "")
            for gpu, count in found.gpus.items()
        )
        budget = f" of {spec.budget_usd_per_hour:.2f}" if spec.budget_usd_per_hour else ""
        lines = [f"{spec.fleet}: {found.usd_per_hour:.2f}{budget} USD/h; takes {taken}"]
    rows = [
        [c.scenario, "✓" if c in found.chosen else "", f"{c.gpus} × {c.gpu}", c.replicas, f"{c.usd_per_hour:.2f}", c.label]
        for one in sized
        for c in one.choices
    ]  # fmt: skip
    lines += [
        "",
        tabulate(rows, headers=["scenario", "", "GPUs", "replicas", "USD/h", "plan"], disable_numparse=True),
    ]
    for one in sized:
        lines += [f"{one.scenario} on {gpu}: {why}" for gpu, why in one.refused.items()]
    return "\n".join(lines)
