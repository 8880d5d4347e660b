"""Compiled: LoRA adapters that are resident on one replica, those of running sequences and the most recent of the others."""

from __future__ import annotations

from fleetplan.engine.jit import compiled
from fleetplan.engine.state import State


@compiled
def place_of(st: State, r: int, adapter: int) -> int:
    """Where this adapter is, or the place that it would take: an empty one, or that of the adapter idle for longest; −1: none."""
    best = -1
    for at in range(st.p[0].adapters):
        place = st.resident[r, at]
        if place.adapter == adapter:
            return at
        if place.refs == 0 and (best < 0 or place.idle_since < st.resident[r, best].idle_since):
            best = at
    return best


@compiled
def pick_up(st: State, r: int, i: int) -> None:
    """Request i, which runs from this step on, holds its adapter; one that is not there is loaded, for which the step waits."""
    adapter = st.adapter[i]
    if adapter < 0:
        return
    place = st.resident[r, place_of(st, r, adapter)]
    if place.adapter != adapter:
        place.adapter = adapter
        st.replica[r].extra_s += st.p[0].adapter_s
    place.refs += 1


@compiled
def put_down(st: State, r: int, i: int) -> None:
    """Request i no longer runs; its adapter stays until the place is needed."""
    adapter = st.adapter[i]
    if adapter < 0:
        return
    place = st.resident[r, place_of(st, r, adapter)]
    place.refs -= 1
    if place.refs == 0:
        st.replica[r].idle_count += 1
        place.idle_since = st.replica[r].idle_count


@compiled
def unload(st: State, r: int) -> None:
    """A replica that went down has no adapter."""
    for at in range(st.p[0].adapters):
        place = st.resident[r, at]
        place.adapter = -1
        place.refs = place.idle_since = 0
