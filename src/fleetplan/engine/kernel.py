"""Compiled: what one replica does at the start and at the end of a step, or of a whole stretch of decode-only steps."""

from __future__ import annotations

import math

from fleetplan.engine.agenda import spawn
from fleetplan.engine.clock import (
    add_gap,
    add_gaps,
    add_stretch,
    set_stretch,
    step_s,
    steps_before,
    stretch_s,
)
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.outcome import FINISHED, TIMED_OUT, UNFINISHED
from fleetplan.engine.slots import (
    admit,
    blocks,
    blocks_needed,
    cross_windows,
    due_residue,
    end_request,
    finish_due,
    head_of,
    held_at_end,
    next_crossing,
    next_due,
    preempt_last,
    queue_of,
    remove,
    start_decoding,
    steps_within_blocks,
)
from fleetplan.engine.state import (
    BUSY,
    CHUNKED,
    CONTINUOUS,
    IDLE,
    MIXED,
    PREFILL_FIRST,
    READY,
    STATIC,
    STRETCH,
    State,
)


@inlined
def window_pairs(cached: int, new: int, window: int) -> int:
    """Query-key pairs of `new` tokens after `cached` ones, each context cut at the window."""
    growing = min(max(window - cached, 0), new)
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


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
        _leave(st, r, rec.partial, st.slot[r, rec.partial].computed)
        rec.partial = -1
    preempted = False
    if p.scheduler == CHUNKED:
        preempted = _begin_chunked(st, r)
    elif p.scheduler == CONTINUOUS:
        _begin_continuous(st, r)
    elif p.scheduler == PREFILL_FIRST:
        preempted = _begin_prefill_first(st, r)
    else:
        _begin_static(st, r)
    if rec.new < 0:
        _begin_stretch(st, r, preempted)


@inlined
def _begin_chunked(st: State, r: int) -> bool:
    rec, p = st.replica[r], st.p[0]
    q = queue_of(st, r)
    need, preempted = 0, False
    if p.paged and rec.decoding > 0:
        need, preempted = _make_room(st, r, q)
    n = rec.decoding
    read = pairs = rec.kv_read
    window_read = window_pairs_ = rec.window_read
    left = p.budget - n
    spare = rec.free - need
    if rec.partial >= 0 and left > 0:
        k = rec.partial
        i = st.slot[r, k].row
        done = st.slot[r, k].computed
        chunk = min(st.request[i].prompt + st.request[i].generated - done, left)
        more = blocks(st, done + chunk) - blocks(st, done) if p.limited else 0
        if more > spare:
            preempt_last(st, r, q)
            spare = rec.free - need
            preempted = True
        else:
            rec.free -= more
            spare -= more
            rec.new = k
            st.slot[r, k].chunk = chunk
            left -= chunk
            n += chunk
            read += done + chunk
            pairs += chunk * done + chunk * (chunk + 1) // 2
            if p.window:
                window_read += min(done + chunk, p.window)
                window_pairs_ += window_pairs(done, chunk, p.window)
    decoding_chunk = 0
    if not preempted:
        while left > 0 and rec.running < rec.most:
            i = head_of(st, q)
            if i < 0:
                break
            chunk = min(st.request[i].prompt + st.request[i].generated, left)
            more = blocks(st, chunk) if p.limited else 0
            if more > spare:
                break
            admit(st, r, q, chunk, more, rec.now_s)
            spare -= more
            left -= chunk
            n += chunk
            read += chunk
            pairs += chunk * (chunk + 1) // 2
            if p.window:
                window_read += min(chunk, p.window)
                window_pairs_ += window_pairs(0, chunk, p.window)
    if rec.new >= 0:
        rec.free -= need
        k = rec.new
        while k >= 0:  # a preempted request whose last chunk is one token decodes, by definition
            if st.slot[r, k].chunk == 1 and st.request[st.slot[r, k].row].generated > 0:
                decoding_chunk += 1
            k = st.slot[r, k].after
        _run_step(
            st, r, n, rec.running, rec.decoding + decoding_chunk, read, pairs, window_read, window_pairs_
        )
    return preempted


@inlined
def _make_room(st: State, r: int, q: int) -> tuple[int, bool]:
    """Preempt the latest until the next decode step has its blocks; returns how many it takes, and whether any was preempted."""
    rec, p = st.replica[r], st.p[0]
    preempted = False
    due = due_residue(rec.counter, p.block_size)
    while st.residues[r, due] > rec.free:
        preempt_last(st, r, q)
        preempted = True
    return st.residues[r, due], preempted


@inlined
def _begin_continuous(st: State, r: int) -> None:
    rec, p = st.replica[r], st.p[0]
    q = queue_of(st, r)
    n = rec.decoding
    read = pairs = rec.kv_read
    window_read = window_pairs_ = rec.window_read
    while rec.running < rec.most:
        i = head_of(st, q)
        if i < 0:
            break
        life = held_at_end(st, i) if p.limited else 0
        if life > rec.free:
            break
        chunk = st.request[i].prompt
        admit(st, r, q, chunk, life, rec.now_s)
        n += chunk
        read += chunk
        pairs += chunk * (chunk + 1) // 2
        if p.window:
            window_read += min(chunk, p.window)
            window_pairs_ += window_pairs(0, chunk, p.window)
    if rec.new >= 0:
        _run_step(st, r, n, rec.running, rec.decoding, read, pairs, window_read, window_pairs_)


@inlined
def _begin_static(st: State, r: int) -> None:
    if st.replica[r].running == 0:
        _begin_continuous(st, r)


@inlined
def _begin_prefill_first(st: State, r: int) -> bool:
    rec, p = st.replica[r], st.p[0]
    q = queue_of(st, r)
    n = b = d = read = pairs = window_read = window_pairs_ = 0
    while rec.running < rec.most:
        i = head_of(st, q)
        if i < 0:
            break
        chunk = st.request[i].prompt + st.request[i].generated
        more = blocks(st, chunk) if p.limited else 0
        if more > rec.free or (b > 0 and n + chunk > p.budget):
            break
        admit(st, r, q, chunk, more, rec.now_s)
        if chunk == 1 and st.request[i].generated > 0:
            d += 1
        b += 1
        n += chunk
        read += chunk
        pairs += chunk * (chunk + 1) // 2
        if p.window:
            window_read += min(chunk, p.window)
            window_pairs_ += window_pairs(0, chunk, p.window)
    if rec.new >= 0:
        _run_step(st, r, n, b, d, read, pairs, window_read, window_pairs_)
        return False
    if p.paged and rec.decoding > 0:
        return _make_room(st, r, q)[1]
    return False


@inlined
def _run_step(
    st: State, r: int, n: int, b: int, d: int, read: int, pairs: int, window_read: int, window_pairs_: int
) -> None:
    rec = st.replica[r]
    rec.kind = MIXED
    rec.ahead = 1
    rec.end_s = rec.now_s + step_s(st, n, b, d, read, pairs, window_read, window_pairs_)
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
    rec.kind = STRETCH
    rec.ahead = j
    rec.end_s = rec.now_s + stretch_s(rec, j)
    rec.status = BUSY
    rec.key_s = rec.end_s - NANOSECOND


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
        sample(st, r)
    rec.steps += rec.ahead
    rec.busy_s += now_s - rec.now_s
    if rec.kind == STRETCH:
        add_stretch_gaps(st, r, rec.ahead)
        rec.last_decode_s = now_s
        _advance(st, r, rec.ahead, now_s)
    else:
        if rec.growing > 0 and p.scheduler != PREFILL_FIRST:
            add_gaps(st, r, now_s - rec.now_s)
            if p.paged:  # its blocks were taken at the start
                rec.free += blocks_needed(st, r, 1)
            _advance(st, r, 1, now_s)
        _emit_new(st, r, now_s)
    rec.now_s = now_s
    if p.scheduler == STATIC and rec.decoding == 0:
        _end_batch(st, r)
    if rec.running > 0 or head_of(st, queue_of(st, r)) >= 0:
        rec.status = READY
        rec.key_s = now_s + NANOSECOND
    else:
        rec.status = IDLE
        rec.key_s = math.inf


@inlined
def add_stretch_gaps(st: State, r: int, j: int) -> None:
    """The gaps that the first j steps of the stretch end; after prompts that went first, the first of them is longer."""
    rec = st.replica[r]
    if st.p[0].scheduler == PREFILL_FIRST and (rec.fresh > 0 or rec.last_decode_s != rec.now_s):
        _first_after_prefill(st, r)
        add_stretch(st, r, 1, j)
    else:
        add_stretch(st, r, 0, j)


@compiled
def sample(st: State, r: int) -> None:
    """What the work under way adds to the series: the times that it spans see its state, the tokens go where their step ends."""
    rec, p = st.replica[r], st.p[0]
    last = len(st.series) - 1
    at = min(math.ceil(rec.now_s / p.resolution_s), last + 1)
    emitted = 0
    while at <= last and at * p.resolution_s < rec.end_s:
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
    if at > last:
        return
    if rec.kind == STRETCH:
        st.series[at].tokens += (rec.ahead - emitted) * rec.growing
        return
    if p.scheduler != PREFILL_FIRST:
        st.series[at].tokens += rec.growing
    k = rec.new
    while k >= 0:
        i = st.slot[r, k].row
        whole = st.slot[r, k].computed + st.slot[r, k].chunk == st.request[i].prompt + st.request[i].generated
        if whole and st.request[i].outcome != TIMED_OUT:
            st.series[at].tokens += 1
        k = st.slot[r, k].after


@inlined
def _advance(st: State, r: int, j: int, now_s: float) -> None:
    """Every decoding sequence adds j tokens; none finishes or crosses before the last."""
    rec, p = st.replica[r], st.p[0]
    if p.paged:
        rec.free -= blocks_needed(st, r, j)
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
        add_gap(st, klass, old_s, -1.0)
        add_gap(st, klass, end_s - st.slot[r, k].emitted_s, 1.0)
        k = st.slot[r, k].after
    rec.fresh = 0
    rec.fresh_first = -1


@inlined
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
            _leave(st, r, k, computed)
        elif computed < st.request[i].prompt + st.request[i].generated:
            rec.partial = k
        else:
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
        add_gap(st, st.request[i].klass, now_s - st.request[i].finish_s, 1.0)
    st.request[i].generated += 1
    left = st.request[i].output - st.request[i].generated
    if left > 0:
        start_decoding(st, r, k, left)
        if p.scheduler == PREFILL_FIRST:
            st.slot[r, k].emitted_s = now_s
            if rec.fresh == 0:
                rec.fresh_first = k
            rec.fresh += 1
    else:
        end_request(st, r, i, now_s, FINISHED)
        if p.scheduler == STATIC:
            _hold_slot(st, r, st.slot[r, k].computed)
        else:
            rec.free += held_at_end(st, i) if p.limited else 0
            remove(st, r, k)


@inlined
def _hold_slot(st: State, r: int, context: int) -> None:
    """Static: a member that is over at its prefill costs a decode at that context."""
    rec, p = st.replica[r], st.p[0]
    rec.kv_read += context
    if p.window:
        rec.window_read += min(context, p.window)


@compiled
def _leave(st: State, r: int, k: int, computed: int) -> None:
    """A request that gave up during its prefill is dropped."""
    rec, p = st.replica[r], st.p[0]
    if p.scheduler == STATIC:
        _hold_slot(st, r, computed)
        return
    if p.limited:
        rec.free += held_at_end(st, st.slot[r, k].row) if p.scheduler == CONTINUOUS else blocks(st, computed)
    remove(st, r, k)


@compiled
def _end_batch(st: State, r: int) -> None:
    """Static: the longest member has ended; every slot and block is free."""
    rec, p = st.replica[r], st.p[0]
    while rec.first >= 0:
        k = rec.first
        if p.limited:
            rec.free += held_at_end(st, st.slot[r, k].row)
        remove(st, r, k)
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
    if st.p[0].dynamic:
        spawn(st, i, when_s)
    if waiting:
        q = 0 if st.p[0].central else r
        st.queue[q].length -= 1
        st.queue[q].tokens -= st.request[i].prompt


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
