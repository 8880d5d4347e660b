"""The least count that passes: a search on verdicts that ends with a pass at N and a failure at N − 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fleetplan.sizing.verdict import Verdict

Pools = tuple[int, ...]
"""Replicas of each pool."""


@dataclass(frozen=True)
class Found:
    """What the search saw."""

    replicas: int | None
    """Least count that passes; None: none up to the limit does."""
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Every count that was simulated; where both pools' counts are searched, the one that was found."""
    pairs: dict[Pools, Verdict] = field(default_factory=dict)
    """Where both pools' counts are searched: every pair that was simulated."""

    @property
    def at(self) -> Verdict:
        """The verdict at the count found. Raises KeyError where there is none."""
        assert self.replicas is not None
        return self.verdicts[self.replicas]

    @property
    def fewer(self) -> tuple[Verdict, ...]:
        """The verdicts with one replica fewer, of two pools of either; empty where that is none."""
        assert self.replicas is not None
        if not self.pairs:
            return (self.verdicts[self.replicas - 1],) if self.replicas - 1 in self.verdicts else ()
        p, d = self.at.pools
        return tuple(self.pairs[pair] for pair in ((p - 1, d), (p, d - 1)) if pair in self.pairs)

    @property
    def every(self) -> tuple[Verdict, ...]:
        """All that was simulated, the smallest fleet first."""
        known: dict[Pools, Verdict] = self.pairs or {(n,): verdict for n, verdict in self.verdicts.items()}
        return tuple(known[key] for key in sorted(known, key=lambda pools: (sum(pools), pools)))


def least_count(verdict: Callable[[int], Verdict], start: int, most: int, least: int = 1) -> Found:
    """Search from `start`: gallop to a failing and a passing count, then halve between them.

    What comes back has passed at N and, where N > `least`, failed at N − 1; both by their own verdicts. `least` and `most` bound it.

    >>> from types import SimpleNamespace as S
    >>> found = least_count(lambda n: S(passes=n >= 7), start=3, most=100)
    >>> found.replicas, found.verdicts[7].passes, found.verdicts[6].passes
    (7, True, False)
    """
    seen: dict[int, Verdict] = {}

    def passes(n: int) -> bool:
        if n not in seen:
            seen[n] = verdict(n)
        return seen[n].passes

    high = min(max(start, least), most)
    low = below = least - 1
    stride = 1
    while not passes(high):
        low = high
        if high == most:
            return Found(None, seen)
        high = min(high + stride, most)
        stride *= 2
    stride = 1
    while low == below and high > least:
        probe = max(high - stride, least)
        if passes(probe):
            high = probe
            stride *= 2
            if probe == least:
                break
        else:
            low = probe
    while high - low > 1:
        middle = (low + high) // 2
        if passes(middle):
            high = middle
        else:
            low = middle
    return Found(high, seen)
