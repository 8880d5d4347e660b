"""Rows of the stage `sizing` that tell of the traffic and of the state over time: facts, arrivals, queue."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fleetplan.engine.result import Result
from fleetplan.sizing.decide import Decision, Plan
from fleetplan.traffic.patterns import dispersion, prefix_hit_share
from fleetplan.traffic.requests import Requests

TIMES = 200
"""Points of a line over time."""

Row = dict[str, Any]


def workloads(subject: Plan) -> Iterable[Row]:
    """Facts of one replication of the traffic, over all classes and by class."""
    mix, duration = subject.traffic.requests(), subject.traffic.duration_s
    tokens = subject.model is not None
    yield _facts("*", mix, duration, tokens)
    if len(mix.classes) > 1:
        for index, name in enumerate(mix.classes):
            rows = mix.class_index == index
            if rows.any():
                yield _facts(name, mix.take(rows), duration, tokens)


def arrivals(subject: Plan) -> Iterable[Row]:
    """Requests per second through one replication, by class."""
    mix, duration = subject.traffic.requests(), subject.traffic.duration_s
    edges = np.linspace(0.0, duration, TIMES + 1)
    for index, name in enumerate(mix.classes):
        counts, _ = np.histogram(mix.arrival_s[mix.class_index == index], edges)
        for middle, count in zip((edges[:-1] + edges[1:]) / 2, counts, strict=True):
            yield {
                "class": name,
                "time_s": float(middle),
                "mean_requests_per_s": float(count / (edges[1] - edges[0])),
            }


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
        for time_s, waiting, running in _state(result, traffic.duration_s):
            yield {
                "candidate_id": chosen.machine.candidate.candidate_id,
                "replicas": replicas,
                "time_s": time_s,
                "waiting_requests": waiting,
                "running_requests": running,
            }


def _facts(name: str, requests: Requests, duration_s: float, tokens: bool) -> Row:
    gaps = np.diff(requests.arrival_s)
    minutes = np.bincount((requests.arrival_s // 60).astype(np.int64))
    seconds = np.bincount(requests.arrival_s.astype(np.int64), minlength=int(duration_s))
    spread = dispersion(seconds, (1.0, 10.0, 60.0))
    prompt, output = requests.prompt_tokens, requests.output_tokens
    varied = prompt.std() > 0 and output.std() > 0
    lengths = {
        f"{what}_{name}_tokens": float(value)
        for what, of in (("prompt", prompt), ("output", output))
        for name, value in (("mean", of.mean()), *((f"p{q}", np.percentile(of, q)) for q in (50, 95, 99)))
    } | {"length_correlation": float(np.corrcoef(prompt, output)[0, 1]) if varied else None}
    return {
        "class": name,
        "mean_requests_per_s": len(requests) / duration_s,
        "peak_minute_requests_per_s": float(minutes.max()) / min(60.0, duration_s),
        "peak_second_requests_per_s": float(seconds.max()),
        "dispersion_1s": spread.get(1.0),
        "dispersion_10s": spread.get(10.0),
        "dispersion_60s": spread.get(60.0),
        "prefix_hit_share": prefix_hit_share(requests.block_offsets, requests.block_hashes),
        "interarrival_cv": float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else None,
        **(lengths if tokens else dict.fromkeys(lengths)),
        "simulated_requests": len(requests),
        "simulated_s": duration_s,
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
