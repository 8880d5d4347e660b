"""`fleetplan schema`: the JSON Schemas of the spec files."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default="schemas", help="Folder to write to."
)
@click.option("--check", is_flag=True, help="Write nothing; exit with 2 if a file differs from the models.")
def command(out: Path, check: bool) -> None:
    """Write the JSON Schemas of the spec files into a folder (default: schemas)."""
    from fleetplan.errors import InputError
    from fleetplan.spec.schema import schemas

    differing = []
    for name, text in schemas().items():
        path = out / name
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        if check:
            if not same:
                differing.append(f"{path}: differs from the models, run `fleetplan schema --out {out}`")
            else:
                click.echo(f"{path}: up to date")
        elif same:
            click.echo(f"{path}: unchanged")
        else:
            out.mkdir(parents=True, exist_ok=True)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
            click.echo(f"{path}: written")
    if differing:
        raise InputError(*differing)
