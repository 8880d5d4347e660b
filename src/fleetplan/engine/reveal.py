"""Compiled: when the first visible token of a request comes out, after those that it hides; no stretch ends for it."""

from __future__ import annotations

from fleetplan.engine.clock import stretch_s
from fleetplan.engine.heaps import SLOT_MASK, compact, pop, push
from fleetplan.engine.jit import compiled
from fleetplan.engine.state import SLOT_BITS, STRETCH, State


@compiled
def expect_visible(st: State, r: int, k: int, left: int) -> None:
    """Slot k decodes from here on, `left` tokens: the counter at which its first visible one is out, if it is still to come."""
    rec, i = st.replica[r], st.slot[r, k].row
    st.slot[r, k].visible = -1
    ahead = left - (st.request[i].output - 1 - st.hidden[i].tokens)
    if ahead <= 0 or ahead > left:
        return
    heap = st.visible_heap[r]
    if rec.visibles == len(heap):
        rec.visibles = compact(heap, rec.visibles, st.slot[r].visible)
    st.slot[r, k].visible = rec.counter + ahead
    push(heap, rec.visibles, ((rec.counter + ahead) << SLOT_BITS) | k)
    rec.visibles += 1


@compiled
def reveal(st: State, r: int, j: int, now_s: float) -> None:
    """The first visible tokens of the next j steps, at the end of the step that each comes out in."""
    rec = st.replica[r]
    heap = st.visible_heap[r]
    while rec.visibles > 0 and heap[0] >> SLOT_BITS <= rec.counter + j:
        counter, k = heap[0] >> SLOT_BITS, heap[0] & SLOT_MASK
        if st.slot[r, k].visible == counter:
            ahead = counter - rec.counter
            at_s = rec.now_s + stretch_s(rec, ahead) if rec.kind == STRETCH and ahead < j else now_s
            st.hidden[st.slot[r, k].row].visible_s = at_s
            st.slot[r, k].visible = -1
        pop(heap, rec.visibles)
        rec.visibles -= 1


@compiled
def reveal_at_once(st: State, i: int, before: int, after: int, now_s: float) -> None:
    """Request i has gone from `before` tokens to `after` ones in one step: is the first visible one among them?"""
    if before <= st.hidden[i].tokens < after:
        st.hidden[i].visible_s = now_s
