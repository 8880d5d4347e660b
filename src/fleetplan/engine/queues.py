"""Compiled: queues of waiting requests, linked lists through `behind`."""

from __future__ import annotations

from fleetplan.engine.jit import inlined
from fleetplan.engine.levels import head_by_level, pop_by_level, push_by_level
from fleetplan.engine.outcome import TIMED_OUT
from fleetplan.engine.state import State


@inlined
def queue_of(st: State, r: int) -> int:
    """The queue that this replica takes from."""
    return st.replica[r].queue


@inlined
def push_back(st: State, q: int, i: int) -> None:
    """Request i waits behind the others."""
    if st.p[0].levels > 1:
        push_by_level(st, q, i, False)
        return
    queue = st.queue[q]
    st.request[i].behind = -1
    if queue.first < 0:
        queue.first = i
    else:
        st.request[queue.last].behind = i
    queue.last = i
    queue.length += 1
    queue.tokens += st.request[i].prompt


@inlined
def push_front(st: State, q: int, i: int) -> None:
    """Request i waits in front of the others."""
    if st.p[0].levels > 1:
        push_by_level(st, q, i, True)
        return
    queue = st.queue[q]
    st.request[i].behind = queue.first
    queue.first = i
    if queue.last < 0:
        queue.last = i
    queue.length += 1
    queue.tokens += st.request[i].prompt


@inlined
def head_of(st: State, q: int) -> int:
    """The waiting request at the head; −1: none. Those that gave up were uncounted before, and are unlinked here."""
    if st.p[0].levels > 1:
        return head_by_level(st, q)
    queue = st.queue[q]
    while queue.first >= 0 and st.request[queue.first].outcome == TIMED_OUT:
        queue.first = st.request[queue.first].behind
    if queue.first < 0:
        queue.last = -1
    return queue.first


@inlined
def pop_head(st: State, q: int) -> None:
    """The head leaves the queue."""
    if st.p[0].levels > 1:
        pop_by_level(st, q)
        return
    queue = st.queue[q]
    i = queue.first
    queue.first = st.request[i].behind
    if queue.first < 0:
        queue.last = -1
    queue.length -= 1
    queue.tokens -= st.request[i].prompt
