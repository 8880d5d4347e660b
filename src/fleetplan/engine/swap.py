"""Compiled: preempted sequences whose KV waits in the host's memory, as long as that has room."""

from __future__ import annotations

from fleetplan.engine.blocks import blocks
from fleetplan.engine.jit import compiled
from fleetplan.engine.state import State


@compiled
def swap_out(st: State, r: int, i: int, computed: int, held: int) -> None:
    """The KV of preempted request i goes to the host, for which the step waits; where the host is full it is computed again."""
    rec, p = st.replica[r], st.p[0]
    if rec.swapped + held > p.swap_blocks:
        return
    rec.swapped += held
    rec.extra_s += held * p.swap_block_s
    st.swapped[i] = computed


@compiled
def swap_in(st: State, r: int, i: int) -> None:
    """The KV of request i comes back, for which the step waits."""
    held = blocks(st, st.swapped[i])
    st.replica[r].swapped -= held
    st.replica[r].extra_s += held * st.p[0].swap_block_s
    st.swapped[i] = 0


@compiled
def swap_away(st: State, r: int, i: int) -> None:
    """Request i gave up: the host's memory is free."""
    st.replica[r].swapped -= blocks(st, st.swapped[i])
    st.swapped[i] = 0
