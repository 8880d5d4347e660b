"""`fleetplan sql`: questions to the results store, read-only."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fleetplan.store.query import Answer


@click.command()
@click.argument("query", required=False)
@click.option("--format", "form", type=click.Choice(["table", "csv", "json", "markdown"]), default="table", show_default=True, help="How rows are printed.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as --format json.")
@click.option("--store", type=click.Path(path_type=Path, dir_okay=False), default=Path("results/fleet.duckdb"), show_default=True, help="The results store.")  # fmt: skip
@click.option("--tables", "dictionary", is_flag=True, help="Print the data dictionary: every table and column, unit and meaning.")  # fmt: skip
def command(query: str | None, form: str, as_json: bool, store: Path, dictionary: bool) -> None:
    """Answer the SQL QUERY (- reads it from standard input) from the results store, which is only read.

    \b
    fleetplan sql "SELECT scenario, gpu, replicas, gpus, cost_usd_per_hour, binding_limit FROM decisions"
    fleetplan sql --tables
    """
    from fleetplan.store.query import Answer, ask

    if dictionary and form == "markdown":
        from fleetplan.store.tables.reference import reference

        click.echo(reference(), nl=False)
        return
    if dictionary == (query is not None):
        raise click.UsageError("give a query, or --tables for the data dictionary")
    form = "json" if as_json else form
    if dictionary:
        from fleetplan.store.tables import TABLES

        answer = Answer(
            ("table", "column", "type", "unit", "meaning"),
            [
                line
                for table in TABLES.values()
                for line in (
                    (table.name, "", f"by {table.stage}", "", table.comment),
                    *((table.name, c.name, c.type, c.unit, c.comment) for c in table.columns),
                )
            ],
        )
    else:
        answer = ask(sys.stdin.read() if query == "-" else str(query), store)
    click.echo(_rendered(answer, form), nl=False)


def _rendered(answer: Answer, form: str) -> str:
    if form == "json":
        return json.dumps(answer.records(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(answer.columns)
        writer.writerows(answer.rows)
        return out.getvalue()
    from tabulate import tabulate

    style = "github" if form == "markdown" else "simple"
    return tabulate(answer.rows, headers=answer.columns, tablefmt=style, missingval="") + "\n"
