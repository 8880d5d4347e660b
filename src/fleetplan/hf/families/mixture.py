"""Mixtures of experts with ordinary attention."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.llama_like import kv_heads_needed, qwen_window, typed_window
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, DenseFfn, Ffn, FullAttention, LayerGroup, MoeFfn


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


def qwen2_moe(c: Config, name: str) -> Architecture:
    """Qwen 1.5 and 2 MoE: a gated shared expert beside the routed ones."""
    return _qwen_moe(c, name, qkv_bias=c.flag("qkv_bias", True), head_norms=False)


def qwen3_moe(c: Config, name: str) -> Architecture:
    """Qwen 3 MoE: no shared expert, query and key norms."""
    return _qwen_moe(c, name, qkv_bias=c.flag("attention_bias", False), head_norms=True)


def _qwen_moe(c: Config, name: str, *, qkv_bias: bool, head_norms: bool) -> Architecture:
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = blocks.head_dim(c, d, n_heads)
    window = qwen_window(c)
    ffns = sparse_ffns(c, layers, qwen_experts(c, shared=not head_norms))

    def layer(index: int) -> LayerGroup:
        attention = FullAttention(
            n_heads,
            n_kv,
            head,
            window=window(index),
            qkv_bias=qkv_bias,
            o_bias=qkv_bias and head_norms,
            small_parameters=2 * head if head_norms else 0,
        )
        return LayerGroup(1, attention, ffns[index], 2 * d)

    return blocks.finish(c, name, d, map(layer, range(layers)), tied=c.tied(False))


def qwen_experts(c: Config, shared: bool) -> MoeFfn:
    """The mixture of the Qwen families; the shared expert's width is needed where the family has one."""
    count, top = experts(c, "num_experts")
    width = c.integer("shared_expert_intermediate_size") if shared else 0
    return MoeFfn(count, top, c.integer("moe_intermediate_size"), shared_d_ff=width, shared_gate=shared)


def sparse_ffns(c: Config, layers: int, moe: MoeFfn) -> list[Ffn]:
    """Mixtures in every decoder_sparse_step-th layer that mlp_only_layers does not name; the others dense."""
    dense_only = set(c.whole("mlp_only_layers"))
    step = c.integer_or("decoder_sparse_step", 1)
    sparse = [layer not in dense_only and (layer + 1) % step == 0 for layer in range(layers)]
    if all(sparse):
        return [moe] * layers
    dense = DenseFfn(c.integer("intermediate_size"))
    return [moe if one else dense for one in sparse]


def gpt_oss(c: Config, name: str) -> Architecture:
    """gpt-oss: a sink a head, biases everywhere, windows by layer_types."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = c.integer("head_dim")
    bias = c.flag("attention_bias", True)
    count, top = experts(c, "num_local_experts")
    ffn = MoeFfn(count, top, c.integer("intermediate_size"), bias=True, router_bias=count)
    c.items("layer_types", layers)
    window = typed_window(c)

    def layer(index: int) -> LayerGroup:
        attention = FullAttention(
            n_heads, n_kv, head, window=window(index), qkv_bias=bias, o_bias=bias, small_parameters=n_heads
        )
        return LayerGroup(1, attention, ffn, 2 * d)

    return blocks.finish(c, name, d, map(layer, range(layers)), tied=c.tied(False))


def llama4(c: Config, name: str) -> Architecture:
    """Llama 4: three layers of four attend within chunks; every interleave_moe_layer_step-th layer is a mixture."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = blocks.head_dim(c, d, n_heads)
    bias = c.flag("attention_bias", False)
    chunk = c.maybe("attention_chunk_size")
    width = c.integer("intermediate_size")
    count, top = experts(c, "num_local_experts")
    moe: Ffn = MoeFfn(count, top, width, shared_d_ff=width)
    if c.has("moe_layers"):
        sparse = set(c.whole("moe_layers"))
    else:
        step = c.integer("interleave_moe_layer_step")
        sparse = set(range(step - 1, layers, step))
    dense: Ffn = DenseFfn(width)
    if len(sparse) < layers:
        dense = DenseFfn(c.integer("intermediate_size_mlp"))
    rope = c.whole("no_rope_layers") or [1 if (index + 1) % 4 else 0 for index in range(layers)]
    if len(rope) != layers:
        raise c.fault("no_rope_layers", f"got {len(rope)} entries", f"one a layer is needed, {layers}")
    if chunk:
        c.note(f"layers with rotary positions attend within chunks of {chunk} tokens: at most one is kept")

    def layer(index: int) -> LayerGroup:
        attention = FullAttention(
            n_heads, n_kv, head, window=chunk if rope[index] else None, qkv_bias=bias, o_bias=bias
        )
        return LayerGroup(1, attention, moe if index in sparse else dense, 2 * d)

    return blocks.finish(c, name, d, map(layer, range(layers)), tied=c.tied(False))


def glm4_moe(c: Config, name: str) -> Architecture:
    """GLM-4.5 to 4.7: dense first layers, a corrected router, shared experts; MTP layers apart."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = blocks.head_dim(c, d, n_heads)
    norms = 2 * head if c.flag("use_qk_norm", False) else 0
    bias = c.flag("attention_bias", False)
    attention = FullAttention(n_heads, n_kv, head, qkv_bias=bias, small_parameters=norms)
    return first_dense(c, name, d, layers, [attention] * layers)


def first_dense(
    c: Config, name: str, d: int, layers: int, mixers: list, *, router_bias: bool = True
) -> Architecture:
    """DeepSeek's feed-forward plan: first_k_dense_replace dense layers, then mixtures with shared experts, MTP apart."""
    first = c.integer("first_k_dense_replace", least=0)
    count, top = experts(c, "n_routed_experts")
    width = c.integer("moe_intermediate_size")
    shared = c.integer_or("n_shared_experts", 0, least=0) * width
    moe = MoeFfn(count, top, width, shared_d_ff=shared, router_bias=count if router_bias else 0)
    every = c.integer_or("moe_layer_freq", 1)
    sparse = [index >= first and index % every == 0 for index in range(layers)]
    dense = DenseFfn(width if all(sparse) else c.integer("intermediate_size"))
    groups = [LayerGroup(1, mixers[index], moe if sparse[index] else dense, 2 * d) for index in range(layers)]
    predict = c.integer_or("num_nextn_predict_layers", 0, least=0)
    mtp = (
        blocks.prediction_layers([LayerGroup(predict, mixers[-1], moe, 2 * d)], d, predict) if predict else ()
    )
    if predict:
        c.note(f"{predict} multi-token-prediction layer(s) are kept apart from every total")
    return blocks.finish(c, name, d, groups, tied=c.tied(False), mtp=mtp)


def minimax_m2(c: Config, name: str) -> Architecture:
    """MiniMax M2: query and key norms over all heads, a corrected router."""
    d = c.integer("hidden_size")
    n_heads, n_kv = c.integer("num_attention_heads"), kv_heads_needed(c)
    head = c.integer("head_dim")
    count, top = experts(c, "num_local_experts")
    norms = 0
    if c.flag("use_qk_norm", True):
        kind = c.text("qk_norm_type", ("per_layer", "per_head"), "per_layer")
        norms = (n_heads + n_kv) * head if kind == "per_layer" else 2 * head
    shared = c.integer_or("shared_intermediate_size", 0, least=0)
    bias = count if c.flag("use_routing_bias", True) else 0
    moe = MoeFfn(count, top, c.integer("intermediate_size"), shared_d_ff=shared, router_bias=bias)
    if c.flag("use_mtp", False):
        c.note(
            "multi-token-prediction modules are kept apart and not counted: their shape is not in the config"
        )
    attention = FullAttention(n_heads, n_kv, head, small_parameters=norms)
    group = LayerGroup(blocks.layer_count(c), attention, moe, 2 * d)
    return blocks.finish(c, name, d, [group], tied=c.tied(False))


def dbrx(c: Config, name: str) -> Architecture:
    """DBRX: sizes of attention and experts in nested objects, layer norms without bias."""
    d = c.integer("d_model")
    n_heads = c.integer("n_heads")
    attn, ffn = c.part("attn_config"), c.part("ffn_config")
    n_kv = attn.integer("kv_n_heads")
    blocks.check_groups(attn, n_heads, n_kv, "kv_n_heads")
    count, top = experts(ffn, "moe_num_experts", "moe_top_k")
    moe = MoeFfn(count, top, ffn.integer("ffn_hidden_size"))
    attention = FullAttention(n_heads, n_kv, blocks.head_dim(c, d, n_heads, "n_heads"))
    group = LayerGroup(blocks.layer_count(c, "n_layers"), attention, moe, 2 * d)
    return blocks.finish(c, name, d, [group], tied=c.tied(False), context_key="max_seq_len")


def step3(c: Config, name: str) -> Architecture:
    """Step-3: queries through a shared low-rank projection, one KV head, mixtures in the layers of moe_layers_enum."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    n_heads, head = c.integer("num_attention_heads"), c.integer("head_dim")
    n_kv = c.integer("num_attention_groups")
    blocks.check_groups(c, n_heads, n_kv, "num_attention_groups")
    rank = c.integer("share_q_dim")
    count, top = experts(c, "moe_num_experts", "moe_top_k")
    moe = MoeFfn(count, top, c.integer("moe_intermediate_size"), shared_d_ff=c.integer("share_expert_dim"))
    sparse = _enum(c, "moe_layers_enum")
    dense = DenseFfn(c.integer("intermediate_size"))
    attention = FullAttention(n_heads, n_kv, head, q_rank=rank, small_parameters=rank)
    groups = [LayerGroup(1, attention, moe if index in sparse else dense, 2 * d) for index in range(layers)]
    return blocks.finish(c, name, d, groups, tied=c.tied(False), context_key="max_position_embedding")


def _enum(c: Config, key: str) -> set[int]:
    """Layer numbers, as a list or as comma-separated text."""
    value = c.values.get(key)
    if isinstance(value, str) and c.has(key):
        parts = value.split(",")
        if not all(part.strip().isdigit() for part in parts):
            raise c.fault(key, f"got {value!r}", "layer numbers with commas are needed")
        return {int(part) for part in parts}
    c.items(key)
    return set(c.whole(key))


def experts(c: Config, key: str, top_key: str = "num_experts_per_tok") -> tuple[int, int]:
    """(experts, top-k): a token cannot take more experts than there are."""
    count = c.integer(key)
    return count, c.integer(top_key, most=count)
