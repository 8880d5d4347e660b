"""What each term of the step time buys: the held-out error without it, everything else fitted anew."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetplan.calibration import accuracy
from fleetplan.calibration.basis import basis
from fleetplan.calibration.points import Point
from fleetplan.physics.constants import LEVELS
from fleetplan.physics.terms import SWITCHES, TERMS

_MODEL_TERMS = ("matmul", "experts", "head", "kv_read", "attention")
"""Without these a step is no step; the others are refinements."""


def ablation(points: Sequence[Point]) -> list[dict[str, object]]:
    """Rows of (left out, how, TPOT median, mean, p90, TTFT median), by points and by whole groups left out."""
    order = np.random.default_rng(0).permutation(len(points))
    inside = np.empty(len(points), dtype=np.int64)
    inside[order] = np.arange(len(points)) % 5
    ways = {"deployment": inside, "pair": accuracy.folds(p.group for p in points)}
    rows: list[dict[str, object]] = []

    def measure(
        name: str, without: frozenset[str], levels: Sequence[str] = LEVELS, robust: bool = True
    ) -> None:
        made = basis(points, without=without)
        for way, fold in ways.items():
            table = accuracy.error_table(points, accuracy.cross_validate(made, points, fold, levels, robust))
            rows.append(
                {
                    "left_out": name,
                    "held_out": way,
                    **{f"tpot_{key}": table["tpot"][key] for key in ("median", "mean", "p90")},
                    "ttft_median": table["ttft"]["median"],
                }
            )

    measure("nothing", frozenset())
    for term in (*TERMS, *SWITCHES, "client"):
        if term not in _MODEL_TERMS:
            measure(term, frozenset({term}))
    for index in range(len(LEVELS) - 1, -1, -1):
        measure(f"constants below {LEVELS[index - 1] if index else 'base'}", frozenset(), LEVELS[:index])
    measure("robust loss", frozenset(), robust=False)
    return rows
