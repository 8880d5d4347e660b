"""The goodput curve: what each cap on the batch gives, where the promise breaks, and throughput against interactivity."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetplan.engine import EngineConfig, Promise, Result, simulate
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.queueing.result import check_count, check_positive
from fleetplan.traffic.requests import Requests


@dataclass(frozen=True)
class GoodputPoint:
    """One cap on the batch; figures that nothing defines are None."""

    batch_cap: int
    ttft_s: float | None
    """TTFT at the curve's percentile [s]; None: unbounded."""
    tpot_s: float | None
    """TPOT at the curve's percentile [s]."""
    output_tokens_per_s: float
    output_tokens_per_s_per_user: float | None
    """Interactivity 1/TPOT."""
    attainment: float
    """Share of requests that meet both promises."""
    goodput_per_s: float
    """Rate of those requests [1/s]."""
    stable: bool


def caps_to(limit: int, points: int = 24) -> list[int]:
    """Batch caps from 1 to `limit`, every one up to 4, then evenly in the logarithm.

    >>> caps_to(16, 6)
    [1, 2, 3, 4, 5, 9, 16]
    """
    check_count(limit=limit, points=points)
    grid = np.geomspace(1, limit, points).round().astype(int).tolist()
    return sorted(
        {*range(1, min(4, limit) + 1), *(g for g in grid if g >= 4 or g == limit)} & set(range(1, limit + 1))
    )


def goodput_textbook(
    decode_step_s: Callable[[int], float],
    caps: Iterable[int],
    output_tokens: int,
    tpot_at_most_s: float,
) -> list[GoodputPoint]:
    """The curve with no prompts and a batch that is always full: goodput is all of B/(G·t(B)), or nothing past the promise."""
    check_positive(tpot_at_most_s=tpot_at_most_s)
    check_count(output_tokens=output_tokens)
    points = []
    for cap in caps:
        step = decode_step_s(cap)
        met = step <= tpot_at_most_s
        rate = cap / step
        points.append(
            GoodputPoint(
                cap, 0.0, step, rate, 1 / step, float(met), rate / output_tokens if met else 0.0, True
            )
        )
    return points


def goodput_curve(
    requests: Requests,
    run: Callable[[int], Result],
    caps: Iterable[int],
    *,
    ttft_at_most_s: float,
    tpot_at_most_s: float,
    percentile: float = 99.0,
    warmup_share: float = 0.1,
) -> list[GoodputPoint]:
    """The same requests through the engine at each cap; attainment, rejected ones missing, and its rate.

    `run` simulates the requests with a cap on the batch. Requests that arrive in the first `warmup_share` of the time are not counted.
    """
    check_positive(ttft_at_most_s=ttft_at_most_s, tpot_at_most_s=tpot_at_most_s)
    promises = [Promise("ttft", percentile, ttft_at_most_s), Promise("tpot", percentile, tpot_at_most_s)]
    warmup = float(requests.arrival_s[-1]) * warmup_share if len(requests) else 0.0
    points = []
    for cap in caps:
        result = run(cap)
        figures = result.summary(dict.fromkeys(requests.classes, promises), warmup, percentiles=(percentile,))
        tpot = figures[f"tpot_p{percentile:g}_s"]
        points.append(
            GoodputPoint(
                cap,
                figures[f"ttft_p{percentile:g}_s"],
                tpot,
                figures["output_tokens_per_s"] or 0.0,
                1 / tpot if tpot else None,
                figures["attainment"] or 0.0,
                figures["goodput_per_s"] or 0.0,
                figures["stable"] is not False,
            )
        )
    return points


def saturated_curve(
    prompt_tokens: int,
    output_tokens: int,
    steptime: StepTime,
    config: EngineConfig,
    caps: Iterable[int],
    rounds: int = 6,
) -> list[GoodputPoint]:
    """The engine with every slot always filled (all requests waiting at the start): TPOT with prompts in the way.

    TTFT has no meaning there and is None; TPOT is the median of the middle requests; attainment is not judged (1).
    """
    points = []
    for cap in caps:
        requests = Requests.of(np.zeros(cap * rounds), prompt_tokens, output_tokens)
        result = simulate(requests, steptime, replace(config, max_num_seqs=cap))
        middle = slice(cap, cap * (rounds - 1))
        tpot = float(np.median(result.tpot_s[middle])) if output_tokens > 1 else math.nan
        makespan = result.makespan_s or math.nan
        rate = cap * rounds * output_tokens / makespan
        points.append(
            GoodputPoint(cap, None, tpot, rate, 1 / tpot if tpot else None, 1.0, rate / output_tokens, True)
        )
    return points


def cliff(points: Sequence[GoodputPoint], at_least: float = 0.99) -> int | None:
    """The largest cap up to which every cap of the curve keeps this attainment; None: not even the first does."""
    last = None
    for point in sorted(points, key=lambda p: p.batch_cap):
        if point.attainment < at_least:
            break
        last = point.batch_cap
    return last


def best_cap(points: Sequence[GoodputPoint]) -> GoodputPoint | None:
    """The cap of the highest goodput, the least cap on ties; None when goodput is 0 throughout."""
    if not points:
        raise InputError("points: a goodput curve needs at least one cap (got none)")
    best = max(points, key=lambda p: (p.goodput_per_s, -p.batch_cap))
    return best if best.goodput_per_s > 0 else None


def pareto(rows: Sequence[Mapping[str, Any]], first: str, second: str) -> list[Mapping[str, Any]]:
    """Rows that no other row beats in both columns (more is better), by falling `first`; rows with None are left out.

    >>> pareto([{"x": 1, "y": 3}, {"x": 2, "y": 2}, {"x": 1, "y": 2}], "x", "y")
    [{'x': 2, 'y': 2}, {'x': 1, 'y': 3}]
    """
    known = [row for row in rows if row[first] is not None and row[second] is not None]
    kept: list[Mapping[str, Any]] = []
    for row in sorted(known, key=lambda r: (r[first], r[second]), reverse=True):
        if not kept or row[second] > kept[-1][second]:
            kept.append(row)
    return kept
