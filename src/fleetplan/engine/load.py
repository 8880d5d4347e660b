"""What befalls a fleet besides arrivals: users who wait for their answers, and replicas that come and go."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.errors import InputError

GOES_DOWN, DRAINS, COMES_UP = 0, 1, 2


@dataclass(frozen=True)
class ClosedLoop:
    """Users who each send the next request, in order of rows, when their last one is over; arrival times are not used."""

    concurrency: int
    think_s: float = 0.0
    """Time [s] between the end of a request and the user's next."""

    def __post_init__(self) -> None:
        if self.concurrency < 1 or not 0 <= self.think_s < math.inf:
            raise InputError(
                f"closed_loop: concurrency must be at least 1 and think_s finite, at least 0 (got {self.concurrency}, {self.think_s})"
            )


@dataclass(frozen=True)
class Outage:
    """Replica `replica` takes no requests from `down_s` to `up_s`; at `down_s` what it has is lost and retried, or drained."""

    replica: int
    down_s: float
    up_s: float = math.inf
    drain: bool = False

    def __post_init__(self) -> None:
        if self.replica < 0 or not 0 <= self.down_s < self.up_s:
            raise InputError(
                f"outage: replica must be at least 0 and 0 ≤ down_s < up_s (got {self.replica}, {self.down_s}, {self.up_s})"
            )


def starting(replicas: int, delay_s: float) -> tuple[Outage, ...]:
    """Replicas that all come up after this delay [s]."""
    return tuple(Outage(r, 0.0, delay_s) for r in range(replicas)) if delay_s > 0 else ()


def rolling_restart(replicas: int, start_s: float, each_s: float) -> tuple[Outage, ...]:
    """One replica after the other is drained and away for `each_s`, the first from `start_s` on.

    >>> [(o.replica, o.down_s, o.up_s) for o in rolling_restart(2, 10.0, 5.0)]
    [(0, 10.0, 15.0), (1, 15.0, 20.0)]
    """
    return tuple(
        Outage(r, start_s + r * each_s, start_s + (r + 1) * each_s, drain=True) for r in range(replicas)
    )


def outage_events(outages: Iterable[Outage], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Goings and comings in order of time, then of the list."""
    events = sorted(
        (time_s, order, o.replica, kind)
        for order, o in enumerate(outages)
        for time_s, kind in ((o.down_s, DRAINS if o.drain else GOES_DOWN), (o.up_s, COMES_UP))
        if time_s < math.inf
    )
    return np.array([(time_s, replica, kind) for time_s, _, replica, kind in events], dtype=dtype)
