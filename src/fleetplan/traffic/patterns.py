"""Facts of a trace beyond its summary: dispersion over scales, prefix hits, the profile over the day."""

from __future__ import annotations

import math
from collections import OrderedDict
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from fleetplan.traffic.facts import counts_per_bin
from fleetplan.traffic.requests import Requests
from fleetplan.traffic.traces.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SCALES_S = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


def dispersion(counts_per_s: Ints, scales_s: tuple[float, ...] = SCALES_S) -> dict[float, float]:
    """Index of dispersion of counts, variance/mean, in bins of each scale [s]; 1 at all scales is Poisson.

    Only whole bins count, and scales with fewer than 5 of them are left out. The variance is the population's.
    """
    found = {}
    for scale in scales_s:
        width = int(scale)
        n = len(counts_per_s) // width
        if n >= 5:
            sums = counts_per_s[: n * width].reshape(n, width).sum(axis=1)
            if sums.mean() > 0:
                found[scale] = float(sums.var() / sums.mean())
    return found


def trace_dispersion(trace: Trace) -> dict[float, float]:
    """`dispersion` of a trace's arrivals; empty without a span."""
    if trace.arrival_s is None or not trace.span_s:
        return {}
    return dispersion(counts_per_bin(trace.arrival_s, 1.0))


def prefix_hit_share(offsets: Ints, hashes: Ints, cache_blocks: int | None = None) -> float | None:
    """Share of all prompt blocks that are leading blocks already in the cache: of any size, or of `cache_blocks` under LRU.

    Requests are served in order; a hit run ends at the first block that is not there. None without blocks.
    """
    if not len(hashes):
        return None
    hits = 0
    held: OrderedDict[int, None] = OrderedDict()
    ids = hashes.tolist()
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        blocks = ids[start:end]
        for block in blocks:
            if block not in held:
                break
            hits += 1
        for block in reversed(blocks):
            # The prompt's first blocks are the most recent: a cache drops tails before heads.
            held[block] = None
            held.move_to_end(block)
        if cache_blocks is not None:
            while len(held) > cache_blocks:
                held.popitem(last=False)
    return hits / len(hashes)


def cached_share(requests: Requests, cache_tokens: int | None = None) -> float | None:
    """Share of all prompt tokens that are beginnings already in the cache: of any size, or of `cache_tokens`. None without any such beginning.

    With hashed blocks it is `prefix_hit_share` of them. Else the cache holds whole texts, each shared prefix one and each session's last
    turn another, and what each request adds besides; the least recently used is dropped first, as a whole.
    """
    if len(requests.block_hashes):
        blocks = None if cache_tokens is None else cache_tokens // max(requests.hash_block_tokens, 1)
        return prefix_hit_share(requests.block_offsets, requests.block_hashes, blocks)
    if (requests.prefix_id < 0).all() and ((requests.session_id < 0) | (requests.history_tokens == 0)).all():
        return None
    held: OrderedDict[tuple[str, int], int] = OrderedDict()
    hits = total = 0
    columns = (requests.prompt_tokens, requests.output_tokens, requests.prefix_id, requests.prefix_tokens, requests.session_id, requests.history_tokens)  # fmt: skip
    for row, (prompt, output, prefix, shared, session, history) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        at = ("prefix", prefix)
        begun = min(shared, prompt) if prefix >= 0 and at in held else 0
        turn = ("turn", session) if session >= 0 and history != 0 else ("request", row)
        before = held.get(turn, 0)
        hits += max(begun, min(before if history < 0 else history, prompt) if before else 0)
        if prefix >= 0:
            held[at] = shared
            held.move_to_end(at)
        own = prompt + output - (shared if prefix >= 0 else 0)
        if cache_tokens is not None or turn[0] == "turn":
            held[turn] = max(own, 1)
            held.move_to_end(turn)
        if cache_tokens is not None:
            total += own - (before if turn[0] == "turn" else 0) + (shared if prefix >= 0 and not begun else 0)
            while total > cache_tokens and held:
                total -= held.popitem(last=False)[1]
    return hits / float(requests.prompt_tokens.sum())


def hour_profile(trace: Trace) -> list[float] | None:
    """Requests per second in each hour of the day [24], as far as the trace covers it; None without dates or under 24 hours."""
    if trace.start is None or trace.arrival_s is None or not trace.span_s or trace.span_s < 86400:
        return None
    at = datetime.fromisoformat(trace.start[:26])
    first = at.hour * 3600 + at.minute * 60 + at.second
    hour = ((trace.arrival_s + first) // 3600 % 24).astype(np.int64)
    counts = np.bincount(hour, minlength=24)
    # The time that the trace spends in each hour of the day.
    borders = np.arange(math.ceil((first + trace.span_s) / 3600) + 1) * 3600.0
    lasts = np.clip(borders[1:], None, first + trace.span_s) - np.clip(borders[:-1], first, None)
    spent = np.bincount(np.arange(len(lasts)) % 24, weights=np.clip(lasts, 0, None), minlength=24)
    return [float(c / s) if s > 0 else 0.0 for c, s in zip(counts, spent, strict=True)]
