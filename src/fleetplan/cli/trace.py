"""`fleetplan trace`: summarise, inspect, convert, fit, and the facts of a traffic trace."""

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
                "--block-size", type=click.IntRange(min=1), help="Tokens of one hashed prompt block."
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
@click.option("--json", "as_json", is_flag=True, help="Strict JSON.")
def inspect(as_json: bool, **reading: Any) -> None:
    """What a file is: its format, columns and unit of time, its faults with their lines, its first rows."""
    trace = _read(**reading)
    rows = [
        {
            "line": int(trace.line[i]),
            "arrival_s": None if trace.arrival_s is None else float(trace.arrival_s[i]),
            "prompt_tokens": int(trace.prompt_tokens[i]),
            "output_tokens": int(trace.output_tokens[i]),
        }
        for i in range(min(5, len(trace)))
    ]
    found: dict[str, Any] = {
        "file": trace.path,
        "format": trace.format,
        "detected": trace.detected,
        "columns": list(trace.columns),
        "time_unit": trace.time_unit,
        "rows": trace.totals.rows if trace.totals else len(trace),
        "dropped": trace.dropped,
        "faults": [{"line": f.line, "reason": f.reason, "text": f.text} for f in trace.faults],
        "notes": list(trace.notes),
        "first_rows": rows,
    }
    if as_json:
        click.echo(json.dumps(found, allow_nan=False, indent=2))
        return
    click.echo(f"{trace.path}: {trace.format}, by {trace.detected}")
    click.echo(
        f"time: {trace.time_unit or 'none'}; {found['rows']} usable rows, {sum(trace.dropped.values())} dropped"
    )
    for fault in trace.faults:
        click.echo(f"{trace.path}:{fault.line}: {fault.reason}: {fault.text!r}")
    if sum(trace.dropped.values()) > len(trace.faults):
        click.echo(f"… and {sum(trace.dropped.values()) - len(trace.faults)} more")
    for note in trace.notes:
        click.echo(f"note: {note}")
    for row in rows:
        click.echo("  ".join(f"{name} {_figure(value)}" for name, value in row.items()))


@command.command()
@_reading
@click.option("--json", "as_json", is_flag=True, help="Strict JSON.")
@click.option(
    "--cache-blocks", type=click.IntRange(min=1), help="Prefix hit share of a cache of this many blocks too."
)
def facts(as_json: bool, cache_blocks: int | None, **reading: Any) -> None:
    """Dispersion over scales, prefix hits, the profile over the day."""
    from fleetplan.traffic.patterns import hour_profile, prefix_hit_share, trace_dispersion

    trace = _read(**reading)
    share = cached = None
    if trace.block_offsets is not None and trace.block_hashes is not None:
        share = prefix_hit_share(trace.block_offsets, trace.block_hashes)
        if cache_blocks:
            cached = prefix_hit_share(trace.block_offsets, trace.block_hashes, cache_blocks)
    found: dict[str, Any] = {
        "dispersion_by_scale": [{"scale_s": k, "dispersion": v} for k, v in trace_dispersion(trace).items()],
        "prefix_hit_share": share,
        "prefix_hit_share_cached": cached,
        "cache_blocks": cache_blocks,
        "block_tokens": trace.hash_block_tokens or None,
        "rate_by_hour_per_s": hour_profile(trace),
    }
    if as_json:
        click.echo(json.dumps(found, allow_nan=False, indent=2))
        return
    for scale in found.pop("dispersion_by_scale"):
        click.echo(f"dispersion at {scale['scale_s']:g} s".ljust(26) + _figure(scale["dispersion"]))
    for name, value in found.items():
        click.echo(
            f"{name:26}"
            + (" ".join(f"{v:.4g}" for v in value) if isinstance(value, list) else _figure(value))
        )


@command.command()
@_reading
@click.option("--json", "as_json", is_flag=True, help="Strict JSON.")
@click.option("--name", default="fitted", show_default=True, help="Name of the fitted class.")
def fit(as_json: bool, name: str, **reading: Any) -> None:
    """A workload of a dozen numbers that stands for the trace, with its goodness of fit."""
    from fleetplan.traffic.fit import fit as fitted

    made = fitted(_read(**reading), name)
    if as_json:
        click.echo(json.dumps({"class": made.spec, "goodness": made.goodness}, allow_nan=False, indent=2))
        return
    click.echo(_fragment(made.spec, made.goodness), nl=False)


@command.command()
@_reading
@click.option(
    "--requests", type=click.Path(path_type=Path), help="Write the requests (.csv or .parquet) here."
)
@click.option(
    "--facts", type=click.Path(path_type=Path), help="Write the compact table of facts (Parquet) here."
)
@click.option(
    "--spec", type=click.Path(path_type=Path), help="Write a fitted workload (YAML, for a scenario) here."
)
@click.option("--name", help="Name of the table of facts (default: the output file's name).")
@click.option("--title", default="", help="Title of the table of facts.")
@click.option("--source", default="", help="Where the trace comes from, kept in the table of facts.")
@click.option("--licence", default="", help="The trace's licence, kept in the table of facts.")
def convert(
    requests: Path | None,
    facts: Path | None,
    spec: Path | None,
    name: str | None,
    title: str,
    source: str,
    licence: str,
    **reading: Any,
) -> None:
    """Turn a trace into a plain file of requests, a table of facts, or a fitted workload."""
    from fleetplan.errors import InputError
    from fleetplan.traffic import facts_table
    from fleetplan.traffic.fit import fit as fitted
    from fleetplan.traffic.traces.plain import write_requests

    if requests is None and facts is None and spec is None:
        raise InputError(
            "fleetplan trace convert: nothing to write (got no output), give --requests, --facts or --spec"
        )
    trace = _read(**reading)
    if requests is not None:
        write_requests(trace, requests)
        click.echo(f"{requests}: {len(trace)} requests of {trace.format}")
    if facts is not None:
        table = facts_table.facts_of(trace, name or facts.stem, title, source, licence)
        facts_table.write(table, facts)
        click.echo(
            f"{facts}: {len(table.pair_counts)} pairs of lengths ({table.about.bins}), {len(table.counts_per_s)} seconds, "
            f"{len(trace)} requests of {trace.format}"
        )
    if spec is not None:
        made = fitted(trace, name or "fitted")
        spec.write_text(_fragment(made.spec, made.goodness), encoding="utf-8")
        click.echo(f"{spec}: a fitted workload; give it promises (slo)")


def _fragment(spec: dict[str, Any], goodness: dict[str, Any]) -> str:
    """A scenario's `workload` of one class as YAML, its goodness of fit as comments."""
    from io import StringIO

    from ruamel.yaml import YAML

    out = StringIO()
    yaml = YAML()
    yaml.dump({"workload": {"classes": [spec]}}, out)
    spread, wait = (goodness[f"arrivals_log_{what}_rms"] for what in ("dispersion", "backlog"))
    errors = ", ".join(f"{name} {spread[name]:.3f} and {wait[name]:.3f}" for name in spread)
    return (
        f"# Fitted to {goodness['rows']} requests. RMS errors of log dispersion over scales and of log backlog over loads: {errors}.\n"
        f"# Kolmogorov distance: prompts {goodness['prompt_tokens_ks']:.3f}, outputs {goodness['output_tokens_ks']:.3f}.\n"
        f"# Add promises to the class, like slo: {{ttft: {{p99: 2 s}}}}.\n{out.getvalue()}"
    )


def _read(
    file: Path, format: str | None, time_unit: str | None, columns: str | None, block_size: int | None
) -> Trace:
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
    return read(file, format, time_unit=time_unit, columns=given, block_tokens=block_size)


def _figure(value: Any) -> str:
    if value is None:
        return "—"
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)
