"""Multi-head latent attention: DeepSeek V2 to V3.2, Kimi K2, GLM-5."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.mixture import first_dense
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, Indexer, LatentAttention


def deepseek_v2(c: Config, name: str) -> Architecture:
    """DeepSeek V2: the router has no correction bias."""
    return _latent(c, name, router_bias=False)


def deepseek_v3(c: Config, name: str) -> Architecture:
    """DeepSeek V3, R1, Kimi K2 and GLM-4.7-Flash."""
    return _latent(c, name)


def deepseek_v32(c: Config, name: str) -> Architecture:
    """DeepSeek V3.2 and GLM-5: an indexer beside each latent attention."""
    return _latent(c, name, sparse=True)


def _latent(c: Config, name: str, *, router_bias: bool = True, sparse: bool = False) -> Architecture:
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    rank = c.maybe("q_lora_rank")
    if rank is None and "q_lora_rank" not in c.values:
        raise c.fault("q_lora_rank", "missing", "needed, a whole number, or null for undivided queries")
    indexer = None
    if sparse:
        width = c.integer("index_head_dim")
        # One fp8 key and one 4-byte scale for each 128 of it.
        stored = width + 4 * -(-width // 128)
        indexer = Indexer(
            c.integer("index_n_heads"),
            width,
            rank or d,
            stored,
            tokens=c.integer("index_topk"),
            small_parameters=2 * width,
        )
        c.note(f"each layer's indexer caches {stored} bytes a token beside the latent, whatever the KV dtype")
    attention = LatentAttention(
        c.integer("num_attention_heads"),
        rank,
        c.integer("kv_lora_rank"),
        c.integer("qk_nope_head_dim"),
        c.integer("qk_rope_head_dim"),
        c.integer("v_head_dim"),
        indexer=indexer,
        qkv_bias=c.flag("attention_bias", False),
    )
    return first_dense(c, name, d, layers, [attention] * layers, router_bias=router_bias)
