"""What a closed form answers: means, tails and percentiles, or an explicit "unstable" without any number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from scipy.optimize import brentq

from fleetplan.errors import InputError

Tail = Callable[[float], float]


@dataclass(frozen=True)
class QueueResult:
    """Stationary figures of one queue; where `stable` is False every figure but λ, c and ρ is None."""

    model: str
    """Kendall's name, as in M/M/c."""
    arrival_per_s: float
    """λ [1/s]."""
    servers: int
    """c."""
    rho: float
    """Offered utilisation λ·E[S]/c; may pass 1, also in stable systems that lose or abandon."""
    stable: bool
    """False: the queue grows without bound."""
    reason: str = ""
    """Why it is unstable; empty where it is stable."""
    method: str = "exact"
    """How the means were found: "exact", or the name of the approximation."""
    percentile_method: str = "exact"
    """How percentiles are found."""
    wait_probability: float | None = None
    """Chance that an arrival that enters has to wait."""
    wait_mean_s: float | None = None
    """Mean time in queue [s] of those that enter (those that give up included)."""
    sojourn_mean_s: float | None = None
    """Mean time in system [s] of those that enter."""
    waiting_mean: float | None = None
    """Mean number in queue."""
    in_system_mean: float | None = None
    """Mean number in system."""
    throughput_per_s: float | None = None
    """Rate of those served [1/s]."""
    utilisation: float | None = None
    """Share of the servers' time that is busy."""
    loss_share: float | None = None
    """Share of arrivals turned away."""
    abandon_share: float | None = None
    """Share of arrivals that give up waiting."""
    wait_tail: Tail | None = field(default=None, repr=False, compare=False)
    """t [s] -> P(wait > t), where it is known."""
    sojourn_tail: Tail | None = field(default=None, repr=False, compare=False)
    """t [s] -> P(time in system > t), where it is known."""

    def wait_percentile_s(self, q: float) -> float | None:
        """The least t [s] with P(wait ≤ t) ≥ q, 0 < q < 1; None when unstable or unknown."""
        return percentile_s(self.wait_tail, q, self.wait_mean_s)

    def sojourn_percentile_s(self, q: float) -> float | None:
        """The least t [s] with P(time in system ≤ t) ≥ q, 0 < q < 1; None when unstable or unknown."""
        return percentile_s(self.sojourn_tail, q, self.sojourn_mean_s)

    def as_row(self) -> dict[str, Any]:
        """The figures as plain values, p50, p95 and p99 included: None where there is no number."""
        row: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "model", "arrival_per_s", "servers", "rho", "stable", "reason", "method", "percentile_method",
                "wait_probability", "wait_mean_s", "sojourn_mean_s", "waiting_mean", "in_system_mean",
                "throughput_per_s", "utilisation", "loss_share", "abandon_share",
            )
        }  # fmt: skip
        for percent in (50, 95, 99):
            row[f"wait_p{percent}_s"] = self.wait_percentile_s(percent / 100)
            row[f"sojourn_p{percent}_s"] = self.sojourn_percentile_s(percent / 100)
        return row


def percentile_s(tail: Tail | None, q: float, scale_s: float | None) -> float | None:
    """The least t ≥ 0 with tail(t) ≤ 1 − q, by bracketing from `scale_s` and Brent's method; None without a tail."""
    if not 0 < q < 1:
        raise InputError(f"q: a percentile's share lies strictly between 0 and 1 (got {q!r}), e.g. 0.99")
    if tail is None:
        return None
    miss = 1 - q
    if tail(0.0) <= miss:
        return 0.0
    high = scale_s if scale_s else 1e-9
    while tail(high) > miss:
        high *= 2
    return float(brentq(lambda t: tail(t) - miss, 0.0, high, xtol=1e-15, rtol=1e-13))


def unstable(
    model: str, arrival_per_s: float, servers: int, rho: float, method: str = "exact"
) -> QueueResult:
    """The verdict for ρ ≥ 1 where nothing is lost and nobody gives up."""
    reason = f"unstable: utilisation {rho:.4g} ≥ 1, the queue grows without bound"
    return QueueResult(model, arrival_per_s, servers, rho, stable=False, reason=reason, method=method)


def is_unstable(rho: float) -> bool:
    """ρ ≥ 1, with a relative allowance of 1e-12 for a ρ that is 1 but for rounding."""
    return rho >= 1 - 1e-12


def check_positive(**values: float) -> None:
    """Raise `InputError`, one line a fault, for any value that is not a finite number > 0."""
    lines = [
        f"{name}: must be a finite number > 0 (got {value!r})"
        for name, value in values.items()
        if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf)
    ]
    if lines:
        raise InputError(*lines)


def check_not_negative(**values: float) -> None:
    """Raise `InputError` for any value that is not a finite number ≥ 0."""
    lines = [
        f"{name}: must be a finite number ≥ 0 (got {value!r})"
        for name, value in values.items()
        if not (isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf)
    ]
    if lines:
        raise InputError(*lines)


def check_count(least: int = 1, **values: int) -> None:
    """Raise `InputError` for any value that is not a whole number ≥ `least`."""
    lines = [
        f"{name}: must be a whole number ≥ {least} (got {value!r})"
        for name, value in values.items()
        if not (isinstance(value, int) and not isinstance(value, bool) and value >= least)
    ]
    if lines:
        raise InputError(*lines)


def strict(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with every NaN and infinity replaced by None, as strict JSON needs."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in row.items()}
