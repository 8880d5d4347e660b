"""`fleetplan calibrate`: fit the step-time constants to measured results."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True))
@click.option(
    "--model", help="catalogue name or config.json of what was served (for runs of a benchmark tool)"
)
@click.option("--gpu", help="catalogue name of the GPU")
@click.option("--engine", default="vllm", show_default=True, help="vllm, sglang or trtllm")
@click.option("--weights", default="stored", show_default=True)
@click.option("--kv-cache", default="bf16", show_default=True)
@click.option("--tensor-parallel", "--tp", type=int, default=1, show_default=True)
@click.option("--data-parallel", type=int, default=1, show_default=True)
@click.option("--expert-parallel", type=int, default=1, show_default=True)
@click.option("--name", help="name of the calibration; the first file's by default")
@click.option("--out", type=click.Path(dir_okay=False), help="write the calibration as YAML")
@click.option(
    "--chart",
    type=click.Path(dir_okay=False),
    help="of a request log: a page with the engine's timeseries.csv beside the simulation (running, waiting, KV in use)",
)
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(
    files: tuple[str, ...],
    name: str | None,
    out: str | None,
    chart: str | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Fit constants to FILES and say how well they predict what was held out.

    Reads a per-request log (requests.jsonl with its meta.json; or their folder), vLLM bench serve JSON, SGLang bench JSONL, GuideLLM JSON,
    inference-perf lifecycle JSON or YAML, aiperf records, and a CSV with the columns of data/measurements/serving.csv. Runs of a tool need --model and
    --gpu; fewer than four runs are compared, not fitted. The result is used as `--calibration FILE` and as `engine: FILE` of a scenario.
    """
    import json
    from pathlib import Path

    from fleetplan.calibration.public import write

    paths = [Path(file) for file in files]
    document = _fit(paths, name or (paths[0].name if paths[0].is_dir() else paths[0].stem), options)
    if chart:
        _draw(paths[0], document, Path(chart))
    if out:
        write(document, Path(out))
    shown = {
        key: document[key]
        for key in ("name", "provenance", "residuals", "held_out_error", "steptime")
        if key in document
    }
    if as_json:
        click.echo(json.dumps(shown, indent=2, allow_nan=False, default=str))
        return
    for line in _told(document):
        click.echo(line)
    if out:
        click.echo(f"wrote {out}")


def _told(document: dict[str, Any]) -> list[str]:
    """The fit in words: what it is of, how far off it is on what it saw and on what it did not."""
    made, lines = document["provenance"], []
    counted = next((f"{made[key]} {key}" for key in ("points", "runs", "requests") if key in made), "")
    lines.append(
        f"{document['name']}: {counted}" + (f" ({document['engine']})" if "engine" in document else "")
    )
    for reason, count in made.get("left_out", {}).items():
        lines.append(f"  left out: {count} × {reason}")
    if "definition" in made:
        lines.append(f"  {made['definition']}")
    if "on_top_of" in made:
        lines.append(f"  on top of {made['on_top_of']}")
    if "steptime" in document:
        lines.append("constants of the step time:")
        lines += [
            f"  {key:32s} {value:.4g}"
            for key, value in document["steptime"].items()
            if not isinstance(value, str)
        ]
    residuals = document.get("residuals", {})
    if "median_relative_error_a_request" in residuals:
        lines.append(f"on the requests fitted: {_requests(residuals['median_relative_error_a_request'])}")
        lines.append(
            f"  makespan off by {100 * residuals['makespan']:.1f}%, {residuals['preemptions']} preemptions"
        )
    for key, words in (("before", "as shipped"), ("after", "fitted, on the runs it saw")):
        if key in residuals:
            lines.append(f"{words}: {_table(residuals[key])}")
    for way, tables in document["held_out_error"].items():
        for name, table in tables.items():
            if "points" in table:
                lines.append(f"held out ({way}, {name}): {_table(table)}")
            elif name == "median_relative_error_a_request":
                lines.append(f"held out: {_requests(table)}")
            elif name == "coverage_of_80_percent_band":
                shares = ", ".join(f"{metric} {100 * share:.0f}%" for metric, share in table.items())
                lines.append(f"held out ({way}): inside the 80% band: {shares}")
    return lines


def _requests(errors: dict[str, float]) -> str:
    return "median error a request: " + ", ".join(f"{name} {100 * e:.1f}%" for name, e in errors.items())


def _table(table: dict[str, Any]) -> str:
    parts = [
        f"{name} {100 * table[key]['median']:.1f} / {100 * table[key]['mean']:.1f} / {100 * table[key]['p90']:.1f}"
        for name, key in (("TPOT", "tpot"), ("TTFT", "ttft"), ("output tokens/s", "output_tokens_per_s"))
        if table.get(key)
    ]
    return f"{'; '.join(parts)} (median / mean / p90 of |error| in %, {table['points']} points)"


def _draw(path: Any, document: dict[str, Any], chart: Any) -> None:
    from fleetplan.calibration.follow import TITLES, follow
    from fleetplan.calibration.readers import RequestLog, read
    from fleetplan.errors import InputError
    from fleetplan.physics.form import linear
    from fleetplan.report.followed import write_followed

    log = read(path) if path.suffix != ".csv" else None
    if not isinstance(log, RequestLog):
        raise InputError(
            f"{path}: --chart draws a request log with its timeseries.csv (got another kind of file)"
        )
    constants = {key: value for key, value in document["steptime"].items() if key != "model"}
    beside = (path if path.is_dir() else path.parent) / "timeseries.csv"
    found = follow(log, linear(**constants), beside)
    note = (
        f"{len(log.arrival_s)} requests, {document['name']}; the time series' clock is shifted by {found.shift_s:+.1f} s, "
        "so that as many requests are inside as the log says."
    )
    panels = {
        TITLES[name]: (found.measured[name].tolist(), found.simulated[name].tolist(), found.apart(name))
        for name in found.measured
    }
    write_followed("An engine followed through time", note, found.time_s.tolist(), panels, chart)


def _fit(paths: list[Any], name: str, options: dict[str, Any]) -> dict[str, Any]:
    from fleetplan import catalog
    from fleetplan.calibration import deployment
    from fleetplan.calibration.public import fit_points, source_of
    from fleetplan.calibration.reader_checks import Run
    from fleetplan.calibration.readers import RequestLog, read
    from fleetplan.errors import InputError
    from fleetplan.physics.roofline import checked_layout

    if paths[0].suffix == ".csv":
        if len(paths) > 1:
            raise InputError("a CSV of points is fitted alone: give one file")
        return fit_points(paths[0], name, source_of(paths[0]))
    digests: dict[bytes, Any] = {}
    for path in paths:
        content = path.read_bytes() if path.is_file() else str(path).encode()
        if content in digests:
            raise InputError(f"{path}: the same content as {digests[content]}; a run counts once")
        digests[content] = path
    runs: list[Run] = []
    for path in paths:
        found = read(path)
        if isinstance(found, RequestLog):
            if len(paths) > 1:
                raise InputError(f"{path}: a request log is fitted alone: give one file")
            return deployment.fit_log(found, name, path, options["engine"])
        runs += found
    missing = [
        f"--{option}: needed to predict runs of {runs[0].tool}"
        for option in ("model", "gpu")
        if not options[option]
    ]
    if missing:
        raise InputError(*missing)
    model, gpu = catalog.model(options["model"]), catalog.gpu(options["gpu"])
    layout = checked_layout(
        options["tensor_parallel"], 1, options["data_parallel"], options["expert_parallel"]
    )
    points = deployment.points_of(
        runs,
        model.name,
        model.architecture,
        gpu,
        options["engine"],
        options["weights"],
        options["kv_cache"],
        layout,
    )
    return deployment.fit_runs(points, name, paths)
