"""Prompt and output lengths: parameters from what a person knows of them, quantile functions, and draws."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from fleetplan.errors import InputError, unknown_name
from fleetplan.traffic.model import (
    Bounded,
    Distribution,
    Fixed,
    GammaLength,
    Geometric,
    Lengths,
    LogNormal,
    Normal,
    Pareto,
    Quantiles,
    Stops,
    Uniform,
    Zipf,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CVS = np.geomspace(1e-4, 50.0, 600)
"""Coefficients of variation among which a solution is looked for, the least variable first."""


def lengths(kind: str, **given: Any) -> Lengths:
    """Lengths by name: from parameters, or from two of mean, sd, cv and percentiles (p50, p99, p99.9, …).

    `min` and `max` cut any of them (and pile up at the bound); mean and percentiles are those before the cut.
    Of two solutions the less variable is taken. Raises `InputError` where none exists.

    >>> lengths("geometric", mean=250)
    Geometric(p=0.004)
    >>> d = lengths("lognormal", mean=1200, p99=6000)
    >>> round(mean_tokens(d)), round(float(quantile(d, 0.99)))
    (1200, 6000)
    """
    makers: dict[str, Callable[[dict[str, Any]], Distribution]] = {
        "fixed": lambda g: Fixed(g["tokens"]),
        "uniform": lambda g: Uniform(int(g["low"]), int(g["high"])),
        "normal": _moments("normal", lambda mean, cv: Normal(mean, mean * cv)),
        "lognormal": _moments("lognormal", _lognormal),
        "gamma": _moments("gamma", lambda mean, cv: GammaLength(1 / cv**2, mean * cv**2)),
        "geometric": lambda g: Geometric(1 / g["mean"] if "mean" in g else g["p"]),
        "pareto": lambda g: Pareto(g["scale"], g["alpha"]),
        "zipf": lambda g: Zipf(g["exponent"], int(g["largest"]), int(g.get("step", 1))),
        "quantiles": lambda g: Quantiles(tuple(sorted((_fraction(k), float(v)) for k, v in g.items()))),
    }
    if kind not in makers:
        raise InputError(unknown_name("length distribution", kind, makers))
    minimum, maximum = given.pop("min", 1), given.pop("max", None)
    try:
        inside = makers[kind](dict(given))
    except KeyError as error:
        raise InputError(
            f"{kind}: {error.args[0]} is missing (got {', '.join(given) or 'nothing'})"
        ) from error
    check(inside)
    return inside if minimum == 1 and maximum is None else Bounded(inside, int(minimum), maximum)


def check(d: Lengths) -> None:
    """Raise `InputError` for parameters that define no distribution of lengths."""
    wrong: str | None = None
    if isinstance(d, Bounded):
        check(d.inside)
        if d.minimum < 1 or (d.maximum is not None and d.maximum < d.minimum):
            wrong = f"needs 1 ≤ min ≤ max (got {d.minimum}, {d.maximum})"
    elif isinstance(d, Fixed) and d.tokens < 1:
        wrong = f"tokens must be at least 1 (got {d.tokens})"
    elif isinstance(d, Uniform) and not 1 <= d.low <= d.high:
        wrong = f"needs 1 ≤ low ≤ high (got {d.low}, {d.high})"
    elif isinstance(d, Geometric) and not 0 < d.p <= 1:
        wrong = f"needs a mean of at least 1 (got p = {d.p})"
    elif isinstance(d, Pareto) and not (d.scale > 0 and d.alpha > 0):
        wrong = f"needs scale > 0 and alpha > 0 (got {d.scale}, {d.alpha})"
    elif isinstance(d, Zipf) and (d.largest < 1 or d.exponent < 0 or d.step < 1):
        wrong = f"needs largest ≥ 1, exponent ≥ 0 and step ≥ 1 (got {d.largest}, {d.exponent}, {d.step})"
    elif isinstance(d, Stops):
        endless = d.max_tokens is None and not d.stop_hazard and (not d.eos or not d.eos[-1][1])
        if not d.eos or d.eos[0][0] != 1 or endless:
            wrong = f"needs an EOS hazard from token 1 on, and an end to every answer (got {d.eos})"
    elif isinstance(d, Quantiles):
        steps = list(zip(d.points, d.points[1:], strict=False))
        ends = len(d.points) > 1 and d.points[0][0] == 0 and d.points[-1][0] == 1
        if not ends or any(low[0] >= high[0] or low[1] > high[1] for low, high in steps):
            wrong = f"needs lengths that rise from p0 to p100 (got {d.points})"
    if wrong:
        raise InputError(f"{type(d).__name__.lower()}: {wrong}")


def quantile(d: Lengths, u: Any) -> Any:
    """The length [tokens, not rounded] below which a share u in (0, 1) lies; vectorised over u."""
    if isinstance(d, Bounded):
        return np.clip(quantile(d.inside, u), d.minimum, d.maximum)
    u = np.asarray(u, dtype=np.float64)
    if isinstance(d, Fixed):
        return np.full(u.shape, float(d.tokens))
    if isinstance(d, Uniform):
        return np.floor(d.low + u * (d.high - d.low + 1))
    if isinstance(d, Normal):
        return d.mean + d.sd * special.ndtri(u)
    if isinstance(d, LogNormal):
        return np.exp(d.mu + d.sigma * special.ndtri(u))
    if isinstance(d, GammaLength):
        return d.scale * special.gammaincinv(d.shape, u)
    if isinstance(d, Geometric):
        return np.ones(u.shape) if d.p == 1 else np.maximum(np.ceil(np.log1p(-u) / math.log1p(-d.p)), 1.0)
    if isinstance(d, Pareto):
        return d.scale * (1 - u) ** (-1 / d.alpha)
    if isinstance(d, Zipf):
        return (
            1.0 + np.searchsorted(zipf_cdf(d.exponent, d.largest), u, side="right").clip(max=d.largest - 1)
        ) * d.step
    if isinstance(d, Quantiles):
        return np.interp(u, [p for p, _ in d.points], [x for _, x in d.points])
    return _stops_quantile(d, u)


def draw(d: Lengths, u: Floats) -> Ints:
    """Whole lengths of at least 1 from uniforms u, by the quantile function (so that equal u give comparable draws)."""
    return np.maximum(np.rint(quantile(d, u)), 1).astype(np.int64)


def mean_tokens(d: Lengths) -> float:
    """The mean of the drawn lengths (cuts and rounding included) [tokens], by the midpoint rule on 200,000 quantiles."""
    return float(draw(d, (np.arange(200_000) + 0.5) / 200_000).mean())


@lru_cache(maxsize=32)
def zipf_cdf(exponent: float, largest: int) -> Floats:
    """P(K ≤ k) for k = 1..largest with P(K = k) ∝ k^−exponent; shape (largest,)."""
    weight = np.arange(1, largest + 1, dtype=np.float64) ** -exponent
    return np.asarray(np.cumsum(weight) / weight.sum(), dtype=np.float64)


def stop_share(d: Stops, tokens: Ints) -> Floats:
    """For answers of these lengths that `max_tokens` did not cut: the chance that a stop sequence ended them."""
    starts = np.array([start for start, _ in d.eos])
    hazard = np.array([h for _, h in d.eos])[np.searchsorted(starts, tokens, side="right") - 1]
    ended = 1 - (1 - hazard) * (1 - d.stop_hazard)
    return np.asarray(np.divide(d.stop_hazard, ended, out=np.zeros(len(tokens)), where=ended > 0))


def _stops_quantile(d: Stops, u: Floats) -> Floats:
    """Invert the cumulative hazard, which is straight between the tokens where the EOS hazard changes."""
    with np.errstate(divide="ignore"):
        rate = np.array([-(np.log1p(-h) + math.log1p(-d.stop_hazard)) for _, h in d.eos])
    start = np.array([first - 1 for first, _ in d.eos], dtype=np.float64)
    passed = np.concatenate([[0.0], np.cumsum(np.nan_to_num(rate[:-1] * np.diff(start), nan=0.0))])
    x = -np.log1p(-u)
    piece = np.searchsorted(passed, x, side="right") - 1
    with np.errstate(divide="ignore", invalid="ignore"):
        more = (x - passed[piece]) / rate[piece]
    # Where nothing ends an answer any more only max_tokens does.
    tokens = start[piece] + np.maximum(np.ceil(np.nan_to_num(more, nan=np.inf)), 1.0)
    return np.minimum(tokens, np.inf if d.max_tokens is None else d.max_tokens)


def _lognormal(mean: float, cv: float) -> LogNormal:
    sigma2 = math.log1p(cv**2)
    return LogNormal(math.log(mean) - sigma2 / 2, math.sqrt(sigma2))


def _fraction(name: str | float) -> float:
    """'p99.9' is 0.999."""
    return round(float(str(name).removeprefix("p")) / 100, 12)


def _unit(family: str, name: str, cv: Any) -> Any:
    """What `name` (mean, sd or a percentile) is for the family member of mean 1 with this coefficient of variation."""
    if name == "mean":
        return np.ones_like(cv)
    if name == "sd":
        return cv
    q = _fraction(name)
    if family == "normal":
        return 1 + cv * special.ndtri(q)
    if family == "lognormal":
        sigma = np.sqrt(np.log1p(cv**2))
        return np.exp(sigma * special.ndtri(q) - sigma**2 / 2)
    return special.gammaincinv(1 / cv**2, q) * cv**2


def _moments(
    family: str, make: Callable[[float, float], Distribution]
) -> Callable[[dict[str, Any]], Distribution]:
    """A maker of family members from exactly two of mean, sd, cv and percentiles, or from the family's own parameters."""

    def maker(given: dict[str, Any]) -> Distribution:
        own: dict[frozenset[str], Callable[..., Distribution]] = {
            frozenset({"mu", "sigma"}): LogNormal,
            frozenset({"shape", "scale"}): GammaLength,
        }
        if frozenset(given) in own:
            return own[frozenset(given)](**given)
        cv, mean = solve(family, given)
        return make(mean, cv)

    return maker


def solve(family: str, given: Mapping[str, float]) -> tuple[float, float]:
    """(cv, mean) of the normal, lognormal or gamma with the two given figures; the least variable of several.

    Every figure but the cv is proportional to the mean, so the ratio of two fixes the cv alone.
    """
    where = f"{family} of {', '.join(f'{k} {v:g}' for k, v in given.items())}"
    if len(given) != 2 or any(v <= 0 for v in given.values()):
        raise InputError(f"{where}: two figures above 0 are needed, like mean and p99, or mean and cv")
    (a, x), (b, y) = sorted(given.items(), key=lambda item: item[0] == "cv")
    if b == "cv":
        if a == "sd":
            return y, x / y
        return y, x / float(_unit(family, a, np.float64(y)))

    def off(cv: Any) -> Any:
        return y * _unit(family, a, cv) - x * _unit(family, b, cv)

    value = off(_CVS)
    cross = np.flatnonzero(np.sign(value[:-1]) * np.sign(value[1:]) <= 0)
    cross = cross[(np.isfinite(value[cross])) & np.isfinite(value[cross + 1])]
    if not len(cross):
        raise InputError(f"{where}: no {family} has these two, others (or another family) are needed")
    cv = float(optimize.brentq(off, _CVS[cross[0]], _CVS[cross[0] + 1], xtol=1e-14))
    return cv, x / float(_unit(family, a, np.float64(cv)))
