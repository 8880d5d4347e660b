"""Gemma 4: windowed layers with many KV heads, full ones with few wide heads whose keys serve as values."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.llama_like import FULL, SLIDING, kv_heads_needed
from fleetplan.hf.families.mixture import experts
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, DenseFfn, Ffn, FullAttention, LayerGroup, MoeFfn


def gemma4(c: Config, name: str) -> Architecture:
    """Gemma 4 26B-A4B and 31B; those with per-layer embeddings (E2B, E4B) are refused."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    for key in ("hidden_size_per_layer_input", "num_kv_shared_layers"):
        if c.integer_or(key, 0, least=0):
            raise c.fault(
                key,
                f"got {c.values[key]}",
                "per-layer embeddings and shared KV layers are not supported: 0 is",
            )
    n_heads, n_kv, head = c.integer("num_attention_heads"), kv_heads_needed(c), c.integer("head_dim")
    same = c.flag("attention_k_eq_v", False)
    bias = c.flag("attention_bias", False)
    wide = c.integer("global_head_dim")
    few = c.integer_or("num_global_key_value_heads", n_kv) if same else n_kv
    blocks.check_groups(c, n_heads, few, "num_global_key_value_heads")
    kinds = c.words("layer_types", layers, (SLIDING, FULL))
    window = c.integer("sliding_window") if SLIDING in kinds else None
    shapes = {
        SLIDING: FullAttention(
            n_heads, n_kv, head, window=window, qkv_bias=bias, o_bias=bias, small_parameters=2 * head
        ),
        FULL: FullAttention(
            n_heads, few, wide, shared_key_value=same, qkv_bias=bias, o_bias=bias, small_parameters=2 * wide
        ),
    }
    d_ff = c.integer("intermediate_size")
    ffn: Ffn = DenseFfn(d_ff)
    norms = 4 * d + 1
    if c.flag("enable_moe_block", False):
        count, top = experts(c, "num_experts", "top_k_experts")
        # The dense block beside the experts works for every token, as a shared expert does.
        ffn = MoeFfn(count, top, c.integer("moe_intermediate_size"), shared_d_ff=d_ff, router_bias=count + d)
        norms += 3 * d
    c.read.add("num_experts")
    groups = [LayerGroup(1, shapes[kind], ffn, norms) for kind in kinds]
    return blocks.finish(c, name, d, groups, tied=c.tied(True))
