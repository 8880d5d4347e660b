"""The plain twin's time of one step."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from fleetplan.engine.plain_sequence import Sequence
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime


def window_pairs(cached: int, new: int, window: int) -> int:
    """Query-key pairs of `new` tokens after `cached` ones, each context cut at the window.

    >>> window_pairs(0, 4, 2), window_pairs(10, 3, 4), window_pairs(0, 3, 9)
    (7, 12, 6)
    """
    growing = min(max(window - cached, 0), new)
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


def work_of(scheduled: Iterable[Sequence], window: int) -> tuple[int, ...]:
    """n, B, D, R, X, R_w, X_w of a step of these sequences."""
    n = b = d = r = x = r_w = x_w = 0
    for s in scheduled:
        for cached, new in s.pieces():
            b += 1
            n += new
            d += s.decodes or (new == 1 and s.generated > 0)
            r += cached + new
            x += new * cached + new * (new + 1) // 2
            if window:
                r_w += min(cached + new, window)
                x_w += window_pairs(cached, new, window)
    return n, b, d, r, x, r_w, x_w


def scalar_cost(steptime: StepTime) -> Callable[..., float]:
    """The time of one step [s] as a function of n, B, D, R, X, R_w, X_w; raises InputError beyond the table."""
    o, c, m = (v.tolist() for v in (steptime.overhead_s, steptime.compute_s, steptime.memory_s))
    slopes = (steptime.overhead_slope_s, steptime.compute_slope_s, steptime.memory_slope_s)
    last = [len(v) - 1 for v in (o, c, m)]

    def at(vector: list[float], end: int, slope: float, n: int) -> float:
        if n <= end:
            return vector[n]
        if math.isnan(slope):
            raise InputError(
                f"steptime: a step of {n} tokens is longer than the step-time table (got {end} entries), "
                "give more entries or a slope"
            )
        return vector[end] + (n - end) * slope

    def cost(n: int, b: int, d: int, r: int, x: int, r_w: int, x_w: int) -> float:
        hidden = at(o, last[0], slopes[0], n)
        compute = at(c, last[1], slopes[1], n) + steptime.pair_s * x + steptime.window_pair_s * x_w
        memory = (
            at(m, last[2], slopes[2], n)
            + steptime.kv_token_s * r
            + steptime.window_kv_token_s * r_w
            + steptime.state_s * b
        )
        return hidden + steptime.sequence_s * b + steptime.decode_s * d + max(compute, memory)

    return cost
