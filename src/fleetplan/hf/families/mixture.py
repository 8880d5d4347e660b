"""Mixtures of experts with ordinary attention."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.llama_like import _kv_heads_needed as kv_heads_needed
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, FullAttention, LayerGroup, MoeFfn


def mixtral(c: Config, name: str) -> Architecture:
    """Mixtral: every layer a mixture; a window where sliding_window is not null."""
    d = c.integer("hidden_size")
    n_heads = c.integer("num_attention_heads")
    attention = FullAttention(
        n_heads, kv_heads_needed(c), blocks.head_dim(c, d, n_heads), window=c.maybe("sliding_window")
    )
    ffn = MoeFfn(*experts(c, "num_local_experts"), c.integer("intermediate_size"))
    group = LayerGroup(blocks.layer_count(c), attention, ffn, 2 * d)
    return blocks.finish(c, name, d, [group], tied=c.tied(False))


def experts(c: Config, key: str, top_key: str = "num_experts_per_tok") -> tuple[int, int]:
    """(experts, top-k): a token cannot take more experts than there are."""
    count = c.integer(key)
    return count, c.integer(top_key, most=count)
