"""Predicts every measured point with the shipped constants, and says how far off they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.calibration import accuracy
from fleetplan.calibration.basis import basis, usable_points
from fleetplan.calibration.points import Point
from fleetplan.catalog import data_dir
from fleetplan.physics.constants import Calibration, calibration
from fleetplan.physics.form import Floats
from fleetplan.physics.terms import CLASSES


def own_points() -> Path:
    """The project's own table of public points."""
    return data_dir() / "measurements" / "serving.csv"


def predict(
    points: Sequence[Point], calibration_file: Path | None = None
) -> tuple[Floats, list[Calibration]]:
    """(points, 2) TPOT and TTFT [s], and the calibration that each stands on."""
    chosen = [
        calibration(p.architecture, p.gpu, p.engine, p.weights, calibration_file, p.release) for p in points
    ]
    constants = np.array([[c.constants[name] for name in CLASSES] for c in chosen])
    return basis(points).predict(constants), chosen


def validate(path: Path, calibration_file: Path | None = None) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The error table of a file of points, and one row a point."""
    points, excluded = usable_points(path)
    if not points:
        return {"points": 0, "excluded": dict(excluded), **dict.fromkeys(accuracy.METRICS), "by": {}}, []
    predicted, chosen = predict(points, calibration_file)
    flagged = np.array([bool(p.flag) for p in points])
    document: dict[str, Any] = accuracy.error_table(points, predicted)
    document["excluded"] = dict(sorted(excluded.items()))
    document["unflagged"] = accuracy.error_table(points, predicted, ~flagged)
    document["by"] = {
        "model": accuracy.table_by(points, predicted, lambda p: p.model),
        "gpu": accuracy.table_by(points, predicted, lambda p: p.gpu.name),
        "engine": accuracy.table_by(points, predicted, lambda p: p.engine),
        "regime": accuracy.table_by(points, predicted, lambda p: p.regime),
        "architecture": accuracy.table_by(
            points, predicted, lambda p: "moe" if p.architecture.is_moe else "dense"
        ),
        "calibration": _by_basis(points, predicted, chosen),
    }
    rows = rows_of(points, predicted, chosen)
    document["band_80_coverage"] = _coverage(rows)
    document["calibrations"] = dict(Counter(c.named for c in chosen).most_common())
    worst = sorted(rows, key=lambda row: -abs(np.log(row["tpot_predicted_s"] / row["tpot_measured_s"])))[:10]
    document["worst_ten"] = worst
    return document, rows


def rows_of(
    points: Sequence[Point], predicted: Floats, chosen: Sequence[Calibration]
) -> list[dict[str, Any]]:
    """One row a point: what it is, predicted and measured, the relative errors, and what the prediction stands on."""
    truth, guess = accuracy.three(points, accuracy.measured(points)), accuracy.three(points, predicted)
    rows = []
    for index, (point, made) in enumerate(zip(points, chosen, strict=True)):
        row: dict[str, Any] = {
            "point": point.row,
            "model": point.model,
            "gpu": point.gpu.name,
            "engine": point.engine,
            "engine_version": point.engine_version,
            "precision": point.precision,
            "gpus": point.layout.gpus,
            "tensor_parallel": point.layout.tensor_parallel,
            "data_parallel": point.layout.data_parallel,
            "expert_parallel": point.layout.expert_parallel,
            "prompt_tokens": point.prompt_tokens,
            "output_tokens": point.output_tokens,
            "concurrency": point.concurrency,
            "regime": point.regime,
            "flag": point.flag,
            "calibration": made.basis,
        }
        for column, (name, unit, band) in enumerate(
            (
                ("tpot", "_s", made.tpot),
                ("ttft", "_s", made.ttft),
                ("output_tokens_per_s", "", made.throughput),
            )
        ):
            row[f"{name}_measured{unit}"] = float(truth[index, column])
            row[f"{name}_predicted{unit}"] = float(guess[index, column])
            row[f"{name}_error"] = float(guess[index, column] / truth[index, column] - 1)
            row[f"{name}_low{unit}"] = float(guess[index, column] * band.low)
            row[f"{name}_high{unit}"] = float(guess[index, column] * band.high)
        rows.append(row)
    return rows


def _by_basis(points: Sequence[Point], predicted: Floats, chosen: Sequence[Calibration]) -> dict[str, Any]:
    names = [c.basis for c in chosen]
    return {
        name: accuracy.error_table(points, predicted, np.array([n == name for n in names]))
        for name in sorted(set(names))
    }


def _coverage(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    out = {}
    for name, unit in (("tpot", "_s"), ("ttft", "_s"), ("output_tokens_per_s", "")):
        inside = [
            row[f"{name}_low{unit}"] <= row[f"{name}_measured{unit}"] <= row[f"{name}_high{unit}"]
            for row in rows
        ]
        out[name] = sum(inside) / len(inside)
    return out
