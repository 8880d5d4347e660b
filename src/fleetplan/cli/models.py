"""`fleetplan models`: the models of the catalogue."""

from __future__ import annotations

import json
from typing import Any

import click


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="Print strict JSON.")
def command(as_json: bool) -> None:
    """List the catalogue's models: parameters, KV cache of one token, aliases."""
    from tabulate import tabulate

    from fleetplan.catalog import models

    rows: list[dict[str, Any]] = [
        {
            "name": m.name,
            "family": m.architecture.family,
            "parameters_total": m.architecture.parameters_total,
            "parameters_active": m.architecture.parameters_active,
            "kv_bytes_per_token": int(m.architecture.kv_bytes_per_token),
            "layers": m.architecture.layer_count,
            "aliases": list(m.aliases),
            "source": m.source,
        }
        for m in models()
    ]
    if as_json:
        click.echo(json.dumps(rows, indent=2, allow_nan=False))
        return
    shown = [
        [
            row["name"],
            row["family"],
            f"{row['parameters_total'] / 1e9:,.2f}",
            f"{row['parameters_active'] / 1e9:,.2f}",
            f"{row['kv_bytes_per_token']:,}",
            ", ".join(row["aliases"][:2]),
        ]
        for row in rows
    ]
    head = ["name", "family", "parameters, 10⁹", "active, 10⁹", "KV bytes/token", "also known as"]
    align = ("left", "left", "right", "right", "right", "left")
    click.echo(tabulate(shown, head, tablefmt="simple", colalign=align, disable_numparse=True))
