"""Which constants a point may move: global form, then engine, GPU, model and deployment, each shrunk to the one above by its prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.physics.constants import GROUPS, LEVELS, keys
from fleetplan.physics.form import Floats
from fleetplan.physics.terms import CLASSES, IDEAL, OVERHEAD_UNITS, prior

__all__ = ["Effect", "constants", "design", "effects", "keys", "priors"]


@dataclass(frozen=True)
class Effect:
    """One factor, exp(z) with z ~ N(0, sd²), on a class or group of constants for the points that match its key."""

    level: str
    """base, engine, gpu, model or deployment."""
    key: str
    target: str
    sd: float

    @property
    def classes(self) -> tuple[str, ...]:
        return GROUPS.get(self.target, (self.target,))


_SD_BASE = {
    **dict.fromkeys(IDEAL, 0.12),
    **dict.fromkeys(OVERHEAD_UNITS, 0.35),
    **{name: 0.25 for name in IDEAL if name.startswith("expert_")},
    "client": 0.5,
    "client_concurrent": 0.8,
    "mla": 0.3,
    "attention": 0.25,
    "exchange": 0.4,
    "all_reduce": 0.3,
}
_ENGINE = {
    **dict.fromkeys(OVERHEAD_UNITS, 0.35),
    "client_concurrent": 0.6,
    "weights": 0.08,
    "flops": 0.12,
    "experts": 0.12,
    "context": 0.12,
    "all_reduce": 0.2,
}
_RELEASE = {"overhead": 0.10, "experts": 0.20}
_BUILD = {
    "overhead": 0.2,
    "experts": 0.3,
    "flops": 0.2,
    "sequences": 0.2,
    "all": 0.15,
    "client": 0.25,
}
_GPU = {"experts": 0.15, "overhead": 0.12, "hardware": 0.06, "flops": 0.06, "client": 0.15, "sequences": 0.12}
_MODEL = {"all": 0.06, "experts": 0.08, "client": 0.30}
_RUNTIME = {"overhead": 0.15, "all": 0.10, "experts": 0.10, "sequences": 0.15}
_DEPLOYMENT = {
    "overhead": 0.15,
    "weights": 0.10,
    "flops": 0.15,
    "experts": 0.2,
    "sequences": 0.25,
    "prompts": 0.2,
    "client": 0.25,
    "client_token": 0.4,
    "client_concurrent": 0.4,
    "all": 0.10,
}


def effects(used: Iterable[dict[str, str]], levels: Sequence[str] = LEVELS) -> list[Effect]:
    """Every effect that points of these keys can inform."""
    seen = list(used)
    found = [Effect("base", "", name, sd) for name, sd in _SD_BASE.items()]
    for level, table in (
        ("engine", _ENGINE),
        ("release", _RELEASE),
        ("gpu", _GPU),
        ("model", _MODEL),
        ("runtime", _RUNTIME),
        ("deployment", _DEPLOYMENT),
        ("build", _BUILD),
    ):
        if level in levels:
            for key in sorted({k[level] for k in seen}):
                found += [Effect(level, key, target, sd) for target, sd in table.items()]
    return found


def design(used: Sequence[dict[str, str]], chosen: Sequence[Effect]) -> Floats:
    """(points, classes, effects) of 0 and 1: log constant = log prior + design·z."""
    matrix = np.zeros((len(used), len(CLASSES), len(chosen)))
    index = {name: k for k, name in enumerate(CLASSES)}
    for z, effect in enumerate(chosen):
        rows = [p for p, key in enumerate(used) if key[effect.level] == effect.key]
        for name in effect.classes:
            matrix[rows, index[name], z] = 1.0
    return matrix


def priors(used: Sequence[dict[str, str]]) -> Floats:
    """(points, classes) prior of each constant."""
    made = [prior(*_split(key["kernels"])) for key in used]
    return np.array([[each[name] for name in CLASSES] for each in made])


def constants(matrix: Floats, z: Floats, start: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Constants (points, classes) from their priors, and where the hardware's own limit (an efficiency of 1) holds them."""
    value = start * np.exp(matrix @ z)
    least = np.array(
        [1.0 if name in IDEAL and name not in ("all_reduce", "exchange") else 0.0 for name in CLASSES]
    )
    return np.maximum(value, least), value < least


def _split(kernels: str) -> tuple[str, bool]:
    engine, units = kernels.split("|")
    return engine, units == "fp4"
