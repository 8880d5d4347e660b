"""A request log's engine followed through time: what it ran, what waited and how full its KV cache was, beside the simulation."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.calibration.readers import RequestLog
from fleetplan.calibration.replay import config_of
from fleetplan.engine import simulate
from fleetplan.errors import InputError
from fleetplan.physics.form import StepTime
from fleetplan.traffic.requests import Requests

Floats = NDArray[np.float64]

COLUMNS = {"running": "running", "waiting": "waiting", "kv": "kv_cache_pct"}
"""What is followed, and the column of timeseries.csv that has it."""
TITLES = {"running": "requests running", "waiting": "requests waiting", "kv": "KV cache in use [%]"}
LATEST_S = 30.0
"""The clock of the time series may have begun this long before or after the first arrival."""


@dataclass(frozen=True, eq=False)
class Followed:
    """Both through time; `kv` is there only where the log says how large the pool is."""

    time_s: Floats
    """From the first arrival [s]; shape (n,)."""
    measured: dict[str, Floats]
    simulated: dict[str, Floats]
    shift_s: float
    """What was added to the time series' own clock, so that as many requests are inside as the log says."""

    def apart(self, name: str) -> float:
        """Mean |simulated − measured| over the most that was measured."""
        measured = self.measured[name]
        return float(np.abs(self.simulated[name] - measured).mean() / max(float(measured.max()), 1e-9))


def follow(log: RequestLog, step: StepTime, series: Path) -> Followed:
    """Simulate the log's own arrivals and lengths and lay the engine's time series (`t`, running, waiting, kv_cache_pct) beside it."""
    time, columns = _read(series)
    shift = _shift_s(log, time, columns["running"] + columns["waiting"])
    at = time + shift
    config = config_of(log)
    resolution = max(float(at.max()) / 4000, 0.05)
    requests = Requests.of(log.arrival_s, log.prompt_tokens, log.output_tokens)
    run = simulate(requests, step, config, resolution_s=resolution)
    assert run.series is not None
    found: dict[str, NDArray[Any]] = {"running": run.series.running, "waiting": run.series.waiting}
    if config.kv_blocks is None:
        columns.pop("kv")
    else:
        found["kv"] = run.series.kv_blocks * (100.0 / config.kv_blocks)
    simulated = {name: np.interp(at, run.series.time_s, found[name], left=0.0, right=0.0) for name in columns}
    return Followed(at, columns, simulated, shift)


def _read(path: Path) -> tuple[Floats, dict[str, Floats]]:
    if not path.is_file():
        raise InputError(
            f"{path}: no such file, the engine's state by the second beside the log would be right"
        )
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    needed = ("t", *COLUMNS.values())
    missing = [name for name in needed if not rows or name not in rows[0]]
    if missing:
        raise InputError(
            f"{path}:1: lacks {', '.join(missing)} (got {', '.join(rows[0]) if rows else 'no row'})"
        )
    try:
        values = {name: np.array([float(row[name]) for row in rows]) for name in needed}
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: holds what is no number ({error})") from None
    if len(rows) < 2 or not all(np.isfinite(column).all() for column in values.values()):
        raise InputError(f"{path}: at least two rows of finite numbers are needed (got {len(rows)})")
    return values["t"], {name: values[column] for name, column in COLUMNS.items()}


def _shift_s(log: RequestLog, time: Floats, inside: Floats) -> float:
    """The shift of the series' clock at which its number inside is nearest to that of the log."""
    arrived, left = np.sort(log.arrival_s), np.sort(log.last_token_s)

    def off(shift: float) -> float:
        at = time + shift
        known = np.searchsorted(arrived, at, side="right") - np.searchsorted(left, at, side="right")
        return float(np.abs(known - inside).mean())

    tried = np.arange(-LATEST_S, LATEST_S, 0.1)
    return float(tried[int(np.argmin([off(shift) for shift in tried]))])
