"""One stored tensor: its shape, its copies, how it is divided over GPUs and what a precision scheme decides by.

A vector of parameters (norm, bias, sink) is a tensor with a shape of one number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Shard = Literal["tensor", "kv_heads", "expert", "replicated"]
"""How a tensor is divided: over the tensor-parallel group, by KV heads (replicated past n_kv), by experts, or not at all."""

Group = Literal[
    "embedding",
    "head",
    "attention",
    "mixer",
    "ffn",
    "expert",
    "shared_expert",
    "router",
    "norm",
    "bias",
    "indexer",
    "vision",
]
"""What a precision scheme decides by."""


@dataclass(frozen=True)
class Tensor:
    """`count` stored copies of one tensor, of which one token uses `active_count` and multiplies by `multiplied`."""

    name: str
    group: Group
    shape: tuple[int, ...]
    """(in, out) of a matrix, (n,) of a vector, [parameters]."""
    count: int
    shard: Shard
    active_count: int
    multiplied: int
    """Copies that a token is multiplied by: 0 for embeddings and vectors, 1 for a tied head that is stored 0 times."""

    @property
    def size(self) -> int:
        """Parameters of one copy."""
        return math.prod(self.shape)

    @property
    def parameters(self) -> int:
        """Parameters of all copies."""
        return self.size * self.count

    @property
    def parameters_active(self) -> int:
        """Parameters that one token uses."""
        return self.size * self.active_count

    @property
    def flop_per_token(self) -> int:
        """2·in·out for each copy that a token is multiplied by [FLOP]."""
        return 2 * self.size * self.multiplied


def matrix(name: str, group: Group, inputs: int, outputs: int, shard: Shard = "tensor") -> Tensor:
    return Tensor(name, group, (inputs, outputs), 1, shard, 1, 1)


def vector(name: str, group: Group, size: int, shard: Shard = "replicated") -> Tensor:
    return Tensor(name, group, (size,), 1, shard, 1, 0)
