"""Closed forms of queueing against simulation: every mean within 3 standard errors, found from batch means."""

import heapq
import math

import numpy as np
import pytest

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import affine
from fleetplan.queueing import (
    PriorityClass,
    erlang_c,
    ggc,
    loss_system,
    md1,
    mdc,
    mg1,
    mm1,
    mmc,
    mmc_abandon,
    mmck,
    priority_mg1,
)
from fleetplan.traffic.requests import Requests

COUNT = 200_000
WARM = 5_000


def standard_error(values, batches=40):
    size = len(values) // batches
    means = np.asarray(values)[: size * batches].reshape(batches, size).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(batches))


def within_3_errors(values, theory):
    values = np.asarray(values, dtype=float)[WARM:]
    error = standard_error(values)
    assert error > 0
    assert abs(values.mean() - theory) <= 3 * error, f"{values.mean():.6g} ± {error:.2g}, theory {theory:.6g}"


def fcfs(arrivals, services, servers, places=None, patience=None):
    """(wait, lost, gave up) of each arrival at one queue before `servers` servers; lost ones wait NaN."""
    free = [0.0] * servers
    departures: list[float] = []  # of all inside, and of those that will give up
    wait = np.full(len(arrivals), np.nan)
    lost = np.zeros(len(arrivals), dtype=bool)
    gone = np.zeros(len(arrivals), dtype=bool)
    for i, t in enumerate(arrivals):
        while departures and departures[0] <= t:
            heapq.heappop(departures)
        if places is not None and len(departures) >= places:
            lost[i] = True
            continue
        start = max(t, free[0])
        if patience is not None and start - t > patience[i]:
            gone[i], wait[i] = True, patience[i]
            heapq.heappush(departures, t + patience[i])
            continue
        heapq.heapreplace(free, start + services[i])
        heapq.heappush(departures, start + services[i])
        wait[i] = start - t
    return wait, lost, gone


def drawn(seed, rate, service, cv=1.0, count=COUNT):
    rng = np.random.default_rng(seed)
    arrivals = np.cumsum(rng.exponential(1 / rate, count))
    if cv == 0:
        return arrivals, np.full(count, service)
    return arrivals, rng.gamma(1 / cv**2, service * cv**2, count)


@pytest.mark.parametrize(
    ("result", "rate", "service", "cv", "servers"),
    [
        (mm1(0.8, 1.0), 0.8, 1.0, 1.0, 1),
        (md1(0.8, 1.0), 0.8, 1.0, 0.0, 1),
        (mg1(0.7, 1.0, 2.0), 0.7, 1.0, 2.0, 1),
        (mmc(3.2, 1.0, 4), 3.2, 1.0, 1.0, 4),
        (mmc(18.0, 1.0, 20), 18.0, 1.0, 1.0, 20),
        (ggc(3.2, 1.0, 4, 1.0, 1.0), 3.2, 1.0, 1.0, 4),
    ],
    ids=["M/M/1", "M/D/1", "M/G/1", "M/M/4", "M/M/20", "G/G/4 at cv 1"],
)
def test_waits(result, rate, service, cv, servers):
    wait, _, _ = fcfs(*drawn(11, rate, service, cv), servers)
    within_3_errors(wait, result.wait_mean_s)
    within_3_errors(wait > 1e-9, result.wait_probability)
    if result.percentile_method == "exact":
        for q in (0.9, 0.99):
            t = result.wait_percentile_s(q)
            within_3_errors(wait <= t, q)


@pytest.mark.parametrize(
    ("result", "rate", "cv", "servers"),
    [(mm1(0.8, 1.0), 0.8, 1.0, 1), (md1(0.8, 1.0), 0.8, 0.0, 1), (mmc(3.2, 1.0, 4), 3.2, 1.0, 4)],
    ids=["M/M/1", "M/D/1", "M/M/4"],
)
def test_time_in_system(result, rate, cv, servers):
    arrivals, services = drawn(12, rate, 1.0, cv)
    inside = fcfs(arrivals, services, servers)[0] + services
    within_3_errors(inside, result.sojourn_mean_s)
    for q in (0.5, 0.95, 0.99):
        within_3_errors(inside <= result.sojourn_percentile_s(q), q)


@pytest.mark.parametrize(("rate", "servers", "places"), [(5.0, 4, 10), (1.5, 1, 4), (3.0, 4, 4)])
def test_finite_room(rate, servers, places):
    result = mmck(rate, 1.0, servers, places)
    arrivals, services = drawn(13, rate, 1.0)
    wait, lost, _ = fcfs(arrivals, services, servers, places)
    within_3_errors(lost, result.loss_share)
    entered = ~np.isnan(wait)
    if places > servers:
        within_3_errors(wait[entered], result.wait_mean_s)
        within_3_errors(wait[entered] <= result.wait_percentile_s(0.9), 0.9)
    inside = (wait + services)[entered]
    within_3_errors(inside, result.sojourn_mean_s)
    within_3_errors(inside <= result.sojourn_percentile_s(0.95), 0.95)


def test_a_loss_system_does_not_care_for_the_spread_of_service():
    for cv in (0.0, 1.0, 2.0):
        _, lost, _ = fcfs(*drawn(14, 9.0, 1.0, cv), 10, 10)
        within_3_errors(lost, loss_system(9.0, 1.0, 10).loss_share)


@pytest.mark.parametrize(("rate", "servers", "patience"), [(5.0, 4, 2.0), (3.0, 4, 1.0), (22.0, 20, 0.5)])
def test_abandonment(rate, servers, patience):
    result = mmc_abandon(rate, 1.0, servers, patience)
    rng = np.random.default_rng(15)
    arrivals, services = drawn(16, rate, 1.0)
    wait, _, gone = fcfs(arrivals, services, servers, patience=rng.exponential(patience, COUNT))
    within_3_errors(gone, result.abandon_share)
    within_3_errors(wait, result.wait_mean_s)
    within_3_errors(wait <= result.wait_percentile_s(0.95), 0.95)


@pytest.mark.parametrize("preemptive", [False, True])
def test_priorities(preemptive):
    classes = [PriorityClass(0.3, 1.0, 1.0), PriorityClass(0.4, 1.0, 1.0)]
    theory = priority_mg1(classes, preemptive)
    rng = np.random.default_rng(17)
    count = COUNT // 2
    events = [np.cumsum(rng.exponential(1 / c.arrival_per_s, count)) for c in classes]
    end = min(e[-1] for e in events)
    jobs = sorted(
        (t, k, s)
        for k, e in enumerate(events)
        for t, s in zip(e, rng.exponential(1.0, count), strict=True)
        if t <= end
    )
    inside = ([], [])
    queue: list = []
    now, i = 0.0, 0
    while i < len(jobs) or queue:
        if not queue:
            now = max(now, jobs[i][0])
        while i < len(jobs) and jobs[i][0] <= now:
            heapq.heappush(queue, (jobs[i][1], jobs[i][0], jobs[i][2]))
            i += 1
        kind, came, left = heapq.heappop(queue)
        ends = now + left
        if preemptive and i < len(jobs) and jobs[i][0] < ends:
            heapq.heappush(queue, (kind, came, left - (jobs[i][0] - now)))
            now = jobs[i][0]
            continue
        now = ends
        inside[kind].append(now - came)
    for times, result in zip(inside, theory, strict=True):
        within_3_errors(times, result.sojourn_mean_s)


@pytest.mark.parametrize(("servers", "rho"), [(2, 0.5), (2, 0.9), (8, 0.8), (32, 0.9)])
def test_constant_service_at_many_servers_is_near_the_exact_chain(servers, rho):
    # The number inside, seen every D, is a chain: it loses min(n, c) and gains a Poisson number.
    from scipy.stats import poisson

    size = servers + int(60 / (1 - rho)) + 40
    gain = poisson.pmf(np.arange(size), servers * rho)
    law = np.eye(size)[0]
    moves = np.zeros((size, size))
    for n in range(size):
        base = max(n - servers, 0)
        moves[n, base:] = gain[: size - base]
        moves[n, -1] += 1 - moves[n].sum()
    for _ in range(12):
        moves = moves @ moves
    law = law @ moves
    waiting = float(law @ np.maximum(np.arange(size) - servers, 0))
    exact = waiting / (servers * rho)
    assert mdc(servers * rho, 1.0, servers).wait_mean_s == pytest.approx(exact, rel=0.03)


@pytest.mark.parametrize("servers", [1, 10, 300, 5000])
def test_erlang_c_holds_for_thousands_of_servers(servers):
    from scipy.special import gammaincc, gammaln

    load = servers - math.sqrt(servers) / 2
    log_term = servers * math.log(load) - load - gammaln(servers + 1)
    blocked = math.exp(log_term) / gammaincc(servers + 1, load)
    rho = load / servers
    assert erlang_c(load, servers) == pytest.approx(blocked / (1 - rho * (1 - blocked)), rel=1e-9)


@pytest.mark.parametrize(
    ("cv", "theory"),
    [(0.0, md1(0.7, 1.0)), (1.0, mm1(0.7, 1.0)), (1.5, mg1(0.7, 1.0, 1.5))],
    ids=["M/D/1", "M/M/1", "M/G/1"],
)
def test_the_engine_with_one_slot_is_a_queue_with_one_server(cv, theory):
    # Service through the prompt's length: 1e-5 s a token, one output token, so that a step is a service.
    count = 60_000
    arrivals, services = drawn(18, 0.7, 1.0, cv, count)
    prompts = np.maximum(1, np.rint(services * 1e5)).astype(int)
    run = simulate(
        Requests.of(arrivals, prompts, 1), affine(0.0, 1e-5, 1e-5), EngineConfig("continuous", max_num_seqs=1)
    )
    within_3_errors(run.e2e_s, theory.sojourn_mean_s)


@pytest.mark.parametrize(("cv", "replicas"), [(1.0, 4), (1.0, 12)])
def test_the_engine_behind_a_central_queue_is_a_queue_with_many_servers(cv, replicas):
    count = 60_000
    rate = 0.85 * replicas
    arrivals, services = drawn(19, rate, 1.0, cv, count)
    prompts = np.maximum(1, np.rint(services * 1e5)).astype(int)
    run = simulate(
        Requests.of(arrivals, prompts, 1), affine(0.0, 1e-5, 1e-5), EngineConfig("continuous", max_num_seqs=1),
        replicas, "central_queue",
    )  # fmt: skip
    within_3_errors(run.e2e_s, mmc(rate, 1.0, replicas).sojourn_mean_s)
