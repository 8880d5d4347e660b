"""The shape of a model: its layers, every tensor it stores, and what one token keeps in the KV cache.

Everything is counted from the shape; nothing here knows a family's config keys (`fleetplan.hf` does) or a dtype's bytes
(`fleetplan.physics.precision` does).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from fleetplan.physics.compressed import CompressedAttention, CompressedIndexer
from fleetplan.physics.layers import (
    DenseFfn,
    Ffn,
    FullAttention,
    Indexer,
    LatentAttention,
    LayerGroup,
    Mixer,
    MoeFfn,
    NoFfn,
    NoMixer,
    StateMixer,
)
from fleetplan.physics.tensor import Tensor, vector

__all__ = [
    "Architecture",
    "CompressedAttention",
    "CompressedIndexer",
    "DenseFfn",
    "Ffn",
    "FullAttention",
    "Indexer",
    "LatentAttention",
    "LayerGroup",
    "Mixer",
    "MoeFfn",
    "NoFfn",
    "NoMixer",
    "StateMixer",
    "Tensor",
    "decoder",
    "runs",
]


@dataclass(frozen=True)
class Architecture:
    """A model as the planner sees it; `layers` are in order, so a pipeline stage is a slice of them."""

    name: str
    family: str
    d: int
    vocabulary: int
    layers: tuple[LayerGroup, ...]
    tied_head: bool
    final_norm_parameters: int
    max_context_tokens: int | None = None
    extra: tuple[Tensor, ...] = ()
    """Tensors outside the layers: position embeddings, head bias, projections."""
    mtp: tuple[Tensor, ...] = ()
    """Multi-token-prediction layers, kept apart: not in any total."""
    vision: tuple[Tensor, ...] = ()
    """Encoders of images or sound, kept apart: weights to hold, not parameters of the language model."""
    holds_embedding: bool = True
    holds_head: bool = True
    notes: tuple[str, ...] = ()
    stored_weights: str | None = None
    """Precision scheme that the checkpoint itself is stored in, by name; None: bf16 or fp16."""
    unquantised: tuple[str, ...] = ()
    """Module patterns that the checkpoint's quantisation leaves alone."""

    @property
    def layer_count(self) -> int:
        return sum(group.count for group in self.layers)

    @property
    def attention_layers(self) -> int:
        """Layers that compute attention."""
        kinds = (FullAttention, LatentAttention, CompressedAttention)
        return sum(g.count for g in self.layers if isinstance(g.mixer, kinds))

    @property
    def is_moe(self) -> bool:
        return any(isinstance(group.ffn, MoeFfn) for group in self.layers)

    def tensors(self) -> tuple[Tensor, ...]:
        """Every stored tensor, equal ones of all layers in one row; embedding first, head last."""
        merged: dict[Tensor, int] = {}
        for group in self.layers:
            for tensor in group.tensors(self.d):
                merged[tensor] = merged.get(tensor, 0) + group.count
        rows = []
        if self.holds_embedding or (self.tied_head and self.holds_head):
            rows.append(
                Tensor("embedding", "embedding", (self.vocabulary, self.d), 1, "tensor", 1, 0),
            )
        rows += [
            dataclasses.replace(
                tensor,
                count=tensor.count * times,
                active_count=tensor.active_count * times,
                multiplied=tensor.multiplied * times,
            )
            for tensor, times in merged.items()
        ]
        if self.holds_embedding:
            rows += self.extra
        if self.holds_head:
            if self.final_norm_parameters:
                rows.append(vector("final norm", "norm", self.final_norm_parameters))
            stored = 0 if self.tied_head else 1
            rows.append(Tensor("head", "head", (self.d, self.vocabulary), stored, "tensor", stored, 1))
        return tuple(rows)

    @property
    def parameters_total(self) -> int:
        """Parameters of the language model, tied tensors once, without MTP layers and encoders of other media."""
        return sum(tensor.parameters for tensor in self.tensors())

    @property
    def parameters_active(self) -> int:
        """Parameters that one token uses: all but the experts that the router passes over."""
        return sum(tensor.parameters_active for tensor in self.tensors())

    @property
    def parameters_mtp(self) -> int:
        return sum(tensor.parameters for tensor in self.mtp)

    @property
    def parameters_vision(self) -> int:
        return sum(tensor.parameters for tensor in self.vision)

    @property
    def flop_per_token(self) -> int:
        """FLOP of all matrix products of one token, head included (tied or not), attention pairs not."""
        return sum(tensor.flop_per_token for tensor in self.tensors())

    def kv_bytes(self, tokens: int, dtype_bytes: float = 2.0) -> float:
        """KV cache of one sequence of `tokens` tokens on one GPU of no parallelism [bytes]: Σ over layers, windows honoured."""
        return sum(
            group.count * rate * (tokens if window is None else min(tokens, window))
            for group in self.layers
            for window, rate in group.mixer.cache(dtype_bytes)
        )

    @property
    def kv_bytes_per_token(self) -> float:
        """KV cache of one token of a short sequence (inside every window), bf16 [bytes]."""
        return self.kv_bytes(1)

    @property
    def state_bytes_per_sequence(self) -> int:
        """State of Mamba and linear-attention layers of one sequence, whatever its length [bytes]."""
        return sum(group.count * group.mixer.state_bytes for group in self.layers)

    @property
    def windows(self) -> tuple[int, ...]:
        """The distinct windows of its layers, ascending [tokens]: where KV(length) bends."""
        return tuple(sorted({g.mixer.window for g in self.layers if g.mixer.window and g.mixer.cached}))

    def stages(self, pipeline_parallel: int) -> tuple[Architecture, ...]:
        """The model cut into consecutive stages of as equal a layer count as can be, the longer ones first.

        The first holds the embedding, the last the head. Raises ValueError if there are more stages than layers.
        """
        if not 1 <= pipeline_parallel <= self.layer_count:
            raise ValueError(f"{self.layer_count} layers cannot be cut into {pipeline_parallel} stages")
        base, longer = divmod(self.layer_count, pipeline_parallel)
        stages, start = [], 0
        for index in range(pipeline_parallel):
            size = base + (1 if index < longer else 0)
            stages.append(
                dataclasses.replace(
                    self,
                    layers=_slice(self.layers, start, start + size),
                    holds_embedding=self.holds_embedding and index == 0,
                    holds_head=self.holds_head and index == pipeline_parallel - 1,
                )
            )
            start += size
        return tuple(stages)


def decoder(
    name: str,
    layers: int,
    d: int,
    n_heads: int,
    n_kv_heads: int,
    d_ff: int,
    vocabulary: int,
    head_dim: int | None = None,
    tied_head: bool = False,
    ffn: Ffn | None = None,
    family: str = "custom",
) -> Architecture:
    """A plain RMS-norm decoder with gated feed-forward blocks, for a shape that has no config file.

    >>> decoder("llama-2-7b", 32, 4096, 32, 32, 11008, 32000).parameters_total
    6738415616
    """
    attention = FullAttention(n_heads, n_kv_heads, d // n_heads if head_dim is None else head_dim)
    group = LayerGroup(layers, attention, DenseFfn(d_ff) if ffn is None else ffn, norm_parameters=2 * d)
    return Architecture(name, family, d, vocabulary, (group,), tied_head, final_norm_parameters=d)


def runs(layers: Iterable[LayerGroup]) -> tuple[LayerGroup, ...]:
    """Consecutive equal layers joined into one group.

    >>> one = LayerGroup(1, NoMixer(), NoFfn(), 8)
    >>> [group.count for group in runs([one, one, one])]
    [3]
    """
    joined: list[LayerGroup] = []
    for layer in layers:
        if joined and dataclasses.replace(joined[-1], count=layer.count) == layer:
            joined[-1] = dataclasses.replace(layer, count=joined[-1].count + layer.count)
        else:
            joined.append(layer)
    return tuple(joined)


def _slice(layers: tuple[LayerGroup, ...], start: int, end: int) -> tuple[LayerGroup, ...]:
    """Layers start..end-1 of an ordered list of groups."""
    kept, at = [], 0
    for group in layers:
        overlap = min(end, at + group.count) - max(start, at)
        if overlap > 0:
            kept.append(dataclasses.replace(group, count=overlap))
        at += group.count
    return tuple(kept)
