"""Robust fit of the constants with strong priors: iterated reweighted Gauss–Newton on log(predicted/measured)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.calibration.basis import Basis
from fleetplan.calibration.hierarchy import Effect, constants, design, priors
from fleetplan.physics.form import Floats

TPOT_SCALE, TTFT_SCALE = 0.08, 0.25
"""Log residual at which a point's pull is halved."""
START_WIDTH = 3.5
"""How many times wider those are in the first step."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Effects and their values."""

    effects: tuple[Effect, ...]
    z: Floats

    def constants(self, used: Sequence[dict[str, str]]) -> Floats:
        """Constants (points, classes) of deployments, an effect that has no data being 1."""
        kinds, which = _kinds(used)
        return constants(design(kinds, self.effects), self.z, priors(kinds))[0][which]


def fit(
    basis: Basis,
    measured: Floats,
    used: Sequence[dict[str, str]],
    chosen: Sequence[Effect],
    weight: Floats,
    iterations: int = 25,
    tpot_scale: float = TPOT_SCALE,
    ttft_scale: float = TTFT_SCALE,
    robust: bool = True,
) -> Fit:
    """Effects that fit `measured` (points, 2) [s]; `weight` (points, 2) scales each residual's pull, 0 leaving it out.

    The basis is that of the points that count: a point of weight 0 costs as much time as any other.
    """
    kinds, which = _kinds(used)
    matrix = design(kinds, chosen)
    # The effects of one deployment are few among all: each block of the normal equations is small.
    members = [np.flatnonzero(which == kind) for kind in range(len(kinds))]
    active = [np.flatnonzero(matrix[kind].any(axis=0)) for kind in range(len(kinds))]
    spread = np.array([effect.sd for effect in chosen])
    scale = np.array([tpot_scale, ttft_scale])
    target = np.log(np.where(measured > 0, measured, 1.0))
    z = np.zeros(len(chosen))
    start = priors(kinds)
    for turn in range(iterations):
        # Wide at first, so that a deployment that starts far off is drawn in before it counts as an outlier.
        width = max(START_WIDTH * 0.7**turn, 1.0)
        k, held = constants(matrix, z, start)
        predicted, by_class = basis.gradient(k[which])
        by_class = np.where(held[which][:, None, :], 0.0, by_class)
        residual = (np.log(predicted) - target) / scale
        pull = weight / (1 + (residual / width) ** 2) if robust else weight
        slope = by_class / predicted[..., None] / scale[None, :, None]
        hessian, gradient = np.diag(1 / spread**2), z / spread**2
        for kind, (rows, columns) in enumerate(zip(members, active, strict=True)):
            a = (slope[rows] @ matrix[kind][:, columns]).reshape(-1, len(columns))
            w = pull[rows].ravel()
            hessian[np.ix_(columns, columns)] += (a * w[:, None]).T @ a
            gradient[columns] += a.T @ (w * residual[rows].ravel())
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 0.7 / max(np.abs(step).max(), 1e-9))
        z = z - step
        if width == 1.0 and np.abs(step).max() < 1e-4:
            break
    return Fit(tuple(chosen), z)


def _kinds(used: Sequence[dict[str, str]]) -> tuple[list[dict[str, str]], NDArray[np.int64]]:
    """The distinct keys, and which of them each point has."""
    index: dict[tuple[tuple[str, str], ...], int] = {}
    which = np.array([index.setdefault(tuple(key.items()), len(index)) for key in used], dtype=np.int64)
    return [dict(key) for key in index], which
