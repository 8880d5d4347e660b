"""Compiled: what the head of a queue would run with, and its admission."""

from __future__ import annotations

import math

from fleetplan.engine.blocks import blocks, held_at_end
from fleetplan.engine.cache import evict_to, look, seat
from fleetplan.engine.jit import inlined
from fleetplan.engine.slots import admit
from fleetplan.engine.state import State


@inlined
def offer(st: State, r: int, i: int, left: int, room: int) -> tuple[int, int, int]:
    """Tokens that request i has already, those that it adds of the `left` ones, and the blocks that it takes of `room` free ones."""
    rec, p = st.replica[r], st.p[0]
    done = taken = 0
    if p.caching:
        evict_to(st, r, room)
        done = look(st, r, i)
    chunk = min(st.request[i].prompt + st.request[i].generated - done, left)
    if p.paged:
        taken = blocks(st, done + chunk)
    elif p.limited:
        taken = held_at_end(st, i)
    if p.caching:
        taken = max(taken - rec.depth, 0) + rec.unpinned
    return done, chunk, taken


@inlined
def join(st: State, r: int, q: int, done: int, chunk: int, taken: int) -> int:
    """The head of the queue runs from this step on, with what it was offered; returns its slot."""
    rec, p = st.replica[r], st.p[0]
    if p.caching:
        i = st.queue[q].first
        if math.isnan(st.request[i].scheduled_s):
            st.content[i].hit = done
    k = admit(st, r, q, chunk, taken, rec.now_s)
    if p.caching:
        st.slot[r, k].computed = done
        seat(st, r, k, done + chunk)
    return k
