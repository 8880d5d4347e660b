"""Compiled: what is to come by time — arrivals that a finish causes, and deadlines — as heaps of (time, request)."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.config import GRID_PER_S
from fleetplan.engine.jit import compiled
from fleetplan.engine.state import State


@compiled
def push_pair(heap: Any, size: int, when_s: float, row: int) -> None:
    """Add (time, row) to a heap of this size; the caller counts."""
    i = size
    while i > 0:
        above = heap[(i - 1) >> 1]
        if above.time_s < when_s or (above.time_s == when_s and above.row <= row):
            break
        heap[i].time_s, heap[i].row = above.time_s, above.row
        i = (i - 1) >> 1
    heap[i].time_s, heap[i].row = when_s, row


@compiled
def pop_pair(heap: Any, size: int) -> None:
    """Remove the first (time, row) of a heap of this size; the caller counts."""
    size -= 1
    when_s, row = heap[size].time_s, heap[size].row
    i = 0
    child = 1
    while child < size:
        other = child + 1
        if other < size and (
            heap[other].time_s < heap[child].time_s
            or (heap[other].time_s == heap[child].time_s and heap[other].row < heap[child].row)
        ):
            child = other
        if heap[child].time_s > when_s or (heap[child].time_s == when_s and heap[child].row >= row):
            break
        heap[i].time_s, heap[i].row = heap[child].time_s, heap[child].row
        i = child
        child = 2 * i + 1
    heap[i].time_s, heap[i].row = when_s, row


@compiled
def spawn(st: State, i: int, when_s: float) -> None:
    """Request i is over: the session's next turn arrives after its gap, or the closed loop's user sends its next request."""
    p = st.p[0]
    if p.closed:
        row = p.next_row
        if row >= len(st.request):
            return
        p.next_row += 1
        after_s = st.extra[row].gap_s
    else:
        row = st.extra[i].successor
        if row < 0:
            return
        after_s = st.extra[row].gap_s
    # To 2^-32 s, so that finishes at equal times are followed by arrivals at equal times.
    next_s = math.floor((when_s + after_s) * GRID_PER_S + 0.5) / GRID_PER_S
    st.extra[row].actual_s = next_s
    push_pair(st.ahead, p.arrivals_ahead, next_s, row)
    p.arrivals_ahead += 1


@compiled
def expect_expiry(st: State, i: int, when_s: float) -> None:
    """Request i gives up at this time, unless it has a token by then."""
    if math.isinf(when_s):
        return
    p = st.p[0]
    push_pair(st.expiry, p.expiries, when_s, i)
    p.expiries += 1
