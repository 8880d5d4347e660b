"""Compiled: what the head of a queue would run with, and its admission."""

from __future__ import annotations

import math

from fleetplan.engine.adapters import pick_up, place_of
from fleetplan.engine.blocks import held_at_end, held_computing, known
from fleetplan.engine.cache import evict_to, look, seat
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.queues import head_of
from fleetplan.engine.slots import admit
from fleetplan.engine.state import State
from fleetplan.engine.swap import swap_in

NEVER = 1 << 61
"""More blocks than are ever free."""


@inlined
def offer(st: State, r: int, i: int, left: int, room: int) -> tuple[int, int, int]:
    """Tokens that request i has already, those that it adds of the `left` ones, and the blocks that it takes of `room` free ones."""
    rec, p = st.replica[r], st.p[0]
    done = taken = 0
    if p.caching:
        evict_to(st, r, room)
        done = look(st, r, i)
    if p.swap_blocks > 0:
        done = st.swapped[i]
    chunk = min(known(st, i) - done, left)
    if p.paged:
        taken = held_computing(st, i, done + chunk)
    elif p.limited:
        taken = held_at_end(st, i)
    if p.caching:
        taken = max(taken - rec.depth, 0) + rec.unpinned
    if p.adapters > 0 and st.adapter[i] >= 0 and place_of(st, r, st.adapter[i]) < 0:
        taken = NEVER  # until an adapter is idle
    if p.stages > 1 and st.request[i].preemptions > 0 and not _may_return(st, i, room):
        taken = NEVER
    return done, chunk, taken


@compiled
def _may_return(st: State, i: int, room: int) -> bool:
    """Whether a preempted request has room for all that it knows: what lanes need not to preempt each other for ever."""
    return not st.p[0].paged or held_computing(st, i, known(st, i)) <= room


@inlined
def join(st: State, r: int, q: int, done: int, chunk: int, taken: int) -> int:
    """The head of the queue runs from this step on, with what it was offered; returns its slot."""
    rec, p = st.replica[r], st.p[0]
    if p.caching:
        i = head_of(st, q)
        if math.isnan(st.request[i].scheduled_s):
            st.content[i].hit = done
    k = admit(st, r, q, chunk, taken, rec.now_s)
    if p.caching:
        st.slot[r, k].computed = done
        seat(st, r, k, done + chunk)
    if p.swap_blocks > 0 and done > 0:
        st.slot[r, k].computed = done
        swap_in(st, r, st.slot[r, k].row)
    if p.adapters > 0:
        pick_up(st, r, st.slot[r, k].row)
    return k


@inlined
def room_for(st: State, r: int, i: int) -> bool:
    """Whether the answers of request i may run beside the others."""
    return st.replica[r].running + st.request[i].answers <= st.replica[r].most
