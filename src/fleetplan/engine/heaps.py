"""Compiled: binary heaps of when running sequences finish or fill the window."""

from __future__ import annotations

from typing import Any

from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.state import SLOT_BITS, State

SLOT_MASK = (1 << SLOT_BITS) - 1


@inlined
def push(heap: Any, size: int, value: int) -> None:
    """Add to a binary heap of this size; the caller counts."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if heap[parent] <= value:
            break
        heap[i] = heap[parent]
        i = parent
    heap[i] = value


@inlined
def pop(heap: Any, size: int) -> None:
    """Remove the least of a binary heap of this size; the caller counts."""
    size -= 1
    value = heap[size]
    i = 0
    child = 1
    while child < size:
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[i] = heap[child]
        i = child
        child = 2 * i + 1
    heap[i] = value


@compiled
def compact(heap: Any, size: int, meant: Any) -> int:
    """Drop times of slots that no longer mean them, by what each slot does mean; returns how many are left."""
    kept = 0
    for i in range(size):
        entry = heap[i]
        if meant[entry & SLOT_MASK] == entry >> SLOT_BITS:
            push(heap, kept, entry)
            kept += 1
    return kept


@inlined
def next_due(st: State, r: int) -> int:
    """Counter at which the next decoding sequence finishes; −1: none decodes."""
    rec = st.replica[r]
    heap = st.heap[r]
    while rec.heap > 0:
        top = heap[0]
        if st.slot[r, top & SLOT_MASK].due == top >> SLOT_BITS:
            return top >> SLOT_BITS
        pop(heap, rec.heap)
        rec.heap -= 1
    return -1


@compiled
def next_crossing(st: State, r: int) -> int:
    """Counter at which the next sequence fills the sliding window; −1: none will."""
    rec = st.replica[r]
    heap = st.crossing_heap[r]
    while rec.crossings > 0:
        top = heap[0]
        if st.slot[r, top & SLOT_MASK].crossing == top >> SLOT_BITS:
            return top >> SLOT_BITS
        pop(heap, rec.crossings)
        rec.crossings -= 1
    return -1
