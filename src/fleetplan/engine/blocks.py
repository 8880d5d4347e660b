"""Compiled: how many KV blocks tokens take, and what the decoding sequences will take of them."""

from __future__ import annotations

from fleetplan.engine.jit import inlined
from fleetplan.engine.state import State


@inlined
def blocks(st: State, tokens: int) -> int:
    """ceil(tokens / block_size)."""
    p = st.p[0]
    if p.block_shift >= 0:  # a division costs as much as all the rest of a step's bookkeeping
        return (tokens + p.block_size - 1) >> p.block_shift
    return (tokens + p.block_size - 1) // p.block_size


@inlined
def residue(st: State, tokens: int) -> int:
    """tokens mod block_size, never negative."""
    p = st.p[0]
    return tokens & (p.block_size - 1) if p.block_shift >= 0 else tokens % p.block_size


@inlined
def held_at_end(st: State, i: int) -> int:
    """Blocks of request i's whole life."""
    return blocks(st, st.request[i].prompt + st.request[i].output - 1)


@inlined
def blocks_needed(st: State, r: int, j: int) -> int:
    """Blocks that the decoding sequences take over the next j steps."""
    rec, size = st.replica[r], st.p[0].block_size
    need, rest = 0, j
    if j >= size:
        need = j // size * rec.decoding
        rest = j % size
    due = due_residue(rec.counter, size)
    for _ in range(rest):
        need += st.residues[r, due]
        due = due - 1 if due > 0 else size - 1
    return need


@inlined
def due_residue(counter: int, size: int) -> int:
    """Residue class of the sequences that take a block at this counter: (−counter) mod size."""
    rest = counter & (size - 1) if size & (size - 1) == 0 else counter % size
    return size - rest if rest else 0


@inlined
def steps_within_blocks(st: State, r: int, most: int) -> int:
    """The most steps, up to `most`, that the free blocks allow."""
    rec, size = st.replica[r], st.p[0].block_size
    if rec.decoding == 0 or rec.free * size >= (most + size) * rec.decoding:
        return most
    rounds = rec.free // rec.decoding
    left = rec.free - rounds * rec.decoding
    j = rounds * size
    due = due_residue(rec.counter, size)
    while j < most:
        left -= st.residues[r, due]
        if left < 0:
            break
        due = due - 1 if due > 0 else size - 1
        j += 1
    return min(j, most)
