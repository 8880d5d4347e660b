"""Users who wait for their answers: the rate that they are planned at, and the part of a run that is judged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from fleetplan.engine.result import Result
from fleetplan.sizing.verdict import Limit
from fleetplan.traffic import generation
from fleetplan.traffic.model import ClosedLoop, Workload

SAMPLED = 4000
"""Requests of the mix that mean lengths are taken from."""
GUESS_S = 1.0
"""Time to answer while those are drawn; lengths do not hang on it."""


def planned(workload: Workload, limits: Iterable[Limit], seed: int) -> Workload:
    """The workload with its closed loops planned at the slowest answers that keep the promises.

    n users who think z seconds and are answered within T send n/(z + T) requests/s, where T is the E2E limit, or that of TTFT and G − 1
    times that of TPOT at mean lengths, the lesser where both are promised; of several percentiles the tightest limit.
    """
    waiting = closed(workload)
    if not waiting:
        return workload
    guessed = _answered(workload, dict.fromkeys(waiting, GUESS_S))
    mix = generation.generate(guessed, n_requests=SAMPLED, seed=seed)
    within = {}
    for index in waiting:
        rows = mix.class_index == index
        mine = [limit for limit in limits if limit.class_name == workload.classes[index].name]
        prompt, output = float(mix.prompt_tokens[rows].mean()), float(mix.output_tokens[rows].mean())
        within[index] = answered_within_s(mine, prompt, output)
    return _answered(workload, within)


def answered_within_s(limits: Iterable[Limit], prompt_tokens: float, output_tokens: float) -> float:
    """The longest time of a mean request that keeps the promises [s]; 0 where they do not bound it.

    >>> ttft = Limit("chat", "ttft", "p99", 0.99, (("ttft", 1.0, 0.0),))
    >>> tpot = Limit("chat", "tpot", "p95", 0.95, (("tpot", 0.05, 0.0),))
    >>> answered_within_s([ttft, tpot], 1000, 201)
    11.0
    """
    least: dict[str, float] = {}
    for limit in limits:
        for metric, bound_s, per_token_s in limit.bounds:
            least[metric] = min(least.get(metric, np.inf), bound_s + per_token_s * prompt_tokens)
    streamed = least.get("ttft", np.inf) + (output_tokens - 1) * least.get(
        "tpot", np.inf if output_tokens > 1 else 0.0
    )
    within = min(least.get("e2e", np.inf), streamed)
    return float(within) if np.isfinite(within) else 0.0


def closed(workload: Workload) -> tuple[int, ...]:
    """Indices of the classes whose users wait for their answers."""
    classes = enumerate(workload.classes)
    return tuple(index for index, c in classes if isinstance(c.arrivals or workload.arrivals, ClosedLoop))


def turns_s(workload: Workload) -> dict[int, float]:
    """From one request of a user to the next as planned [s], by index of the class whose users wait."""
    loops = {index: workload.classes[index].arrivals or workload.arrivals for index in closed(workload)}
    return {
        index: loop.think_s + loop.mean_service_s
        for index, loop in loops.items()
        if isinstance(loop, ClosedLoop)
    }


def while_all_send(result: Result, classes: tuple[int, ...]) -> Result:
    """The requests that arrived while every user of these classes still had a turn to come: later on there are fewer users than planned."""
    users = result.requests.session_id
    known = np.isin(result.requests.class_index, classes) & np.isfinite(result.arrival_s)
    last = np.full(int(users.max(initial=-1)) + 1, -np.inf)
    np.maximum.at(last, users[known], result.arrival_s[known])
    rows = result.arrival_s <= last[np.isfinite(last)].min(initial=np.inf)
    return result.take(rows)


def _answered(workload: Workload, within_s: dict[int, float]) -> Workload:
    """The workload with these times to answer [s], by index of the class."""
    classes = tuple(
        replace(c, arrivals=replace(c.arrivals, mean_service_s=within_s[index]))
        if isinstance(c.arrivals, ClosedLoop) and index in within_s
        else c
        for index, c in enumerate(workload.classes)
    )
    common = workload.arrivals
    if isinstance(common, ClosedLoop):
        common = replace(common, mean_service_s=within_s[0])
    return replace(workload, classes=classes, arrivals=common)
