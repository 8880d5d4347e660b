"""Compiled: queues, slots, heaps and blocks of one replica; every operation is O(1) or O(log running)."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.agenda import spawn
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.outcome import FINISHED, TIMED_OUT
from fleetplan.engine.state import PREFILL_FIRST, SLOT_BITS, STATIC, State

SLOT_MASK = (1 << SLOT_BITS) - 1


@inlined
def push(heap: Any, size: int, value: int) -> None:
    """Add to a binary heap of this size; the caller counts."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= value:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = value


@inlined
def pop(heap: Any, size: int) -> None:
    """Remove the least of a binary heap of this size; the caller counts."""
    size -= 1
    value = heap[size]
    i = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[i] = heap[child]
        i = child
        child = 2 * i + 1
    heap[i] = value


@compiled
def _compact_due(st: State, r: int) -> int:
    """Drop finish times of slots that no longer mean them; returns how many are left."""
    heap, kept = st.heap[r], 0
    for i in range(st.replica[r].heap):
        entry = heap[i]
        if st.slot[r, entry & SLOT_MASK].due == entry >> SLOT_BITS:
            push(heap, kept, entry)
            kept += 1
    return kept


@compiled
def _compact_crossings(st: State, r: int) -> int:
    """Drop window crossings of slots that no longer mean them; returns how many are left."""
    heap, kept = st.crossing_heap[r], 0
    for i in range(st.replica[r].crossings):
        entry = heap[i]
        if st.slot[r, entry & SLOT_MASK].crossing == entry >> SLOT_BITS:
            push(heap, kept, entry)
            kept += 1
    return kept


@inlined
def next_due(st: State, r: int) -> int:
    """Counter at which the next decoding sequence finishes; −1: none decodes."""
    rec = st.replica[r]
    heap = st.heap[r]
    while rec.heap > 0:
        top = heap[0]
        if st.slot[r, top & SLOT_MASK].due == top >> SLOT_BITS:
            return top >> SLOT_BITS
        pop(heap, rec.heap)
        rec.heap -= 1
    return -1


@inlined
def next_crossing(st: State, r: int) -> int:
    """Counter at which the next sequence fills the sliding window; −1: none will."""
    rec = st.replica[r]
    heap = st.crossing_heap[r]
    while rec.crossings > 0:
        top = heap[0]
        if st.slot[r, top & SLOT_MASK].crossing == top >> SLOT_BITS:
            return top >> SLOT_BITS
        pop(heap, rec.crossings)
        rec.crossings -= 1
    return -1


@inlined
def blocks(st: State, tokens: int) -> int:
    """ceil(tokens / block_size)."""
    p = st.p[0]
    if p.block_shift >= 0:  # a division costs as much as all the rest of a step's bookkeeping
        return (tokens + p.block_size - 1) >> p.block_shift
    return (tokens + p.block_size - 1) // p.block_size


@inlined
def residue(st: State, tokens: int) -> int:
    """tokens mod block_size, never negative."""
    p = st.p[0]
    return tokens & (p.block_size - 1) if p.block_shift >= 0 else tokens % p.block_size


@inlined
def computed_now(st: State, r: int, k: int) -> int:
    """Computed tokens of slot k: a decoding one stores them less the counter."""
    if st.slot[r, k].due >= 0:
        return st.slot[r, k].computed + st.replica[r].counter
    return st.slot[r, k].computed


# queues of waiting requests: linked lists through `behind`


@inlined
def queue_of(st: State, r: int) -> int:
    """The queue that this replica takes from."""
    return 0 if st.p[0].central else r


@inlined
def push_back(st: State, q: int, i: int) -> None:
    """Request i waits behind the others."""
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
    queue = st.queue[q]
    while queue.first >= 0 and st.request[queue.first].outcome == TIMED_OUT:
        queue.first = st.request[queue.first].behind
    if queue.first < 0:
        queue.last = -1
    return queue.first


@inlined
def pop_head(st: State, q: int) -> None:
    """The head leaves the queue."""
    queue = st.queue[q]
    i = queue.first
    queue.first = st.request[i].behind
    if queue.first < 0:
        queue.last = -1
    queue.length -= 1
    queue.tokens -= st.request[i].prompt


# slots of running sequences: a list in order of admission


@inlined
def admit(st: State, r: int, q: int, chunk: int, held: int, now_s: float) -> int:
    """The head of the queue runs from the step that starts now; returns its slot."""
    rec = st.replica[r]
    i = st.queue[q].first
    pop_head(st, q)
    rec.free_slots -= 1
    k = st.free_slot[r, rec.free_slots]
    st.slot[r, k].row = i
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
    rec.running += 1
    rec.free -= held
    st.request[i].served_by = r
    if math.isnan(st.request[i].scheduled_s):
        st.request[i].scheduled_s = now_s
    return k


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
    rec.running -= 1


@inlined
def start_decoding(st: State, r: int, k: int, left: int) -> None:
    """Slot k adds one token a step from the next step on, `left` in all."""
    rec, p = st.replica[r], st.p[0]
    heap = st.heap[r]
    computed = st.slot[r, k].computed
    st.slot[r, k].computed = computed - rec.counter
    st.slot[r, k].due = rec.counter + left
    if rec.heap == len(heap):
        rec.heap = _compact_due(st, r)
    push(heap, rec.heap, ((rec.counter + left) << SLOT_BITS) | k)
    rec.heap += 1
    rec.decoding += 1
    rec.growing += 1
    rec.kv_read += computed + 1
    st.by_class[r, st.request[st.slot[r, k].row].klass] += 1
    if p.paged:
        st.residues[r, residue(st, computed - rec.counter)] += 1
    if p.window:
        if computed >= p.window:
            rec.window_read += p.window
            st.slot[r, k].crossing = -1
        else:
            crossings = st.crossing_heap[r]
            at = rec.counter + p.window - computed
            rec.window_read += computed + 1
            rec.window_growing += 1
            st.slot[r, k].crossing = at
            if rec.crossings == len(crossings):
                rec.crossings = _compact_crossings(st, r)
            push(crossings, rec.crossings, (at << SLOT_BITS) | k)
            rec.crossings += 1


@inlined
def stop_decoding(st: State, r: int, k: int) -> None:
    """Slot k adds no more tokens: its share of every sum goes, and `computed` is plain again."""
    rec, p = st.replica[r], st.p[0]
    if p.paged:
        st.residues[r, residue(st, st.slot[r, k].computed)] -= 1
    computed = st.slot[r, k].computed + rec.counter
    st.slot[r, k].computed = computed
    st.slot[r, k].due = -1
    rec.decoding -= 1
    rec.growing -= 1
    rec.kv_read -= computed + 1
    st.by_class[r, st.request[st.slot[r, k].row].klass] -= 1
    if p.window:
        if st.slot[r, k].crossing >= 0:
            rec.window_read -= computed + 1
            rec.window_growing -= 1
            st.slot[r, k].crossing = -1
        else:
            rec.window_read -= p.window


@inlined
def cross_windows(st: State, r: int) -> None:
    """Sequences whose context has filled the window at this counter read no more than it."""
    rec = st.replica[r]
    while next_crossing(st, r) == rec.counter:
        k = st.crossing_heap[r, 0] & SLOT_MASK
        st.slot[r, k].crossing = -1
        rec.window_growing -= 1
        rec.window_read -= 1


@inlined
def blocks_needed(st: State, r: int, j: int) -> int:
    """Blocks that the decoding sequences take over the next j steps."""
    rec, size = st.replica[r], st.p[0].block_size
    need, rest = 0, j
    if j >= size:
        need = j // size * rec.decoding
        rest = j % size
    due = due_residue(rec.counter, size)
    for _ in range(rest):
        need += st.residues[r, due]
        due = due - 1 if due > 0 else size - 1
    return need


@inlined
def due_residue(counter: int, size: int) -> int:
    """Residue class of the sequences that take a block at this counter: (−counter) mod size."""
    rest = counter & (size - 1) if size & (size - 1) == 0 else counter % size
    return size - rest if rest else 0


@inlined
def steps_within_blocks(st: State, r: int, most: int) -> int:
    """The most steps, up to `most`, that the free blocks allow."""
    rec, size = st.replica[r], st.p[0].block_size
    if rec.decoding == 0 or rec.free * size >= (most + size) * rec.decoding:
        return most
    rounds = rec.free // rec.decoding
    left = rec.free - rounds * rec.decoding
    j = rounds * size
    due = due_residue(rec.counter, size)
    while j < most:
        left -= st.residues[r, due]
        if left < 0:
            break
        due = due - 1 if due > 0 else size - 1
        j += 1
    return min(j, most)


@inlined
def preempt_last(st: State, r: int, q: int) -> None:
    """The most recently admitted sequence gives its blocks back and waits in front, to be computed again."""
    rec = st.replica[r]
    k = rec.last
    i = st.slot[r, k].row
    if k == rec.partial:
        rec.partial = -1
    else:
        st.request[i].generated = st.request[i].output - (st.slot[r, k].due - rec.counter)
        if st.p[0].scheduler == PREFILL_FIRST and rec.fresh > 0:
            rec.fresh -= 1
            st.request[i].finish_s = st.slot[r, k].emitted_s
            if rec.fresh == 0:
                rec.fresh_first = -1
        else:
            st.request[i].finish_s = rec.last_decode_s if st.p[0].scheduler == PREFILL_FIRST else rec.now_s
        stop_decoding(st, r, k)
    rec.free += blocks(st, st.slot[r, k].computed)
    remove(st, r, k)
    st.request[i].preemptions += 1
    push_front(st, q, i)


@inlined
def end_request(st: State, r: int, i: int, when_s: float, outcome: int) -> None:
    """Request i is over on replica r."""
    st.request[i].finish_s = when_s
    st.request[i].outcome = outcome
    st.replica[r].outstanding -= 1
    if st.p[0].dynamic:
        spawn(st, i, when_s)


@inlined
def held_at_end(st: State, i: int) -> int:
    """Blocks of request i's whole life."""
    return blocks(st, st.request[i].prompt + st.request[i].output - 1)


@inlined
def finish_due(st: State, r: int, now_s: float) -> None:
    """Sequences that emitted their last token at this counter finish."""
    rec, p = st.replica[r], st.p[0]
    while next_due(st, r) == rec.counter:
        k = st.heap[r, 0] & SLOT_MASK
        i = st.slot[r, k].row
        if p.scheduler == STATIC:
            _keep_slot(st, r, k)
        else:
            stop_decoding(st, r, k)
            rec.free += held_at_end(st, i) if p.limited else 0
            remove(st, r, k)
        end_request(st, r, i, now_s, FINISHED)


@inlined
def _keep_slot(st: State, r: int, k: int) -> None:
    """Static: the slot of a finished member goes on costing a decode at its last context."""
    rec = st.replica[r]
    st.slot[r, k].due = -1
    rec.decoding -= 1
    rec.growing -= 1
    rec.kv_read -= 1
    st.by_class[r, st.request[st.slot[r, k].row].klass] -= 1
    if st.p[0].window and st.slot[r, k].crossing >= 0:
        rec.window_read -= 1
        rec.window_growing -= 1
        st.slot[r, k].crossing = -1
