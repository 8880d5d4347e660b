"""`fleetplan validate`: every fault of the specs, each with its line and column."""

from __future__ import annotations

import json
from pathlib import Path

import click


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print {path: [faults]} as JSON.")
def command(paths: tuple[Path, ...], as_json: bool) -> None:
    """Check the specs PATHS (default: data/scenarios/*.yaml and data/fleets/*.yaml); print their faults and exit with 2 if there are any."""
    from fleetplan.spec import check

    if not paths:
        folder = Path("data/scenarios")
        paths = (*sorted(folder.glob("*.yaml")), *sorted(Path("data/fleets").glob("*.yaml")))
        if not paths:
            raise click.UsageError(f"no specs: {folder}/*.yaml matches no file; give their paths")
    faults = check(paths)
    if as_json:
        click.echo(json.dumps(faults, indent=2, ensure_ascii=False))
    else:
        for path, lines in faults.items():
            for line in lines:
                click.echo(line, err=True)
            if not lines:
                click.echo(f"{path}: ok")
    if any(faults.values()):
        click.get_current_context().exit(2)
