"""Compiled: queues by level of priority, whose turn it is, and who gives way; a replica's lines stand one behind the other in `queue`."""

from __future__ import annotations

from fleetplan.engine.clock import steps_before
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.jit import compiled
from fleetplan.engine.outcome import TIMED_OUT
from fleetplan.engine.state import State


@compiled
def arrived_s(st: State, i: int) -> float:
    """When request i arrived [s]."""
    return st.extra[i].actual_s if st.p[0].dynamic else st.request[i].arrival_s


@compiled
def head_of_line(st: State, line: int) -> int:
    """The first of one level's line; −1: none. Those that gave up are unlinked here."""
    queue = st.queue[line]
    while queue.first >= 0 and st.request[queue.first].outcome == TIMED_OUT:
        queue.first = st.request[queue.first].behind
    if queue.first < 0:
        queue.last = -1
    return queue.first


@compiled
def pop_line(st: State, line: int) -> int:
    """The head of one level's line leaves it."""
    queue = st.queue[line]
    i = queue.first
    queue.first = st.request[i].behind
    if queue.first < 0:
        queue.last = -1
    return i


@compiled
def next_line(st: State, q: int) -> int:
    """The line whose head's turn it is at `now_s` of the queue: the longest overdue, else by turns, else the most urgent; −1: none."""
    p, now_s = st.p[0], st.queue[q].now_s
    best, longest = -1, -1
    for level in range(p.levels):
        i = head_of_line(st, q + level)
        if i < 0:
            continue
        if arrived_s(st, i) + p.max_wait_s <= now_s + NANOSECOND and (
            longest < 0 or arrived_s(st, i) < arrived_s(st, st.queue[longest].first)
        ):
            longest = q + level
        if best < 0 or (p.weighted and st.queue[q + level].turns < st.queue[best].turns):
            best = q + level
    return longest if longest >= 0 else best


@compiled
def head_by_level(st: State, q: int) -> int:
    """The waiting request whose turn it is; −1: none."""
    line = next_line(st, q)
    return st.queue[line].first if line >= 0 else -1


@compiled
def pop_by_level(st: State, q: int) -> None:
    """It leaves the queue, and its level has had a turn."""
    line = next_line(st, q)
    st.queue[q].turn = st.queue[line].turns
    st.queue[line].turns += 1.0 / st.queue[line].weight
    i = pop_line(st, line)
    st.queue[q].length -= 1
    st.queue[q].tokens -= st.request[i].prompt


@compiled
def push_by_level(st: State, q: int, i: int, front: bool) -> None:
    """Request i waits behind, or in front of, the others of its level."""
    line = q + st.level[i]
    queue = st.queue[line]
    if head_of_line(st, line) < 0:
        queue.turns = max(queue.turns, st.queue[q].turn)
    if front:
        st.request[i].behind = queue.first
        queue.first = i
        if queue.last < 0:
            queue.last = i
    else:
        st.request[i].behind = -1
        if queue.first < 0:
            queue.first = i
        else:
            st.request[queue.last].behind = i
        queue.last = i
    st.queue[q].length += 1
    st.queue[q].tokens += st.request[i].prompt


@compiled
def steps_to_overdue(st: State, r: int, q: int, most: int) -> int:
    """Steps of the stretch that starts now until a head that waits is overdue and goes first; at most `most`."""
    rec, p = st.replica[r], st.p[0]
    for level in range(p.levels):
        i = head_of_line(st, q + level)
        if i >= 0 and arrived_s(st, i) + p.max_wait_s > rec.now_s + NANOSECOND:
            most = steps_before(rec, arrived_s(st, i) + p.max_wait_s, most)
    return most


@compiled
def victim(st: State, r: int) -> int:
    """The slot that gives way: the latest admitted of the least urgent."""
    k = found = st.replica[r].last
    while k >= 0:
        if st.level[st.slot[r, k].row] > st.level[st.slot[r, found].row]:
            found = k
        k = st.slot[r, k].before
    return found
