"""Arrival times: every process of the model, vectorised, stationary from time 0, and scaled without squeezing time."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from fleetplan.errors import InputError
from fleetplan.traffic.model import (
    Arrivals,
    ClosedLoop,
    Constant,
    Gamma,
    Hawkes,
    Mmpp,
    Poisson,
    Process,
    Profile,
    Recorded,
    Replay,
    Weibull,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MONTH_S = 30.4375 * 86400


def mean_rate_per_s(a: Arrivals, scale: float = 1.0) -> float | None:
    """Long-run arrivals per second; None for a closed loop of unknown service, whose rate is an outcome. Growth is not in it."""
    if isinstance(a, ClosedLoop):
        return scale * a.users / (a.think_s + a.mean_service_s) if a.mean_service_s > 0 else None
    if isinstance(a, Mmpp):
        return scale * float(_mmpp_shares(a) @ np.array(a.rates_per_s))
    if isinstance(a, Profile):
        inside = mean_rate_per_s(a.inside, scale)
        return None if inside is None else inside * float(np.mean(a.factors))
    if isinstance(a, Recorded):
        return scale * float(a.counts.sum()) / len(a.counts)
    if isinstance(a, Replay):
        return scale * len(a.arrival_s) / a.period_s
    return scale * a.rate_per_s


def times_s(a: Process | Profile, horizon_s: float, scale: float, seeds: np.random.SeedSequence) -> Floats:
    """Sorted arrival times in [0, horizon_s), the rate multiplied by `scale`.

    Gaps of the renewal processes are stationary: the first is drawn from what is left of a gap at a random moment, so the mean
    count is rate·horizon however bursty they are. A longer horizon extends the same arrivals (Hawkes excepted).
    """
    check(a)
    if isinstance(a, Profile):
        clock, passed = _clock(a, horizon_s)
        return np.asarray(np.interp(times_s(a.inside, float(passed[-1]), scale, seeds), passed, clock))
    if isinstance(a, Constant):
        rate = a.rate_per_s * scale
        return np.arange(math.ceil(horizon_s * rate - 1e-9)) / rate
    if isinstance(a, Mmpp):
        return _mmpp(a, horizon_s, scale, seeds)
    if isinstance(a, Hawkes):
        return _hawkes(a, horizon_s, scale, np.random.default_rng(seeds))
    return _renewal(a, horizon_s, scale, np.random.default_rng(seeds))


def rows_of_recording(
    a: Recorded | Replay, horizon_s: float, scale: float, seeds: np.random.SeedSequence
) -> tuple[Floats, Ints, Ints]:
    """Sorted times, the row of the recording each is, and which copy of it, for a scaled recording.

    ceil(scale) copies are laid over each other, the last thinned by the fraction; copy 0 is not shifted. A smaller scale keeps a
    subset of a larger one's arrivals.
    """
    check(a)
    recorded = isinstance(a, Recorded)
    period = float(len(a.counts)) if isinstance(a, Recorded) else a.period_s
    base = (
        np.repeat(np.arange(len(a.counts)), a.counts).astype(np.float64)
        if isinstance(a, Recorded)
        else a.arrival_s
    )
    times, rows, copies = [], [], []
    rounds = math.ceil(horizon_s / period) + 1
    for copy in range(math.ceil(scale - 1e-12)):
        # A stream of its own for each copy and round: a longer horizon or a larger scale leaves the others as they are.
        shift_rng = np.random.default_rng(
            np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, copy))
        )
        shift = math.floor(shift_rng.uniform(0, min(a.spread_s, period))) if copy else 0
        for turn in range(-1 if shift else 0, rounds):
            rng = np.random.default_rng(
                np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, copy, turn + 1))
            )
            place = base + rng.random(len(base)) if recorded else base
            keep = rng.random(len(base)) < scale - copy
            at = place + (turn * period + shift)
            keep &= (at >= 0) & (at < horizon_s)
            times.append(at[keep])
            rows.append(np.flatnonzero(keep))
            copies.append(np.full(int(keep.sum()), copy * (rounds + 1) + turn + 1))
    if not times:
        return np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64)
    time = np.concatenate(times)
    order = np.argsort(time, kind="stable")
    return time[order], np.concatenate(rows)[order], np.concatenate(copies)[order].astype(np.int64)


def check(a: Arrivals) -> None:
    """Raise `InputError` for parameters that define no arrivals."""
    wrong: str | None = None
    if isinstance(a, (Constant, Poisson, Gamma, Weibull, Hawkes)) and not (
        a.rate_per_s > 0 and math.isfinite(a.rate_per_s)
    ):
        wrong = f"rate must be > 0 and finite (got {a.rate_per_s})"
    elif isinstance(a, (Gamma, Weibull)) and not (a.cv >= 0 and math.isfinite(a.cv)):
        wrong = f"cv must be finite and ≥ 0 (got {a.cv})"
    elif isinstance(a, Hawkes) and not (0 <= a.branching < 1 and a.decay_s > 0):
        wrong = f"needs 0 ≤ branching < 1 and decay > 0 (got {a.branching}, {a.decay_s})"
    elif isinstance(a, Mmpp):
        n = len(a.rates_per_s)
        if (
            n < 2
            or len(a.mean_stay_s) != n
            or min(a.mean_stay_s) <= 0
            or min(a.rates_per_s) < 0
            or not any(a.rates_per_s)
        ):
            wrong = f"needs a rate ≥ 0 (one > 0) and a stay > 0 for each of two or more states (got {a})"
    elif isinstance(a, Profile):
        if (
            not a.factors
            or min(a.factors) < 0
            or not any(a.factors)
            or a.slot_s <= 0
            or a.growth_per_month <= -1
        ):
            wrong = f"needs factors ≥ 0 (one > 0), slots > 0 s and growth > -1 (got {a})"
        else:
            check(a.inside)
    elif isinstance(a, ClosedLoop) and (a.users < 1 or a.think_s < 0):
        wrong = f"needs at least one user and a think time ≥ 0 (got {a.users}, {a.think_s})"
    elif isinstance(a, (Recorded, Replay)) and a.spread_s < 0:
        wrong = f"spread must be ≥ 0 s (got {a.spread_s})"
    if wrong:
        raise InputError(f"arrivals ({type(a).__name__.lower()}): {wrong}")


def weibull_shape(cv: float) -> float:
    """The Weibull shape k with this coefficient of variation: Γ(1 + 2/k)/Γ(1 + 1/k)² = 1 + cv².

    >>> round(weibull_shape(1.0), 9)
    1.0
    """

    def off(log_k: float) -> float:
        k = math.exp(log_k)
        return float(special.gammaln(1 + 2 / k) - 2 * special.gammaln(1 + 1 / k)) - math.log1p(cv**2)

    return math.exp(float(optimize.brentq(off, math.log(0.02), math.log(1e5))))


def _renewal(
    a: Poisson | Gamma | Weibull, horizon_s: float, scale: float, rng: np.random.Generator
) -> Floats:
    """Sums of independent gaps of mean 1, the first what is left of a length-biased gap, divided by the rate."""
    rate = a.rate_per_s * scale
    end = horizon_s * rate
    cv = 1.0 if isinstance(a, Poisson) else a.cv
    if cv == 0:
        return np.arange(rng.random(), end, 1.0) / rate
    if isinstance(a, Weibull):
        k = weibull_shape(cv)
        unit = math.gamma(1 + 1 / k)
        first = rng.random() * rng.gamma(1 + 1 / k) ** (1 / k) / unit
    elif isinstance(a, Gamma):
        k = 1 / cv**2
        first = rng.random() * rng.gamma(k + 1) / k
    else:
        first = rng.exponential()
    pieces, at = [np.array([first])], first
    while at < end:
        n = int(max((end - at) * 1.05, 0) + 6 * cv * math.sqrt(end - at) + 64)
        if isinstance(a, Weibull):
            gaps = rng.weibull(k, n) / unit
        elif isinstance(a, Gamma):
            gaps = rng.standard_gamma(k, n) / k
        else:
            gaps = rng.exponential(size=n)
        piece = at + np.cumsum(gaps)
        pieces.append(piece)
        at = float(piece[-1])
    time = np.concatenate(pieces)
    return time[time < end] / rate


def _mmpp_moves(a: Mmpp) -> Floats:
    n = len(a.rates_per_s)
    if a.moves is not None:
        return np.array(a.moves, dtype=np.float64)
    return (1 - np.eye(n)) / (n - 1)


def _mmpp_shares(a: Mmpp) -> Floats:
    """Long-run share of time in each state; shape (states,)."""
    moves = _mmpp_moves(a)
    n = len(moves)
    visits = np.linalg.lstsq(
        np.vstack([moves.T - np.eye(n), np.ones(n)]), np.append(np.zeros(n), 1.0), rcond=None
    )[0]
    time = visits * np.array(a.mean_stay_s)
    return np.asarray(time / time.sum(), dtype=np.float64)


def _mmpp(a: Mmpp, horizon_s: float, scale: float, seeds: np.random.SeedSequence) -> Floats:
    """The states' visits first, then a Poisson number of arrivals in each, anywhere in it."""
    walk, number, place = (
        np.random.default_rng(np.random.SeedSequence(seeds.entropy, spawn_key=(*seeds.spawn_key, i)))
        for i in range(3)
    )
    cumulative = np.cumsum(_mmpp_moves(a), axis=1)
    state = int(np.searchsorted(np.cumsum(_mmpp_shares(a)), walk.random() * (1 - 1e-12)))
    states, starts, lasts, at = [], [], [], 0.0
    while at < horizon_s:
        stay = walk.exponential(a.mean_stay_s[state])
        states.append(state)
        starts.append(at)
        lasts.append(stay)
        at += stay
        state = min(int(np.searchsorted(cumulative[state], walk.random(), side="right")), len(cumulative) - 1)
    stays = np.array(lasts)
    counts = number.poisson(np.array(a.rates_per_s)[states] * scale * stays)
    owner = np.repeat(np.arange(len(counts)), counts)
    time = np.array(starts)[owner] + place.random(len(owner)) * stays[owner]
    time.sort()
    return time[time < horizon_s]


def _hawkes(a: Hawkes, horizon_s: float, scale: float, rng: np.random.Generator) -> Floats:
    """Generation by generation (each arrival has Poisson(branching) children), begun long before 0 so that 0 is like any moment."""
    # A cluster's influence dies as exp(-(1 - branching) t / decay): 30 of these times leave 1e-13 of it.
    before = 30 * a.decay_s / (1 - a.branching)
    spontaneous = a.rate_per_s * scale * (1 - a.branching)
    parents = rng.uniform(-before, horizon_s, rng.poisson(spontaneous * (horizon_s + before)))
    every = [parents]
    while len(parents):
        children = rng.poisson(a.branching, len(parents))
        parents = np.repeat(parents, children) + rng.exponential(a.decay_s, int(children.sum()))
        parents = parents[parents < horizon_s]
        every.append(parents)
    time = np.concatenate(every)
    time.sort()
    return time[time >= 0]


def _clock(a: Profile, horizon_s: float) -> tuple[Floats, Floats]:
    """Time [s] and the integral of the rate's factor up to it, at every slot's border."""
    first = math.floor(a.start_s / a.slot_s)
    last = math.floor((a.start_s + horizon_s) / a.slot_s)
    border = (
        np.concatenate([[a.start_s], np.arange(first + 1, last + 1) * a.slot_s, [a.start_s + horizon_s]])
        - a.start_s
    )
    factor = np.array(a.factors)[np.arange(first, last + 1) % len(a.factors)]
    growth = math.log1p(a.growth_per_month) / MONTH_S
    grown = np.expm1(growth * border) / growth if growth else border
    return border, np.concatenate([[0.0], np.cumsum(factor * np.diff(grown))])
