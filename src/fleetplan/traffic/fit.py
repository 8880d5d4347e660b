"""A generator fitted to a trace: arrivals by their dispersion over scales, lengths by their quantiles, with goodness of fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats

from fleetplan.errors import InputError
from fleetplan.traffic import arrivals, lengths
from fleetplan.traffic.facts import counts_per_bin, interarrival_cv
from fleetplan.traffic.hidden import hidden_states
from fleetplan.traffic.model import Class, Gamma, Hawkes, Lengths, Mmpp, Poisson, Process, Profile, Workload
from fleetplan.traffic.patterns import dispersion
from fleetplan.traffic.traces.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GOOD_KS = 0.03
"""A two-parameter family is taken where its Kolmogorov distance from the trace is below this; else quantiles are."""
NEAR_KS = 0.015
"""Percentiles are added until they are as near as this."""
MOST_POINTS = 20
WORTH = 0.1
"""By how much a later process must lower the RMS error of log dispersion to be taken."""
_POINTS = (0, 5, 25, 50, 75, 90, 95, 99, 99.9, 100)
MOST_STATES = 7
"""States of the largest MMPP that is tried besides that of two."""
LOADS = (0.2, 0.35, 0.5, 0.7)
"""Loads of the queues that a process is judged by."""
SLOTS = 12
"""Slots of the profile that takes a rate's drift."""


@dataclass(frozen=True)
class Fit:
    """A fitted workload, as a spec would say it, and how well it fits."""

    workload: Workload
    spec: dict[str, Any]
    """The class as a scenario's `workload.classes` entry (without promises)."""
    goodness: dict[str, Any]
    """Kolmogorov distances of the lengths; for each process tried the RMS errors of log dispersion over scales, and of log backlog
    over loads."""


class Off(NamedTuple):
    """How far a process is from the trace: RMS differences of logs."""

    both: float
    """Over dispersion and backlog together: what is compared."""
    dispersion: float
    """Index of dispersion of counts, over scales."""
    backlog: float
    """What waits in a queue that serves at a constant rate, its p90 and p99 in requests (and one), over `LOADS`."""


def fit(trace: Trace, name: str = "fitted") -> Fit:
    """A workload of a dozen numbers that stands for a trace.

    The process is the plainest of Poisson, gamma, MMPP of two and of more states, and Hawkes that is near the trace in dispersion over
    scales and in what a queue behind it holds; a later one must be nearer by `WORTH`. Two-state MMPP and Hawkes share
    IDC(t) = 1 + A·(1 − (1 − e^{−ct})/(ct)); A and c are fitted by least squares of logs, and the MMPP's third number by the share of
    empty seconds; more states are the likeliest ones (`fleetplan.traffic.hidden`). Raises `InputError` for a trace without a rate.
    """
    if trace.arrival_s is None or not trace.span_s or len(trace) < 100:
        raise InputError(
            f"{trace.path}: too little to fit (got {len(trace)} timed requests), at least 100 are needed"
        )
    process, spec, tried = fit_arrivals(trace.arrival_s)
    prompt, prompt_spec, prompt_ks = fit_lengths(trace.prompt_tokens)
    output, output_spec, output_ks = fit_lengths(trace.output_tokens)
    rho = float(stats.spearmanr(trace.prompt_tokens, trace.output_tokens).statistic)
    rho = 0.0 if not math.isfinite(rho) else round(min(max(rho, -0.99), 0.99), 3)
    workload = Workload((Class(name, process, prompt_tokens=prompt, output_tokens=output, correlation=rho),))
    return Fit(
        workload,
        {
            "name": name,
            "arrivals": spec,
            "prompt_tokens": prompt_spec,
            "output_tokens": output_spec,
            "correlation": rho,
        },
        {
            "arrivals_log_dispersion_rms": {name: off.dispersion for name, off in tried.items()},
            "arrivals_log_backlog_rms": {name: off.backlog for name, off in tried.items()},
            "prompt_tokens_ks": prompt_ks,
            "output_tokens_ks": output_ks,
            "rows": len(trace),
        },
    )


def fit_arrivals(arrival_s: Floats) -> tuple[Process | Profile, dict[str, Any], dict[str, Off]]:
    """The process nearest to these arrivals, its spec, and how far every process is that was tried.

    Where dispersion still doubles from 30 s to 300 s the rate drifts: a profile of `SLOTS` equal slots takes the drift, and the process
    inside is fitted in the profile's own time.
    """
    seen = dispersion(counts_per_bin(arrival_s, 1.0))
    if not seen.get(300.0, 0.0) > 2 * seen.get(30.0, math.inf):
        return _fit_process(arrival_s)
    at = arrival_s - arrival_s[0]
    slot = _digits(float(at[-1]) / SLOTS)
    counts = np.bincount(np.minimum((at / slot).astype(np.int64), SLOTS - 1), minlength=SLOTS)
    factors = tuple(round(float(f), 3) for f in counts / counts.mean())
    clock = np.interp(at, np.arange(SLOTS + 1) * slot, np.concatenate([[0.0], np.cumsum(factors)]) * slot)
    process, spec, errors = _fit_process(clock)
    profile = {"process": "profile", "inside": spec, "factors": list(factors), "slot": f"{slot} s"}
    return Profile(process, factors, slot), profile, errors


def _fit_process(arrival_s: Floats) -> tuple[Process, dict[str, Any], dict[str, Off]]:
    """The plain process nearest to these arrivals, its spec, and how far every one is."""
    counts = counts_per_bin(arrival_s, 1.0)
    rate = _digits(len(arrival_s) / float(arrival_s[-1] - arrival_s[0]))
    seen = dispersion(counts)
    cv = interarrival_cv(arrival_s) or 0.0
    scales, values = np.array(list(seen)), np.array(list(seen.values()))
    tried: dict[str, tuple[Process, dict[str, Any]]] = {
        "poisson": (Poisson(rate), {"process": "poisson", "rate": f"{rate} req/s"})
    }
    if abs(cv - 1) > 0.03:
        gamma = {"process": "gamma", "rate": f"{rate} req/s", "cv": _digits(cv)}
        tried["gamma"] = (Gamma(rate, _digits(cv)), gamma)
    if values.size >= 3 and values.max() > 1.1:
        amount, speed = _curve(scales, values)
        branching = _digits(1 - 1 / math.sqrt(1 + amount))
        decay = _digits((1 - branching) / speed)
        mmpp = _mmpp(rate, amount, speed, float((counts == 0).mean()))
        if mmpp is not None:
            tried["mmpp"] = (mmpp, _said(mmpp))
        hidden = hidden_states(counts, MOST_STATES, rate)
        tried[f"mmpp of {len(hidden.rates_per_s)}"] = (hidden, _said(hidden))
        tried["hawkes"] = (
            Hawkes(rate, branching, decay),
            {"process": "hawkes", "rate": f"{rate} req/s", "branching": branching, "decay": f"{decay} s"},
        )
    backlog = _backlogs(counts, rate)
    errors = {name: _off(process, rate, seen, backlog) for name, (process, _) in tried.items()}
    # The plainer first; Hawkes last, since its bursts have no bound and a trace's have: what comes later must pay.
    best = "poisson"
    for name in errors:
        if errors[name].both < errors[best].both - WORTH:
            best = name
    return (*tried[best], errors)


def fit_lengths(tokens: Ints) -> tuple[Lengths, dict[str, Any], float]:
    """The lengths' law, its spec, and its Kolmogorov distance from the data: lognormal or gamma where near, else quantiles."""
    mean, sd, largest = float(tokens.mean()), float(tokens.std()), int(tokens.max())
    if sd == 0:
        return lengths.lengths("fixed", tokens=int(mean)), int(mean), 0.0  # type: ignore[return-value]
    tried: list[tuple[float, Lengths, dict[str, Any]]] = []
    log = np.log(tokens)
    mu, sigma = float(log.mean()), float(log.std())
    cvs = {"lognormal": math.sqrt(math.expm1(sigma**2)), "gamma": sd / mean}
    means = {"lognormal": math.exp(mu + sigma**2 / 2), "gamma": mean}
    for family, cv in cvs.items():
        given = {"mean": _digits(means[family]), "cv": _digits(cv), "max": largest}
        law = lengths.lengths(family, **given)
        tried.append((_kolmogorov(tokens, law), law, {family: given}))
    best = min(tried, key=lambda t: t[0])
    if best[0] > GOOD_KS:
        best = _by_quantiles(tokens)
    return best[1], best[2], best[0]


def _by_quantiles(tokens: Ints) -> tuple[float, Lengths, dict[str, Any]]:
    """Percentiles, one more where the law is farthest off until it is near, or `MOST_POINTS` are there."""
    at = list(_POINTS)
    while True:
        points = {f"p{p:g}": _digits(float(np.percentile(tokens, p))) for p in sorted(at)}
        law = lengths.lengths("quantiles", **points)
        off, where = _farthest(tokens, law)
        # Both ends of a jump, where many lengths are the same.
        more = {
            round(where, 1),
            round(float((tokens <= np.percentile(tokens, where)).mean() * 100), 1),
        } - set(at)
        if off < NEAR_KS or not more or len(at) + len(more) > MOST_POINTS:
            return off, law, {"quantiles": points}
        at += sorted(more)


def _curve(scales: Floats, seen: Floats) -> tuple[float, float]:
    """(A, c) of the dispersion curve, by least squares of logs."""

    def off(x: Floats) -> Floats:
        a, c = np.exp(x)
        return np.asarray(
            np.log1p(a * (1 + np.expm1(-c * scales) / (c * scales))) - np.log(np.maximum(seen, 1e-3))
        )

    start = np.log([max(float(seen.max()) - 1, 0.1), 3 / float(scales.max())])
    found = optimize.least_squares(off, start, bounds=(np.log([1e-3, 1e-4]), np.log([1e5, 1e2]))).x
    return float(np.exp(found[0])), float(np.exp(found[1]))


def _mmpp(rate: float, amount: float, speed: float, empty: float) -> Mmpp | None:
    """The two-state MMPP of this mean, dispersion curve and share of empty seconds; None where no busy share gives it."""

    def of(busy: float) -> tuple[float, float]:
        gap = math.sqrt(amount * speed * rate / (2 * busy * (1 - busy)))
        return rate + (1 - busy) * gap, rate - busy * gap

    # The quiet state's rate stays above 0 while busy/(1 - busy) ≤ 2·rate/(A·c).
    most = 1 / (1 + amount * speed / (2 * rate))
    grid = np.linspace(0.005, most * (1 - 1e-9), 400)
    off = [busy * math.exp(-of(busy)[0]) + (1 - busy) * math.exp(-of(busy)[1]) - empty for busy in grid]
    if not len(grid) or most <= 0.005:
        return None
    busy = float(grid[int(np.abs(off).argmin())])
    high, low = of(busy)
    stays = (1 / (speed * (1 - busy)), 1 / (speed * busy))
    return Mmpp((_digits(high), _digits(max(low, 0.0))), (_digits(stays[0]), _digits(stays[1])))


def _said(process: Mmpp) -> dict[str, Any]:
    states = [
        {"rate": f"{r} req/s", "mean_stay": f"{s} s"}
        for r, s in zip(process.rates_per_s, process.mean_stay_s, strict=True)
    ]
    moves = {} if process.moves is None else {"moves": [list(row) for row in process.moves]}
    return {"process": "mmpp", "states": states, **moves}


def _off(process: Process, rate: float, seen: dict[float, float], backlog: Floats) -> Off:
    """How far a long run of the process is from the trace's dispersion and backlogs."""
    time = arrivals.times_s(process, max(20_000.0, 2e5 / rate), 1.0, np.random.SeedSequence(20))
    counts = np.bincount(time.astype(np.int64))
    mine = dispersion(counts, tuple(seen))
    spread = np.array([math.log(max(mine[s], 1e-3)) - math.log(max(seen[s], 1e-3)) for s in seen])
    wait = np.log1p(_backlogs(counts, rate)) - np.log1p(backlog)
    return Off(*(float(np.sqrt(np.mean(each**2))) for each in (np.concatenate([spread, wait]), spread, wait)))


def _backlogs(counts: Ints, rate: float) -> Floats:
    """p90 and p99 over the seconds [requests] of what waits where the counts are served at rate/load, for each of `LOADS`."""
    found = []
    for load in LOADS:
        walk = np.cumsum(counts - rate / load)
        left = walk - np.minimum(np.minimum.accumulate(walk), 0.0)
        found += [float(np.quantile(left, q)) for q in (0.9, 0.99)]
    return np.array(found)


def _kolmogorov(tokens: Ints, law: Lengths) -> float:
    return _farthest(tokens, law)[0]


def _farthest(tokens: Ints, law: Lengths) -> tuple[float, float]:
    """(Kolmogorov distance, the percentile of the tokens where it is met)."""
    drawn = lengths.draw(law, (np.arange(20_000) + 0.5) / 20_000)
    at = np.unique(tokens)
    mine = np.searchsorted(np.sort(drawn), at, side="right") / len(drawn)
    seen = np.searchsorted(np.sort(tokens), at, side="right") / len(tokens)
    worst = int(np.abs(mine - seen).argmax())
    return float(abs(mine[worst] - seen[worst])), float(seen[worst] * 100)


def _digits(x: float) -> float:
    """Four significant digits: what a person would type."""
    return float(f"{x:.4g}")
