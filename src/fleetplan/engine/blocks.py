"""Compiled: how many KV blocks tokens take, and what the decoding sequences will take of them."""

from __future__ import annotations

from fleetplan.engine.jit import compiled, inlined
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
    return held_decoding(st, i, st.request[i].prompt + st.request[i].output - 1)


@inlined
def held_decoding(st: State, i: int, tokens: int) -> int:
    """Blocks of request i when each of its answers has so many tokens: the prompt's whole blocks once, the rest for each."""
    answers = st.request[i].answers
    if answers == 1:
        return blocks(st, tokens)
    shared = st.request[i].prompt // st.p[0].block_size
    return shared + answers * (blocks(st, tokens) - shared)


@inlined
def held_computing(st: State, i: int, tokens: int) -> int:
    """Blocks of request i when so many of its known tokens are computed: those of all answers from its prompt's end on."""
    r = st.request[i]
    if r.answers > 1 and (tokens > r.prompt or (tokens == r.prompt and r.generated == 0)):
        return held_decoding(st, i, r.prompt + r.generated)
    return blocks(st, tokens)


@inlined
def known(st: State, i: int) -> int:
    """Tokens whose KV the next step of request i needs: its prompt, and what each answer has."""
    return st.request[i].prompt + st.request[i].generated * st.request[i].answers


@compiled
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
