"""Sizing of an endpoint that serves no LLM (an embedding model, a classifier): rate, service time and a promise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv

from fleetplan.errors import InputError
from fleetplan.queueing.multi import ggc
from fleetplan.queueing.result import QueueResult, check_not_negative, check_positive, percentile_s

_SHARES = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True)
class EndpointSize:
    """The least number of servers that keeps the promise, with the evidence on both sides of it."""

    servers: int | None
    """None: no number does."""
    latency_s: float | None
    """The promised percentile at `servers` [s]."""
    utilisation: float | None
    limit: str
    """What binds: latency, utilisation, stability, or why it is infeasible."""
    latency_one_less_s: float | None
    """The percentile with one server less [s]; None when that is unstable or there is none."""
    result: QueueResult | None


def size_endpoint(
    arrival_per_s: float,
    service_s: float,
    at_most_s: float,
    *,
    percentile: float = 95.0,
    service_cv: float = 1.0,
    arrival_cv: float = 1.0,
    max_utilisation: float = 0.8,
    most: int = 4096,
) -> EndpointSize:
    """The least c of a G/G/c whose `percentile` of time in system is ≤ `at_most_s` at utilisation ≤ `max_utilisation`.

    Infeasible, with the reason, where a lone request already misses the promise: no number of servers mends that.

    >>> size_endpoint(1000, 0.004, 0.02, service_cv=0).servers
    5
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s, at_most_s=at_most_s)
    check_not_negative(service_cv=service_cv, arrival_cv=arrival_cv)
    if not 0 < percentile < 100:
        raise InputError(f"percentile: lies strictly between 0 and 100 (got {percentile!r}), e.g. 95")
    if not 0 < max_utilisation <= 1:
        raise InputError(f"max_utilisation: lies in (0, 1] (got {max_utilisation!r}), e.g. 0.8")
    q = percentile / 100
    alone = float(np.quantile(service_quantiles(service_s, service_cv), q))
    if alone > at_most_s:
        reason = (
            f"infeasible: the service alone takes {alone:.4g} s at p{percentile:g}, above {at_most_s:g} s"
        )
        return EndpointSize(None, None, None, reason, None, None)
    load = arrival_per_s * service_s
    by_load = max(1, int(np.ceil(load / max_utilisation * (1 - 1e-9))))

    def latency(servers: int) -> tuple[QueueResult, float | None]:
        result = ggc(arrival_per_s, service_s, servers, arrival_cv, service_cv)
        return result, sojourn_percentile_s(result, service_s, service_cv, q)

    low, high = by_load, by_load

    def keeps(servers: int) -> bool:
        value = latency(servers)[1]
        return value is not None and value <= at_most_s * (1 + 1e-12)

    while high <= most and not keeps(high):
        low, high = high + 1, high * 2
    if high > most and not (low <= most and keeps(most)):
        return EndpointSize(
            None, None, None, f"infeasible: not even {most} servers keep the promise", None, None
        )
    high = min(high, most)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if keeps(middle) else (middle + 1, high)
    result, value = latency(high)
    less = latency(high - 1)[1] if high > 1 else None
    if high > by_load:
        limit = "latency"
    elif high == 1:
        limit = "none: one server is the least"
    else:
        limit = "utilisation" if less is not None else "stability"
        if less is not None and less > at_most_s:
            limit = "latency"
    return EndpointSize(high, value, result.utilisation, limit, less, result)


def service_quantiles(service_s: float, service_cv: float) -> np.ndarray:
    """400 equally likely service times [s] of a gamma law of this mean and cv (cv 0: constant; cv 1: exponential)."""
    if service_cv == 0:
        return np.full(len(_SHARES), service_s)
    shape = 1 / service_cv**2
    times: np.ndarray = gammaincinv(shape, _SHARES) * service_s / shape
    return times


def sojourn_percentile_s(result: QueueResult, service_s: float, service_cv: float, q: float) -> float | None:
    """Percentile of wait plus an independent gamma service time [s]; None when unstable."""
    tail = result.wait_tail
    if tail is None:
        return None
    times = service_quantiles(service_s, service_cv)

    def sojourn(t: float) -> float:
        return float(np.mean([1.0 if t < s else tail(t - s) for s in times]))

    if service_cv == 0:
        wait = result.wait_percentile_s(q)
        return None if wait is None else service_s + wait
    return percentile_s(sojourn, q, result.sojourn_mean_s)
