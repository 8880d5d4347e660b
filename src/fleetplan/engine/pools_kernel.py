"""Compiled: the run of two pools, event by event: ends of steps, landings, arrivals, deadlines, starts of steps."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.agenda import (
    ARRIVAL,
    BEGIN,
    COMMIT,
    EXPIRY,
    LANDING,
    from_outside,
    pop_pair,
    spawn,
    take_arrival,
)
from fleetplan.engine.blocks import blocks, blocks_needed, held_at_end
from fleetplan.engine.clock import add_gap, steps_before, stretch_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.fleet import NEVER_FITS, arrive, route, stop
from fleetplan.engine.jit import compiled, entered
from fleetplan.engine.kernel import cut
from fleetplan.engine.leaving import give_up
from fleetplan.engine.outcome import REJECTED, TIMED_OUT, UNFINISHED
from fleetplan.engine.pools_state import AT_DECODE, AT_PREFILL, IN_LINE
from fleetplan.engine.queues import head_of, push_back, queue_of
from fleetplan.engine.reach import addresses, reach
from fleetplan.engine.schedule import may_admit
from fleetplan.engine.slots import start_decoding
from fleetplan.engine.state import BUSY, CONTINUOUS, IDLE, PREFILL_FIRST, READY, STRETCH, State
from fleetplan.engine.steps import begin_step, commit_step


def run_pools(prefill: State, decode: State, x: Any, way: Any, berth: Any, order: Any) -> None:
    """Simulate to the last token, or to `until_s`. Order at equal times: the constants; within one kind, to the nanosecond, prefill
    goes before decode and the lowest replica first."""
    _run(prefill, addresses(prefill), decode, addresses(decode), x, way, berth, order)


@entered
def _run(
    prefill: State,
    prefill_table: Any,
    decode: State,
    decode_table: Any,
    x: Any,
    way: Any,
    berth: Any,
    order: Any,
) -> None:
    pre: State = reach(prefill, prefill_table)
    dec: State = reach(decode, decode_table)
    p, link = dec.p[0], x[0]
    n = len(pre.request)
    row = n if p.closed else 0
    while True:
        while row < n and p.dynamic and not math.isnan(dec.extra[row].gap_s):
            row += 1
        key, kind = _first_key(dec, *_first_key(pre, math.inf, BEGIN))
        row_due = -1
        if link.next < link.sent:
            when = way[order[link.next]].landed_s - NANOSECOND
            if when < key or (when == key and kind > LANDING):
                key, kind, row_due = when, LANDING, order[link.next]
        first_s = pre.request[row].arrival_s if row < n else math.inf
        key, kind, row_due = from_outside(dec, first_s, row, key, kind, row_due)
        if math.isinf(key) or key > link.until_s:
            break
        if kind == LANDING:
            link.next += 1
            _land(pre, dec, x, way, berth, row_due, key)
        elif kind == ARRIVAL:
            row = take_arrival(dec, row, row_due, key)
            _arrive(pre, dec, x, way, berth, order, row_due, key)
        elif kind == EXPIRY:
            pop_pair(dec.expiry, p.expiries)
            p.expiries -= 1
            _expire(pre, dec, x, way, berth, order, row_due, key)
        else:
            r = _first_within(pre, key, kind)
            if r >= 0:
                if kind == COMMIT:
                    _end_prefill(pre, dec, x, way, berth, order, r)
                else:
                    begin_step(pre, r)
            else:
                r = _first_within(dec, key, kind)
                if kind == COMMIT:
                    _end_decode(dec, x, way, berth, order, r)
                else:
                    _begin_decode(dec, x, way, berth, order, r)
    if link.until_s < math.inf:
        for r in range(pre.p[0].replicas):
            stop(pre, r, link.until_s)
        for r in range(dec.p[0].replicas):
            if dec.replica[r].status == BUSY:
                if _first_step_end_s(dec, r) - NANOSECOND <= link.until_s:
                    _add_first_gaps(dec, r)
                stop(dec, r, link.until_s)


@compiled
def _first_key(st: State, key: float, kind: int) -> tuple[float, int]:
    """The earliest work of this pool, or what was there before."""
    for r in range(st.p[0].replicas):
        rec = st.replica[r]
        own = COMMIT if rec.status == BUSY else BEGIN
        if rec.key_s < key or (rec.key_s == key and own < kind):
            key, kind = rec.key_s, own
    return key, kind


@compiled
def _first_within(st: State, key: float, kind: int) -> int:
    """The lowest replica that has work of this kind at this time, to the nanosecond; −1: none."""
    for r in range(st.p[0].replicas):
        rec = st.replica[r]
        if (COMMIT if rec.status == BUSY else BEGIN) == kind and rec.key_s <= key + NANOSECOND:
            return r
    return -1


@compiled
def _route(st: State, i: int, now_s: float) -> int:
    return route(st, i, now_s)


@compiled
def _arrive_at_prefill(st: State, i: int, now_s: float) -> None:
    arrive(st, i, now_s)


@compiled
def _over(dec: State, i: int, when_s: float) -> None:
    """Request i is over at prefill, or before it came anywhere."""
    if dec.p[0].dynamic:
        spawn(dec, i, when_s)


@compiled
def _call(st: State, r: int, now_s: float, key_s: float) -> None:
    """Something has come for this replica: an idle one begins, a stretch ends where it may be taken on."""
    rec = st.replica[r]
    if rec.status == IDLE:
        rec.status = READY
        rec.now_s = max(rec.now_s, now_s)
        rec.key_s = rec.now_s + NANOSECOND
    elif rec.status == BUSY and may_admit(st, r):
        cut(st, r, key_s)


@compiled
def _arrive(pre: State, dec: State, x: Any, way: Any, berth: Any, order: Any, i: int, now_s: float) -> None:
    """A short prompt goes to decode, another to prefill; what would never have its blocks at either is refused."""
    request = pre.request
    request[i].output = way[i].answer
    if dec.p[0].limited and held_at_end(dec, i) > dec.p[0].total_blocks:
        request[i].outcome = REJECTED
        request[i].reason = NEVER_FITS
        _over(dec, i, now_s)
    elif request[i].prompt <= x[0].bypass_tokens:
        way[i].bypasses = 1
        _queue_at_decode(dec, x, way, berth, order, i, now_s, now_s)
    else:
        request[i].output = 1
        way[i].place = AT_PREFILL
        _arrive_at_prefill(pre, i, now_s)
        if request[i].outcome == REJECTED:
            _over(dec, i, now_s)


@compiled
def _end_prefill(pre: State, dec: State, x: Any, way: Any, berth: Any, order: Any, r: int) -> None:
    """Prompts that are whole give token 1: answers of one token are over, the others are handed off, their KV staying."""
    rec, request = pre.replica[r], pre.request
    now_s = rec.end_s
    first, last = -1, -1
    k = rec.new
    while k >= 0:
        i = pre.slot[r, k].row
        whole = pre.slot[r, k].computed + pre.slot[r, k].chunk == request[i].prompt + request[i].generated
        if whole and request[i].outcome != TIMED_OUT:
            way[i].behind = -1
            if last >= 0:
                way[last].behind = i
            else:
                first = i
            last = i
        k = pre.slot[r, k].after
    commit_step(pre, r)
    while first >= 0:
        i = first
        first = way[i].behind
        way[i].prefill = r
        if way[i].answer == 1:
            _over(dec, i, now_s)
            continue
        request[i].outcome = UNFINISHED
        request[i].output = way[i].answer
        if pre.p[0].limited:
            rec.free -= blocks(pre, request[i].prompt)
        way[i].prefilled_s = now_s
        if x[0].at_landing:
            request[i].first_token_s = math.nan
        _queue_at_decode(dec, x, way, berth, order, i, now_s, now_s - NANOSECOND)


@compiled
def _queue_at_decode(
    dec: State, x: Any, way: Any, berth: Any, order: Any, i: int, now_s: float, key_s: float
) -> None:
    """Request i joins the line of the decode replica that the router chooses."""
    d = _route(dec, i, now_s)
    way[i].decode = d
    dec.request[i].served_by = d
    dec.replica[d].outstanding += 1
    way[i].place = IN_LINE
    way[i].behind = -1
    if berth[d].first < 0:
        berth[d].first = i
    else:
        way[berth[d].last].behind = i
    berth[d].last = i
    _advance(dec, x, way, berth, order, d, now_s, key_s)


@compiled
def _advance(
    dec: State, x: Any, way: Any, berth: Any, order: Any, d: int, now_s: float, key_s: float
) -> None:
    """First come first served: a prompt waits for a step, a handoff for its blocks, which it reserves before it crosses the link."""
    p, rec, link = dec.p[0], dec.replica[d], x[0]
    while berth[d].first >= 0:
        i = berth[d].first
        if dec.request[i].outcome == TIMED_OUT:
            berth[d].first = way[i].behind
            continue
        nobody_waits = head_of(dec, d) < 0
        if way[i].bypasses:
            berth[d].first = way[i].behind
            way[i].place = AT_DECODE
            push_back(dec, d, i)
            if rec.status == IDLE or nobody_waits:
                _call(dec, d, now_s, key_s)
            continue
        need = 0
        if p.limited:
            need = held_at_end(dec, i) if p.scheduler == CONTINUOUS else blocks(dec, dec.request[i].prompt)
        growth = 0
        stretching = p.paged and rec.status == BUSY and rec.kind == STRETCH
        if stretching:
            growth = blocks_needed(dec, d, steps_before(rec, key_s, rec.ahead))
        if not nobody_waits or need > rec.free - growth:
            return
        berth[d].first = way[i].behind
        way[i].place = AT_DECODE
        rec.free -= need
        if stretching:  # its later steps find fewer blocks
            cut(dec, d, key_s)
        way[i].reserved_s = now_s
        way[i].sent_s = max(now_s, link.link_free_s)
        link.link_free_s = way[i].sent_s + dec.request[i].prompt * link.s_per_token
        way[i].landed_s = link.link_free_s + link.latency_s
        order[link.sent] = i
        link.sent += 1


@compiled
def _land(pre: State, dec: State, x: Any, way: Any, berth: Any, i: int, key_s: float) -> None:
    """The KV is there: prefill memory is free of it, and the sequence decodes from its replica's next step on."""
    now_s, r, d = way[i].landed_s, way[i].prefill, way[i].decode
    if x[0].at_landing:
        pre.request[i].first_token_s = now_s
    if pre.p[0].limited:
        pre.replica[r].free += blocks(pre, pre.request[i].prompt)
    if head_of(pre, queue_of(pre, r)) >= 0:
        _call(pre, r, now_s, key_s)
    way[i].behind = -1
    if berth[d].landed < 0:
        berth[d].landed = i
    else:
        way[berth[d].landed_last].behind = i
    berth[d].landed_last = i
    _call(dec, d, now_s, key_s)


@compiled
def _begin_decode(dec: State, x: Any, way: Any, berth: Any, order: Any, r: int) -> None:
    """Sequences whose KV has come take free slots first; then the scheduler has its turn."""
    rec = dec.replica[r]
    while berth[r].landed >= 0 and rec.running < rec.most:
        i = berth[r].landed
        berth[r].landed = way[i].behind
        _seat(dec, r, i)
    begin_step(dec, r)
    _advance(dec, x, way, berth, order, r, rec.now_s, rec.now_s + NANOSECOND)
    if rec.status == IDLE and berth[r].landed >= 0:
        _call(dec, r, rec.now_s, rec.now_s)


@compiled
def _seat(st: State, r: int, i: int) -> None:
    """A sequence that has its KV takes a slot, before a prompt under way, and decodes from the step that starts now."""
    rec = st.replica[r]
    rec.free_slots -= 1
    k = st.free_slot[r, rec.free_slots]
    slot = st.slot[r, k]
    slot.answers = 1
    slot.row = i
    slot.computed = st.request[i].prompt
    slot.chunk = slot.kept = 0
    slot.crossing = -1
    before, after = rec.last, -1
    if rec.partial >= 0:
        before, after = st.slot[r, rec.partial].before, rec.partial
        st.slot[r, after].before = k
    else:
        rec.last = k
    if before >= 0:
        st.slot[r, before].after = k
    else:
        rec.first = k
    slot.before, slot.after = before, after
    rec.running += 1
    start_decoding(st, r, k, st.request[i].output - st.request[i].generated)
    slot.emitted_s = st.request[i].first_token_s
    if st.p[0].drafts == 0:
        if rec.fresh == 0:
            rec.fresh_first = k
        rec.fresh += 1


@compiled
def _end_decode(dec: State, x: Any, way: Any, berth: Any, order: Any, r: int) -> None:
    """As any replica's step; what it frees may let the line advance."""
    rec = dec.replica[r]
    _add_first_gaps(dec, r)
    commit_step(dec, r)
    if rec.status == IDLE and berth[r].landed >= 0:
        rec.status = READY
        rec.key_s = rec.now_s + NANOSECOND
    _advance(dec, x, way, berth, order, r, rec.now_s, rec.now_s - NANOSECOND)


@compiled
def _first_step_end_s(st: State, r: int) -> float:
    rec = st.replica[r]
    return rec.now_s + stretch_s(rec, 1) if rec.kind == STRETCH else rec.end_s


@compiled
def _add_first_gaps(st: State, r: int) -> None:
    """The first gap of a sequence that has just been seated began at its first token, not at the start of the step."""
    rec = st.replica[r]
    if st.p[0].scheduler == PREFILL_FIRST:
        return  # it tells the gaps after prompts that went first by itself
    end_s = _first_step_end_s(st, r)
    k = rec.fresh_first
    for _ in range(rec.fresh):
        klass = st.request[st.slot[r, k].row].klass
        add_gap(st, klass, end_s - rec.now_s, -1.0)
        add_gap(st, klass, end_s - st.slot[r, k].emitted_s, 1.0)
        k = st.slot[r, k].after
    rec.fresh = 0
    rec.fresh_first = -1


@compiled
def _expire(pre: State, dec: State, x: Any, way: Any, berth: Any, order: Any, i: int, key_s: float) -> None:
    """Request i has waited as long as it will, unless prefill has emitted its first token; who stood behind it may go on."""
    request = pre.request
    if request[i].outcome != UNFINISHED or request[i].generated > 0:
        return
    when_s = key_s - 2 * NANOSECOND
    r = request[i].served_by
    if way[i].place == IN_LINE:
        request[i].outcome = TIMED_OUT
        request[i].finish_s = when_s
        dec.replica[r].outstanding -= 1
        _over(dec, i, when_s)
    elif way[i].bypasses:
        give_up(dec, i, when_s)
        if head_of(dec, r) >= 0:
            _call(dec, r, key_s, key_s)
    else:
        give_up(pre, i, when_s)
        _over(dec, i, when_s)
        if head_of(pre, 0 if pre.p[0].central else r) >= 0:
            for other in range(pre.p[0].replicas):
                if pre.p[0].central or other == r:
                    _call(pre, other, key_s, key_s)
        return
    _advance(dec, x, way, berth, order, r, key_s, key_s)
