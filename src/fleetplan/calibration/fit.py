"""Robust fit of the constants with strong priors: iterated reweighted Gauss–Newton on log(predicted/measured)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fleetplan.calibration.basis import Basis
from fleetplan.calibration.hierarchy import Effect, constants, design
from fleetplan.physics.form import Floats

TPOT_SCALE, TTFT_SCALE = 0.08, 0.25
"""Log residual at which a point's pull is halved."""


@dataclass(frozen=True, eq=False)
class Fit:
    """Effects and their values."""

    effects: tuple[Effect, ...]
    z: Floats

    def constants(self, used: Sequence[dict[str, str]]) -> Floats:
        """Constants (points, classes) of deployments, an effect that has no data being 1."""
        return constants(design(used, self.effects), self.z)[0]


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
    """Effects that fit `measured` (points, 2) [s]; `weight` (points, 2) scales each residual's pull, 0 leaving it out."""
    matrix = design(used, chosen)
    spread = np.array([effect.sd for effect in chosen])
    scale = np.array([tpot_scale, ttft_scale])
    target = np.log(np.where(measured > 0, measured, 1.0))
    z = np.zeros(len(chosen))
    for _ in range(iterations):
        k, held = constants(matrix, z)
        predicted, by_class = basis.gradient(k)
        by_class = np.where(held[:, None, :], 0.0, by_class)
        residual = (np.log(predicted) - target) / scale
        jacobian = np.matmul(by_class / predicted[..., None], matrix) / scale[None, :, None]
        pull = weight / (1 + residual**2) if robust else weight
        a = jacobian.reshape(-1, len(chosen))
        r, w = residual.ravel(), pull.ravel()
        hessian = (a * w[:, None]).T @ a + np.diag(1 / spread**2)
        step = np.linalg.solve(hessian, a.T @ (w * r) + z / spread**2)
        step *= min(1.0, 0.7 / max(np.abs(step).max(), 1e-9))
        z = z - step
        if np.abs(step).max() < 1e-4:
            break
    return Fit(tuple(chosen), z)
