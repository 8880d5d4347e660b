"""One server: M/M/1, M/D/1, M/G/1 by Pollaczek and Khinchine, and M/G/1 with priorities."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, pdtrc

from fleetplan.errors import InputError
from fleetplan.queueing.result import (
    QueueResult,
    Tail,
    check_not_negative,
    check_positive,
    is_unstable,
    unstable,
)


def mm1(arrival_per_s: float, service_s: float) -> QueueResult:
    """M/M/1: time in system is exponential with rate μ − λ, so its percentile q lies at −ln(1−q)/(μ−λ) (MODEL 8).

    >>> r = mm1(40, 0.020)
    >>> round(r.rho, 3), round(r.sojourn_mean_s, 3), round(r.sojourn_percentile_s(0.95), 4), round(r.in_system_mean, 3)
    (0.8, 0.1, 0.2996, 4.0)
    >>> mm1(50, 0.020).stable, mm1(50, 0.020).sojourn_mean_s
    (False, None)
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    rho = arrival_per_s * service_s
    if is_unstable(rho):
        return unstable("M/M/1", arrival_per_s, 1, rho)
    slack = 1 / service_s - arrival_per_s
    return _steady(
        "M/M/1",
        arrival_per_s,
        service_s,
        rho / slack,
        wait_tail=lambda t: rho * math.exp(-slack * t),
        sojourn_tail=lambda t: math.exp(-slack * t),
    )


def md1(arrival_per_s: float, service_s: float) -> QueueResult:
    """M/D/1: the mean wait is half of M/M/1's; the wait's law is exact (Franx 2001, positive terms only).

    >>> round(mm1(40, 0.02).wait_mean_s / md1(40, 0.02).wait_mean_s, 9)
    2.0
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    rho = arrival_per_s * service_s
    if is_unstable(rho):
        return unstable("M/D/1", arrival_per_s, 1, rho)
    tail = _md1_wait_tail(arrival_per_s, service_s)
    return _steady(
        "M/D/1",
        arrival_per_s,
        service_s,
        rho * service_s / (2 * (1 - rho)),
        wait_tail=tail,
        sojourn_tail=lambda t: 1.0 if t < service_s else tail(t - service_s),
    )


def mg1(arrival_per_s: float, service_s: float, service_cv: float) -> QueueResult:
    """M/G/1: E[wait] = λ·E[S²]/(2(1−ρ)), E[S²] = E[S]²(1 + cv²) (Pollaczek–Khinchine).

    Percentiles of the wait take P(W > t) ≈ ρ·exp(−ρ·t/E[W]), which is exact at cv = 1 and has the right mass at 0
    and the right mean elsewhere; those of the time in system are not known from two moments (None).
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    check_not_negative(service_cv=service_cv)
    rho = arrival_per_s * service_s
    if is_unstable(rho):
        return unstable("M/G/1", arrival_per_s, 1, rho)
    wait = rho * service_s * (1 + service_cv**2) / (2 * (1 - rho))
    return _steady(
        "M/G/1",
        arrival_per_s,
        service_s,
        wait,
        percentile_method="approximation: exponential wait of those that wait",
        wait_tail=lambda t: rho * math.exp(-rho * t / wait),
        sojourn_tail=None,
    )


@dataclass(frozen=True)
class PriorityClass:
    """Poisson arrivals [1/s] and the mean [s] and coefficient of variation of their service."""

    arrival_per_s: float
    service_s: float
    service_cv: float = 1.0


def priority_mg1(classes: Sequence[PriorityClass], preemptive: bool = False) -> tuple[QueueResult, ...]:
    """M/G/1 with priorities, most urgent first: one result a class (Cobham 1954).

    Without preemption W_i = W0/((1−σ_{i−1})(1−σ_i)), σ_i the load of classes 1..i and W0 the mean residual service
    that an arrival meets; with preemptive resume, time in system is
    S_i/(1−σ_{i−1}) + Σ_{j≤i} λ_j·E[S_j²]/2/((1−σ_{i−1})(1−σ_i)) and its excess over S_i counts as wait.
    A class is unstable from σ_i ≥ 1 on; those above it still have figures. Raises `InputError` without classes.
    """
    if not classes:
        raise InputError("classes: a priority queue needs at least one class (got none)")
    for item in classes:
        check_positive(arrival_per_s=item.arrival_per_s, service_s=item.service_s)
        check_not_negative(service_cv=item.service_cv)
    loads = np.cumsum([item.arrival_per_s * item.service_s for item in classes])
    second = np.array([item.service_s**2 * (1 + item.service_cv**2) for item in classes])
    halves = np.array([item.arrival_per_s for item in classes]) * second / 2
    full = next((i for i, load in enumerate(loads) if is_unstable(load)), None)
    if full is None:
        residual = float(halves.sum())
    else:
        # The first class that overflows fills whatever time the ones above it leave.
        above = float(loads[full - 1]) if full else 0.0
        residual = float(halves[:full].sum()) + (1 - above) * second[full] / (2 * classes[full].service_s)
    model = "M/G/1 preemptive-resume priority" if preemptive else "M/G/1 priority"
    results = []
    for i, item in enumerate(classes):
        load = float(loads[i])
        if full is not None and i >= full:
            results.append(unstable(model, item.arrival_per_s, 1, load))
            continue
        before = float(loads[i - 1]) if i else 0.0
        if preemptive:
            wait = item.service_s / (1 - before) - item.service_s
            wait += float(halves[: i + 1].sum()) / ((1 - before) * (1 - load))
        else:
            wait = residual / ((1 - before) * (1 - load))
        busy = min(1.0, float(loads[-1]))
        results.append(
            QueueResult(
                model,
                item.arrival_per_s,
                1,
                load,
                stable=True,
                percentile_method="not known",
                wait_probability=None if preemptive else busy,
                wait_mean_s=wait,
                sojourn_mean_s=wait + item.service_s,
                waiting_mean=item.arrival_per_s * wait,
                in_system_mean=item.arrival_per_s * (wait + item.service_s),
                throughput_per_s=item.arrival_per_s,
                utilisation=busy,
                loss_share=0.0,
                abandon_share=0.0,
            )
        )
    return tuple(results)


def _steady(
    model: str,
    arrival_per_s: float,
    service_s: float,
    wait_s: float,
    *,
    wait_tail: Tail | None,
    sojourn_tail: Tail | None,
    percentile_method: str = "exact",
) -> QueueResult:
    rho = arrival_per_s * service_s
    return QueueResult(
        model,
        arrival_per_s,
        1,
        rho,
        stable=True,
        percentile_method=percentile_method,
        wait_probability=rho,
        wait_mean_s=wait_s,
        sojourn_mean_s=wait_s + service_s,
        waiting_mean=arrival_per_s * wait_s,
        in_system_mean=arrival_per_s * (wait_s + service_s),
        throughput_per_s=arrival_per_s,
        utilisation=rho,
        loss_share=0.0,
        abandon_share=0.0,
        wait_tail=wait_tail,
        sojourn_tail=sojourn_tail,
    )


def _md1_wait_tail(arrival_per_s: float, service_s: float) -> Tail:
    rho = arrival_per_s * service_s
    law = [1 - rho]
    below: list[float] = []

    def states(count: int) -> None:
        # Level cuts of the chain at departures: π_n·a_0 = π_0·P(A ≥ n) + Σ_{0<i<n} π_i·P(A ≥ n−i+1), no subtraction.
        if len(below) >= count:
            return
        over = pdtrc(np.arange(count + 1, dtype=np.float64), rho)  # over[k] = P(A > k)
        for n in range(len(law), count):
            past = np.asarray(law[1:n])
            law.append(float((law[0] * over[n - 1] + past @ over[n - 1 : 0 : -1]) / math.exp(-rho)))
        below[:] = np.cumsum(law).tolist()

    def tail(t: float) -> float:
        # P(W ≤ t) = e^(−x)·Σ_j P(N ≤ k − j)·x^j/j!, x = λ(kD − t), (k − 1)D ≤ t < kD.
        if t < 0:
            return 1.0
        k = math.floor(t / service_s) + 1
        states(k + 1)
        mean = arrival_per_s * (k * service_s - t)
        j = np.arange(k)
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = (
                np.exp(-mean + np.where(j == 0, 0.0, j * np.log(mean)) - gammaln(j + 1))
                if mean > 0
                else j == 0
            )
        return max(0.0, 1.0 - float(np.asarray(below[1 : k + 1])[::-1] @ weight))

    return tail
