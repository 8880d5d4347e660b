"""A calibration file from a table of serving points: constants, hold-out errors and error bands, with their provenance."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from fleetplan.calibration import accuracy
from fleetplan.calibration.basis import basis, usable_points
from fleetplan.calibration.fit import Fit, fit
from fleetplan.calibration.hierarchy import effects
from fleetplan.calibration.points import Point, read_rows
from fleetplan.errors import InputError
from fleetplan.physics.constants import LEVELS

LEAST_POINTS = 4


def fit_points(path: Path, name: str, source: str) -> dict[str, Any]:
    """The calibration document fitted to a CSV of serving points. Raises InputError for fewer than four usable points."""
    points, excluded = usable_points(path)
    if len(points) < LEAST_POINTS:
        raise InputError(
            f"{path}: {len(points)} usable points (left out: {dict(excluded)}); fewer than {LEAST_POINTS} make a calibration worse, not better"
        )
    rows = basis(points)
    used = [p.keys for p in points]
    made = fit(rows, accuracy.measured(points), used, effects(used), accuracy.weights(points))
    document: dict[str, Any] = {"schema": 1, "name": name}
    if len({p.engine for p in points}) == 1:
        document["engine"] = points[0].engine
    document |= {
        "provenance": {
            "source": source,
            "points_file_sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
            "points": len(points),
            "left_out": dict(excluded),
            "flagged": sum(bool(p.flag) for p in points),
            "method": "robust Gauss–Newton on log(predicted/measured), priors from kernel tables, closed-loop step compositions",
        },
    }
    held_out, bands = _held_out(points, rows)
    document["held_out_error"] = held_out
    document["bands"] = bands
    document["effects"] = factors(made)
    return document


def source_of(path: Path) -> str:
    """Where the points of a CSV come from: what its column `source` says, where it says one thing; else the file's name."""
    named = {row.get("source") or "" for row in read_rows(path, ())}
    (only,) = named if len(named) == 1 else ("",)
    return only or f"points of {path.name}"


def factors(made: Fit) -> dict[str, dict[str, dict[str, float]]]:
    """level → key → target → factor on the prior, what is within 0.2% of 1 left out."""
    out: dict[str, dict[str, dict[str, float]]] = {level: {} for level in ("base", *LEVELS)}
    for effect, z in zip(made.effects, made.z, strict=True):
        values = out[effect.level].setdefault(effect.key, {})
        if abs(z) > 0.002:
            values[effect.target] = round(float(np.exp(z)), 4)
    return out


def write(document: dict[str, Any], path: Path) -> None:
    """Write the calibration as YAML, whole or not at all."""
    yaml = YAML()
    yaml.default_flow_style = None
    yaml.width = 150
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as stream:
        yaml.dump(document, stream)
    os.replace(temporary, path)


def held_out_folds(points: Sequence[Point]) -> dict[str, np.ndarray]:
    """The three ways of leaving out: points of known deployments, whole (model, GPU, engine) groups, whole (GPU, engine) pairs."""
    order = np.random.default_rng(0).permutation(len(points))
    inside = np.empty(len(points), dtype=np.int64)
    inside[order] = np.arange(len(points)) % 5
    pairs = [p.pair for p in points]
    return {
        "deployment": inside,
        "pair": accuracy.folds(p.group for p in points),
        "nearest": accuracy.folds(pairs, max(min(5, len(Counter(pairs))), 1)),
    }


def _held_out(points: Sequence[Point], rows: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    moe = np.array([p.architecture.is_moe for p in points])
    flagged = np.array([bool(p.flag) for p in points])
    errors: dict[str, Any] = {}
    bands: dict[str, Any] = {}
    for name, fold in held_out_folds(points).items():
        if len(np.unique(fold)) < 2:
            continue
        predicted = accuracy.cross_validate(rows, points, fold)
        errors[name] = {
            "all": accuracy.error_table(points, predicted),
            "unflagged": accuracy.error_table(points, predicted, ~flagged),
            "dense": accuracy.error_table(points, predicted, ~moe),
            "moe": accuracy.error_table(points, predicted, moe),
            "coverage_of_80_percent_band": accuracy.coverage(points, predicted, fold),
        }
        bands[name] = accuracy.band(points, predicted)
    for name in ("pair", "nearest"):
        bands.setdefault(name, bands.get("pair", bands.get("deployment", _WIDE)))
    bands.setdefault("deployment", _WIDE)
    return _rounded(errors), _rounded(bands)


_WIDE = {metric: {"low": 0.5, "high": 2.0} for metric in accuracy.METRICS}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value
