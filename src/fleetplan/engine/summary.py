"""From the records of a run to figures: nearest-rank percentiles, goodput, attainment, and whether the queue still grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.histogram import Histogram
from fleetplan.engine.outcome import FINISHED, UNFINISHED
from fleetplan.errors import InputError, unknown_name

if TYPE_CHECKING:
    from fleetplan.engine.result import Promise, Result, Stability

Floats = NDArray[np.float64]
UNBOUNDED = "unbounded: too many requests were rejected or gave up"
EMPTY = "no such request"


def nearest_rank(values: Floats, q: float) -> float | None:
    """The nearest-rank percentile (numpy's `inverted_cdf`), q in 0..100; inf where that many are inf; None when empty.

    >>> nearest_rank(np.array([0.0428, 0.0429, 0.4257]), 99), nearest_rank(np.array([1.0, np.inf]), 99)
    (0.4257, inf)
    """
    if not len(values):
        return None
    # 99% of 100 must be rank 99, whatever the rounding of the product.
    rank = min(max(int(np.ceil(q * len(values) / 100 * (1 - 1e-12))), 1), len(values)) - 1
    return float(np.partition(values, rank)[rank])


def summarise(
    result: Result,
    promises: Mapping[str, Sequence[Promise]],
    warmup_s: float,
    until_s: float,
    percentiles: tuple[float, ...],
) -> dict[str, Any]:
    """See `Result.summary`."""
    classes = result.requests.classes
    faults = [f"promises: {unknown_name('class', name, classes)}" for name in promises if name not in classes]
    if faults:
        raise InputError(*faults)
    counted = (result.arrival_s >= warmup_s) & (result.arrival_s < until_s)
    span_s = arrival_span_s(result, warmup_s, until_s)
    metrics = {
        "ttft": result.ttft_s,
        "ttfvt": result.ttfvt_s,
        "tpot": result.tpot_s,
        "e2e": result.e2e_s,
    }
    gaps = [result.gaps(index) for index in range(len(classes))]
    whole = _figures(result, metrics, counted, merged(gaps), span_s, percentiles)
    by_class: dict[str, Any] = {}
    promised_requests, met_requests = 0, 0
    for index, name in enumerate(classes):
        rows = counted & (result.requests.class_index == index)
        figures = _figures(result, metrics, rows, gaps[index], span_s, percentiles)
        if promises.get(name):
            met = np.ones(int(rows.sum()), dtype=bool)
            verdicts = []
            for promise in promises[name]:
                verdicts.append(_verdict(promise, metrics, rows, gaps[index]))
                if promise.metric != "itl":
                    value = metrics[promise.metric][rows]
                    # An answer of one token has no TPOT to break, one that hides every token no TTFVT.
                    none = {"tpot": result.requests.output_tokens == 1, "ttfvt": result.all_hidden}
                    free = none.get(promise.metric, np.zeros(len(rows), dtype=bool))[rows]
                    met &= (value <= promise.at_most_s) | (free & (result.outcome[rows] == FINISHED))
            promised_requests += len(met)
            met_requests += int(met.sum())
            figures["promises"] = verdicts
            figures["attainment"] = float(met.mean()) if len(met) else None
            figures["goodput_per_s"] = float(met.sum() / span_s) if span_s else None
        by_class[name] = figures
    whole["attainment"] = met_requests / promised_requests if promised_requests else None
    whole["goodput_per_s"] = met_requests / span_s if promised_requests and span_s else None
    verdict = stability(result, warmup_s)
    return {
        **whole,
        "steps": result.steps,
        "makespan_s": result.makespan_s,
        "busy_share": float(result.busy_s.mean() / result.makespan_s) if result.makespan_s else None,
        "stable": verdict.stable if verdict.judged else None,
        "stability": verdict.verdict,
        "classes": by_class,
    }


def arrival_span_s(result: Result, warmup_s: float, until_s: float) -> float:
    """Length [s] of the window of arrivals that is counted: from warm-up to its end, else to the last arrival."""
    if np.isfinite(until_s):
        return until_s - warmup_s
    arrived = result.arrival_s[np.isfinite(result.arrival_s)]
    return float(max(arrived.max() - warmup_s, 0.0)) if len(arrived) else 0.0


def merged(histograms: Sequence[Histogram]) -> Histogram:
    """All of these as one."""
    value = np.concatenate([h.value_s for h in histograms])
    weight = np.concatenate([h.weight for h in histograms])
    order = np.argsort(value, kind="stable")
    return Histogram(value[order], weight[order])


def stability(result: Result, warmup_s: float = 0.0) -> Stability:
    """Unstable where the number waiting grew through the last three quarters of the arrivals.

    The number of requests that have arrived and have no finish is sampled at 64 times; a straight line is fitted to it.
    A run is unstable when the line climbs by more than 2% of the arrival rate, by more than two standard errors (of the
    residuals, taken as 8 independent groups) and by more than a tenth of what ran at its start and 8 requests.
    """
    from fleetplan.engine.result import Stability

    arrival = result.arrival_s
    known = np.isfinite(arrival)
    end = float(arrival[known].max()) if known.any() else 0.0
    begin = warmup_s + (end - warmup_s) / 4
    if known.sum() < 32 or end <= begin:
        return Stability(True, 0.0, 0.0, 0.0, "too few arrivals to judge whether the queue grows", False)
    at = np.linspace(begin, end, 64)
    leaves = np.where(
        np.isfinite(result.finish_s), result.finish_s, np.where(result.outcome == UNFINISHED, np.inf, arrival)
    )
    inside = np.searchsorted(np.sort(arrival[known]), at, side="right") - np.searchsorted(
        np.sort(leaves[known]), at, side="right"
    )
    slope, base = np.polyfit(at, inside, 1)
    groups = (inside - (slope * at + base)).reshape(8, 8).mean(axis=1)
    error = float(np.sqrt((groups**2).sum() / 6 / (8 * np.var(at)))) if np.var(at) > 0 else 0.0
    rate = float(((arrival[known] >= begin).sum()) / (end - begin))
    climb = slope * (end - begin)
    grows = slope > 0.02 * rate and slope > 2 * error and climb > max(8.0, 0.1 * (slope * begin + base))
    verdict = (
        f"unstable: the number in the system still grew by {slope:.3g} a second at {rate:.3g} arrivals a second"
        if grows
        else "stable: the number in the system did not grow through the run"
    )
    return Stability(not grows, float(slope), error, rate, verdict)


def _figures(
    result: Result,
    metrics: Mapping[str, Floats],
    rows: NDArray[np.bool_],
    itl: Histogram,
    span_s: float,
    percentiles: tuple[float, ...],
) -> dict[str, Any]:
    finished = rows & (result.outcome == FINISHED)
    output = int((result.requests.output_tokens * result.requests.answers)[finished].sum())
    prompt = int(result.requests.prompt_tokens[finished].sum())
    makespan = result.makespan_s
    figures: dict[str, Any] = {
        **result.counts(rows),
        "preemptions": int(result.preemptions[rows].sum()),
        "output_tokens": output,
        "prompt_tokens": prompt,
        "output_tokens_per_s": output / makespan if makespan else None,
        "total_tokens_per_s": (output + prompt) / makespan if makespan else None,
        "arrival_rate_per_s": int(rows.sum()) / span_s if span_s else None,
    }
    if result.prefix_hit_tokens is not None:
        admitted = rows & np.isfinite(result.first_scheduled_s)
        looked_for = int(result.requests.prompt_tokens[admitted].sum())
        found = int(result.prefix_hit_tokens[admitted].sum())
        figures["prefix_hit_tokens"] = found
        figures["prefix_hit_share"] = found / looked_for if looked_for else None
    if result.attempts is not None and result.refusals is not None:
        figures["retries"] = int(np.maximum(result.attempts[rows] - 1, 0).sum())
        figures["fast_rejects"] = int(result.refusals[rows].sum())
    reasons: dict[str, str] = {}
    for name, values in metrics.items():
        served = values[rows]
        served = served[~np.isnan(served)]
        finite = served[np.isfinite(served)]
        figures[f"{name}_mean_s"] = float(finite.mean()) if len(finite) else None
        if not len(finite):
            reasons[f"{name}_mean_s"] = EMPTY
        for q in percentiles:
            value = nearest_rank(served, q)
            key = f"{name}_p{q:g}_s"
            figures[key] = value if value is not None and np.isfinite(value) else None
            if figures[key] is None:
                reasons[key] = EMPTY if value is None else UNBOUNDED
    had = np.isfinite(itl.value_s)
    figures["itl_mean_s"] = Histogram(itl.value_s[had], itl.weight[had]).mean_s
    if figures["itl_mean_s"] is None:
        reasons["itl_mean_s"] = EMPTY
    for q in percentiles:
        value = itl.percentile_s(q)
        key = f"itl_p{q:g}_s"
        figures[key] = value if value is not None and np.isfinite(value) else None
        if figures[key] is None:
            reasons[key] = EMPTY if value is None else UNBOUNDED
    figures["reasons"] = reasons
    return figures


def _verdict(
    promise: Promise, metrics: Mapping[str, Floats], rows: NDArray[np.bool_], itl: Histogram
) -> dict[str, Any]:
    if promise.metric == "itl":
        value = itl.percentile_s(promise.percentile)
    else:
        served = metrics[promise.metric][rows]
        value = nearest_rank(served[~np.isnan(served)], promise.percentile)
    met = value is None or value <= promise.at_most_s
    finite = value is not None and np.isfinite(value)
    return {
        "metric": promise.metric,
        "percentile": promise.percentile,
        "at_most_s": promise.at_most_s,
        "value_s": value if finite else None,
        "reason": None if finite else (EMPTY if value is None else UNBOUNDED),
        "met": met,
    }
