"""The verb `report`: versioned HTML pages of the store's decisions, and their index."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("report")
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1)
@click.option("--store", type=click.Path(path_type=Path), default=Path("results/fleet.duckdb"), show_default=True, help="The results store; it is only read.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path, file_okay=False), default=Path("reports"), show_default=True, help="The folder of reports.")  # fmt: skip
@click.option(
    "--rewrite", is_flag=True, help="Draw the newest version again even when its meaning is unchanged."
)
@click.option("--json", "as_json", is_flag=True, help="Print the manifests as JSON.")
def command(scenarios: tuple[str, ...], store: Path, out: Path, rewrite: bool, as_json: bool) -> None:
    """Write a page for each SCENARIO (all of the store without names) whose meaning changed, and the index.

    A page is one file that needs no network: reports/SCENARIO/vNNN-DIGEST.html. An unchanged meaning makes no new version.
    """
    from fleetplan.report import versions
    from fleetplan.report.publish import publish

    manifests = publish(store, out, scenarios, rewrite)
    if as_json:
        click.echo(
            versions.manifest_text({"index": (out / "index.html").as_posix(), "reports": manifests}), nl=False
        )
        return
    for content in manifests:
        state = "new version" if content["new"] else "unchanged"
        click.echo(f"{content['scenario']}: {out / content['path']} ({state})")
    click.echo(f"index: {out / 'index.html'}")
