"""Rows of the store's accuracy tables: points with their predictions, errors of what was left out, and the ablation."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetplan.calibration.accuracy import METRICS
from fleetplan.catalog import data_dir

PUBLIC = "public"
"""Name of the project's own set of points."""
_WHAT = [
    "point",
    "model",
    "gpu",
    "engine",
    "engine_version",
    "gpus",
    "tensor_parallel",
    "data_parallel",
    "expert_parallel",
    "prompt_tokens",
    "output_tokens",
    "concurrency",
    "regime",
    "flag",
    "calibration",
]
_ERRORS = (
    "tpot_error_median",
    "tpot_error_mean",
    "tpot_error_p90",
    "ttft_error_median",
    "output_tokens_per_s_error_median",
)


def point_rows(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Table `accuracy`, from the rows of `calibration.validate.validate`."""
    made = []
    for row in rows:
        one = {name: row[name] for name in _WHAT} | {"weights": row["precision"]}
        for name in METRICS:
            unit = "" if name.endswith("per_s") else "_s"
            for kind in ("measured", "predicted", "low", "high"):
                one[f"{kind}_{name}{unit}"] = row[f"{name}_{kind}{unit}"]
            one[f"{name}_error"] = row[f"{name}_error"]
        made.append(one)
    return made


def error_rows(held_out: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Table `accuracy_held_out`, from `held_out_error` of a calibration that points were fitted for."""
    made = []
    for way, tables in (held_out or {}).items():
        covered = tables.get("coverage_of_80_percent_band", {})
        for name, table in tables.items():
            if "points" not in table:
                continue
            for metric in METRICS:
                if table.get(metric):
                    made.append(
                        {
                            "left_out": way,
                            "points_of": name,
                            "metric": metric,
                            "points": table["points"],
                            **{f"error_{key}": table[metric][key] for key in ("median", "mean", "p90")},
                            "band_80_share": covered.get(metric) if name == "all" else None,
                        }
                    )
    return made


def own_ablation() -> Path:
    """The ablation of the project's own points, as `validate-model --ablation` wrote it."""
    return data_dir() / "measurements" / "ablation.csv"


def ablation_rows(path: Path) -> list[dict[str, Any]]:
    """Table `accuracy_ablation`, from the file."""
    with path.open(encoding="utf-8", newline="") as stream:
        return [
            {
                "without": row["without"],
                "left_out": row["left_out"],
                **{name: float(row[name]) for name in _ERRORS},
            }
            for row in csv.DictReader(stream)
        ]


def write_ablation(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Write the rows of `calibration.ablation.ablation` as CSV, whole or not at all."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, ("without", "left_out", *_ERRORS), lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({**row, **{name: f"{row[name]:.4f}" for name in _ERRORS}})
    os.replace(temporary, path)


def other_tables() -> list[dict[str, str]]:
    """Errors on published tables of other shapes, nothing fitted to them, as `validate-model --table` found them for this release."""
    with (data_dir() / "measurements" / "other_tables.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))
