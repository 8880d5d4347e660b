"""`fleetplan decisions`: what was decided, a line a scenario, and what would make the infeasible ones feasible."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click


@click.command()
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1)
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), default=Path("results/fleet.duckdb"), show_default=True, help="The results store.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(scenarios: tuple[str, ...], store: Path, as_json: bool) -> None:
    """The decision of each SCENARIO (all without names) and of each fleet in the results store."""
    from fleetplan.errors import InputError, unknown_name
    from fleetplan.store.query import ask

    decisions = ask("SELECT * FROM decisions ORDER BY scenario", store).records()
    known = [row["scenario"] for row in decisions]
    if unknown := [name for name in scenarios if name not in known]:
        raise InputError(*(f"{store}: {unknown_name('scenario', name, known)}" for name in unknown))
    chosen = [row for row in decisions if not scenarios or row["scenario"] in scenarios]
    fleets = [] if scenarios else ask("SELECT * FROM fleets ORDER BY fleet", store).records()
    taken = ask("SELECT fleet, gpu, taken_gpus, stock_gpus FROM fleet_stock ORDER BY ALL", store).records()
    for fleet in fleets:
        fleet["stock"] = [
            {k: v for k, v in row.items() if k != "fleet"} for row in taken if row["fleet"] == fleet["fleet"]
        ]
    if as_json:
        click.echo(
            json.dumps({"decisions": chosen, "fleets": fleets}, indent=2, ensure_ascii=False, allow_nan=False)
        )
    else:
        click.echo(told(chosen, fleets))


def told(decisions: list[dict[str, Any]], fleets: list[dict[str, Any]]) -> str:
    """The decisions as a table, with a sentence for each that has no fleet or is not beyond noise, and one for each shared fleet."""
    from tabulate import tabulate

    rows, remarks = [], []
    for row in decisions:
        name = row["scenario"]
        if row["verdict"] != "feasible":
            rows.append([name, "none: infeasible"])
            remarks.append(f"{name}: {row['reason']}")
            remarks.append(f"{name}: nearest change: {row['nearest_change']}")
            continue
        spare = f" + {row['spare_replicas']} spare" if row["spare_replicas"] else ""
        chance, surer = row["probability_holds"], row["replicas_for_95_percent"]
        rows.append(
            [
                name, f"{row['gpus']} × {row['gpu']}", f"{row['replicas']}{spare}", f"{row['cost_usd_per_hour']:.2f}", row["binding_limit"],
                "" if chance is None else f"{chance:.0%}", "" if surer is None else str(surer),
            ]
        )  # fmt: skip
        if row["decided"] is False:
            remarks.append(f"{name}: sampling noise is not excluded: {row['certificate']}")
    for row in fleets:
        if row["verdict"] == "feasible":
            gpus = ", ".join(
                f"{kind['taken_gpus']} × {kind['gpu']}" for kind in row["stock"] if kind["taken_gpus"]
            )
            remarks.append(f"fleet {row['fleet']}: {gpus}, {row['cost_usd_per_hour']:.2f} USD/h")
        else:
            remarks.append(f"fleet {row['fleet']}: infeasible: {row['reason']}")
    headers = ["scenario", "fleet", "replicas", "USD/h", "binds", "sure", "replicas for 95%"]
    table = tabulate(rows, headers=headers, tablefmt="simple", disable_numparse=True)
    nothing = [] if remarks else ["no scenario is decided"]
    return "\n".join([*([table] if rows else nothing), *remarks])
