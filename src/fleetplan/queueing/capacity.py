"""Little's law and the room of a KV cache: concurrency, static batching's waste, reservation, paging and sharing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetplan.errors import InputError
from fleetplan.queueing.result import check_count, check_positive


def concurrency(arrival_per_s: float, residence_s: float) -> float:
    """L = λ·W: requests inside at a rate and a time inside (Little 1961).

    >>> round(concurrency(10, 8.51), 1)
    85.1
    """
    check_positive(arrival_per_s=arrival_per_s, residence_s=residence_s)
    return arrival_per_s * residence_s


def kv_need_tokens(
    arrival_per_s: float, residence_s: float, prompt_tokens: float, output_tokens: float
) -> float:
    """KV tokens held on average: L requests, each with its prompt and half of its output on average."""
    check_positive(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    return concurrency(arrival_per_s, residence_s) * (prompt_tokens + output_tokens / 2)


def static_utilisation(lengths: Sequence[int], slots: int) -> float:
    """Share of the decode slots that do work when batches of `slots`, in order, run until their longest member ends.

    >>> static_utilisation([10, 20, 50, 200], 4)
    0.35
    """
    check_count(slots=slots)
    if not lengths or min(lengths) < 1:
        raise InputError(f"lengths: at least one length, each ≥ 1 (got {list(lengths)!r:.80})")
    taken = sum(slots * max(lengths[i : i + slots]) for i in range(0, len(lengths), slots))
    return sum(lengths) / taken


def static_utilisation_geometric(batch: int, mean_tokens: float | None = None) -> float:
    """Static batching's utilisation E[G]/E[max of B] for geometric lengths: 1/H_B for long ones (`mean_tokens` None).

    With `mean_tokens` the exact discrete value, E[max] = Σ_{k≥0} 1 − (1 − (1−p)^k)^B.

    >>> round(static_utilisation_geometric(8), 3)
    0.368
    """
    check_count(batch=batch)
    if mean_tokens is None:
        return 1 / math.fsum(1 / k for k in range(1, batch + 1))
    if mean_tokens < 1:
        raise InputError(f"mean_tokens: a geometric length is at least 1 (got {mean_tokens!r})")
    if mean_tokens == 1:
        return 1.0
    longest = math.ceil(mean_tokens * (math.log(batch) + 40))
    gone = 1 - (1 - 1 / mean_tokens) ** np.arange(longest + 1, dtype=np.float64)
    return float(mean_tokens / (1 - gone**batch).sum())


def sequences_reserved(kv_tokens: int, max_tokens: int) -> int:
    """Sequences that fit when each reserves its maximum length.

    >>> sequences_reserved(61035, 4096)
    14
    """
    check_count(0, kv_tokens=kv_tokens)
    check_count(max_tokens=max_tokens)
    return kv_tokens // max_tokens


def sequences_paged(kv_tokens: int, tokens: int, block_tokens: int = 16) -> int:
    """Sequences of a real length that fit when blocks are given out as they are needed.

    >>> sequences_paged(61035, 768)
    79
    """
    check_count(0, kv_tokens=kv_tokens)
    check_count(tokens=tokens, block_tokens=block_tokens)
    return kv_tokens // block_tokens // blocks(tokens, block_tokens)


def blocks(tokens: int, block_tokens: int = 16) -> int:
    """ceil(tokens/block): at most block − 1 tokens of a sequence's last block are waste."""
    return -(-tokens // block_tokens)


def blocks_of_answers(
    prompt_tokens: int,
    answers: int,
    generated_tokens: int = 0,
    *,
    shared: bool = True,
    block_tokens: int = 16,
) -> int:
    """Blocks of parallel answers to one prompt; shared ones copy the prompt's last, partly filled block when they write.

    >>> [blocks_of_answers(1000, 4, n, shared=s) for n, s in ((0, False), (0, True), (1, True))]
    [252, 63, 66]
    """
    check_count(prompt_tokens=prompt_tokens, answers=answers, block_tokens=block_tokens)
    check_count(0, generated_tokens=generated_tokens)
    each = blocks(prompt_tokens + generated_tokens, block_tokens)
    if not shared:
        return answers * each
    if generated_tokens == 0:
        return each
    whole = prompt_tokens // block_tokens
    return whole + answers * (each - whole)


def blocks_with_prefix(sequence_tokens: Sequence[int], prefix_tokens: int, block_tokens: int = 16) -> int:
    """Blocks of sequences that all begin with one prefix, whose whole blocks are held once.

    >>> blocks_with_prefix([1000, 1000, 1000], 800)
    89
    """
    check_count(0, prefix_tokens=prefix_tokens)
    check_count(block_tokens=block_tokens)
    whole = prefix_tokens // block_tokens
    if not sequence_tokens or min(sequence_tokens) < prefix_tokens:
        raise InputError(f"sequence_tokens: each at least as long as the prefix of {prefix_tokens}")
    return whole + sum(blocks(n, block_tokens) - whole for n in sequence_tokens)


def end_to_end_s(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """E2E = TTFT + (G − 1)·TPOT (MODEL 7): the first token is in TTFT.

    >>> end_to_end_s(0.2, 1 / 50, 100)
    2.18
    """
    check_count(output_tokens=output_tokens)
    return ttft_s + (output_tokens - 1) * tpot_s
