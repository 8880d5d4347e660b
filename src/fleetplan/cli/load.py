"""`fleetplan load`: all parts into the results store, replaced at once."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1)
@click.option("--parts", type=click.Path(path_type=Path, file_okay=False), default=Path("results/parts"), show_default=True, help="The folder of Parquet parts.")  # fmt: skip
@click.option("--evidence", type=click.Path(path_type=Path, file_okay=False), default=Path("results/accuracy"), show_default=True, help="The folder of parts that validate-model wrote, where there is one.")  # fmt: skip
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), default=Path("results/fleet.duckdb"), show_default=True, help="The store to make.")  # fmt: skip
@click.option("--known", multiple=True, metavar="SCENARIO", help="A scenario that has a spec (repeatable). When given, parts of any other are left out.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
def command(
    scenarios: tuple[str, ...],
    parts: Path,
    evidence: Path,
    store: Path,
    known: tuple[str, ...],
    as_json: bool,
) -> None:
    """Make the results store from all parts in one transaction and put it in place at once.

    Each named SCENARIO must be complete; another that lacks a part, or whose spec is gone (see --known), is left out,
    with a line that says so.
    """
    from fleetplan.store.load import load

    done = load(parts, store, scenarios, known or None, evidence)
    for name, reason in done.left_out.items():
        click.echo(f"left out: {name}: {reason}", err=True)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "store": str(store),
                    "scenarios": done.scenarios,
                    "rows": done.rows,
                    "left_out": done.left_out,
                },
                indent=2,
                ensure_ascii=False,
            )
        )
    else:
        click.echo(
            f"{store}: {len(done.scenarios)} scenarios, {sum(done.rows.values())} rows in {len(done.rows)} tables"
        )
