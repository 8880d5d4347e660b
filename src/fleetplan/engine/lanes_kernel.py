"""Compiled: the run of pipelines, step by step: ends of steps, arrivals, deadlines, starts of steps."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.engine.agenda import (
    ARRIVAL,
    BEGIN,
    COMMIT,
    EXPIRY,
    OUTAGE,
    from_outside,
    outage_before,
    pop_pair,
    spawn,
    take_arrival,
)
from fleetplan.engine.blocks import blocks_needed
from fleetplan.engine.clock import at, stretch_s
from fleetplan.engine.config import NANOSECOND
from fleetplan.engine.fleet import (
    AT_THE_DOOR,
    LEAST_KV,
    POWER_OF_TWO,
    PREFIX_AFFINE,
    RANDOM,
    ROUND_ROBIN,
    begin_anew,
    empty,
    give_up_at_door,
    refusal,
    stop,
    wait_at_door,
)
from fleetplan.engine.jit import compiled, entered
from fleetplan.engine.leaving import give_up
from fleetplan.engine.load import COMES_UP, DRAINS
from fleetplan.engine.outcome import REJECTED, UNFINISHED
from fleetplan.engine.queues import head_of, push_back
from fleetplan.engine.reach import addresses, reach
from fleetplan.engine.state import BUSY, STRETCH, State
from fleetplan.engine.steps import begin_step, commit_step


def run_lanes(
    state: State, stage: Any, overhead: Any, compute: Any, memory: Any, home: Any, lane: Any
) -> None:
    """Simulate to the last token, or to `until_s`. Order at equal times: the constants COMMIT to BEGIN, then the lowest replica."""
    _run(state, addresses(state), stage, overhead, compute, memory, home, lane)


@entered
def _run(
    state: State, table: Any, stage: Any, overhead: Any, compute: Any, memory: Any, home: Any, lane: Any
) -> None:
    st: State = reach(state, table)
    p = st.p[0]
    n = len(st.request)
    row = n if p.closed else 0
    while True:
        while row < n and p.dynamic and not math.isnan(st.extra[row].gap_s):
            row += 1
        key, kind, index = math.inf, BEGIN, -1
        for h in range(len(home)):
            if home[h].key_s < key or (home[h].key_s == key and index >= 0 and home[h].kind < kind):
                key, kind, index = home[h].key_s, home[h].kind, h
        first_s = st.request[row].arrival_s if row < n else math.inf
        key, kind, index = from_outside(st, first_s, row, key, kind, index)
        key, kind, index = outage_before(st, key, kind, index)
        if index < 0 or key > p.until_s:
            break
        if kind == COMMIT:
            _end(st, home, lane, index)
        elif kind == ARRIVAL:
            row = take_arrival(st, row, index, key)
            _arrive(st, home, lane, index, key)
        elif kind == EXPIRY:
            pop_pair(st.expiry, p.expiries)
            p.expiries -= 1
            if st.request[index].outcome == UNFINISHED and math.isnan(st.request[index].first_token_s):
                _expire(st, home, lane, index, key)
        elif kind == OUTAGE:
            p.next_outage += 1
            _outage(st, home, lane, st.outage[index].replica, st.outage[index].kind, key)
        else:
            _start(st, stage, overhead, compute, memory, home, lane, index)
    if p.until_s < math.inf:
        for h in range(len(home)):
            _break_off(st, home, lane, h, p.until_s)


@compiled
def _wake(st: State, home: Any, lane: Any, h: int, now_s: float) -> None:
    """Something has changed at this replica: every lane that is not in flight looks, in turn, whether it has something to do."""
    stages = len(lane) // len(home)
    somebody_waits = head_of(st, h) >= 0
    for k in range(h * stages, (h + 1) * stages):
        rec = st.replica[k]
        if rec.status != BUSY and math.isinf(lane[k].ready_s) and (rec.running > 0 or somebody_waits):
            lane[k].ready_s = max(now_s, lane[k].free_at_s)
    _expect(st, home, lane, h)


@compiled
def _expect(st: State, home: Any, lane: Any, h: int) -> None:
    """The first event of this replica: a step ends, or one starts, when a lane is ready and the longest stage is free."""
    stages = len(lane) // len(home)
    rec = home[h]
    rec.key_s, rec.kind = math.inf, BEGIN
    ready_s = math.inf
    for k in range(h * stages, (h + 1) * stages):
        if st.replica[k].status != BUSY:
            ready_s = min(ready_s, lane[k].ready_s)
        elif st.replica[k].key_s < rec.key_s:
            rec.key_s, rec.kind, rec.lane = st.replica[k].key_s, COMMIT, k
    rec.begin_s = max(ready_s, rec.gate_s)
    if rec.begin_s + NANOSECOND < rec.key_s:
        rec.key_s, rec.kind = rec.begin_s + NANOSECOND, BEGIN


@compiled
def _start(
    st: State, stage: Any, overhead: Any, compute: Any, memory: Any, home: Any, lane: Any, h: int
) -> None:
    """Of the lanes that are free now the one that started longest ago forms a step, or gives up its turn."""
    own, p = home[h], st.p[0]
    k = _turn_of(st, home, lane, h)
    rec = st.replica[k]
    rec.now_s = max(lane[k].ready_s, own.gate_s)
    lane[k].ready_s = math.inf
    before = rec.running
    rec.wait_s = 0.0
    if before > 0:
        rec.wait_s = rec.now_s - lane[k].free_at_s
        if p.resolution_s > 0.0:
            _sample_wait(st, k, lane[k].free_at_s, rec.now_s)
    start_s = rec.now_s
    held_by_others = rec.free - own.free
    rec.free = own.free
    begin_step(st, k)
    own.free = rec.free
    rec.free += held_by_others
    started = rec.status == BUSY
    if started:
        if rec.kind == STRETCH:
            _one_step(st, k)
            if p.paged:  # others may not have what it takes at its end
                own.free -= blocks_needed(st, k, 1)
        own.starts += 1
        lane[k].turn = own.starts
        stage_s = _stage_s(st, stage, overhead, compute, memory)
        own.busy_s += stage_s
        own.gate_s = start_s + stage_s
    if started or rec.running != before:
        _wake(st, home, lane, h, start_s)
    else:
        _expect(st, home, lane, h)


@compiled
def _turn_of(st: State, home: Any, lane: Any, h: int) -> int:
    """The lane whose turn it is; given by a function, for a number that is −1 at first would have `begin_step` compiled twice."""
    stages, k = len(lane) // len(home), -1
    for other in range(h * stages, (h + 1) * stages):
        free = st.replica[other].status != BUSY and lane[other].ready_s <= home[h].begin_s + NANOSECOND
        if free and (k < 0 or lane[other].turn < lane[k].turn):
            k = other
    return k


@compiled
def _one_step(st: State, k: int) -> None:
    """The stretch that begins is one step, and this is its work."""
    rec, w = st.replica[k], st.work[0]
    if rec.ahead > 1:
        rec.ahead = 1
        rec.end_s = rec.now_s + stretch_s(rec, 1)
        rec.key_s = rec.end_s - NANOSECOND
    w.tokens = w.sequences = w.decoding = rec.running
    w.kv_read = w.pairs = rec.kv_read
    w.window_read = w.window_pairs = rec.window_read


@compiled
def _stage_s(st: State, stage: Any, overhead: Any, compute: Any, memory: Any) -> float:
    """The longest stage's time for the work of the step that begins."""
    x, w = stage[0], st.work[0]
    of_compute = (
        at(st, compute, x.compute_slope_s, w.tokens) + x.pair_s * w.pairs + x.window_pair_s * w.window_pairs
    )
    of_memory = (
        at(st, memory, x.memory_slope_s, w.tokens)
        + x.kv_token_s * w.kv_read
        + x.window_kv_token_s * w.window_read
        + x.state_s * w.sequences
    )
    hidden = at(st, overhead, x.overhead_slope_s, w.tokens)
    return hidden + x.sequence_s * w.sequences + x.decode_s * w.decoding + max(of_compute, of_memory)


@compiled
def _end(st: State, home: Any, lane: Any, h: int) -> None:
    """A lane's step ends."""
    k = home[h].lane
    rec = st.replica[k]
    taken = blocks_needed(st, k, 1) if st.p[0].paged and rec.kind == STRETCH else 0
    before = rec.free
    commit_step(st, k)
    home[h].free += rec.free - before + taken
    lane[k].free_at_s = rec.now_s
    _wake(st, home, lane, h, rec.now_s)


@compiled
def _arrive(st: State, home: Any, lane: Any, i: int, now_s: float) -> None:
    """Route an arrival, refuse it, or let it wait and its replica look."""
    p, stages = st.p[0], len(lane) // len(home)
    h = _route(st, home, lane, i)
    if h < 0:
        wait_at_door(st, i)
        return
    st.request[i].served_by = h * stages
    refused = refusal(st, h, i)
    if refused:
        st.request[i].outcome = REJECTED
        st.request[i].reason = refused
        if p.dynamic:
            spawn(st, i, now_s)
        return
    push_back(st, h, i)
    st.replica[h * stages].outstanding += 1  # of all lanes together
    _wake(st, home, lane, h, now_s)


@compiled
def _route(st: State, home: Any, lane: Any, i: int) -> int:
    """The replica of arrival i among those that are up; ties go to the lowest; −1: none is up."""
    p = st.p[0]
    if p.up == 0:
        return -1
    if p.router == ROUND_ROBIN:
        p.routed += 1
        return _nth_up(home, (p.routed - 1) % p.up)
    if p.router == RANDOM:
        return _nth_up(home, st.extra[i].draw_0 % p.up)
    if p.router == POWER_OF_TWO:
        one, two = st.extra[i].draw_0 % p.up, st.extra[i].draw_1 % p.up
        a, b = _nth_up(home, min(one, two)), _nth_up(home, max(one, two))
        return b if _outstanding(st, home, lane, b) < _outstanding(st, home, lane, a) else a
    if p.router == PREFIX_AFFINE and st.extra[i].affinity >= 0:
        return _nth_up(home, st.extra[i].affinity % p.up)
    best, least = -1, 0
    for h in range(len(home)):
        if home[h].up:
            load = p.total_blocks - home[h].free if p.router == LEAST_KV else _outstanding(st, home, lane, h)
            if best < 0 or load < least:
                best, least = h, load
    return best


@compiled
def _nth_up(home: Any, n: int) -> int:
    for h in range(len(home)):
        if home[h].up:
            if n == 0:
                return h
            n -= 1
    return -1


@compiled
def _outstanding(st: State, home: Any, lane: Any, h: int) -> int:
    total, stages = 0, len(lane) // len(home)
    for k in range(h * stages, (h + 1) * stages):
        total += st.replica[k].outstanding
    return total


@compiled
def _expire(st: State, home: Any, lane: Any, i: int, key_s: float) -> None:
    """Request i has no token by its deadline; who stood behind it may now be admitted."""
    when_s = key_s - 2 * NANOSECOND
    k = st.request[i].served_by
    if k == AT_THE_DOOR:
        give_up_at_door(st, i, when_s)
        return
    give_up(st, i, when_s)
    _wake(st, home, lane, k * len(home) // len(lane), key_s)


@compiled
def _outage(st: State, home: Any, lane: Any, h: int, kind: int, now_s: float) -> None:
    """A replica goes down and loses what it had, stops taking new requests, or comes up."""
    p, stages = st.p[0], len(lane) // len(home)
    if kind == COMES_UP:
        if not home[h].up:
            home[h].up = 1
            p.up += 1
        i = st.door[0]
        st.door[0] = -1
        while i >= 0:
            after = st.request[i].behind
            if st.request[i].outcome == UNFINISHED:
                _arrive(st, home, lane, i, now_s)
            i = after
        _wake(st, home, lane, h, now_s)
        return
    if home[h].up:
        home[h].up = 0
        p.up -= 1
    if kind == DRAINS:
        return
    _break_off(st, home, lane, h, now_s)
    lost, last = -1, -1
    for k in range(h * stages, (h + 1) * stages):
        lost, last = empty(st, k, now_s, k == (h + 1) * stages - 1, lost, last)
        lane[k].free_at_s = now_s
        lane[k].ready_s = math.inf
    home[h].free = p.total_blocks
    home[h].gate_s = -math.inf
    _expect(st, home, lane, h)
    while lost >= 0:
        after = st.request[lost].behind
        begin_anew(st, lost, now_s)
        _arrive(st, home, lane, lost, now_s)
        lost = after


@compiled
def _sample_wait(st: State, k: int, from_s: float, until_s: float) -> None:
    """What a lane adds to the series between two of its steps: its sequences and their blocks."""
    rec, p = st.replica[k], st.p[0]
    step = math.ceil(from_s / p.resolution_s)
    while step < len(st.series) and step * p.resolution_s < until_s:
        st.series[step].running += rec.running
        if p.limited:
            st.series[step].kv_blocks += p.total_blocks - rec.free
        step += 1


@compiled
def _break_off(st: State, home: Any, lane: Any, h: int, until_s: float) -> None:
    """This replica ends here, whatever is in flight."""
    stages = len(lane) // len(home)
    home[h].busy_s -= max(home[h].gate_s - until_s, 0.0)
    for k in range(h * stages, (h + 1) * stages):
        if st.replica[k].status == BUSY:
            stop(st, k, until_s)
        elif st.replica[k].running > 0 and st.p[0].resolution_s > 0.0:
            _sample_wait(st, k, lane[k].free_at_s, until_s)
