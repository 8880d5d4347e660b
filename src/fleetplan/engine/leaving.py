"""Compiled: sequences that leave before their last token, and the end of a static batch."""

from __future__ import annotations

import math

from fleetplan.engine.agenda import spawn
from fleetplan.engine.blocks import held_at_end, held_computing
from fleetplan.engine.jit import compiled
from fleetplan.engine.outcome import TIMED_OUT, UNFINISHED
from fleetplan.engine.queues import queue_of
from fleetplan.engine.retrying import left, may_retry, send_again, unlink
from fleetplan.engine.slots import free_blocks, remove
from fleetplan.engine.state import CONTINUOUS, STATIC, State
from fleetplan.engine.swap import swap_away


@compiled
def hold_slot(st: State, r: int, k: int, context: int) -> None:
    """Static: a member that is over at its prefill costs a decode at that context."""
    rec, p = st.replica[r], st.p[0]
    rec.kv_read += context * st.slot[r, k].answers
    if p.window:
        rec.window_read += min(context, p.window) * st.slot[r, k].answers


@compiled
def leave(st: State, r: int, k: int, computed: int, now_s: float) -> None:
    """A request that gave up during its prefill is dropped."""
    p = st.p[0]
    if p.scheduler == STATIC:
        hold_slot(st, r, k, computed)
        return
    whole_life, i = p.scheduler == CONTINUOUS, st.slot[r, k].row
    free_blocks(
        st,
        r,
        k,
        held_at_end(st, i) if whole_life else held_computing(st, i, computed),
    )
    remove(st, r, k)
    left(st, i, now_s)


@compiled
def end_batch(st: State, r: int) -> None:
    """Static: the longest member has ended; every slot and block is free."""
    rec, p = st.replica[r], st.p[0]
    while rec.first >= 0:
        k, i = rec.first, st.slot[r, rec.first].row
        if p.limited:
            rec.free += held_at_end(st, i)
        remove(st, r, k)
        left(st, i, rec.now_s)
    rec.kv_read = rec.window_read = rec.growing = rec.window_growing = 0


@compiled
def give_up(st: State, i: int, when_s: float) -> None:
    """Request i has no token by its deadline: it leaves the queue now, or the batch at the end of the step."""
    if st.request[i].outcome != UNFINISHED or st.request[i].generated > 0:
        return
    r = st.request[i].served_by
    st.request[i].outcome = TIMED_OUT
    st.request[i].finish_s = when_s
    waiting = math.isnan(st.request[i].scheduled_s) or not _runs(st, r, i)
    if r >= 0:
        st.replica[r].outstanding -= 1
    again = may_retry(st, i)
    if st.p[0].dynamic and not again:
        spawn(st, i, when_s)
    if waiting:
        q = queue_of(st, r)
        st.queue[q].length -= 1
        st.queue[q].tokens -= st.request[i].prompt
        if st.p[0].swap_blocks > 0 and st.swapped[i] > 0:
            swap_away(st, r, i)
        if again:
            unlink(st, q + st.level[i] if st.p[0].levels > 1 else q, i)
            send_again(st, i, when_s, when_s)
    elif again:
        st.again[i].leaving = 1


@compiled
def _runs(st: State, r: int, i: int) -> bool:
    """Whether request i, without a token yet, holds a slot: it does from its scheduling on unless it was preempted since."""
    rec = st.replica[r]
    k = rec.last
    while k >= 0 and st.slot[r, k].due < 0:
        if st.slot[r, k].row == i:
            return True
        k = st.slot[r, k].before
    return False
