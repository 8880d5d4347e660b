"""Compiled: what the step that is being made up computes and reads, summed over its sequences in `work`."""

from __future__ import annotations

from fleetplan.engine.clock import window_pairs
from fleetplan.engine.jit import compiled, inlined
from fleetplan.engine.state import State


@inlined
def tally_none(st: State) -> None:
    """A step with nobody in it."""
    w = st.work[0]
    w.tokens = w.sequences = w.decoding = w.kv_read = w.pairs = w.window_read = w.window_pairs = 0
    w.drafted = w.draft_read = w.draft_window_read = 0


@inlined
def tally_decoding(st: State, r: int) -> None:
    """A step with the decoding sequences of replica r, a token each."""
    rec, w = st.replica[r], st.work[0]
    w.tokens = w.sequences = w.decoding = rec.decoding
    w.kv_read = w.pairs = rec.kv_read
    w.window_read = w.window_pairs = rec.window_read


@inlined
def tally(st: State, cached: int, new: int, decodes: bool) -> None:
    """A sequence joins with `new` tokens after `cached` ones."""
    w, window = st.work[0], st.p[0].window
    w.tokens += new
    w.sequences += 1
    w.decoding += 1 if decodes else 0
    w.kv_read += cached + new
    w.pairs += new * cached + new * (new + 1) // 2
    if window:
        w.window_read += min(cached + new, window)
        w.window_pairs += window_pairs(cached, new, window)


@inlined
def tally_known(st: State, i: int, done: int, chunk: int) -> None:
    """Request i joins with a chunk of its known tokens after those done; one that is the last token of a preempted request decodes."""
    generated = st.request[i].generated
    if st.request[i].answers > 1 and generated > 0:
        _tally_answers(st, i, done, chunk)
    else:
        tally(st, done, chunk, chunk == 1 and generated > 0)


@compiled
def _tally_answers(st: State, i: int, done: int, chunk: int) -> None:
    """The pieces of a chunk that computes several answers again: of the prompt, then of each answer after the other."""
    prompt, generated = st.request[i].prompt, st.request[i].generated
    at, end = done, done + chunk
    while at < end:
        before = 0  # tokens of the answers before this one
        until = prompt
        if at >= prompt:
            before = (at - prompt) // generated * generated
            until = prompt + before + generated
        new = min(end, until) - at
        tally(st, at - before, new, new == 1)
        at += new
