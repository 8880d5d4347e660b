"""Fits a step-time model to a per-request log by replaying it: five constants that the engine's own run determines."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from fleetplan.calibration.readers import RequestLog
from fleetplan.engine import EngineConfig, simulate
from fleetplan.engine.result import Result
from fleetplan.errors import InputError
from fleetplan.physics.form import StepTime, linear
from fleetplan.traffic.requests import Requests

NAMES = ("overhead_s", "compute_s_per_token", "weights_s", "kv_s_per_token", "sequence_s")


@dataclass(frozen=True, eq=False)
class Replay:
    """Fitted constants of the `linear` step-time model, and the median relative errors a request."""

    constants: dict[str, float]
    errors: dict[str, float]
    held_out_errors: dict[str, float]
    """The same on the requests that the fit did not look at (every fourth)."""
    requests: int
    makespan_error: float
    preemptions: int


def replay_fit(log: RequestLog, start: dict[str, float], evaluations: int = 900) -> Replay:
    """Constants that make a replay of the log's own arrivals and lengths match its times; the objective is the mean of median |log| errors.

    Three requests of four are fitted, the fourth is held out. Raises InputError where the log does not say the engine's limits.
    """
    config = config_of(log)
    requests = Requests.of(log.arrival_s, log.prompt_tokens, log.output_tokens)
    held = np.arange(len(requests)) % 4 == 3
    prior = np.log([max(start[name], 1e-9) for name in NAMES])

    def objective(shift: np.ndarray) -> float:
        result = simulate(requests, _model(prior + shift), config)
        errors = _errors(log, result, ~held)
        return sum(errors.values()) + 0.002 * float((shift**2).sum())

    found = np.zeros(len(NAMES))
    # A simplex collapses on medians: it is begun anew, smaller, from the best so far.
    for size in (0.4, 0.2, 0.1):
        made = minimize(
            objective,
            found,
            method="Nelder-Mead",
            options={
                "maxfev": evaluations // 3,
                "xatol": 1e-3,
                "fatol": 1e-5,
                "initial_simplex": found + np.vstack([np.zeros(len(NAMES)), size * np.eye(len(NAMES))]),
            },
        )
        found = made.x
    result = simulate(requests, _model(prior + found), config)
    return Replay(
        constants={
            **dict(zip(NAMES, (float(x) for x in np.exp(prior + found)), strict=True)),
            "compute_s_per_query_key_pair": 0.0,
        },
        errors=_errors(log, result, ~held),
        held_out_errors=_errors(log, result, held),
        requests=len(requests),
        makespan_error=float(np.nanmax(result.finish_s) / log.last_token_s.max() - 1),
        preemptions=int(result.preemptions.sum()),
    )


def config_of(log: RequestLog) -> EngineConfig:
    """The engine's settings as the log has them. Raises InputError where it does not say its limits."""
    needed = [name for name in ("max_num_seqs", "max_num_batched_tokens") if not log.settings.get(name)]
    if needed:
        raise InputError(
            f"log: {', '.join(needed)} not known; a meta.json beside the log gives the engine's settings"
        )
    kv = log.settings.get("kv_tokens")
    return EngineConfig(
        "chunked",
        max_num_seqs=int(log.settings["max_num_seqs"]),
        max_num_batched_tokens=int(log.settings["max_num_batched_tokens"]),
        kv_blocks=int(kv) // 16 if kv else None,
    )


def _model(logs: np.ndarray) -> StepTime:
    value = dict(zip(NAMES, np.exp(logs), strict=True))
    return linear(compute_s_per_query_key_pair=0.0, **{name: float(x) for name, x in value.items()})


def _errors(log: RequestLog, result: Result, keep: np.ndarray) -> dict[str, float]:
    """Median |simulated/measured − 1| of E2E, TTFT and TPOT over the kept requests."""
    gaps = np.maximum(log.output_tokens - 1, 1)
    pairs = {
        "e2e": (result.finish_s - result.arrival_s, log.last_token_s - log.arrival_s),
        "ttft": (result.first_token_s - result.arrival_s, log.first_token_s - log.arrival_s),
        "tpot": (
            (result.finish_s - result.first_token_s) / gaps,
            (log.last_token_s - log.first_token_s) / gaps,
        ),
    }
    out = {}
    for name, (simulated, real) in pairs.items():
        good = keep & (real > 0) & np.isfinite(simulated) & ((log.output_tokens > 1) | (name != "tpot"))
        out[name] = float(np.median(np.abs(simulated[good] / real[good] - 1))) if good.any() else float("nan")
    return out
