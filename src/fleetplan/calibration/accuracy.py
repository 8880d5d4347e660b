"""How far predictions are from measurements: error tables, cross-validation by group, error bands and the ablation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.calibration.basis import Basis
from fleetplan.calibration.fit import fit
from fleetplan.calibration.hierarchy import effects
from fleetplan.calibration.points import Point
from fleetplan.physics.constants import LEVELS
from fleetplan.physics.form import Floats

METRICS = ("tpot", "ttft", "output_tokens_per_s")
FLAG_WEIGHT = 0.3
TTFT_WEIGHT = 0.5
Mask = NDArray[np.bool_]


def measured(points: Sequence[Point]) -> Floats:
    """(points, 2) measured TPOT and TTFT [s]."""
    return np.array([[p.tpot_s, p.ttft_s] for p in points])


def weights(points: Sequence[Point]) -> Floats:
    """(points, 2) pull of each residual: doubtful rows and TTFT count less."""
    flagged = np.array([FLAG_WEIGHT if p.flag else 1.0 for p in points])
    return flagged[:, None] * np.array([1.0, TTFT_WEIGHT])


def three(points: Sequence[Point], tpot_ttft: Floats) -> Floats:
    """(points, 3) TPOT, TTFT and output tokens/s from (points, 2) TPOT and TTFT."""
    load = np.array([p.concurrency for p in points], dtype=np.float64)
    length = np.array([p.output_tokens for p in points], dtype=np.float64)
    throughput = load * length / (tpot_ttft[:, 1] + (length - 1) * tpot_ttft[:, 0])
    return np.column_stack([tpot_ttft, throughput])


def error_table(points: Sequence[Point], predicted: Floats, keep: Mask | None = None) -> dict[str, Any]:
    """Median, mean and 90th percentile of |predicted/measured − 1| of each metric, as fractions, of the kept points."""
    chosen = np.ones(len(points), dtype=bool) if keep is None else keep
    table: dict[str, Any] = {"points": int(chosen.sum())}
    if not chosen.any():
        return {**table, **dict.fromkeys(METRICS)}
    error = np.abs(three(points, predicted) / three(points, measured(points)) - 1)[chosen]
    for column, name in enumerate(METRICS):
        value = error[:, column]
        table[name] = {
            "median": float(np.median(value)),
            "mean": float(value.mean()),
            "p90": float(np.quantile(value, 0.9)),
        }
    return table


def table_by(points: Sequence[Point], predicted: Floats, key: Callable[[Point], str]) -> dict[str, Any]:
    """The error table of each value of a key."""
    names = [key(point) for point in points]
    return {
        name: error_table(points, predicted, np.array([n == name for n in names]))
        for name in sorted(set(names))
    }


def folds(names: Iterable[object], count: int = 5) -> NDArray[np.int64]:
    """A fold for each name, all of one name together, folds as equal in size as the largest-first rule makes them.

    >>> folds(["a", "a", "b", "c"], 2).tolist()
    [0, 0, 1, 1]
    """
    every = list(names)
    sizes = {name: every.count(name) for name in dict.fromkeys(every)}
    load = [0] * count
    chosen: dict[object, int] = {}
    for name in sorted(sizes, key=lambda n: (-sizes[n], str(n))):
        fold = int(np.argmin(load))
        load[fold] += sizes[name]
        chosen[name] = fold
    return np.array([chosen[name] for name in every], dtype=np.int64)


def cross_validate(
    basis: Basis,
    points: Sequence[Point],
    fold: NDArray[np.int64],
    levels: Sequence[str] = LEVELS,
    robust: bool = True,
) -> Floats:
    """(points, 2) predictions of each point by constants that never saw its fold."""
    truth, pull = measured(points), weights(points)
    used = [p.keys for p in points]
    predicted = np.zeros_like(truth)
    for index in np.unique(fold):
        seen = fold != index
        chosen = effects([key for key, inside in zip(used, seen, strict=True) if inside], levels)
        made = fit(basis, truth, used, chosen, pull * seen[:, None], robust=robust)
        predicted[~seen] = basis.predict(made.constants(used))[~seen]
    return predicted


def band(points: Sequence[Point], predicted: Floats) -> dict[str, dict[str, float]]:
    """Where 80% of measured/predicted lie, by metric."""
    ratio = three(points, measured(points)) / three(points, predicted)
    return {
        name: {
            "low": float(np.quantile(ratio[:, column], 0.1)),
            "high": float(np.quantile(ratio[:, column], 0.9)),
        }
        for column, name in enumerate(METRICS)
    }


def coverage(points: Sequence[Point], predicted: Floats, fold: NDArray[np.int64]) -> dict[str, float]:
    """Share of points inside the 80% band whose edges come from the other folds' residuals."""
    ratio = three(points, measured(points)) / three(points, predicted)
    inside = np.zeros_like(ratio, dtype=bool)
    for index in np.unique(fold):
        out = fold == index
        low, high = np.quantile(ratio[~out], [0.1, 0.9], axis=0)
        inside[out] = (ratio[out] >= low) & (ratio[out] <= high)
    return {name: float(inside[:, column].mean()) for column, name in enumerate(METRICS)}
