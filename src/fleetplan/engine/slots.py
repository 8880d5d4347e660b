"""Compiled: slots of running sequences, a list in order of admission; every operation is O(1) or O(log running)."""

from __future__ import annotations

import math

from fleetplan.engine.adapters import put_down
from fleetplan.engine.agenda import spawn
from fleetplan.engine.blocks import held_at_end, held_computing, held_decoding, residue
from fleetplan.engine.cache import let_go
from fleetplan.engine.heaps import SLOT_MASK, compact, next_crossing, next_due, push
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.outcome import FINISHED
from fleetplan.engine.queues import head_of, pop_head, push_front
from fleetplan.engine.reveal import expect_visible
from fleetplan.engine.state import PREFILL_FIRST, SLOT_BITS, STATIC, State
from fleetplan.engine.swap import swap_out


@inlined
def admit(st: State, r: int, q: int, chunk: int, held: int, now_s: float) -> int:
    """The head of the queue runs from the step that starts now; returns its slot."""
    rec = st.replica[r]
    i = head_of(st, q)
    pop_head(st, q)
    rec.free_slots -= 1
    k = st.free_slot[r, rec.free_slots]
    st.slot[r, k].row = i
    answers = st.request[i].answers
    st.slot[r, k].answers = answers
    st.slot[r, k].order = rec.admitted
    rec.admitted += 1
    st.slot[r, k].computed = 0
    st.slot[r, k].chunk = chunk
    st.slot[r, k].due = -1
    st.slot[r, k].before = rec.last
    st.slot[r, k].after = -1
    if rec.last >= 0:
        st.slot[r, rec.last].after = k
    else:
        rec.first = k
    rec.last = k
    if rec.new < 0:
        rec.new = k
    rec.running += answers
    rec.free -= held
    st.request[i].served_by = r
    if math.isnan(st.request[i].scheduled_s):
        st.request[i].scheduled_s = now_s
    return k


@inlined
def free_blocks(st: State, r: int, k: int, held: int) -> None:
    """The blocks that slot k holds are free; its `computed` is plain."""
    p = st.p[0]
    if p.caching:
        let_go(st, r, k, held)
    elif p.limited:
        st.replica[r].free += held


@inlined
def remove(st: State, r: int, k: int) -> None:
    """Slot k is free; what decoded of it was told by `stop_decoding`."""
    rec = st.replica[r]
    before, after = st.slot[r, k].before, st.slot[r, k].after
    if before >= 0:
        st.slot[r, before].after = after
    else:
        rec.first = after
    if after >= 0:
        st.slot[r, after].before = before
    else:
        rec.last = before
    st.free_slot[r, rec.free_slots] = k
    rec.free_slots += 1
    rec.running -= st.slot[r, k].answers
    if st.p[0].adapters > 0:
        put_down(st, r, st.slot[r, k].row)


@inlined
def start_decoding(st: State, r: int, k: int, left: int) -> None:
    """Slot k adds one token a step from the next step on, `left` in all."""
    rec, p = st.replica[r], st.p[0]
    if p.hides and p.drafts == 0:
        expect_visible(st, r, k, left)
    if p.drafts > 0:  # the counter stands at 0: each sequence advances by itself
        st.slot[r, k].due = left
        st.slot[r, k].kept = 0
        rec.decoding += 1
        return
    heap = st.heap[r]
    computed = st.slot[r, k].computed
    st.slot[r, k].computed = computed - rec.counter
    st.slot[r, k].due = rec.counter + left
    if rec.heap == len(heap):
        rec.heap = compact(heap, rec.heap, st.slot[r].due)
    push(heap, rec.heap, ((rec.counter + left) << SLOT_BITS) | k)
    rec.heap += 1
    answers: int = st.slot[r, k].answers
    rec.decoding += answers
    rec.growing += answers
    rec.kv_read += answers * (computed + 1)
    st.by_class[r, st.request[st.slot[r, k].row].klass] += answers
    if p.paged:
        st.residues[r, residue(st, computed - rec.counter)] += answers
    if p.window:
        if computed >= p.window:
            rec.window_read += answers * p.window
            st.slot[r, k].crossing = -1
        else:
            crossings = st.crossing_heap[r]
            at = rec.counter + p.window - computed
            rec.window_read += answers * (computed + 1)
            rec.window_growing += answers
            st.slot[r, k].crossing = at
            if rec.crossings == len(crossings):
                rec.crossings = compact(crossings, rec.crossings, st.slot[r].crossing)
            push(crossings, rec.crossings, (at << SLOT_BITS) | k)
            rec.crossings += 1


@inlined
def stop_decoding(st: State, r: int, k: int) -> None:
    """Slot k adds no more tokens: its share of every sum goes, and `computed` is plain again."""
    rec, p = st.replica[r], st.p[0]
    if p.drafts > 0:
        st.slot[r, k].due = -1
        rec.decoding -= 1
        return
    answers: int = st.slot[r, k].answers
    if p.paged:
        st.residues[r, residue(st, st.slot[r, k].computed)] -= answers
    computed = st.slot[r, k].computed + rec.counter
    st.slot[r, k].computed = computed
    st.slot[r, k].due = st.slot[r, k].visible = -1
    rec.decoding -= answers
    rec.growing -= answers
    rec.kv_read -= answers * (computed + 1)
    st.by_class[r, st.request[st.slot[r, k].row].klass] -= answers
    if p.window:
        if st.slot[r, k].crossing >= 0:
            rec.window_read -= answers * (computed + 1)
            rec.window_growing -= answers
            st.slot[r, k].crossing = -1
        else:
            rec.window_read -= answers * p.window


@compiled
def cross_windows(st: State, r: int) -> None:
    """Sequences whose context has filled the window at this counter read no more than it."""
    rec = st.replica[r]
    while next_crossing(st, r) == rec.counter:
        k = st.crossing_heap[r, 0] & SLOT_MASK
        st.slot[r, k].crossing = -1
        rec.window_growing -= st.slot[r, k].answers
        rec.window_read -= st.slot[r, k].answers


@compiled
def preempt_last(st: State, r: int, q: int) -> None:
    """The most recently admitted sequence gives its blocks back and waits in front, to be computed again."""
    preempt(st, r, q, st.replica[r].last)


@compiled
def preempt(st: State, r: int, q: int, k: int) -> None:
    """Slot k gives its blocks back, and what ran there waits in front, to be computed again."""
    rec = st.replica[r]
    i = st.slot[r, k].row
    if k == rec.partial:
        rec.partial = -1
        held = held_computing(st, i, st.slot[r, k].computed)
    else:
        st.request[i].generated = st.request[i].output - (st.slot[r, k].due - rec.counter)
        if st.p[0].drafts > 0:
            st.request[i].finish_s = st.slot[r, k].emitted_s
        elif rec.fresh > 0 and (
            k == rec.last or _is_fresh(st, r, k)
        ):  # it has not decoded since its first token
            rec.fresh -= 1
            st.request[i].finish_s = st.slot[r, k].emitted_s
            if rec.fresh == 0:
                rec.fresh_first = -1
            elif k == rec.fresh_first:
                rec.fresh_first = st.slot[r, k].after
        else:
            st.request[i].finish_s = (
                rec.last_decode_s if st.p[0].scheduler == PREFILL_FIRST else rec.now_s - rec.wait_s
            )
        stop_decoding(st, r, k)
        held = held_decoding(st, i, st.slot[r, k].computed)
    if st.p[0].swap_blocks > 0:
        swap_out(st, r, i, st.slot[r, k].computed, held)
    free_blocks(st, r, k, held)
    remove(st, r, k)
    st.request[i].preemptions += 1
    push_front(st, q, i)


@compiled
def _is_fresh(st: State, r: int, k: int) -> bool:
    """Whether slot k is among those that have not decoded since their first token: the last ones of the list."""
    rec = st.replica[r]
    at = rec.fresh_first
    for _ in range(rec.fresh):
        if at == k:
            return True
        at = st.slot[r, at].after
    return False


@inlined
def end_request(st: State, r: int, i: int, when_s: float, outcome: int) -> None:
    """Request i is over on replica r."""
    st.request[i].finish_s = when_s
    st.request[i].outcome = outcome
    st.replica[r].outstanding -= 1
    if st.p[0].dynamic:
        spawn(st, i, when_s)


@inlined
def finish_due(st: State, r: int, now_s: float) -> None:
    """Sequences that emitted their last token at this counter finish."""
    rec, p = st.replica[r], st.p[0]
    if p.caching or (p.adapters > 0 and p.scheduler != STATIC):
        _finish_in_order(st, r, now_s)
        return
    while next_due(st, r) == rec.counter:
        k = st.heap[r, 0] & SLOT_MASK
        i = st.slot[r, k].row
        if p.scheduler == STATIC:
            _keep_slot(st, r, k)
        else:
            stop_decoding(st, r, k)
            free_blocks(st, r, k, held_at_end(st, i))
            remove(st, r, k)
        end_request(st, r, i, now_s, FINISHED)


@compiled
def _finish_in_order(st: State, r: int, now_s: float) -> None:
    """As `finish_due`, in order of admission: what they held is kept or forgotten in that order."""
    rec = st.replica[r]
    first = -1  # a list through `chunk`, which a decoding sequence does not use
    while next_due(st, r) == rec.counter:
        k = st.heap[r, 0] & SLOT_MASK
        stop_decoding(st, r, k)
        before, after = -1, first
        while after >= 0 and st.slot[r, after].order < st.slot[r, k].order:
            before, after = after, st.slot[r, after].chunk
        st.slot[r, k].chunk = after
        if before >= 0:
            st.slot[r, before].chunk = k
        else:
            first = k
    while first >= 0:
        k, i = first, st.slot[r, first].row
        first = st.slot[r, k].chunk
        free_blocks(st, r, k, held_at_end(st, i))
        remove(st, r, k)
        end_request(st, r, i, now_s, FINISHED)


@compiled
def _keep_slot(st: State, r: int, k: int) -> None:
    """Static: the slot of a finished member goes on costing a decode at its last context."""
    rec = st.replica[r]
    answers: int = st.slot[r, k].answers
    st.slot[r, k].due = st.slot[r, k].visible = -1
    rec.decoding -= answers
    rec.growing -= answers
    rec.kv_read -= answers
    st.by_class[r, st.request[st.slot[r, k].row].klass] -= answers
    if st.p[0].window and st.slot[r, k].crossing >= 0:
        rec.window_read -= answers
        rec.window_growing -= answers
        st.slot[r, k].crossing = -1
