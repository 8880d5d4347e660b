"""Compiled: the run of a whole fleet, event by event: ends of work, outages, arrivals, deadlines, starts of work."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.adapters import unload
from fleetplan.engine.agenda import (
    ARRIVAL,
    BEGIN,
    COMMIT,
    EXPIRY,
    expect_expiry,
    from_outside,
    outage_before,
    pop_pair,
    spawn,
    take_arrival,
)
from fleetplan.engine.blocks import blocks_needed, held_at_end
from fleetplan.engine.cache import forget, wipe
from fleetplan.engine.clock import steps_before, stretch_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.jit import compiled, entered, inlined
from fleetplan.engine.kernel import add_stretch_gaps, commit, cut, sample
from fleetplan.engine.leaving import give_up
from fleetplan.engine.levels import head_of_line, pop_line
from fleetplan.engine.load import COMES_UP, DRAINS
from fleetplan.engine.outcome import REJECTED, TIMED_OUT, UNFINISHED
from fleetplan.engine.queues import head_of, push_back, queue_of
from fleetplan.engine.reach import addresses, reach
from fleetplan.engine.retrying import begin_attempt, leave_door, left, may_retry, send_again
from fleetplan.engine.reveal import reveal
from fleetplan.engine.schedule import begin, may_admit
from fleetplan.engine.slots import remove, stop_decoding
from fleetplan.engine.state import BUSY, IDLE, READY, STRETCH, State

ROUND_ROBIN, RANDOM, LEAST_OUTSTANDING, LEAST_KV, PREFIX_AFFINE, POWER_OF_TWO, CENTRAL_QUEUE = range(7)
NEVER_FITS, QUEUE_FULL, QUEUE_TOKENS, TOO_MANY_ANSWERS = 1, 2, 3, 5
AT_THE_DOOR = -2
"""`served_by` of a request that arrived when nobody was up."""


def run(state: State) -> None:
    """Simulate to the last token, or to `until_s`. Order at equal times: the constants COMMIT to BEGIN."""
    _run(state, addresses(state))


@entered
def _run(state: State, table: Any) -> None:
    st: State = reach(state, table)
    p = st.p[0]
    n = len(st.request)
    row = n if p.closed else 0
    while True:
        while row < n and p.dynamic and not math.isnan(st.extra[row].gap_s):
            row += 1
        key, kind, index = math.inf, BEGIN, -1
        for r in range(p.replicas):
            rec = st.replica[r]
            if rec.key_s < key:
                key, kind, index = rec.key_s, COMMIT if rec.status == BUSY else BEGIN, r
        first_s = st.request[row].arrival_s if row < n else math.inf
        key, kind, index = from_outside(st, first_s, row, key, kind, index)
        key, kind, index = outage_before(st, key, kind, index)
        if index < 0 or key > p.until_s:
            break
        if kind == COMMIT:
            commit(st, index)
        elif kind == BEGIN:
            if p.central:  # at the same time, to the nanosecond, the lowest replica takes first
                for r in range(index):
                    if st.replica[r].status == READY and st.replica[r].key_s <= key + NANOSECOND:
                        index = r
                        break
            _begin(st, index)
        elif kind == ARRIVAL:
            row = take_arrival(st, row, index, key)
            if p.retries > 0:
                begin_attempt(st, index, key)
            arrive(st, index, key)
        elif kind == EXPIRY:
            _expire(st, index, key)
        else:
            p.next_outage += 1
            _outage(st, st.outage[index].replica, st.outage[index].kind, key)
    if p.until_s < math.inf:
        for r in range(p.replicas):
            stop(st, r, p.until_s)


@inlined
def _begin(st: State, r: int) -> None:
    begin(st, r)
    if st.p[0].central and head_of(st, 0) >= 0:
        _call_others(st, r, st.replica[r].now_s)


@compiled
def _call_others(st: State, r: int, when_s: float) -> None:
    """The one queue holds a request: every other replica that could take it looks at its next boundary."""
    for other in range(st.p[0].replicas):
        if other != r:
            _call(st, other, when_s)


@inlined
def _call(st: State, r: int, when_s: float) -> None:
    rec = st.replica[r]
    if rec.status == IDLE:
        if rec.most > 0:
            rec.status = READY
            rec.now_s = max(rec.now_s, when_s)
            rec.key_s = rec.now_s + NANOSECOND
    elif may_admit(st, r):
        cut(st, r, when_s)


@inlined
def arrive(st: State, i: int, now_s: float) -> None:
    """Route an arrival, refuse it, or let it wait and call its replica."""
    p = st.p[0]
    r = route(st, i, now_s)
    if r < 0:
        wait_at_door(st, i)
        return
    q = queue_of(st, r)
    st.request[i].served_by = -1 if p.central else r
    refused = refusal(st, q, i)
    if refused:
        if p.retries > 0:
            st.again[i].refusals += 1
            if refused in (QUEUE_FULL, QUEUE_TOKENS) and may_retry(st, i):
                send_again(st, i, now_s, now_s)
                return
        st.request[i].outcome = REJECTED
        st.request[i].reason = refused
        if p.dynamic:
            spawn(st, i, now_s)
        return
    nobody_waits = head_of(st, q) < 0
    push_back(st, q, i)
    if p.central:
        _call_others(st, -1, now_s)
        return
    rec = st.replica[r]
    rec.outstanding += 1
    if rec.status == IDLE or nobody_waits or p.levels > 1:
        _call(st, r, now_s)


@compiled
def wait_at_door(st: State, i: int) -> None:
    """Nobody is up: request i waits until somebody is."""
    st.request[i].behind = -1
    if st.door[0] < 0:
        st.door[0] = i
    else:
        st.request[st.door[1]].behind = i
    st.door[1] = i
    st.request[i].served_by = AT_THE_DOOR


@compiled
def give_up_at_door(st: State, i: int, when_s: float) -> None:
    """Request i has waited there as long as it will."""
    st.request[i].outcome = TIMED_OUT
    st.request[i].finish_s = when_s
    if st.p[0].dynamic:
        spawn(st, i, when_s)


@inlined
def refusal(st: State, q: int, i: int) -> int:
    """Why request i may not wait in queue q; 0: it may."""
    p, queue = st.p[0], st.queue[q]
    if p.limited and held_at_end(st, i) > p.total_blocks:
        return NEVER_FITS
    if st.request[i].answers > p.most_answers:
        return TOO_MANY_ANSWERS
    if queue.length >= p.max_queued_requests:
        return QUEUE_FULL
    if queue.tokens + st.request[i].prompt > p.max_queued_tokens:
        return QUEUE_TOKENS
    return 0


@inlined
def route(st: State, i: int, now_s: float) -> int:
    """The replica of arrival i among those that are up; ties go to the lowest; −1: none is up."""
    p = st.p[0]
    if p.up == 0:
        return -1
    if p.router == ROUND_ROBIN:
        p.routed += 1
        return _nth_up(st, (p.routed - 1) % p.up)
    if p.router == RANDOM:
        return _nth_up(st, st.extra[i].draw_0 % p.up)
    if p.router == POWER_OF_TWO:
        a = _nth_up(st, min(st.extra[i].draw_0 % p.up, st.extra[i].draw_1 % p.up))
        b = _nth_up(st, max(st.extra[i].draw_0 % p.up, st.extra[i].draw_1 % p.up))
        return b if st.replica[b].outstanding < st.replica[a].outstanding else a
    if p.router == PREFIX_AFFINE and st.extra[i].affinity >= 0:
        return _nth_up(st, st.extra[i].affinity % p.up)
    if p.router == LEAST_KV:
        return _least_kv(st, now_s)
    best, least = -1, 0
    for r in range(p.replicas):
        rec = st.replica[r]
        if rec.up and (best < 0 or rec.outstanding < least):
            best, least = r, rec.outstanding
    return best


@compiled
def _least_kv(st: State, now_s: float) -> int:
    best, least = -1, 0
    for r in range(st.p[0].replicas):
        if st.replica[r].up:
            load = _kv_in_use(st, r, now_s)
            if best < 0 or load < least:
                best, least = r, load
    return best


@inlined
def _nth_up(st: State, n: int) -> int:
    if st.p[0].up == st.p[0].replicas:
        return n
    for r in range(st.p[0].replicas):
        if st.replica[r].up:
            if n == 0:
                return r
            n -= 1
    return -1


@inlined
def _kv_in_use(st: State, r: int, now_s: float) -> int:
    """Blocks held, those of the steps that have started by now included."""
    rec, p = st.replica[r], st.p[0]
    j = 0
    if rec.status == BUSY and rec.kind == STRETCH:
        j = steps_before(rec, now_s, rec.ahead)
    return p.total_blocks - rec.free + (blocks_needed(st, r, j) if p.paged else 0)


@compiled
def _expire(st: State, i: int, key_s: float) -> None:
    """Request i has waited as long as it will; who stood behind it may now be admitted."""
    p = st.p[0]
    deadline_s = st.expiry[0].time_s
    pop_pair(st.expiry, p.expiries)
    p.expiries -= 1
    if p.retries > 0 and deadline_s != st.again[i].deadline_s:  # of an attempt that is over
        return
    if st.request[i].outcome != UNFINISHED or not math.isnan(st.request[i].first_token_s):
        return
    r = st.request[i].served_by
    if r == AT_THE_DOOR and may_retry(st, i):
        leave_door(st, i)
        send_again(st, i, key_s - 2 * NANOSECOND, key_s - 2 * NANOSECOND)
        return
    if r == AT_THE_DOOR:
        give_up_at_door(st, i, key_s - 2 * NANOSECOND)
        return
    q = queue_of(st, r)
    was_head = head_of(st, q) == i
    give_up(st, i, key_s - 2 * NANOSECOND)
    if p.retries > 0 and st.again[i].leaving != 0:  # it leaves, and may be sent again, at the next boundary
        cut(st, r, key_s)
    if (was_head or p.levels > 1) and head_of(st, q) >= 0:
        if p.central:
            _call_others(st, -1, key_s)
        else:
            _call(st, r, key_s)


@compiled
def _outage(st: State, r: int, kind: int, now_s: float) -> None:
    """A replica goes down and loses what it had, stops taking new requests, or comes up."""
    p, rec = st.p[0], st.replica[r]
    if kind == COMES_UP:
        if not rec.up:
            rec.up = 1
            rec.most = p.max_num_seqs
            p.up += 1
            if rec.status == IDLE:
                rec.now_s = max(rec.now_s, now_s)
        if p.caching:
            forget(st, r)
        i = st.door[0]
        st.door[0] = -1
        while i >= 0:
            after = st.request[i].behind
            if st.request[i].outcome == UNFINISHED:
                arrive(st, i, now_s)
            i = after
        if p.central and head_of(st, 0) >= 0:
            _call(st, r, now_s)
        return
    if rec.up:
        rec.up = 0
        p.up -= 1
    if p.central:
        rec.most = 0
    if kind == DRAINS:
        return
    stop(st, r, now_s)
    lost = empty(st, r, now_s, True, -1, -1)[0]
    while lost >= 0:
        after = st.request[lost].behind
        begin_anew(st, lost, now_s)
        arrive(st, lost, now_s)
        lost = after


@compiled
def stop(st: State, r: int, now_s: float) -> None:
    """The work under way ends here: whole steps of a stretch count, and the one that is broken off was begun."""
    rec = st.replica[r]
    if rec.status != BUSY:
        return
    whole = 0
    if rec.kind == STRETCH:
        whole = steps_before(rec, now_s, rec.ahead)
        if rec.now_s + stretch_s(rec, whole) - NANOSECOND > now_s:
            whole -= 1
        if whole > 0:
            add_stretch_gaps(st, r, whole)
            if st.p[0].hides:
                reveal(st, r, whole, rec.now_s + stretch_s(rec, whole))
        begun = whole + (1 if rec.now_s + stretch_s(rec, whole) + NANOSECOND < now_s else 0)
        rec.steps += begun
    else:
        rec.steps += 1
    rec.busy_s += now_s - rec.now_s
    if st.p[0].resolution_s > 0.0:
        sample(st, r, now_s, whole)


@compiled
def begin_anew(st: State, i: int, now_s: float) -> None:
    """Request i has lost all that it had, and will arrive again; its deadline stays, if it is still to come."""
    p, request = st.p[0], st.request[i]
    request.generated = 0
    request.first_token_s = request.finish_s = math.nan
    if p.hides:
        st.hidden[i].visible_s = math.nan
    if p.swap_blocks > 0:
        st.swapped[i] = 0
    st.extra[i].restarts += 1
    if p.expiring:
        late_s = max(st.extra[i].actual_s + st.extra[i].timeout_s, now_s)
        expect_expiry(st, i, late_s)
        if p.retries > 0:
            st.again[i].deadline_s = late_s


@compiled
def empty(st: State, r: int, now_s: float, queue_too: bool, first: int, last: int) -> tuple[int, int]:
    """Everything leaves a replica; a list of those that were not over, from `first` to `last`, goes on with running ones, then waiting ones."""
    rec, p = st.replica[r], st.p[0]
    while rec.first >= 0:
        k = rec.first
        i = st.slot[r, k].row
        if st.slot[r, k].due >= 0:
            stop_decoding(st, r, k)
        remove(st, r, k)
        if st.request[i].outcome == UNFINISHED:
            rec.outstanding -= 1
            first, last = _link(st, first, last, i)
        else:
            left(st, i, now_s)
    q = queue_of(st, r)
    for line in range(q, q + p.levels if queue_too and not p.central else q):
        while head_of_line(st, line) >= 0:
            i = pop_line(st, line)
            st.queue[q].length -= 1
            st.queue[q].tokens -= st.request[i].prompt
            rec.outstanding -= 1
            first, last = _link(st, first, last, i)
    rec.free = p.total_blocks
    if p.caching:
        wipe(st, r)
    if p.adapters > 0:
        unload(st, r)
    rec.swapped, rec.extra_s = 0, 0.0
    rec.partial = rec.new = rec.fresh_first = -1
    rec.fresh = rec.kv_read = rec.window_read = 0
    rec.status = IDLE
    rec.key_s = math.inf
    return first, last


@compiled
def _link(st: State, first: int, last: int, i: int) -> tuple[int, int]:
    st.request[i].behind = -1
    if last >= 0:
        st.request[last].behind = i
        return first, i
    return i, i
