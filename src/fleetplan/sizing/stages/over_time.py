"""Rows of the stage `sizing` that tell of the state over time: who waits and who runs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fleetplan.engine.result import Result
from fleetplan.sizing.decide import Decision

TIMES = 200
"""Points of a line over time."""

Row = dict[str, Any]


def timeseries(decision: Decision) -> Iterable[Row]:
    """Waiting and running requests of the chosen candidate at the decided count and at one fewer."""
    chosen = decision.chosen
    if chosen is None:
        return
    assert chosen.found is not None
    assert chosen.found.replicas is not None
    traffic = decision.plan.traffic
    for replicas in (chosen.found.replicas, chosen.found.replicas - 1):
        if replicas < 1:
            continue
        requests = traffic.requests()
        result = chosen.machine.run(requests, replicas * chosen.machine.engines_per_replica, traffic.seed)
        lasts_s = float(traffic.judged(result)[0].arrival_s.max()) if traffic.closed else traffic.duration_s
        for time_s, waiting, running in _state(result, lasts_s):
            yield {
                "candidate_id": chosen.machine.candidate.candidate_id,
                "replicas": replicas,
                "time_s": time_s,
                "waiting_requests": waiting,
                "running_requests": running,
            }


def _state(result: Result, duration_s: float) -> Iterable[tuple[float, float, float]]:
    at = np.linspace(0.0, duration_s, TIMES + 1)[1:]

    def by(times: Any) -> Any:
        known = np.sort(times[np.isfinite(times)])
        return np.searchsorted(known, at, side="right").astype(np.float64)

    served = np.isfinite(result.first_scheduled_s)
    arrived = by(result.arrival_s)
    refused = by(
        np.where(served, np.nan, np.where(np.isfinite(result.finish_s), result.finish_s, result.arrival_s))
    )
    started = by(result.first_scheduled_s)
    left = by(np.where(served, result.finish_s, np.nan))
    yield from zip(
        at.tolist(), (arrived - started - refused).tolist(), (started - left).tolist(), strict=True
    )
