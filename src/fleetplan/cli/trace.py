"""`fleetplan trace`: summarise, inspect, convert and fit a traffic trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from fleetplan.traffic.traces import Trace


def _reading(f: Callable[..., None]) -> Callable[..., None]:
    """The argument and the options that every reading verb takes."""
    for option in reversed(
        (
            click.argument("file", type=click.Path(path_type=Path)),
            click.option("--format", "format", help="The file's format, where detection is to be overruled."),
            click.option(
                "--time-unit",
                type=click.Choice(["datetime", "s", "ms", "us", "ns"]),
                help="How the file writes time, where detection is to be overruled.",
            ),
            click.option(
                "--columns",
                "columns",
                help="A CSV's own columns: time=NAME,prompt=NAME,output=NAME[,session=NAME].",
            ),
        )
    ):
        f = option(f)
    return f


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Read traffic traces: their facts, their faults, and what to plan with."""


@command.command()
@_reading
@click.option("--json", "as_json", is_flag=True, help="Strict JSON.")
def summarise(as_json: bool, **reading: Any) -> None:
    """Rate, burstiness, peaks and quantiles of lengths."""
    from fleetplan.traffic.facts import summarise as summary_of

    summary = summary_of(_read(**reading))
    if as_json:
        click.echo(json.dumps(summary.as_json(), allow_nan=False, indent=2))
        return
    found = summary.as_json()
    lengths: dict[str, Any] = {name: found.pop(name) for name in ("prompt_tokens", "output_tokens")}
    notes: Any = found.pop("notes")
    dropped: Any = found.pop("dropped")
    for name, value in found.items():
        click.echo(f"{name:20} {_figure(value)}")
    click.echo(f"{'dropped':20} {', '.join(f'{n} {reason}' for reason, n in dropped.items()) or 'none'}")
    click.echo(f"{'':20} " + "".join(f"{q:>10}" for q in ("mean", "p50", "p90", "p95", "p99", "max")))
    for name, facts in lengths.items():
        click.echo(f"{name:20} " + "".join(f"{_figure(value):>10}" for value in facts.values()))
    for note in notes:
        click.echo(f"note: {note}")


@command.command()
@_reading
@click.option(
    "--facts", type=click.Path(path_type=Path), help="Write the compact table of facts (Parquet) here."
)
@click.option("--name", help="Name of the table of facts (default: the output file's name).")
@click.option("--title", default="", help="Title of the table of facts.")
@click.option("--source", default="", help="Where the trace comes from, kept in the table of facts.")
@click.option("--licence", default="", help="The trace's licence, kept in the table of facts.")
def convert(
    facts: Path | None, name: str | None, title: str, source: str, licence: str, **reading: Any
) -> None:
    """Turn a trace into a table of facts."""
    from fleetplan.errors import InputError
    from fleetplan.traffic import facts_table

    if facts is None:
        raise InputError(
            "fleetplan trace convert: nothing to write (got no output), --facts OUT.parquet would be right"
        )
    trace = _read(**reading)
    table = facts_table.facts_of(trace, name or facts.stem, title, source, licence)
    facts_table.write(table, facts)
    click.echo(
        f"{facts}: {len(table.pair_counts)} pairs of lengths ({table.about.bins}), {len(table.counts_per_s)} seconds, "
        f"{len(trace)} requests of {trace.format}"
    )


def _read(file: Path, format: str | None, time_unit: str | None, columns: str | None) -> Trace:
    from fleetplan.errors import InputError
    from fleetplan.traffic.traces import read

    given = None
    if columns:
        given = dict(part.split("=", 1) for part in columns.split(",") if "=" in part)
        unknown = set(given) - {"time", "prompt", "output", "session"}
        if unknown or len(given) != len(columns.split(",")):
            raise InputError(
                f"--columns: unreadable (got {columns!r}), time=NAME,prompt=NAME,output=NAME would be right"
            )
    return read(file, format, time_unit=time_unit, columns=given)


def _figure(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
