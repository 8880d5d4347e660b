"""A weighted histogram of times whose bins are 1/1024 of an octave wide: counts and sums are exact, so is the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BITS = 10
"""Bins per octave are 2**BITS: a bin is at most 2**-BITS of its value wide."""
LOWEST_EXPONENT = -24
"""Times below 2**-24 s (60 ns) share the first bin."""
HIGHEST_EXPONENT = 24
"""Times from 2**24 s (194 days) share the last bin."""
BINS = (HIGHEST_EXPONENT - LOWEST_EXPONENT) << BITS


def bin_of(value_s: Floats) -> NDArray[np.int64]:
    """The bin of each time [s].

    >>> edges = edges_s()
    >>> int(bin_of(np.array([0.01]))[0]) == int(np.searchsorted(edges, 0.01, side="right")) - 1
    True
    """
    mantissa, exponent = np.frexp(value_s)
    index = ((exponent - 1 - LOWEST_EXPONENT) << BITS) + ((mantissa * 2 - 1) * (1 << BITS)).astype(np.int64)
    return np.clip(np.where(value_s > 0, index, 0), 0, BINS - 1)


def edges_s() -> Floats:
    """Lower edge of every bin and, last, the upper edge of the last one [s]; shape (BINS + 1,)."""
    index = np.arange(BINS + 1)
    octave, within = index >> BITS, index & ((1 << BITS) - 1)
    return np.ldexp(1.0 + within / (1 << BITS), octave + LOWEST_EXPONENT)


@dataclass(frozen=True, eq=False)
class Histogram:
    """Weights and weighted sums by bin; only bins with weight are kept, in ascending order."""

    value_s: Floats
    """Mean time [s] of what fell in the bin: exact where all of it was equal."""
    weight: Floats
    """How many gaps fell in the bin."""

    @property
    def count(self) -> float:
        """Number of gaps in all."""
        return float(self.weight.sum())

    @property
    def mean_s(self) -> float | None:
        """Mean [s]; None when empty."""
        return float((self.value_s * self.weight).sum() / self.weight.sum()) if len(self.weight) else None

    def percentile_s(self, q: float) -> float | None:
        """The nearest-rank percentile [s], q in 0..100, to a bin's width; None when empty."""
        if not len(self.weight):
            return None
        cumulative = np.cumsum(self.weight)
        rank = max(q / 100 * cumulative[-1], 0.5) * (1 - 1e-12)
        return float(self.value_s[min(int(np.searchsorted(cumulative, rank)), len(cumulative) - 1)])

    def share_at_most(self, limit_s: float) -> float | None:
        """Share of gaps that are at most this [s], by bin means; None when empty."""
        if not len(self.weight):
            return None
        return float(self.weight[self.value_s <= limit_s].sum() / self.weight.sum())


def from_bins(weight: Floats, weighted_s: Floats) -> Histogram:
    """A histogram from dense arrays of shape (BINS,): weight, and sum of weight·time [s]."""
    kept = np.flatnonzero(weight > 0)
    return Histogram(weighted_s[kept] / weight[kept], weight[kept])


def from_values(value_s: Floats, weight: Floats | None = None) -> Histogram:
    """A histogram of these times [s].

    >>> h = from_values(np.array([0.01, 0.01, 0.97, 0.01]))
    >>> h.percentile_s(99), h.percentile_s(75)
    (0.97, 0.01)
    """
    weights = np.ones(len(value_s)) if weight is None else weight
    index = bin_of(value_s)
    return from_bins(
        np.bincount(index, weights, BINS).astype(np.float64),
        np.bincount(index, weights * value_s, BINS).astype(np.float64),
    )
