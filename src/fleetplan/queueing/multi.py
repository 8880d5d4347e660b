"""Many servers: Erlang B and C, M/M/c, M/M/c/K, M/D/c and G/G/c, with arithmetic that holds for c in the thousands."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln, logsumexp

from fleetplan.errors import InputError
from fleetplan.queueing.result import (
    QueueResult,
    Tail,
    check_count,
    check_not_negative,
    check_positive,
    is_unstable,
    unstable,
)


def erlang_b(offered: float, servers: int) -> float:
    """Share of arrivals lost in M/G/c/c at `offered` = λ·E[S] erlangs, by B_k = a·B_{k−1}/(k + a·B_{k−1}).

    >>> round(erlang_b(2.0, 2), 6)
    0.4
    """
    check_positive(offered=offered)
    check_count(servers=servers)
    lost = 1.0
    for k in range(1, servers + 1):
        lost = offered * lost / (k + offered * lost)
    return lost


def erlang_c(offered: float, servers: int) -> float:
    """Chance of waiting in M/M/c at `offered` = λ/μ < c erlangs: B/(1 − ρ(1 − B)).

    Raises `InputError` at offered ≥ c, where every arrival waits for ever.

    >>> round(erlang_c(0.8, 1), 6), round(erlang_c(2950.0, 3000), 5)
    (0.8, 0.2593)
    """
    check_positive(offered=offered)
    check_count(servers=servers)
    rho = offered / servers
    if is_unstable(rho):
        raise InputError(
            f"offered: Erlang C needs a load below the number of servers (got {offered!r} for {servers} servers)"
        )
    lost = erlang_b(offered, servers)
    return lost / (1 - rho * (1 - lost))


def loss_system(arrival_per_s: float, service_s: float, servers: int) -> QueueResult:
    """M/G/c/c (Erlang B): nobody waits, the share B is turned away; stable at any load."""
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    offered = arrival_per_s * service_s
    lost = erlang_b(offered, servers)
    busy = offered * (1 - lost)
    return QueueResult(
        "M/G/c/c",
        arrival_per_s,
        servers,
        offered / servers,
        stable=True,
        percentile_method="exact for the wait; the time in system is the service time",
        wait_probability=0.0,
        wait_mean_s=0.0,
        sojourn_mean_s=service_s,
        waiting_mean=0.0,
        in_system_mean=busy,
        throughput_per_s=arrival_per_s * (1 - lost),
        utilisation=busy / servers,
        loss_share=lost,
        abandon_share=0.0,
        wait_tail=lambda t: 0.0,
    )


def mmc(arrival_per_s: float, service_s: float, servers: int) -> QueueResult:
    """M/M/c: with C = Erlang C and a = cμ − λ, P(W > t) = C·exp(−at); time in system is the wait plus an exponential."""
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    check_count(servers=servers)
    rho = arrival_per_s * service_s / servers
    if is_unstable(rho):
        return unstable("M/M/c", arrival_per_s, servers, rho)
    waits = erlang_c(arrival_per_s * service_s, servers)
    mu = 1 / service_s
    slack = servers * mu - arrival_per_s

    def sojourn_tail(t: float) -> float:
        gap = (slack - mu) * t
        ratio = t if abs(gap) < 1e-12 else t * -math.expm1(-gap) / gap if gap > -600 else math.inf
        if math.isinf(ratio):  # exp(−at) rules where a is far below μ
            return waits * mu / (mu - slack) * math.exp(-slack * t)
        return math.exp(-mu * t) * (1 + waits * mu * ratio)

    return _queueing(
        "M/M/c",
        arrival_per_s,
        service_s,
        servers,
        waits,
        waits / slack,
        conditional_wait_s=1 / slack,
        sojourn_tail=sojourn_tail,
    )


def mdc(arrival_per_s: float, service_s: float, servers: int) -> QueueResult:
    """M/D/c by Cosmetatos (1975): E[W] ≈ ½·[1 + (1−ρ)(c−1)(√(4+5c) − 2)/(16ρc)]·E[W of M/M/c].

    Exact at c = 1; at light load, where the formula passes M/M/c's wait, that is taken. Chance of waiting is M/M/c's, the wait of those that wait taken as exponential.
    """
    base = mmc(arrival_per_s, service_s, servers)
    method = "approximation: Cosmetatos 1975"
    if not base.stable:
        return unstable("M/D/c", arrival_per_s, servers, base.rho, method=method)
    assert base.wait_mean_s is not None
    assert base.wait_probability is not None
    c, rho = servers, base.rho
    factor = 0.5 * (1 + (1 - rho) * (c - 1) * (math.sqrt(4 + 5 * c) - 2) / (16 * rho * c))
    wait = min(factor, 1.0) * base.wait_mean_s
    conditional = wait / base.wait_probability if base.wait_probability else 0.0
    return _queueing(
        "M/D/c", arrival_per_s, service_s, servers, base.wait_probability, wait, conditional, method=method,
        percentile_method="approximation: exponential wait of those that wait",
    )  # fmt: skip


def ggc(
    arrival_per_s: float, service_s: float, servers: int, arrival_cv: float, service_cv: float
) -> QueueResult:
    """G/G/c by Allen and Cunneen: E[W] ≈ C/(cμ − λ)·(cv_a² + cv_s²)/2, C Erlang's.

    Percentile after Kimura: W of those that wait is exponential, so W_q = ln(C/(1−q))·(cv_a² + cv_s²)/(2(cμ−λ)), and
    0 where C ≤ 1 − q. Exact for M/M/c. Bad for cv far above 1 at light load; batches need `continuous_batching`.
    """
    check_not_negative(arrival_cv=arrival_cv, service_cv=service_cv)
    base = mmc(arrival_per_s, service_s, servers)
    method = "approximation: Allen–Cunneen"
    if not base.stable:
        return unstable("G/G/c", arrival_per_s, servers, base.rho, method=method)
    assert base.wait_mean_s is not None
    assert base.wait_probability is not None
    spread = (arrival_cv**2 + service_cv**2) / 2
    conditional = spread / (servers / service_s - arrival_per_s)
    return _queueing(
        "G/G/c", arrival_per_s, service_s, servers, base.wait_probability, spread * base.wait_mean_s, conditional,
        method=method, percentile_method="approximation: Kimura",
    )  # fmt: skip


def mmck(arrival_per_s: float, service_s: float, servers: int, places: int) -> QueueResult:
    """M/M/c/K, K = `places` in all (c in service, K − c waiting): arrivals that find K inside are turned away.

    Stable at every load. Wait and time in system are those of requests that enter, both laws exact: an arrival that
    finds n ≥ c waits an Erlang of n − c + 1 stages of rate cμ. Raises `InputError` where K < c.
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s)
    check_count(servers=servers, places=places)
    if places < servers:
        raise InputError(f"places: must be at least the number of servers, {servers} (got {places})")
    n = np.arange(places + 1)
    busy = np.minimum(n, servers)
    law = stationary(np.full(places, arrival_per_s), busy[1:] / service_s)
    lost = float(law[-1])
    enters = law[:-1] / (1 - lost) if lost < 1 else law[:-1] * 0
    rate = float(law @ busy) / service_s
    waiting = float(law @ (n - busy))
    inside = float(law @ n)
    queue = enters[servers:]
    stages = np.arange(1, len(queue) + 1, dtype=np.float64)
    mu, total = 1 / service_s, servers / service_s

    def wait_tail(t: float) -> float:
        return float(queue @ gammaincc(stages, total * t)) if len(queue) else 0.0

    def sojourn_tail(t: float) -> float:
        free = float(enters[:servers].sum()) * math.exp(-mu * t)
        if not len(queue):
            return free
        if servers == 1:
            return free + float(queue @ gammaincc(stages + 1, mu * t))
        with np.errstate(divide="ignore"):
            log_after = (
                -mu * t + stages * math.log(total / (total - mu)) + np.log(gammainc(stages, (total - mu) * t))
            )
        return free + float(queue @ (gammaincc(stages, total * t) + np.exp(np.minimum(log_after, 0.0))))

    return QueueResult(
        "M/M/c/K",
        arrival_per_s,
        servers,
        arrival_per_s * service_s / servers,
        stable=True,
        wait_probability=float(queue.sum()),
        wait_mean_s=waiting / rate,
        sojourn_mean_s=inside / rate,
        waiting_mean=waiting,
        in_system_mean=inside,
        throughput_per_s=rate,
        utilisation=rate * service_s / servers,
        loss_share=lost,
        abandon_share=0.0,
        wait_tail=wait_tail,
        sojourn_tail=sojourn_tail,
    )


def mmc_abandon(arrival_per_s: float, service_s: float, servers: int, patience_s: float) -> QueueResult:
    """M/M/c+M (Erlang A): whoever waits gives up after an exponential patience of mean `patience_s`; always stable.

    Means count all arrivals, those that give up too; abandon_share = E[waiting]/(patience·λ). The wait's law, with
    x = λ·patience and s = c·patience/E[S], is P(W > t) = P(W > 0)·e^(−t/patience)·γ(s, x·e^(−t/patience))/γ(s, x)
    (virtual wait of M/M/c+G, Baccelli and Hebuterne 1981, integrated).
    """
    check_positive(arrival_per_s=arrival_per_s, service_s=service_s, patience_s=patience_s)
    check_count(servers=servers)
    mu, theta = 1 / service_s, 1 / patience_s
    # Past the mode the law falls at least as fast as its birth-death ratio: cut where what is left is below 1e-16.
    size = max(servers, math.ceil(servers + max(0.0, arrival_per_s - servers * mu) / theta)) + 1
    drop = 0.0
    while drop > -40:
        size += 1
        drop += math.log(arrival_per_s / (servers * mu + (size - servers) * theta))
    n = np.arange(size + 1)
    busy = np.minimum(n, servers)
    law = stationary(np.full(size, arrival_per_s), busy[1:] * mu + (n - busy)[1:] * theta)
    waiting = float(law @ (n - busy))
    busy_mean = float(law @ busy)
    waits = float(law[servers:].sum())
    shape, start = servers * mu / theta, arrival_per_s / theta

    def wait_tail(t: float) -> float:
        shrink = _log_lower_gamma(shape, start * math.exp(-theta * t)) - _log_lower_gamma(shape, start)
        return waits * math.exp(-theta * t + shrink)

    return QueueResult(
        "M/M/c+M",
        arrival_per_s,
        servers,
        arrival_per_s * service_s / servers,
        stable=True,
        percentile_method="exact for the wait, those that give up included",
        wait_probability=waits,
        wait_mean_s=waiting / arrival_per_s,
        sojourn_mean_s=(waiting + busy_mean) / arrival_per_s,
        waiting_mean=waiting,
        in_system_mean=waiting + busy_mean,
        throughput_per_s=busy_mean * mu,
        utilisation=busy_mean / servers,
        loss_share=0.0,
        abandon_share=theta * waiting / arrival_per_s,
        wait_tail=wait_tail,
    )


def stationary(birth_per_s: np.ndarray, death_per_s: np.ndarray) -> np.ndarray:
    """Stationary law, shape (n + 1,), of a birth–death chain: birth[i] is the rate i → i+1, death[i] that of i+1 → i.

    Found in logarithms, so that neither overflows for thousands of states.

    >>> stationary(np.array([1.0, 1.0]), np.array([2.0, 2.0])).round(4).tolist()
    [0.5714, 0.2857, 0.1429]
    """
    log = np.concatenate([[0.0], np.cumsum(np.log(birth_per_s) - np.log(death_per_s))])
    law: np.ndarray = np.exp(log - logsumexp(log))
    return law


def _queueing(
    model: str,
    arrival_per_s: float,
    service_s: float,
    servers: int,
    waits: float,
    wait_s: float,
    conditional_wait_s: float,
    *,
    method: str = "exact",
    percentile_method: str = "exact",
    sojourn_tail: Tail | None = None,
) -> QueueResult:
    offered = arrival_per_s * service_s

    def wait_tail(t: float) -> float:
        if t < 0:
            return 1.0
        return waits * math.exp(-t / conditional_wait_s) if conditional_wait_s > 0 else 0.0

    return QueueResult(
        model,
        arrival_per_s,
        servers,
        offered / servers,
        stable=True,
        method=method,
        percentile_method=percentile_method,
        wait_probability=waits,
        wait_mean_s=wait_s,
        sojourn_mean_s=wait_s + service_s,
        waiting_mean=arrival_per_s * wait_s,
        in_system_mean=arrival_per_s * wait_s + offered,
        throughput_per_s=arrival_per_s,
        utilisation=offered / servers,
        loss_share=0.0,
        abandon_share=0.0,
        wait_tail=wait_tail,
        sojourn_tail=sojourn_tail,
    )


def _log_lower_gamma(a: float, x: float) -> float:
    # ln P(a, x); where it underflows, its series x^a·e^(−x)/Γ(a+1)·Σ x^k/((a+1)…(a+k)) with x well below a.
    value = float(gammainc(a, x))
    if value > 1e-280:
        return math.log(value)
    total, term, k = 1.0, 1.0, 0
    while term > 1e-17 * total:
        k += 1
        term *= x / (a + k)
        total += term
    return a * math.log(x) - x - float(gammaln(a + 1)) + math.log(total) if x > 0 else -math.inf
