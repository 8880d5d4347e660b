"""Whole numbers from real ones: ceilings that no rounding error moves, nodes, and spares from availability."""

from __future__ import annotations

import math
from fractions import Fraction

RELATIVE_TOLERANCE = 1e-9


def ceil_ratio(numerator: float, denominator: float) -> int:
    """Least whole n with n·denominator ≥ numerator, where a relative excess below 1e-9 does not count.

    Both are read as the exact binary fractions that they are, so only their own rounding is forgiven.
    Raises ValueError for a numerator below 0 or a denominator that is not above 0.

    >>> ceil_ratio(0.1 + 0.2, 0.1), ceil_ratio(5.5304, 1.7), ceil_ratio(3.001, 1.0)
    (3, 4, 4)
    """
    if not (numerator >= 0 and math.isfinite(numerator)):
        raise ValueError(f"a count needs a finite numerator of at least 0 (got {numerator})")
    if not (denominator > 0 and math.isfinite(denominator)):
        raise ValueError(f"a count needs a finite denominator above 0 (got {denominator})")
    quotient = Fraction(numerator) / Fraction(denominator)
    return math.ceil(quotient * (1 - Fraction(RELATIVE_TOLERANCE)))


def round_up(gpus: int, unit: int) -> int:
    """Least multiple of `unit` that is at least `gpus`.

    >>> round_up(12, 8)
    16
    """
    return -(-gpus // unit) * unit


def replica_availability(node_failures_per_day: float, repair_h: float) -> float:
    """Share of time [0..1] that a replica serves: 1 / (1 + failures/h · repair time).

    >>> round(replica_availability(0.0065, 48.0), 5)
    0.98717
    """
    return 1.0 / (1.0 + node_failures_per_day / 24.0 * repair_h)


def spares_for_availability(serving: int, availability: float, target: float) -> int:
    """Least s with P(Binomial(serving + s, availability) ≥ serving) ≥ target.

    Raises ValueError where a probability is outside (0, 1], or the target is 1 and cannot be reached.

    >>> spares_for_availability(10, 0.99, 0.999)
    2
    """
    if not 0 < availability <= 1 or not 0 < target <= 1:
        raise ValueError(f"availability and target are in (0, 1] (got {availability} and {target})")
    if availability == 1:
        return 0
    if target == 1:
        raise ValueError("no number of spares gives certainty; a target below 1 is needed")
    spares = 0
    while complete(serving, spares, availability) < target:
        spares += 1
    return spares


def complete(serving: int, spares: int, availability: float) -> float:
    """P(Binomial(serving + spares, availability) ≥ serving).

    >>> round(complete(1, 1, 0.9), 9)
    0.99
    """
    from scipy import stats  # half a second, which most plans need not pay

    return float(stats.binom.sf(serving - 1, serving + spares, availability))
