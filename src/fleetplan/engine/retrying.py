"""Compiled: clients who send again what was refused or timed out."""

from __future__ import annotations

import math

from fleetplan.engine.agenda import push_pair
from fleetplan.engine.config import GRID_PER_S
from fleetplan.engine.drafting import draw
from fleetplan.engine.jit import compiled
from fleetplan.engine.outcome import UNFINISHED
from fleetplan.engine.state import State


@compiled
def begin_attempt(st: State, i: int, now_s: float) -> None:
    """Request i arrives, for the first time or again."""
    again = st.again[i]
    again.attempts += 1
    if again.attempts == 1:
        again.first_s = now_s
    again.deadline_s = now_s + st.extra[i].timeout_s


@compiled
def may_retry(st: State, i: int) -> bool:
    """Whether request i is sent again if this attempt fails."""
    return st.p[0].retries > 0 and st.again[i].attempts <= st.p[0].retries


@compiled
def send_again(st: State, i: int, ended_s: float, free_s: float) -> None:
    """The attempt ended then: the next one arrives after its backoff, and not before it has left its batch."""
    p, again, request = st.p[0], st.again[i], st.request[i]
    request.outcome = UNFINISHED
    request.reason = 0
    request.scheduled_s = request.finish_s = math.nan
    again.leaving = 0
    again.deadline_s = math.inf
    mark = (1 << 40) + 2 * again.attempts
    st.extra[i].draw_0 = int(draw(st.draft[0].seed, i, mark) * p.replicas)
    st.extra[i].draw_1 = int(draw(st.draft[0].seed, i, mark + 1) * p.replicas)
    after_s = max(ended_s + st.backoff[again.attempts - 1], free_s)
    when_s = math.floor(after_s * GRID_PER_S + 0.5) / GRID_PER_S
    st.extra[i].actual_s = when_s
    push_pair(st.ahead, p.arrivals_ahead, when_s, i)
    p.arrivals_ahead += 1


@compiled
def left(st: State, i: int, now_s: float) -> None:
    """Request i has left its batch: if it timed out there, it may be sent again."""
    if st.p[0].retries > 0 and st.again[i].leaving != 0:
        send_again(st, i, st.request[i].finish_s, now_s)


@compiled
def unlink(st: State, line: int, i: int) -> None:
    """Request i, which will stand in a line again, is taken out of this one at once."""
    queue = st.queue[line]
    before, at = -1, queue.first
    while at != i:
        before, at = at, st.request[at].behind
    if before < 0:
        queue.first = st.request[i].behind
    else:
        st.request[before].behind = st.request[i].behind
    if queue.last == i:
        queue.last = before


@compiled
def leave_door(st: State, i: int) -> None:
    """Request i no longer waits at the door."""
    before, at = -1, st.door[0]
    while at != i:
        before, at = at, st.request[at].behind
    if before < 0:
        st.door[0] = st.request[i].behind
    else:
        st.request[before].behind = st.request[i].behind
    if st.door[1] == i:
        st.door[1] = before
