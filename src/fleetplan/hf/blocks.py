"""Pieces that many families share: head counts, windows, layer lists, the finished architecture."""

from __future__ import annotations

from collections.abc import Iterable

from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, LayerGroup, Tensor, runs

MOST_LAYERS = 10_000


def layer_count(c: Config, *keys: str) -> int:
    """The number of layers, by any of the spellings."""
    count = c.first(*(keys or ("num_hidden_layers",)))
    if count > MOST_LAYERS:
        raise c.fault(keys[0] if keys else "num_hidden_layers", f"got {count}", f"at most {MOST_LAYERS}")
    return count


def heads(
    c: Config, d: int, heads_key: str = "num_attention_heads", kv_key: str = "num_key_value_heads"
) -> tuple[int, int, int]:
    """(query heads, KV heads, head_dim) of a family in which absent KV heads mean one a query head.

    head_dim is the declared one, else d / heads, which must divide.
    """
    n_heads = c.integer(heads_key)
    n_kv = c.integer_or(kv_key, n_heads)
    check_groups(c, n_heads, n_kv, kv_key)
    return n_heads, n_kv, head_dim(c, d, n_heads, heads_key)


def head_dim(c: Config, d: int, n_heads: int, heads_key: str = "num_attention_heads") -> int:
    """The declared head_dim, else d / heads, which must divide."""
    declared = c.maybe("head_dim")
    if declared is not None:
        return declared
    if d % n_heads:
        raise c.fault(
            heads_key, f"got {n_heads}", f"a divisor of the hidden size {d} where head_dim is absent"
        )
    return d // n_heads


def check_groups(c: Config, n_heads: int, n_kv: int, kv_key: str) -> None:
    """Query heads share KV heads in equal groups."""
    if n_kv > n_heads or n_heads % n_kv:
        raise c.fault(kv_key, f"got {n_kv}", f"a divisor of the {n_heads} query heads is needed")


def finish(
    c: Config,
    name: str,
    d: int,
    layers: Iterable[LayerGroup],
    *,
    tied: bool,
    final_norm: int | None = None,
    vocabulary: int | None = None,
    context_key: str | None = "max_position_embeddings",
    extra: tuple[Tensor, ...] = (),
    mtp: tuple[Tensor, ...] = (),
    vision: tuple[Tensor, ...] = (),
) -> Architecture:
    """The architecture from its parts; d final-norm parameters (an RMS norm) unless said."""
    return Architecture(
        name=name,
        family=c.family,
        d=d,
        vocabulary=c.integer("vocab_size") if vocabulary is None else vocabulary,
        layers=runs(layers),
        tied_head=tied,
        final_norm_parameters=d if final_norm is None else final_norm,
        max_context_tokens=c.maybe(context_key) if context_key else None,
        extra=extra,
        mtp=mtp,
        vision=vision,
        notes=tuple(c.notes),
    )


def prediction_layers(layers: Iterable[LayerGroup], d: int, modules: int) -> tuple[Tensor, ...]:
    """The tensors of multi-token-prediction layers, a list to keep apart; each module joins two normed inputs of width d."""
    joined = (
        Tensor("mtp input", "ffn", (2 * d, d), modules, "tensor", modules, modules),
        Tensor("mtp norms", "norm", (3 * d,), modules, "replicated", modules, 0),
    )
    return (
        tuple(tensor for layer in layers for _ in range(layer.count) for tensor in layer.tensors(d)) + joined
    )
