"""The memory of one sequence as a function of its length: piecewise linear, and its inverse."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from fleetplan.errors import InputError
from fleetplan.physics.architecture import Architecture, CompressedAttention, FullAttention, LayerGroup


@dataclass(frozen=True)
class SequenceMemory:
    """What one sequence holds on one GPU: bytes a token for each window (None: the whole context) and a constant state."""

    pieces: tuple[tuple[int | None, float], ...]
    """(window [tokens], bytes a token), each window once."""
    state_bytes: float = 0.0

    @property
    def bytes_per_token(self) -> float:
        """Bytes of one token of a short sequence, inside every window."""
        return sum(rate for _, rate in self.pieces)

    @property
    def windowed_bytes_per_token(self) -> float:
        """The part of it in layers that have a window."""
        return sum(rate for window, rate in self.pieces if window is not None)

    @property
    def long_bytes_per_token(self) -> float:
        """Bytes that one more token adds to a sequence longer than every window."""
        return sum(rate for window, rate in self.pieces if window is None)

    def theory_bytes(self, tokens: float) -> float:
        """The least that `tokens` tokens take: each layer the tokens that it can still see, and the state."""
        return self.state_bytes + sum(
            rate * (tokens if window is None else min(tokens, window)) for window, rate in self.pieces
        )

    def engine_bytes(self, tokens: int, block_size: int, frees_window: bool = True) -> float:
        """What an engine gives out: whole blocks; a window one block more than it fills, or, not freed, the whole length."""
        whole = -(-tokens // block_size) * block_size

        def held(window: int | None) -> int:
            if window is None or not frees_window:
                return whole
            return min(whole, (-(-window // block_size) + 1) * block_size)

        return self.state_bytes + sum(rate * held(window) for window, rate in self.pieces)

    def tokens(self, budget_bytes: float) -> float:
        """The longest sequence whose `theory_bytes` stay within a budget; infinite where no more tokens cost anything.

        >>> SequenceMemory(((None, 10.0), (100, 90.0))).tokens(12_000.0)
        300.0
        """
        left = budget_bytes - self.state_bytes
        if left < 0:
            return 0.0
        at, rate = 0.0, self.bytes_per_token
        for window, piece in sorted((w, r) for w, r in self.pieces if w is not None):
            step = (window - at) * rate
            if step > left:
                return at + left / rate
            left, at, rate = left - step, float(window), rate - piece
        # A rate that is only rounding left over from the subtractions counts as nothing.
        rate = self.long_bytes_per_token
        return at + left / rate if rate > 0 else float("inf")


def planned_blocks(
    sequence: SequenceMemory,
    pool_bytes: float,
    block_size: int,
    mean_tokens: int | None,
    context_tokens: int,
    frees_window: bool,
) -> int:
    """Blocks of a pool in which every token costs the same, as a simulation has it.

    Bytes a sequence are concave in its length where layers have windows or a state, so many sequences together hold at
    most what as many of their mean length do. Those that run are on the way to their length: the rate is that of half
    the mean. One sequence of `context_tokens` is held if the memory holds it.
    """
    plain = not sequence.state_bytes and not sequence.windowed_bytes_per_token
    if plain or mean_tokens is None:
        rate = sequence.bytes_per_token * block_size
        return math.floor(pool_bytes / rate) if rate else 0
    tokens = max(1, mean_tokens // 2)

    def charged(n: int) -> float:
        return max(sequence.theory_bytes(n), sequence.engine_bytes(n, block_size, frees_window))

    rate = charged(tokens) / -(-tokens // block_size)
    longest = -(-context_tokens // block_size) if charged(context_tokens) <= pool_bytes else 0
    return max(math.floor(pool_bytes / rate), longest)


def sequence_memory(
    architecture: Architecture, dtype_bytes: float, tensor_parallel: int = 1
) -> SequenceMemory:
    """Per GPU: n_kv heads split t ways and replicated past n_kv; MLA's latent on every GPU; state split with its heads.

    A compressor's state, like the one KV head that it feeds, is on every GPU.
    """
    rates: dict[int | None, float] = {}
    state = 0.0
    for group in architecture.layers:
        share = kv_share(group, tensor_parallel)
        for window, rate in group.mixer.cache(dtype_bytes):
            rates[window] = rates.get(window, 0.0) + rate * share * group.count
        ranks = 1 if isinstance(group.mixer, CompressedAttention) else tensor_parallel
        state += group.count * group.mixer.state_bytes / ranks
    return SequenceMemory(
        tuple(sorted(rates.items(), key=lambda item: (item[0] is not None, item[0] or 0))), state
    )


def kv_share(group: LayerGroup, tensor_parallel: int) -> float:
    """The part of a layer's KV heads that one of t GPUs holds: max(1, n_kv/t)/n_kv; 1 for a latent cache."""
    if isinstance(group.mixer, FullAttention):
        n_kv = group.mixer.n_kv_heads
        return max(1.0, n_kv / tensor_parallel) / n_kv
    return 1.0


def check_tensor_parallel(architecture: Architecture, tensor_parallel: int) -> None:
    """Raises InputError where the query heads, or the KV heads, cannot be dealt out evenly over t GPUs."""
    faults = dict.fromkeys(_uneven(architecture.layers, tensor_parallel))
    if faults:
        raise InputError(*(f"tensor_parallel: {architecture.name}: {fault}" for fault in faults))


def _uneven(layers: Iterable[LayerGroup], t: int) -> Iterable[str]:
    for group in layers:
        n_heads = getattr(group.mixer, "n_heads", t)
        n_kv = getattr(group.mixer, "n_kv_heads", t)
        o_groups = getattr(group.mixer, "o_groups", t)
        if n_heads % t:
            yield f"got {t}, a divisor of the {n_heads} query heads is needed"
        elif o_groups % t:
            yield f"got {t}, a divisor of the {o_groups} output groups is needed"
        elif n_kv % t and t % n_kv:
            yield f"got {t}, a divisor or a multiple of the {n_kv} KV heads is needed"
