"""Attention over a short window of tokens and over compressed entries of the whole context (DeepSeek V4)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from fleetplan.physics.tensor import Tensor, matrix, vector


@dataclass(frozen=True)
class CompressedIndexer:
    """Picks the compressed entries that a query reads; its own keys are compressed alike."""

    n_heads: int
    head_dim: int
    entry_bytes: int
    """A cached key with its scales, whatever the KV dtype."""
    entries: int
    """Compressed entries that a query reads at most (top-k)."""


@dataclass(frozen=True)
class CompressedAttention:
    """One key, which is its value too, for all heads: of each of the last `window` tokens, and of each `ratio` tokens before.

    Every tensor-parallel rank holds the whole cache, since there is one KV head.
    """

    n_heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    """Heads are projected out in this many groups, each to o_lora_rank numbers."""
    o_lora_rank: int
    window: int
    ratio: int = 0
    """Tokens of a compressed entry; 0: the window is all."""
    overlap: bool = False
    """An entry draws on the `ratio` tokens before its own as well, by a second half of the compressor."""
    indexer: CompressedIndexer | None = None
    cached: bool = True

    def cache(self, dtype_bytes: float) -> tuple[tuple[int | None, float], ...]:
        """(window, bytes a token): an entry's bytes are spread over its `ratio` tokens."""
        near = (self.window, self.head_dim * dtype_bytes)
        if not self.ratio:
            return (near,)
        index = self.indexer.entry_bytes if self.indexer else 0
        return (near, (None, (self.head_dim * dtype_bytes + index) / self.ratio))

    @property
    def state_bytes(self) -> int:
        """What the compressors keep of an entry not yet full: key and gate in fp32, twice the tokens and widths where they overlap."""
        twice = 2 if self.overlap else 1
        widths = self.head_dim + (self.indexer.head_dim if self.indexer else 0)
        return 2 * 4 * (twice * self.ratio) * (twice * widths)

    @property
    def flop_per_pair(self) -> int:
        """FLOP of one query and one entry: 4·n_h·d_h."""
        return 4 * self.n_heads * self.head_dim

    def tensors(self, d: int) -> Iterable[Tensor]:
        inner = self.n_heads * self.head_dim
        yield matrix("q down", "attention", d, self.q_lora_rank, "replicated")
        yield matrix("q up", "attention", self.q_lora_rank, inner)
        yield matrix("kv", "attention", d, self.head_dim, "replicated")
        yield matrix("o group", "attention", inner // self.o_groups, self.o_groups * self.o_lora_rank)
        yield matrix("o", "attention", self.o_groups * self.o_lora_rank, d)
        yield vector("attention norms and sinks", "norm", self.q_lora_rank + self.head_dim + self.n_heads)
        if self.ratio:
            yield from self._compressor("compressor", d, self.head_dim)
        if self.indexer:
            index = self.indexer
            yield matrix(
                "indexer q", "indexer", self.q_lora_rank, index.n_heads * index.head_dim, "replicated"
            )
            yield matrix("indexer weights", "indexer", d, index.n_heads, "replicated")
            yield from self._compressor("indexer compressor", d, index.head_dim)

    def _compressor(self, name: str, d: int, width: int) -> Iterable[Tensor]:
        out = width * (2 if self.overlap else 1)
        yield matrix(f"{name} kv", "indexer", d, out, "replicated")
        yield matrix(f"{name} gate", "indexer", d, out, "replicated")
        yield vector(f"{name} positions and norm", "norm", self.ratio * out + width)
