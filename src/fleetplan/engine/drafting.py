"""Compiled: steps with drafts, one at a time, for every running sequence draws its own number of tokens."""

from __future__ import annotations

import math

import numpy as np

from fleetplan.engine.admission import join, offer
from fleetplan.engine.blocks import blocks, held_at_end
from fleetplan.engine.cache import evict_to, fill
from fleetplan.engine.clock import add_gap, at, step_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.levels import victim
from fleetplan.engine.outcome import FINISHED, TIMED_OUT
from fleetplan.engine.queues import head_of, queue_of
from fleetplan.engine.reveal import reveal_at_once
from fleetplan.engine.slots import end_request, free_blocks, preempt, preempt_last, remove, stop_decoding
from fleetplan.engine.speculate import FIRST, GOLDEN, SECOND, UNIT
from fleetplan.engine.state import (
    BUSY,
    CHUNKED,
    DRAFTED,
    IDLE,
    MIXED,
    PREFILL_FIRST,
    STATIC,
    UNLIMITED,
    State,
)
from fleetplan.engine.tally import tally, tally_none

_GOLDEN, _FIRST, _SECOND = np.uint64(GOLDEN), np.uint64(FIRST), np.uint64(SECOND)
_27, _30, _31, _11 = np.uint64(27), np.uint64(30), np.uint64(31), np.uint64(11)


@inlined
def _mix(x: np.uint64) -> np.uint64:
    x = (x ^ (x >> _30)) * _FIRST
    x = (x ^ (x >> _27)) * _SECOND
    return x ^ (x >> _31)


@compiled
def draw(seed: int, row: int, generated: int) -> float:
    """As `speculate.draw`: a uniform number that hangs on these three alone."""
    x = _mix(np.uint64(seed) + _GOLDEN)
    x = _mix(x + np.uint64(row) * _GOLDEN)
    x = _mix(x + np.uint64(generated + 1) * _GOLDEN)
    return float(x >> _11) * UNIT


@compiled
def _keeps(st: State, r: int, k: int, drafts: int) -> int:
    """Tokens that decoding slot k emits in a step with so many drafts of it."""
    if drafts == 0:
        return 1
    i, left = st.slot[r, k].row, st.slot[r, k].due
    uniform = draw(st.draft[0].seed, i, st.request[i].output - left)
    kept = 1
    while kept <= drafts and uniform < st.survival[kept - 1]:
        kept += 1
    return min(kept, left)


@compiled
def _tally_drafted(st: State, cached: int, new: int) -> None:
    """A decoding sequence joins the step with its drafts: its reads, and those of the draft."""
    w = st.work[0]
    tally(st, cached, new, True)
    w.drafted += 1
    w.draft_read += cached + 1
    w.draft_window_read += min(cached + 1, st.draft[0].window)


@compiled
def begin_drafting(st: State, r: int) -> bool:
    """Start the step that the scheduler chooses at the replica's time; idle if there is none. Returns whether somebody was preempted."""
    rec, p, w = st.replica[r], st.p[0], st.work[0]
    tally_none(st)
    drafts = p.drafts
    if (rec.running if p.scheduler == STATIC else rec.decoding) > st.draft[0].off_above:
        drafts = 0
    preempted = False
    rec.kind = DRAFTED
    if p.scheduler == CHUNKED:
        left, preempted = _running(st, r, drafts, p.budget)
        if not preempted:
            _admit(st, r, left)
    elif p.scheduler == PREFILL_FIRST:
        _admit(st, r, p.budget)
        if w.sequences > 0:
            rec.kind = MIXED  # prompts only: every decode waits
            drafts = 0
        else:
            preempted = _running(st, r, drafts, UNLIMITED)[1]
    elif p.scheduler == STATIC and rec.running > 0:
        _members(st, r, drafts)
    else:
        _running(st, r, drafts, UNLIMITED)
        _admit(st, r, UNLIMITED)
    if w.sequences == 0:
        rec.status = IDLE
        rec.key_s = math.inf
        return preempted
    rec.ahead = 1
    rec.end_s = rec.now_s + step_s(st)
    if drafts > 0 and w.drafted > 0:
        rec.end_s += _draft_s(st)
    if p.caching:
        evict_to(st, r, rec.free)
    rec.end_s += rec.extra_s
    rec.extra_s = 0.0
    rec.status = BUSY
    rec.key_s = rec.end_s - NANOSECOND
    return preempted


@compiled
def _draft_s(st: State) -> float:
    """The draft's steps [s], over the sequences that decode in this step."""
    d, w = st.draft[0], st.work[0]
    n, read, window_read = w.drafted, w.draft_read, w.draft_window_read
    compute = at(st, st.draft_compute, d.compute_slope_s, n) + d.pair_s * read + d.window_pair_s * window_read
    memory = (
        at(st, st.draft_memory, d.memory_slope_s, n)
        + d.kv_token_s * read
        + d.window_kv_token_s * window_read
        + d.state_s * n
    )
    hidden = at(st, st.draft_overhead, d.overhead_slope_s, n)
    return d.factor * (hidden + d.sequence_s * n + d.decode_s * n + max(compute, memory))


@compiled
def _running(st: State, r: int, drafts: int, left: int) -> tuple[int, bool]:
    """Running sequences in order of admission, the most recent ones giving way to those that lack a block."""
    rec, p = st.replica[r], st.p[0]
    q = queue_of(st, r)
    preempted = p.paged and p.levels > 1 and _fit_by_level(st, r, drafts, left, q)
    k = rec.first
    while k >= 0 and left > 0:
        i, computed = st.slot[r, k].row, st.slot[r, k].computed
        decodes = st.slot[r, k].due >= 0
        known = st.request[i].prompt + st.request[i].generated
        chunk = min(1 + drafts if decodes else known - computed, left)
        kept = _keeps(st, r, k, chunk - 1) if decodes else 0
        if p.paged:
            need = blocks(st, computed + (kept if decodes else chunk)) - blocks(st, computed)
            while need > rec.free:
                latest = rec.last
                preempt_last(st, r, q)
                preempted = True
                if latest == k:
                    return left, preempted
            rec.free -= need
            if p.caching:
                evict_to(st, r, rec.free)
        if p.caching and not decodes:
            fill(st, r, i, computed + chunk)
        st.slot[r, k].chunk = chunk
        st.slot[r, k].kept = kept
        if not decodes and rec.new < 0:
            rec.new = k
        if decodes:
            _tally_drafted(st, computed, chunk)
        else:
            tally(st, computed, chunk, chunk == 1 and st.request[i].generated > 0)
        left -= chunk
        k = st.slot[r, k].after
    return left, preempted


@compiled
def _fit_by_level(st: State, r: int, drafts: int, budget: int, q: int) -> bool:
    """Preempt the least urgent until all that the budget reaches have their blocks; whether any was preempted."""
    rec = st.replica[r]
    preempted = False
    while True:
        need, left, k = 0, budget, rec.first
        while k >= 0 and left > 0:
            i, computed = st.slot[r, k].row, st.slot[r, k].computed
            decodes = st.slot[r, k].due >= 0
            known = st.request[i].prompt + st.request[i].generated
            chunk = min(1 + drafts if decodes else known - computed, left)
            more = _keeps(st, r, k, chunk - 1) if decodes else chunk
            need += blocks(st, computed + more) - blocks(st, computed)
            left -= chunk
            k = st.slot[r, k].after
        if need <= rec.free:
            return preempted
        preempt(st, r, q, victim(st, r))
        preempted = True


@compiled
def _members(st: State, r: int, drafts: int) -> None:
    """Static: every slot decodes with its drafts, one that is over at its last context."""
    rec = st.replica[r]
    k = rec.first
    while k >= 0:
        i = st.slot[r, k].row
        cached = st.slot[r, k].computed
        st.slot[r, k].kept = 0
        if st.request[i].outcome == FINISHED:
            cached = st.request[i].prompt + st.request[i].output - 2
        elif st.request[i].outcome == TIMED_OUT:
            cached = st.request[i].prompt - 1
        else:
            st.slot[r, k].kept = _keeps(st, r, k, drafts)
        _tally_drafted(st, cached, 1 + drafts)
        k = st.slot[r, k].after


@compiled
def _admit(st: State, r: int, left: int) -> None:
    """Waiting requests, first come first served, with as much of each prompt as the scheduler takes."""
    rec, p, w = st.replica[r], st.p[0], st.work[0]
    q = queue_of(st, r)
    whole = p.scheduler != CHUNKED
    while rec.running < rec.most:
        i = head_of(st, q)
        if i < 0 or (left <= 0 and not whole):
            break
        done, chunk, held = offer(st, r, i, UNLIMITED if whole else left, rec.free)
        if held > rec.free or (
            p.scheduler == PREFILL_FIRST and w.sequences > 0 and w.tokens + chunk > p.budget
        ):
            break
        k = join(st, r, q, done, chunk, held)
        st.slot[r, k].kept = 0
        tally(st, done, chunk, chunk == 1 and st.request[i].generated > 0)
        left -= chunk


@compiled
def tokens_kept(st: State, r: int) -> int:
    """Tokens that the decoding sequences emit at the end of the step under way."""
    total, k = 0, st.replica[r].first
    while k >= 0:
        if st.slot[r, k].due >= 0:
            total += st.slot[r, k].kept
        k = st.slot[r, k].after
    return total


@compiled
def keep_drafted(st: State, r: int, now_s: float) -> None:
    """End a step with drafts: each decoding sequence emits what it keeps, all at once."""
    rec, p = st.replica[r], st.p[0]
    k = rec.first
    while k >= 0:
        after = st.slot[r, k].after
        kept = st.slot[r, k].kept
        if st.slot[r, k].due >= 0 and kept > 0:
            i = st.slot[r, k].row
            klass = st.request[i].klass
            add_gap(st, klass, now_s - st.slot[r, k].emitted_s, 1.0)
            if kept > 1:
                add_gap(st, klass, 0.0, kept - 1.0)
            if p.hides:
                before = st.request[i].output - st.slot[r, k].due
                reveal_at_once(st, i, before, before + kept, now_s)
            st.slot[r, k].emitted_s = now_s
            st.slot[r, k].computed += kept
            st.slot[r, k].due -= kept
            st.slot[r, k].kept = 0
            if st.slot[r, k].due == 0:
                stop_decoding(st, r, k)
                if p.scheduler != STATIC:
                    free_blocks(st, r, k, held_at_end(st, i))
                    remove(st, r, k)
                end_request(st, r, i, now_s, FINISHED)
        k = after
