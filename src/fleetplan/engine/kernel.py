"""Compiled: what one replica does at the end of a step, or of a whole stretch of decode-only steps."""

from __future__ import annotations

import math

from fleetplan.engine.blocks import blocks_needed, held_at_end, known
from fleetplan.engine.cache import evict_to
from fleetplan.engine.clock import add_gap, add_gaps, add_stretch, steps_before, stretch_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.drafting import keep_drafted, tokens_kept
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.leaving import end_batch, hold_slot, leave
from fleetplan.engine.outcome import FINISHED, TIMED_OUT
from fleetplan.engine.queues import head_of, queue_of
from fleetplan.engine.reveal import reveal, reveal_at_once
from fleetplan.engine.slots import cross_windows, end_request, finish_due, free_blocks, remove, start_decoding
from fleetplan.engine.state import BUSY, DRAFTED, IDLE, PREFILL_FIRST, READY, STATIC, STRETCH, State


@inlined
def cut(st: State, r: int, when_s: float) -> None:
    """A stretch under way ends at its first boundary that a thing of this time may join."""
    rec = st.replica[r]
    if rec.status == BUSY and rec.kind == STRETCH:
        j = steps_before(rec, when_s, rec.ahead)
        if j < rec.ahead:
            rec.ahead = j
            rec.end_s = rec.now_s + stretch_s(rec, j)
            rec.key_s = rec.end_s - NANOSECOND


@inlined
def commit(st: State, r: int) -> None:
    """End the work under way: tokens are emitted, the finished go, and the replica is ready, or idle."""
    rec, p = st.replica[r], st.p[0]
    now_s = rec.end_s
    if p.resolution_s > 0.0:
        sample(st, r, now_s, rec.ahead)
    rec.steps += rec.ahead
    rec.busy_s += now_s - rec.now_s
    if rec.kind == STRETCH:
        add_stretch_gaps(st, r, rec.ahead)
        rec.last_decode_s = now_s
        _advance(st, r, rec.ahead, now_s)
    elif rec.kind == DRAFTED:
        keep_drafted(st, r, now_s)
        if rec.new >= 0:
            _emit_new(st, r, now_s)
    else:
        if rec.growing > 0 and p.scheduler != PREFILL_FIRST:
            add_gaps(st, r, now_s - rec.now_s + rec.wait_s)
            if p.paged:  # its blocks were taken at the start
                rec.free += blocks_needed(st, r, 1)
            _advance(st, r, 1, now_s)
        _emit_new(st, r, now_s)
    rec.now_s = now_s
    if p.scheduler == STATIC and rec.decoding == 0:
        end_batch(st, r)
    if rec.running > 0 or head_of(st, queue_of(st, r)) >= 0:
        rec.status = READY
        rec.key_s = now_s + NANOSECOND
    else:
        rec.status = IDLE
        rec.key_s = math.inf


@compiled
def add_stretch_gaps(st: State, r: int, j: int) -> None:
    """The gaps that the first j steps of the stretch end; after prompts that went first, or a lane's wait, the first of them is longer."""
    rec = st.replica[r]
    first = 0
    if st.p[0].scheduler == PREFILL_FIRST:
        if rec.fresh > 0 or rec.last_decode_s != rec.now_s:
            _first_after_prefill(st, r)
            first = 1
    elif rec.wait_s > 0.0:
        _first_after_wait(st, r)
        first = 1
    add_stretch(st, r, first, j)


@compiled
def sample(st: State, r: int, end_s: float, whole: int) -> None:
    """What the work under way adds to the series until `end_s`, when `whole` of its steps are done.

    The times that it spans see its state, the tokens go where their step ends.
    """
    rec, p = st.replica[r], st.p[0]
    last = len(st.series) - 1
    at = min(math.ceil(rec.now_s / p.resolution_s), last + 1)
    emitted = 0
    while at <= last and at * p.resolution_s < end_s:
        when_s = at * p.resolution_s
        held = p.total_blocks - rec.free
        if rec.kind == STRETCH:
            j = steps_before(rec, when_s + 2 * NANOSECOND, rec.ahead)
            if p.paged:
                held += blocks_needed(st, r, j)
            done = j - 1  # step j − 1 has begun and not ended
            st.series[at].tokens += (done - emitted) * rec.growing
            emitted = done
        st.series[at].running += rec.running
        if p.limited:
            st.series[at].kv_blocks += held
        at += 1
    if at > last or whole == 0:
        return
    if rec.kind == STRETCH:
        st.series[at].tokens += (whole - emitted) * rec.growing
        return
    if rec.kind == DRAFTED:
        st.series[at].tokens += tokens_kept(st, r)
    elif p.scheduler != PREFILL_FIRST:
        st.series[at].tokens += rec.growing
    k = rec.new
    while k >= 0:
        i = st.slot[r, k].row
        whole = st.slot[r, k].computed + st.slot[r, k].chunk == known(st, i)
        if whole and st.request[i].outcome != TIMED_OUT:
            st.series[at].tokens += st.slot[r, k].answers
        k = st.slot[r, k].after


@compiled
def _advance(st: State, r: int, j: int, now_s: float) -> None:
    """Every decoding sequence adds j tokens; none finishes or crosses before the last."""
    rec, p = st.replica[r], st.p[0]
    if p.paged:
        rec.free -= blocks_needed(st, r, j)
        if p.caching:
            evict_to(st, r, rec.free)
    if p.hides:
        reveal(st, r, j, now_s)
    rec.counter += j
    rec.kv_read += j * rec.growing
    if p.window:
        rec.window_read += j * rec.window_growing
        cross_windows(st, r)
    finish_due(st, r, now_s)


@compiled
def _first_after_prefill(st: State, r: int) -> None:
    """Gaps of the first decode step after prompts went first: old sequences since their last token, new ones since their first."""
    rec = st.replica[r]
    end_s = rec.now_s + stretch_s(rec, 1)
    old_s = end_s - rec.last_decode_s
    add_gaps(st, r, old_s)
    k = rec.fresh_first
    for _ in range(rec.fresh):
        klass = st.request[st.slot[r, k].row].klass
        answers = float(st.slot[r, k].answers)
        add_gap(st, klass, old_s, -answers)
        add_gap(st, klass, end_s - st.slot[r, k].emitted_s, answers)
        k = st.slot[r, k].after
    rec.fresh = 0
    rec.fresh_first = -1


@compiled
def _first_after_wait(st: State, r: int) -> None:
    """Gaps of the first step of a lane that waited for its turn."""
    rec = st.replica[r]
    add_gaps(st, r, stretch_s(rec, 1) + rec.wait_s)


@compiled
def _emit_new(st: State, r: int, now_s: float) -> None:
    """Sequences whose prompt was computed in this step: the whole of it known, each emits a token and decodes on."""
    rec, p = st.replica[r], st.p[0]
    k = rec.new
    rec.partial = -1
    while k >= 0:
        after = st.slot[r, k].after
        i = st.slot[r, k].row
        st.slot[r, k].computed += st.slot[r, k].chunk
        computed = st.slot[r, k].computed
        if st.request[i].outcome == TIMED_OUT:
            leave(st, r, k, computed, now_s)
        elif computed < known(st, i):
            rec.partial = k
        else:
            if st.slot[r, k].answers > 1:
                st.slot[r, k].computed = st.request[i].prompt + st.request[i].generated
            _emit_one(st, r, k, i, now_s)
        k = after
    if p.scheduler == PREFILL_FIRST and rec.fresh == 0:
        rec.fresh_first = -1


@inlined
def _emit_one(st: State, r: int, k: int, i: int, now_s: float) -> None:
    rec, p = st.replica[r], st.p[0]
    if st.request[i].generated == 0:
        st.request[i].first_token_s = now_s
    else:
        add_gap(st, st.request[i].klass, now_s - st.request[i].finish_s, float(st.slot[r, k].answers))
    st.request[i].generated += 1
    if p.hides:
        reveal_at_once(st, i, st.request[i].generated - 1, st.request[i].generated, now_s)
    left = st.request[i].output - st.request[i].generated
    if left > 0:
        start_decoding(st, r, k, left)
        if p.drafts > 0:
            st.slot[r, k].emitted_s = now_s
        elif p.scheduler == PREFILL_FIRST:
            st.slot[r, k].emitted_s = now_s
            if rec.fresh == 0:
                rec.fresh_first = k
            rec.fresh += 1
    else:
        end_request(st, r, i, now_s, FINISHED)
        if p.scheduler == STATIC:
            hold_slot(st, r, k, st.slot[r, k].computed)
        else:
            free_blocks(st, r, k, held_at_end(st, i))
            remove(st, r, k)
