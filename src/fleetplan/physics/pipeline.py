"""A pipeline of stages in the one form: its longest stage, and the rate at which it decodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetplan.physics.form import Floats, StepTime


def pipeline(latency: StepTime, stages: Sequence[StepTime]) -> StepTime:
    """The step of a pipeline: the latency of all stages and their sends, and the longest of the stages.

    Raises ValueError for one stage, or where a stage is no part of the step.
    """
    return replace(latency, stages=len(stages), stage=longest(stages))


def longest(stages: Sequence[StepTime]) -> StepTime:
    """The stage that is longest in every coefficient, for each n apart: that of one stage where one is, else above them all.

    Which stage is longest can hang on what the step holds (one has a layer more, the last the output head), and the greater of two forms
    is none. The maximum of each coefficient is a form, is never below the longest stage, and above it by what differs between stages at
    most: a layer's KV and pairs, or the head's and the host's time. Where layers of one kind split evenly the last stage is it, exactly.

    >>> from fleetplan.physics.form import linear
    >>> first, last = linear(0, 3e-6, 0.010, 0, 2e-8, 0), linear(1e-3, 2e-6, 0.009, 0, 1e-8, 1e-5)
    >>> both = longest([first, last])
    >>> float(both.overhead_s[1]), float(both.memory_s[1]), both.sequence_s, both.kv_token_s
    (0.001, 0.01, 1e-05, 2e-08)
    """
    first = stages[0]
    sequence = max(each.sequence_s for each in stages)
    decoding = max(each.sequence_s + each.decode_s for each in stages)
    vectors: dict[str, Any] = {}
    for name in ("overhead", "compute", "memory"):
        held = [(getattr(each, f"{name}_s"), getattr(each, f"{name}_slope_s")) for each in stages]
        n = np.arange(1, max(len(vector) for vector, _ in held))
        values = np.max([each.at(*mine, n) for each, mine in zip(stages, held, strict=True)], axis=0)
        vectors[f"{name}_s"] = np.concatenate([[0.0], values])
        vectors[f"{name}_slope_s"] = float(np.max([slope for _, slope in held]))
    return replace(
        first,
        **vectors,
        sequence_s=sequence,
        decode_s=decoding - sequence,
        **{
            name: max(getattr(each, name) for each in stages)
            for name in ("pair_s", "window_pair_s", "kv_token_s", "window_kv_token_s", "state_s")
        },
    )


def micro_batch(step: StepTime, batch: ArrayLike) -> NDArray[np.int64]:
    """Sequences of the largest of the micro-batches that so many sequences make: as many micro-batches as stages, as even as can be."""
    return -(-np.asarray(batch, dtype=np.int64) // step.stages)


def decode_turn_s(step: StepTime, batch: ArrayLike, context_tokens: float) -> Floats:
    """Time [s] in which each of `batch` sequences of this context decodes one token; arrays broadcast. The rate is batch / turn.

    Without a pipeline it is the step. With p stages the sequences run in p micro-batches that follow one another: each goes through all
    stages, and each keeps the longest stage for itself, so a turn is the greater of one micro-batch's latency and the sum of all their
    longest stages.
    """
    b = np.asarray(batch, dtype=np.int64)
    if step.stage is None:
        return _decode_s(step, b, context_tokens)
    large, small = micro_batch(step, b), b // step.stages
    many = b - small * step.stages
    many = np.where(many == 0, step.stages, many)
    beat = many * _decode_s(step.stage, large, context_tokens)
    rest = (step.stages - many) * _decode_s(step.stage, np.maximum(small, 1), context_tokens)
    return np.maximum(_decode_s(step, large, context_tokens), beat + np.where(small > 0, rest, 0.0))


def _decode_s(step: StepTime, batch: NDArray[np.int64], context_tokens: float) -> Floats:
    read = batch * context_tokens
    cut = batch * min(context_tokens, step.window_tokens)
    return step.step_s(batch, batch, batch, read, read, cut, cut)
