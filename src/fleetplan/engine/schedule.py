"""Compiled: what one replica runs in the step that it starts, or in a whole stretch of decode-only steps."""

from __future__ import annotations

import math

from fleetplan.engine.admission import join, offer, room_for
from fleetplan.engine.blocks import due_residue, held_computing, known, residue, steps_within_blocks
from fleetplan.engine.cache import evict_to, fill
from fleetplan.engine.clock import set_stretch, step_s, stretch_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.drafting import begin_drafting
from fleetplan.engine.heaps import next_crossing, next_due
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.leaving import leave
from fleetplan.engine.levels import steps_to_overdue, victim
from fleetplan.engine.outcome import TIMED_OUT
from fleetplan.engine.queues import head_of, queue_of
from fleetplan.engine.slots import preempt, preempt_last
from fleetplan.engine.state import (
    BUSY,
    CHUNKED,
    CONTINUOUS,
    IDLE,
    MIXED,
    PREFILL_FIRST,
    STATIC,
    STRETCH,
    UNLIMITED,
    State,
)
from fleetplan.engine.tally import tally_decoding, tally_known, tally_none


@inlined
def may_admit(st: State, r: int) -> bool:
    """Whether a request that arrived now could join the next step, blocks aside."""
    rec, p = st.replica[r], st.p[0]
    if p.scheduler == STATIC:
        return False
    if rec.running >= rec.most:
        return False
    return p.scheduler != CHUNKED or rec.decoding < p.budget


@inlined
def begin(st: State, r: int) -> None:
    """Start the step that the scheduler chooses at the replica's time, or a stretch of decode-only ones; idle if there is none."""
    rec, p = st.replica[r], st.p[0]
    rec.new = -1
    if rec.partial >= 0 and st.request[st.slot[r, rec.partial].row].outcome == TIMED_OUT:
        leave(st, r, rec.partial, st.slot[r, rec.partial].computed, rec.now_s + 2 * NANOSECOND)
        rec.partial = -1
    if p.levels > 1:
        st.queue[queue_of(st, r)].now_s = rec.now_s
    if p.drafts > 0:
        begin_drafting(st, r)
        return
    preempted = False
    if p.scheduler == CHUNKED:
        preempted = _begin_chunked(st, r)
    elif p.scheduler == PREFILL_FIRST:
        preempted = _begin_prefill_first(st, r)
    elif p.scheduler == CONTINUOUS or rec.running == 0:
        _begin_continuous(st, r)
    if rec.new < 0:
        _begin_stretch(st, r, preempted)


@inlined
def _begin_chunked(st: State, r: int) -> bool:
    rec, p = st.replica[r], st.p[0]
    q = queue_of(st, r)
    need, preempted = 0, False
    if p.paged and p.levels > 1:
        need, preempted = _make_room_by_level(st, r, q)
    elif p.paged and rec.decoding > 0:
        need, preempted = _make_room(st, r, q)
    tally_decoding(st, r)
    left = p.budget - rec.decoding
    spare = rec.free - need
    if rec.partial >= 0 and left > 0:
        k = rec.partial
        i = st.slot[r, k].row
        done = st.slot[r, k].computed
        chunk = min(known(st, i) - done, left)
        more = held_computing(st, i, done + chunk) - held_computing(st, i, done) if p.limited else 0
        if p.caching:
            evict_to(st, r, spare)
        if more > spare:
            preempt_last(st, r, q)
            spare = rec.free - need
            preempted = True
        else:
            rec.free -= more
            spare -= more
            rec.new = k
            st.slot[r, k].chunk = chunk
            if p.caching:
                fill(st, r, i, done + chunk)
            left -= chunk
            tally_known(st, i, done, chunk)
    if not preempted:
        while left > 0 and rec.running < rec.most:
            i = head_of(st, q)
            if i < 0 or not room_for(st, r, i):
                break
            done, chunk, more = offer(st, r, i, left, spare)
            if more > spare:
                break
            join(st, r, q, done, chunk, more)
            spare -= more
            left -= chunk
            tally_known(st, i, done, chunk)
    if rec.new >= 0:
        rec.free -= need
        _run_step(st, r)
    return preempted


@inlined
def _make_room(st: State, r: int, q: int) -> tuple[int, bool]:
    """Preempt the latest until the next decode step has its blocks; returns how many it takes, and whether any was preempted."""
    rec, p = st.replica[r], st.p[0]
    preempted = False
    due = due_residue(rec.counter, p.block_size)
    while st.residues[r, due] > rec.free:
        if p.caching:  # those before it have taken theirs by then
            k = rec.last
            its = st.slot[r, k].due >= 0 and residue(st, st.slot[r, k].computed) == due
            evict_to(st, r, max(rec.free - st.residues[r, due] + (st.slot[r, k].answers if its else 0), 0))
        preempt_last(st, r, q)
        preempted = True
    return st.residues[r, due], preempted


@compiled
def _make_room_by_level(st: State, r: int, q: int) -> tuple[int, bool]:
    """Preempt the least urgent until the next decode step, and the chunk of a prompt under way, have their blocks; as `_make_room`."""
    rec, p = st.replica[r], st.p[0]
    preempted = False
    due = due_residue(rec.counter, p.block_size)
    while True:
        more = 0
        left = p.budget - rec.decoding
        if rec.partial >= 0 and left > 0:
            i, done = st.slot[r, rec.partial].row, st.slot[r, rec.partial].computed
            chunk = min(known(st, i) - done, left)
            more = held_computing(st, i, done + chunk) - held_computing(st, i, done)
        if st.residues[r, due] + more <= rec.free:
            return st.residues[r, due], preempted
        preempt(st, r, q, victim(st, r))
        preempted = True


@compiled
def _begin_continuous(st: State, r: int) -> None:
    """Static too, whose batch is nobody's yet."""
    rec = st.replica[r]
    q = queue_of(st, r)
    tally_decoding(st, r)
    while rec.running < rec.most:
        i = head_of(st, q)
        if i < 0 or not room_for(st, r, i):
            break
        done, chunk, life = offer(st, r, i, UNLIMITED, rec.free)
        if life > rec.free:
            break
        join(st, r, q, done, chunk, life)
        tally_known(st, i, done, chunk)
    if rec.new >= 0:
        _run_step(st, r)


@compiled
def _begin_prefill_first(st: State, r: int) -> bool:
    rec, p, w = st.replica[r], st.p[0], st.work[0]
    q = queue_of(st, r)
    tally_none(st)
    while rec.running < rec.most:
        i = head_of(st, q)
        if i < 0 or not room_for(st, r, i):
            break
        done, chunk, more = offer(st, r, i, UNLIMITED, rec.free)
        if more > rec.free or (w.sequences > 0 and w.tokens + chunk > p.budget):
            break
        join(st, r, q, done, chunk, more)
        tally_known(st, i, done, chunk)
    if rec.new >= 0:
        _run_step(st, r)
        return False
    if p.paged and rec.decoding > 0:
        if p.levels > 1:
            return _make_room_by_level(st, r, q)[1]
        return _make_room(st, r, q)[1]
    return False


@inlined
def _run_step(st: State, r: int) -> None:
    rec = st.replica[r]
    if st.p[0].caching:  # before what ends with the step is released
        evict_to(st, r, rec.free)
    rec.kind = MIXED
    rec.ahead = 1
    rec.end_s = rec.now_s + step_s(st) + rec.extra_s
    rec.extra_s = 0.0
    rec.status = BUSY
    rec.key_s = rec.end_s - NANOSECOND


@inlined
def _begin_stretch(st: State, r: int, preempted: bool) -> None:
    """Decode-only steps up to the next finish, window crossing or block shortage; one, where the next may differ."""
    rec, p = st.replica[r], st.p[0]
    due = next_due(st, r)
    if due < 0:
        rec.status = IDLE
        rec.key_s = math.inf
        return
    j = due - rec.counter
    if p.window:
        crossing = next_crossing(st, r)
        if crossing >= 0:
            j = min(j, crossing - rec.counter)
    if p.paged:
        j = steps_within_blocks(st, r, j)
    if preempted or (p.central and may_admit(st, r) and head_of(st, 0) >= 0):
        j = 1
    set_stretch(st, r, rec.running)
    if rec.extra_s > 0.0:  # what was swapped out; one step, for somebody was preempted
        rec.hidden_s += rec.extra_s
        rec.extra_s = 0.0
    if p.levels > 1 and may_admit(st, r) and p.max_wait_s < math.inf:
        j = steps_to_overdue(st, r, queue_of(st, r), j)
    rec.kind = STRETCH
    rec.ahead = j
    rec.end_s = rec.now_s + stretch_s(rec, j)
    rec.status = BUSY
    rec.key_s = rec.end_s - NANOSECOND
