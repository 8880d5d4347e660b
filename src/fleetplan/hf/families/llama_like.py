"""Decoders of the Llama kind: RMS (or layer) norms, gated feed-forward, grouped-query attention."""

from __future__ import annotations

from collections.abc import Callable

from fleetplan.hf import blocks
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, DenseFfn, Ffn, FullAttention, LayerGroup

SLIDING, FULL = "sliding_attention", "full_attention"


def llama(c: Config, name: str) -> Architecture:
    """Llama 1 to 3.3, and what is saved under its name: absent KV heads mean one a query head."""
    bias = c.flag("attention_bias", False)
    return _plain(c, name, qkv_bias=bias, o_bias=bias, ffn_bias=c.flag("mlp_bias", False))


def minicpm(c: Config, name: str) -> Architecture:
    """MiniCPM: Llama's shape, the head tied unless the config says no (as that of 2B-128k does)."""
    bias = c.flag("attention_bias", False)
    return _plain(c, name, qkv_bias=bias, o_bias=bias, tied=True)


def mistral(c: Config, name: str) -> Architecture:
    """Mistral and Ministral: a window on every layer unless sliding_window is null."""
    kv = kv_heads_needed(c)
    window = c.maybe("sliding_window")
    if "sliding_window" not in c.values:
        window = c.integer_or("sliding_window_size", 4096)
        c.note(f"sliding_window is absent: the family's window of {window} tokens on every layer")
    return _plain(c, name, n_kv=kv, window=lambda layer: window)


def qwen2(c: Config, name: str) -> Architecture:
    """Qwen 2 and 2.5: biased q, k, v."""
    return _plain(c, name, n_kv=kv_heads_needed(c), qkv_bias=True, window=qwen_window(c))


def qwen3(c: Config, name: str) -> Architecture:
    """Qwen 3: query and key norms of one head's width."""
    bias = c.flag("attention_bias", False)
    return _plain(
        c,
        name,
        n_kv=kv_heads_needed(c),
        qkv_bias=bias,
        o_bias=bias,
        head_norms=True,
        window=qwen_window(c),
    )


def phi3(c: Config, name: str) -> Architecture:
    """Phi 3, 3.5 and 4: fused projections of the Llama sizes; the window, if any, is on every layer."""
    window = c.maybe("sliding_window")
    if c.has("img_processor"):
        c.note("the image encoder is not described in sizes here, so its weights are not counted")
    return _plain(c, name, window=lambda layer: window)


def olmo2(c: Config, name: str) -> Architecture:
    """OLMo 2 and 3: norms after the blocks, and query/key norms over all heads."""
    d = c.integer("hidden_size")
    n_heads, n_kv, head = blocks.heads(c, d)
    bias = c.flag("attention_bias", False)
    norms = (n_heads + n_kv) * head
    return _plain(c, name, qkv_bias=bias, o_bias=bias, small=norms, window=typed_window(c))


def internlm(c: Config, name: str) -> Architecture:
    """InternLM 1: one switch for the biases of q, k, v and o."""
    bias = c.flag("bias", True)
    return _plain(c, name, qkv_bias=bias, o_bias=bias)


def internlm2(c: Config, name: str) -> Architecture:
    """InternLM 2 and 2.5: grouped queries, `bias` for the attention."""
    bias = c.flag("bias", False)
    return _plain(c, name, qkv_bias=bias, o_bias=bias)


def baichuan(c: Config, name: str) -> Architecture:
    """Baichuan 1 and 2: one packed projection, every query head with its own keys and values."""
    return _plain(c, name, n_kv=c.integer("num_attention_heads"))


def orion(c: Config, name: str) -> Architecture:
    """Orion: the Llama sizes with layer norms that have biases."""
    d = c.integer("hidden_size")
    bias = c.flag("attention_bias", False)
    return _plain(c, name, qkv_bias=bias, o_bias=bias, norms=4 * d, final_norm=2 * d)


def stablelm(c: Config, name: str) -> Architecture:
    """StableLM: layer norms with biases, optional q/k/v biases and per-head norms, one norm where residuals are parallel."""
    d = c.integer("hidden_size")
    n_heads, n_kv, head = blocks.heads(c, d)
    small = (n_heads + n_kv) * head if c.flag("qk_layernorm", False) else 0
    norms = 2 * d if c.flag("use_parallel_residual", False) else 4 * d
    return _plain(
        c,
        name,
        n_kv=kv_heads_needed(c),
        qkv_bias=c.flag("use_qkv_bias", False),
        small=small,
        norms=norms,
        final_norm=2 * d,
    )


def cohere(c: Config, name: str) -> Architecture:
    """Command R and Aya: parallel blocks under one norm without bias, tied head."""
    d = c.integer("hidden_size")
    n_heads, n_kv, head = blocks.heads(c, d)
    small = (n_heads + n_kv) * head if c.flag("use_qk_norm", False) else 0
    bias = c.flag("attention_bias", False)
    return _plain(c, name, qkv_bias=bias, o_bias=bias, small=small, norms=d, tied=True)


def cohere2(c: Config, name: str) -> Architecture:
    """Command R7B and A: Cohere with a window on all but every fourth layer."""
    d = c.integer("hidden_size")
    bias = c.flag("attention_bias", False)
    window = (
        typed_window(c) if c.has("layer_types") else pattern_window(c, c.integer("sliding_window_pattern"))
    )
    return _plain(c, name, qkv_bias=bias, o_bias=bias, norms=d, tied=True, window=window)


def glm(c: Config, name: str) -> Architecture:
    """GLM-4 in the transformers layout: biased q, k, v."""
    return _plain(c, name, n_kv=kv_heads_needed(c), qkv_bias=c.flag("attention_bias", True))


def glm4(c: Config, name: str) -> Architecture:
    """GLM-4-0414: GLM with a norm before and after both blocks."""
    d = c.integer("hidden_size")
    return _plain(c, name, n_kv=kv_heads_needed(c), qkv_bias=c.flag("attention_bias", True), norms=4 * d)


def gemma(c: Config, name: str) -> Architecture:
    """Gemma 1: declared head width, tied head."""
    c.integer("head_dim")
    bias = c.flag("attention_bias", False)
    return _plain(c, name, n_kv=kv_heads_needed(c), qkv_bias=bias, o_bias=bias, tied=True)


def gemma2(c: Config, name: str) -> Architecture:
    """Gemma 2: four norms a layer, a window on every other layer, the first included."""
    d = c.integer("hidden_size")
    c.integer("head_dim")
    window = typed_window(c) if c.has("layer_types") else pattern_window(c, 2)
    bias = c.flag("attention_bias", False)
    return _plain(
        c, name, n_kv=kv_heads_needed(c), qkv_bias=bias, o_bias=bias, norms=4 * d, tied=True, window=window
    )


def gemma3(c: Config, name: str) -> Architecture:
    """Gemma 3: Gemma 2 with query/key norms, and a window on all but every sixth layer."""
    d = c.integer("hidden_size")
    c.integer("head_dim")
    if c.has("layer_types"):
        window = typed_window(c)
    else:
        window = pattern_window(c, c.integer_or("sliding_window_pattern", 6))
    bias = c.flag("attention_bias", False)
    return _plain(
        c,
        name,
        n_kv=kv_heads_needed(c),
        qkv_bias=bias,
        o_bias=bias,
        norms=4 * d,
        tied=True,
        head_norms=True,
        window=window,
    )


def nemotron(c: Config, name: str) -> Architecture:
    """Nemotron 3 and 4, Minitron: layer norms with biases, squared-ReLU feed-forward without a gate."""
    d = c.integer("hidden_size")
    bias = c.flag("attention_bias", False)
    return _plain(
        c,
        name,
        n_kv=kv_heads_needed(c),
        qkv_bias=bias,
        o_bias=bias,
        ffn=DenseFfn(c.integer("intermediate_size"), gated=False, bias=c.flag("mlp_bias", False)),
        norms=4 * d,
        final_norm=2 * d,
    )


def starcoder2(c: Config, name: str) -> Architecture:
    """StarCoder 2: biases everywhere, feed-forward without a gate, tied head, the window on every layer."""
    d = c.integer("hidden_size")
    bias = c.flag("use_bias", True)
    window = c.maybe("sliding_window")
    return _plain(
        c,
        name,
        n_kv=kv_heads_needed(c),
        qkv_bias=bias,
        o_bias=bias,
        ffn=DenseFfn(c.integer("intermediate_size"), gated=False, bias=bias),
        norms=4 * d,
        final_norm=2 * d,
        tied=True,
        window=lambda layer: window,
    )


Window = Callable[[int], int | None]
"""Layer index → window [tokens], None for the whole context."""


def qwen_window(c: Config) -> Window:
    """No window unless use_sliding_window is true; then by layer_types, else from layer max_window_layers on."""
    window = c.maybe("sliding_window") if c.flag("use_sliding_window", False) else None
    first = c.maybe("max_window_layers", least=0)
    if c.has("layer_types"):
        return typed_window(c, window)
    if window is None:
        return lambda layer: None
    if first is None:
        raise c.fault("max_window_layers", "missing", "needed where use_sliding_window is true")
    return lambda layer: window if layer >= first else None


def typed_window(c: Config, window: int | None = None) -> Window:
    """By layer_types: sliding layers have sliding_window, which is then needed; no layer has one where the list is absent."""
    if not c.has("layer_types"):
        return lambda layer: None
    kinds = c.words("layer_types", blocks.layer_count(c), (SLIDING, FULL))
    width = window
    if SLIDING in kinds and width is None:
        width = c.integer("sliding_window")
    return lambda layer: width if kinds[layer] == SLIDING else None


def pattern_window(c: Config, every: int) -> Window:
    """A window on all layers but each `every`-th."""
    width = c.integer("sliding_window")
    return lambda layer: None if (layer + 1) % every == 0 else width


def _plain(
    c: Config,
    name: str,
    *,
    n_kv: int | None = None,
    qkv_bias: bool = False,
    o_bias: bool = False,
    ffn_bias: bool = False,
    ffn: Ffn | None = None,
    head_norms: bool = False,
    small: int = 0,
    norms: int | None = None,
    final_norm: int | None = None,
    tied: bool = False,
    window: Window = lambda layer: None,
) -> Architecture:
    """A dense decoder; two RMS norms a layer and one at the end unless said."""
    d = c.integer("hidden_size")
    layers = blocks.layer_count(c)
    n_heads, read_kv, head = blocks.heads(c, d)
    dense = DenseFfn(c.integer("intermediate_size"), bias=ffn_bias) if ffn is None else ffn

    def layer(index: int) -> LayerGroup:
        attention = FullAttention(
            n_heads,
            read_kv if n_kv is None else n_kv,
            head,
            window=window(index),
            qkv_bias=qkv_bias,
            o_bias=o_bias,
            small_parameters=small + (2 * head if head_norms else 0),
        )
        return LayerGroup(1, attention, dense, 2 * d if norms is None else norms)

    return blocks.finish(c, name, d, map(layer, range(layers)), tied=c.tied(tied), final_norm=final_norm)


def kv_heads_needed(c: Config) -> int:
    """KV heads of a family where null means one a query head, and absent would mean some fixed number: refused."""
    n_heads = c.integer("num_attention_heads")
    if c.has("num_key_value_heads"):
        n_kv = c.integer("num_key_value_heads")
        blocks.check_groups(c, n_heads, n_kv, "num_key_value_heads")
        return n_kv
    if "num_key_value_heads" in c.values:
        return n_heads
    return c.integer("num_key_value_heads")
