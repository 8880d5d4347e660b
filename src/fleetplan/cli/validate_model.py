"""`fleetplan validate-model`: predict measured points and print how far off the predictions are."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.option(
    "--points", type=click.Path(dir_okay=False), help="CSV of measured points; the project's own by default"
)
@click.option(
    "--calibration", type=click.Path(dir_okay=False), help="calibration file; the shipped one by default"
)
@click.option("--rows", type=click.Path(dir_okay=False), help="write a row a point as CSV")
@click.option(
    "--table",
    type=click.Path(dir_okay=False),
    help="instead: a published table of fixed batches, offline throughput or request rates",
)
@click.option(
    "--ablation", is_flag=True, help="instead: fit anew without each term, and print the held-out errors"
)
@click.option(
    "--html", type=click.Path(dir_okay=False), help="write the accuracy page, e.g. reports/accuracy.html"
)
@click.option(
    "--parts",
    type=click.Path(file_okay=False),
    help="write the parts that `load` puts into the store, e.g. results/accuracy",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    help="with --ablation: write it as CSV, e.g. data/measurements/ablation.csv",
)
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(
    points: str | None,
    calibration: str | None,
    rows: str | None,
    table: str | None,
    ablation: bool,
    html: str | None,
    parts: str | None,
    out: str | None,
    as_json: bool,
) -> None:
    """Predict every point of a file and print the error table.

    The file's columns are those of the project's data/measurements/serving.csv. Errors are |predicted/measured − 1|. Rows that a rule leaves
    out are counted by reason. TTFT is taken as the mean of a closed loop of ten rounds, all clients starting at once.
    """
    import csv
    import json
    from pathlib import Path

    from fleetplan.calibration import evidence, validate

    path = Path(points) if points else validate.own_points()
    if table:
        found = _table(Path(table))
        click.echo(json.dumps(found, indent=2, allow_nan=False)) if as_json else _print_table(found, table)
        return
    if ablation:
        _ablation(path, out, as_json)
        return
    document, each = validate.validate(path, Path(calibration) if calibration else None)
    document["held_out"] = _held_out(calibration)
    if rows and each:
        with Path(rows).open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(each[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(each)
    if html and each:
        from fleetplan.report.accuracy import write_accuracy

        own = path == validate.own_points()
        ablation_rows = evidence.ablation_rows(evidence.own_ablation()) if own else []
        write_accuracy(document, each, Path(html), ablation_rows, evidence.other_tables() if own else [])
    if parts and each:
        _parts(document, each, path, parts)
    if as_json:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    _print(document, path)


def _parts(document: dict[str, Any], each: list[dict[str, Any]], path: Any, parts: str) -> None:
    from fleetplan import provenance
    from fleetplan.calibration import evidence, validate
    from fleetplan.store.meaning import code_fingerprint
    from fleetplan.store.parts import write_part

    own = path == validate.own_points()
    meta = {
        "spec_digest": provenance.file_digest(path),
        "code_fingerprint": code_fingerprint("validate-model"),
    }
    made = {
        "accuracy": evidence.point_rows(each),
        "accuracy_held_out": evidence.error_rows(document["held_out"]),
        "accuracy_ablation": evidence.ablation_rows(evidence.own_ablation()) if own else [],
    }
    for table, rows in made.items():
        write_part(parts, evidence.PUBLIC if own else path.stem, table, rows, meta)


def _table(path: Any) -> dict[str, Any]:
    from fleetplan.calibration.tables import predict_table

    return predict_table(path)[0]


def _print_table(document: dict[str, Any], path: str) -> None:
    from tabulate import tabulate

    click.echo(f"{path}: {document['points']} rows; left out: {document['excluded'] or 'none'}")
    lines = [
        [metric, each["points"], " / ".join(f"{100 * each[k]:.1f}" for k in ("median", "mean", "p90"))]
        for metric, each in document["by_metric"].items()
    ]
    click.echo(
        tabulate(lines, ["metric", "rows", "median / mean / p90 of |error| [%]"], disable_numparse=True)
    )


def _ablation(path: Any, out: str | None, as_json: bool) -> None:
    import json
    from pathlib import Path

    from fleetplan.calibration import evidence
    from fleetplan.calibration.ablation import ablation
    from fleetplan.calibration.basis import usable_points

    rows = []
    for row in ablation(usable_points(path)[0]):
        rows.append(row)
        if not as_json:
            errors = " / ".join(
                f"{100 * float(str(row[f'tpot_error_{k}'])):5.1f}" for k in ("median", "mean", "p90")
            )
            click.echo(
                f"without {row['without']:28s} left out by {row['left_out']:10s} TPOT {errors} %, "
                f"TTFT {100 * float(str(row['ttft_error_median'])):5.1f} %"
            )
    if as_json:
        click.echo(json.dumps({"ablation": rows}, indent=2, allow_nan=False))
    if out:
        evidence.write_ablation(rows, Path(out))


def _held_out(calibration: str | None) -> dict[str, Any] | None:
    from fleetplan.physics import constants

    found = constants.load(calibration).get("held_out_error")
    return dict(found) if found else None


def _print(document: dict[str, Any], path: object) -> None:
    from tabulate import tabulate

    def cells(table: dict[str, Any]) -> list[str]:
        out = [str(table["points"])]
        for metric in ("tpot", "ttft", "output_tokens_per_s"):
            value = table.get(metric)
            out.append(
                "–"
                if value is None
                else " / ".join(f"{100 * value[k]:.1f}" for k in ("median", "mean", "p90"))
            )
        return out

    click.echo(f"{path}: {document['points']} points; left out: {document['excluded'] or 'none'}")
    lines = [["all", *cells(document)]]
    if document["points"]:
        lines.append(["without flagged rows", *cells(document["unflagged"])])
    for kind, tables in document["by"].items():
        lines += [[f"{kind}: {name}", *cells(table)] for name, table in tables.items()]
    for kind, tables in (document["held_out"] or {}).items():
        lines += [
            [f"shipped points, held out by {kind}: {name}", *cells(table)]
            for name, table in tables.items()
            if "points" in table
        ]
    click.echo(
        tabulate(
            lines,
            ["median / mean / p90 of |error| [%]", "points", "TPOT", "TTFT", "output tokens/s"],
            disable_numparse=True,
        )
    )
    for row in document.get("worst_ten", []):
        click.echo(
            f"worst: line {row['point']}: {row['model']} on {row['gpus']} × {row['gpu']}, {row['engine']}, {row['prompt_tokens']}/{row['output_tokens']} at {row['concurrency']}: "
            f"TPOT {1e3 * row['tpot_measured_s']:.1f} ms measured, {1e3 * row['tpot_predicted_s']:.1f} predicted"
        )
