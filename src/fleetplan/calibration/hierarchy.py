"""Which constants a point may move: global form, then engine, GPU, model and deployment, each shrunk to the one above by its prior."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fleetplan.physics.form import Floats
from fleetplan.physics.terms import CLASSES, IDEAL, OVERHEAD_UNITS, PRIOR

LAYERS = tuple(name for name in OVERHEAD_UNITS if name.startswith("layer_"))
GROUPS: dict[str, tuple[str, ...]] = {
    "hardware": tuple(IDEAL),
    "weights": tuple(name for name in IDEAL if "weights" in name),
    "flops": tuple(name for name in IDEAL if "matmul" in name or name == "attention"),
    "experts": tuple(name for name in IDEAL if name.startswith("expert_")),
    "context": ("kv", "mla"),
    "overhead": (*LAYERS, "moe_layer", "step"),
    "layers": LAYERS,
    "sequences": ("decoding_sequence",),
    "prompts": ("prompt_sequence",),
    "client": ("client", "client_token"),
    "all": tuple(name for name in CLASSES if not name.startswith("client")),
}
"""Constants that one factor moves together."""


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
    "mla": 0.3,
    "attention": 0.25,
    "exchange": 0.4,
    "all_reduce": 0.3,
}
_ENGINE = {
    **dict.fromkeys(OVERHEAD_UNITS, 0.35),
    "weights": 0.08,
    "flops": 0.12,
    "experts": 0.12,
    "context": 0.12,
    "all_reduce": 0.2,
}
_GPU = {"overhead": 0.12, "hardware": 0.06, "flops": 0.06, "client": 0.15, "sequences": 0.12}
_MODEL = {"all": 0.10, "experts": 0.08, "client": 0.10}
_DEPLOYMENT = {
    "overhead": 0.15,
    "weights": 0.10,
    "flops": 0.15,
    "sequences": 0.25,
    "prompts": 0.2,
    "client": 0.25,
    "all": 0.10,
}


def keys(model: str, gpu: str, engine: str, precision: str) -> dict[str, str]:
    """The key of a deployment at each level."""
    return {
        "base": "",
        "engine": engine,
        "gpu": gpu,
        "model": model,
        "deployment": "|".join((model, gpu, engine, precision)),
    }


def effects(
    used: Iterable[dict[str, str]], levels: Sequence[str] = ("engine", "gpu", "model", "deployment")
) -> list[Effect]:
    """Every effect that points of these keys can inform."""
    seen = list(used)
    found = [Effect("base", "", name, sd) for name, sd in _SD_BASE.items()]
    for level, table in (("engine", _ENGINE), ("gpu", _GPU), ("model", _MODEL), ("deployment", _DEPLOYMENT)):
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


def constants(matrix: Floats, z: Floats) -> tuple[Floats, Floats]:
    """Constants (points, classes) and where the hardware's own limit (an efficiency of 1) holds them."""
    prior = np.array([PRIOR[name] for name in CLASSES])
    value = prior * np.exp(matrix @ z)
    least = np.array(
        [1.0 if name in IDEAL and name not in ("all_reduce", "exchange") else 0.0 for name in CLASSES]
    )
    return np.maximum(value, least), value < least
