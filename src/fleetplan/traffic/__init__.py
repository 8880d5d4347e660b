"""Arrivals, lengths, sessions and traces: all of them become one `Requests` of arrays."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fleetplan.traffic.generation import Drawn as Drawn
    from fleetplan.traffic.generation import draw as draw
    from fleetplan.traffic.generation import generate as generate
    from fleetplan.traffic.generation import mean_rate_per_s as mean_rate_per_s
    from fleetplan.traffic.workloads import empirical as empirical
    from fleetplan.traffic.workloads import replay as replay

# Imported when asked for, so that whoever wants only `Requests` does not load scipy.
_HOMES = {
    "Drawn": "generation", "draw": "generation", "generate": "generation", "mean_rate_per_s": "generation",
    "empirical": "workloads", "replay": "workloads",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(f"fleetplan.traffic.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
