"""The least count that passes: a search on verdicts that ends with a pass at N and a failure at N − 1."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from fleetplan.sizing.verdict import Verdict


@dataclass(frozen=True)
class Found:
    """What the search saw."""

    replicas: int | None
    """Least count that passes; None: none up to the limit does."""
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    """Every count that was simulated."""


def least_count(verdict: Callable[[int], Verdict], start: int, most: int) -> Found:
    """Search from `start`: gallop to a failing and a passing count, then halve between them.

    What comes back has passed at N and, where N > 1, failed at N − 1; both by their own verdicts. `most` bounds the count.

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

    high = min(max(start, 1), most)
    low = 0
    stride = 1
    while not passes(high):
        low = high
        if high == most:
            return Found(None, seen)
        high = min(high + stride, most)
        stride *= 2
    stride = 1
    while low == 0 and high > 1:
        probe = max(high - stride, 1)
        if passes(probe):
            high = probe
            stride *= 2
            if probe == 1:
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
