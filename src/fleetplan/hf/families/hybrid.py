"""Hybrids: attention in some layers, Mamba or linear attention in others, or nothing."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.llama_like import kv_heads_needed
from fleetplan.hf.families.mixture import experts, qwen_experts, sparse_ffns
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import (
    Architecture,
    DenseFfn,
    Ffn,
    FullAttention,
    LayerGroup,
    MoeFfn,
    NoFfn,
    NoMixer,
    StateMixer,
)
from fleetplan.physics.layers import Mixer

LINEAR, FULL = "linear_attention", "full_attention"
STATE_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


def qwen3_next(c: Config, name: str) -> Architecture:
    """Qwen3-Next and Qwen3.5: gated delta nets, and gated full attention in every full_attention_interval-th layer."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = c.integer("head_dim")
    bias = c.flag("attention_bias", False)
    gate = c.flag("attn_output_gate", True)
    full = FullAttention(
        n_heads, n_kv, head, output_gate=gate, qkv_bias=bias, o_bias=bias, small_parameters=2 * head
    )
    if c.has("layer_types"):
        kinds = c.words("layer_types", layers, (LINEAR, FULL))
    else:
        every = c.integer("full_attention_interval")
        kinds = [FULL if (index + 1) % every == 0 else LINEAR for index in range(layers)]
    c.read.add("full_attention_interval")
    delta = _gated_delta(c, d)
    ffns: list[Ffn]
    if c.has("num_experts"):
        ffns = sparse_ffns(c, layers, qwen_experts(c, shared=True))
    else:
        ffns = [DenseFfn(c.integer("intermediate_size"))] * layers
    groups = [
        LayerGroup(1, full if kinds[index] == FULL else delta, ffns[index], 2 * d) for index in range(layers)
    ]
    predict = c.integer_or("mtp_num_hidden_layers", 0, least=0)
    mtp = blocks.prediction_layers([LayerGroup(predict, full, ffns[-1], 2 * d)], d, 1) if predict else ()
    if predict:
        c.note(f"{predict} multi-token-prediction layer(s) are kept apart from every total")
    return blocks.finish(c, name, d, groups, tied=c.tied(False), mtp=mtp)


def _gated_delta(c: Config, d: int) -> StateMixer:
    n_k, n_v = c.integer("linear_num_key_heads"), c.integer("linear_num_value_heads")
    d_k, d_v = c.integer("linear_key_head_dim"), c.integer("linear_value_head_dim")
    kernel = c.integer("linear_conv_kernel_dim")
    keys, values = n_k * d_k, n_v * d_v
    mixed = 2 * keys + values
    width = STATE_BYTES[c.text("mamba_ssm_dtype", tuple(STATE_BYTES), "float32")]
    c.note(f"recurrent state kept in {8 * width}-bit floats, convolution tail in bf16")
    return StateMixer(
        "gated delta net",
        (("qkvz", d, mixed + values), ("beta and decay", d, 2 * n_v), ("o", values, d)),
        small_parameters=mixed * kernel + 2 * n_v + d_v,
        state_bytes=n_v * d_k * d_v * width + mixed * (kernel - 1) * 2,
        flop_per_token_recurrent=6 * n_v * d_k * d_v,
    )


def nemotron_h(c: Config, name: str) -> Architecture:
    """Nemotron-H and Nemotron 3: one block a layer, by a pattern of M (Mamba 2), * (attention), - (dense), E (mixture)."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    pattern = c.values.get("hybrid_override_pattern")
    c.read.add("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set("M*-E"):
        got = "missing" if "hybrid_override_pattern" not in c.values else f"got {pattern!r}"
        raise c.fault("hybrid_override_pattern", got, f"{layers} letters of M, *, - and E are needed")
    shapes: dict[str, tuple[Mixer, Ffn]] = {}
    for letter in set(pattern):
        shapes[letter] = _nemotron_block(c, d, letter)
    groups = [LayerGroup(1, *shapes[letter], norm_parameters=d) for letter in pattern]
    return blocks.finish(c, name, d, groups, tied=c.tied(False))


def _nemotron_block(c: Config, d: int, letter: str) -> tuple[Mixer, Ffn]:
    if letter == "M":
        return _mamba2(c, d), NoFfn()
    if letter == "*":
        n_heads = c.integer("num_attention_heads")
        head = c.first("head_dim", "attention_head_dim")
        bias = c.flag("attention_bias", False)
        return FullAttention(n_heads, kv_heads_needed(c), head, qkv_bias=bias, o_bias=bias), NoFfn()
    bias = c.flag("mlp_bias", False)
    if letter == "-":
        return NoMixer(), DenseFfn(c.integer("intermediate_size"), gated=False, bias=bias)
    count, top = experts(c, "n_routed_experts")
    shared = c.integer_or("n_shared_experts", 0, least=0)
    width = c.integer("moe_shared_expert_intermediate_size") * shared if shared else 0
    moe = MoeFfn(
        count,
        top,
        c.integer("moe_intermediate_size"),
        shared_d_ff=width,
        gated=False,
        bias=bias,
        router_bias=count,
        latent=c.maybe("moe_latent_size"),
    )
    return NoMixer(), moe


def _mamba2(c: Config, d: int) -> StateMixer:
    n_heads, head = c.integer("mamba_num_heads"), c.integer("mamba_head_dim")
    state, groups, kernel = c.integer("ssm_state_size"), c.integer("n_groups"), c.integer("conv_kernel")
    inner = n_heads * head
    mixed = inner + 2 * groups * state
    bias = (inner + mixed + n_heads + d) if c.flag("mamba_proj_bias", c.flag("use_bias", False)) else 0
    conv = mixed * (kernel + (1 if c.flag("use_conv_bias", True) else 0))
    width = STATE_BYTES[c.text("mamba_ssm_cache_dtype", tuple(STATE_BYTES), "float32")]
    c.note(f"Mamba state kept in {8 * width}-bit floats, convolution tail in bf16")
    return StateMixer(
        "mamba2",
        (("in", d, inner + mixed + n_heads), ("out", inner, d)),
        small_parameters=conv + 3 * n_heads + inner + bias,
        state_bytes=inner * state * width + mixed * (kernel - 1) * 2,
        flop_per_token_recurrent=6 * inner * state,
    )


def jamba(c: Config, name: str) -> Architecture:
    """Jamba: Mamba 1 with attention and mixtures at regular places."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    full = FullAttention(n_heads, n_kv, blocks.head_dim(c, d, n_heads))
    period, offset = c.integer("attn_layer_period"), c.integer("attn_layer_offset", least=0)
    every, start = c.integer("expert_layer_period"), c.integer("expert_layer_offset", least=0)
    d_ff = c.integer("intermediate_size")
    count, top = experts(c, "num_experts")
    moe: Ffn = MoeFfn(count, top, d_ff) if count > 1 else DenseFfn(d_ff)
    mamba = _mamba1(c, d)
    groups = [
        LayerGroup(
            1,
            full if index % period == offset else mamba,
            moe if index % every == start else DenseFfn(d_ff),
            2 * d,
        )
        for index in range(layers)
    ]
    return blocks.finish(c, name, d, groups, tied=c.tied(False))


def _mamba1(c: Config, d: int) -> StateMixer:
    inner = c.integer("mamba_expand") * d
    state, kernel = c.integer("mamba_d_state"), c.integer("mamba_d_conv")
    rank = -(-d // 16)
    if c.has("mamba_dt_rank") and c.values["mamba_dt_rank"] != "auto":
        rank = c.integer("mamba_dt_rank")
    bias = (2 * inner + d) if c.flag("mamba_proj_bias", False) else 0
    conv = inner * (kernel + (1 if c.flag("mamba_conv_bias", True) else 0))
    c.note("Mamba state kept in 32-bit floats, convolution tail in bf16")
    return StateMixer(
        "mamba",
        (("in", d, 2 * inner), ("x", inner, rank + 2 * state), ("dt", rank, inner), ("out", inner, d)),
        # Decay, skip, the step's bias, and three norms.
        small_parameters=conv + inner * state + 2 * inner + rank + 2 * state + bias,
        state_bytes=inner * state * 4 + inner * (kernel - 1) * 2,
        flop_per_token_recurrent=6 * inner * state,
    )


def nemotron_nas(c: Config, name: str) -> Architecture:
    """Llama-Nemotron by architecture search: each layer's attention and feed-forward by block_configs."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads = c.integer("num_attention_heads")
    head = blocks.head_dim(c, d, n_heads)
    made = []
    for index, block in enumerate(c.items("block_configs", layers)):
        if not isinstance(block, dict):
            raise c.fault(f"block_configs[{index}]", f"got {block!r}", "an object is needed")
        level = Config(block, c.family, c.where, f"{c.prefix}block_configs[{index}].")
        mixer, norms = _searched_mixer(level.part("attention"), d, n_heads, head)
        ffn, more = _searched_ffn(level.part("ffn"), d)
        made.append(LayerGroup(1, mixer, ffn, norms + more))
    return blocks.finish(c, name, d, made, tied=c.tied(False))


def _searched_mixer(c: Config, d: int, n_heads: int, head: int) -> tuple[Mixer, int]:
    if c.flag("no_op", False):
        return NoMixer(), 0
    if c.flag("replace_with_linear", False):
        return NoMixer((("linear", d, d),)), d
    per = c.integer("n_heads_in_group")
    if n_heads % per:
        raise c.fault("n_heads_in_group", f"got {per}", f"a divisor of the {n_heads} query heads is needed")
    return FullAttention(n_heads, n_heads // per, head), d


def _searched_ffn(c: Config, d: int) -> tuple[Ffn, int]:
    if c.flag("no_op", False):
        return NoFfn(), 0
    if c.flag("replace_with_linear", False):
        raise c.fault("replace_with_linear", "got true", "a linear feed-forward is not supported")
    width = int(2 * c.number("ffn_mult") * d / 3)
    if width < 1:
        raise c.fault("ffn_mult", f"got {c.values['ffn_mult']!r}", "a positive number is needed")
    return DenseFfn(-(-width // 256) * 256), d
