"""Compiled: what is to come by time. Arrivals that a finish causes, and deadlines, are heaps of (time, request)."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.config import GRID_PER_S, NANOSECOND
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.state import State

COMMIT, OUTAGE, ARRIVAL, EXPIRY, BEGIN = 0, 1, 2, 3, 4
"""Kinds of events, in their order at equal times."""
LANDING = OUTAGE
"""KV that has crossed to decode goes where an outage would, which pools do not have."""


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


@inlined
def from_outside(
    st: State, first_s: float, row: int, key: float, kind: int, index: int
) -> tuple[float, int, int]:
    """(time, kind, request) of the next arrival or deadline, where it comes before this event; else this event.

    `row` is the next request that has a time of its own, `first_s` that time; infinite: there is none.
    """
    p = st.p[0]
    arrival, arriving = first_s, row if first_s < math.inf else -1
    if p.arrivals_ahead > 0 and (
        st.ahead[0].time_s < arrival or (st.ahead[0].time_s == arrival and st.ahead[0].row < arriving)
    ):
        arrival, arriving = st.ahead[0].time_s, st.ahead[0].row
    if arriving >= 0 and (arrival < key or (arrival == key and kind > ARRIVAL)):
        key, kind, index = arrival, ARRIVAL, arriving
    if p.expiries > 0:
        when = st.expiry[0].time_s + 2 * NANOSECOND
        if when < key or (when == key and kind > EXPIRY):
            key, kind, index = when, EXPIRY, st.expiry[0].row
    return key, kind, index


@inlined
def outage_before(st: State, key: float, kind: int, index: int) -> tuple[float, int, int]:
    """(time, kind, index) of the next outage, where it comes before this event and matters still; else this event."""
    p = st.p[0]
    if p.next_outage < len(st.outage):
        when = st.outage[p.next_outage].time_s
        if (when < key or (when == key and kind > OUTAGE)) and (index >= 0 or st.door[0] >= 0):
            return when, OUTAGE, p.next_outage
    return key, kind, index


@inlined
def take_arrival(st: State, row: int, i: int, now_s: float) -> int:
    """Request i arrives, and its deadline is expected; the next request with a time of its own."""
    p = st.p[0]
    if i == row:
        row += 1
    else:
        pop_pair(st.ahead, p.arrivals_ahead)
        p.arrivals_ahead -= 1
    if p.expiring:
        expect_expiry(st, i, now_s + st.extra[i].timeout_s)
    return row
