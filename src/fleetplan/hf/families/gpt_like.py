"""Decoders of the GPT kind: layer norms with biases, feed-forward without a gate, older key names."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture, DenseFfn, FullAttention, LayerGroup, Tensor


def gpt2(c: Config, name: str) -> Architecture:
    """GPT-2: learned positions, every query head its own keys and values, tied head."""
    d, n_heads = c.integer("n_embd"), c.integer("n_head")
    ffn = DenseFfn(c.integer_or("n_inner", 4 * d), gated=False, bias=True)
    positions = table("positions", c.integer("n_positions"), d)
    return _biased(c, name, d, n_heads, n_heads, ffn, "n_layer", "n_positions", tied=True, extra=(positions,))


def gpt_bigcode(c: Config, name: str) -> Architecture:
    """StarCoder 1 and SantaCoder: GPT-2 with one KV head where multi_query is true."""
    d, n_heads = c.integer("n_embd"), c.integer("n_head")
    n_kv = 1 if c.flag("multi_query", True) else n_heads
    ffn = DenseFfn(c.integer_or("n_inner", 4 * d), gated=False, bias=True)
    positions = table("positions", c.integer("n_positions"), d)
    return _biased(c, name, d, n_heads, n_kv, ffn, "n_layer", "n_positions", tied=True, extra=(positions,))


def gpt_neox(c: Config, name: str) -> Architecture:
    """GPT-NeoX, Pythia, RedPajama."""
    d, n_heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    bias = c.flag("attention_bias", True)
    ffn = DenseFfn(c.integer("intermediate_size"), gated=False, bias=True)
    return _biased(c, name, d, n_heads, n_heads, ffn, "num_hidden_layers", bias=bias)


def gptj(c: Config, name: str) -> Architecture:
    """GPT-J: one norm a layer, biases in the feed-forward and the head only."""
    d, n_heads = c.integer("n_embd"), c.integer("n_head")
    ffn = DenseFfn(c.integer_or("n_inner", 4 * d), gated=False, bias=True)
    head_bias = vector("head bias", c.integer("vocab_size"))
    return _biased(
        c,
        name,
        d,
        n_heads,
        n_heads,
        ffn,
        "n_layer",
        "n_positions",
        bias=False,
        norms=2 * d,
        extra=(head_bias,),
    )


def phi(c: Config, name: str) -> Architecture:
    """Phi 1, 1.5 and 2: parallel blocks under one norm, biases everywhere, head included."""
    old = c.family == "phi-msft"
    d = c.integer("n_embd" if old else "hidden_size")
    heads_key, kv_key = ("n_head", "n_head_kv") if old else ("num_attention_heads", "num_key_value_heads")
    n_heads = c.integer(heads_key)
    n_kv = c.integer_or(kv_key, n_heads)
    blocks.check_groups(c, n_heads, n_kv, kv_key)
    inner = c.integer_or("n_inner", 4 * d) if old else c.integer("intermediate_size")
    head = blocks.head_dim(c, d, n_heads, heads_key)
    norms = 4 * head if not old and c.flag("qk_layernorm", False) else 0
    return _biased(
        c,
        name,
        d,
        n_heads,
        n_kv,
        DenseFfn(inner, gated=False, bias=True),
        "n_layer" if old else "num_hidden_layers",
        "n_positions" if old else "max_position_embeddings",
        norms=2 * d,
        small=norms,
        extra=(vector("head bias", c.integer("vocab_size")),),
        heads_key=heads_key,
    )


def opt(c: Config, name: str) -> Architecture:
    """OPT: learned positions with two spare rows, tied head, no final norm where norms come last."""
    d, n_heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    bias = c.flag("enable_bias", True)
    words = c.integer_or("word_embed_proj_dim", d)
    if words != d:
        raise c.fault(
            "word_embed_proj_dim", f"got {words}", f"projected embeddings are not supported, {d} is"
        )
    positions = table("positions", c.integer("max_position_embeddings") + 2, d)
    affine = 2 if c.flag("layer_norm_elementwise_affine", True) else 0
    return _biased(
        c,
        name,
        d,
        n_heads,
        n_heads,
        DenseFfn(c.integer("ffn_dim"), gated=False, bias=bias),
        "num_hidden_layers",
        bias=bias,
        norms=2 * affine * d,
        final_norm=affine * d if c.flag("do_layer_norm_before", True) else 0,
        tied=True,
        extra=(positions,),
    )


def bloom(c: Config, name: str) -> Architecture:
    """BLOOM: a norm on the embedding, ALiBi positions, tied head."""
    d, n_heads = c.first("hidden_size", "n_embed"), c.first("n_head", "num_attention_heads")
    ffn = DenseFfn(4 * d, gated=False, bias=True)
    layers = "n_layer" if c.has("n_layer") else "num_hidden_layers"
    return _biased(
        c,
        name,
        d,
        n_heads,
        n_heads,
        ffn,
        layers,
        "seq_length",
        tied=True,
        extra=(vector("embedding norm", 2 * d),),
    )


def falcon(c: Config, name: str) -> Architecture:
    """Falcon: one KV head in the old layout with multi_query, num_kv_heads in the new one."""
    d = c.integer("hidden_size")
    n_heads = c.first("num_attention_heads", "n_head")
    new = c.flag("new_decoder_architecture", False)
    parallel = c.flag("parallel_attn", True)
    if new:
        n_kv = c.first("num_kv_heads", "n_head_kv")
        blocks.check_groups(c, n_heads, n_kv, "num_kv_heads")
    else:
        n_kv = 1 if c.flag("multi_query", True) else n_heads
    bias = c.flag("bias", False)
    two = new and c.integer_or("num_ln_in_parallel_attn", 2) == 2
    norms = 2 * d if parallel and not two else 4 * d
    ffn = DenseFfn(c.integer_or("ffn_hidden_size", 4 * d), gated=False, bias=bias)
    layers = "num_hidden_layers" if c.has("num_hidden_layers") else "n_layer"
    if c.tied(True):
        c.note(
            "the head is the embedding: counts of the checkpoint's files, where it lies twice, are V·d higher"
        )
    return _biased(c, name, d, n_heads, n_kv, ffn, layers, bias=bias, norms=norms, tied=True)


def mpt(c: Config, name: str) -> Architecture:
    """MPT: no biases and norms without bias where no_bias is true; KV heads by attn_config."""
    d, n_heads = c.integer("d_model"), c.integer("n_heads")
    n_kv = n_heads
    positions: tuple[Tensor, ...] = ()
    alibi = False
    if c.has("attn_config"):
        attn = c.part("attn_config")
        kind = attn.text(
            "attn_type",
            ("multihead_attention", "multiquery_attention", "grouped_query_attention"),
            "multihead_attention",
        )
        alibi = attn.flag("alibi", False)
        if kind == "multiquery_attention":
            n_kv = 1
        elif kind == "grouped_query_attention":
            n_kv = attn.integer("kv_n_heads")
            blocks.check_groups(attn, n_heads, n_kv, "kv_n_heads")
        if attn.flag("qk_ln", False):
            raise attn.fault("qk_ln", "got true", "query/key norms are not supported for this family")
    if c.flag("learned_pos_emb", True) and not alibi:
        positions = (table("positions", c.integer("max_seq_len"), d),)
    bias = not c.flag("no_bias", True)
    ffn = DenseFfn(int(c.number("expansion_ratio", 4) * d), gated=False, bias=bias)
    return _biased(
        c,
        name,
        d,
        n_heads,
        n_kv,
        ffn,
        "n_layers",
        "max_seq_len",
        bias=bias,
        norms=(4 if bias else 2) * d,
        final_norm=(2 if bias else 1) * d,
        tied=True,
        extra=positions,
    )


def qwen(c: Config, name: str) -> Architecture:
    """Qwen 1: gated feed-forward of half intermediate_size, biased q, k, v."""
    d, n_heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    head = c.integer("kv_channels")
    if not c.flag("no_bias", True):
        raise c.fault("no_bias", "got false", "only true is known")
    attention = FullAttention(n_heads, n_heads, head, qkv_bias=True)
    group = LayerGroup(
        blocks.layer_count(c), attention, DenseFfn(c.integer("intermediate_size") // 2), norm_parameters=2 * d
    )
    return blocks.finish(c, name, d, [group], tied=c.tied(False), context_key="seq_length")


def chatglm(c: Config, name: str) -> Architecture:
    """ChatGLM 2, 3 and GLM-4: multi_query_group_num KV heads, padded vocabulary."""
    d, n_heads = c.integer("hidden_size"), c.integer("num_attention_heads")
    n_kv = n_heads
    if c.flag("multi_query_attention", False):
        n_kv = c.integer("multi_query_group_num")
        blocks.check_groups(c, n_heads, n_kv, "multi_query_group_num")
    linear = c.flag("add_bias_linear", False)
    norm = d if c.flag("rmsnorm", True) else 2 * d
    attention = FullAttention(
        n_heads,
        n_kv,
        c.integer("kv_channels"),
        qkv_bias=linear or c.flag("add_qkv_bias", False),
        o_bias=linear,
    )
    group = LayerGroup(
        blocks.layer_count(c, "num_layers"),
        attention,
        DenseFfn(c.integer("ffn_hidden_size"), bias=linear),
        norm_parameters=2 * norm,
    )
    return blocks.finish(
        c,
        name,
        d,
        [group],
        tied=c.tied(False),
        vocabulary=c.integer("padded_vocab_size"),
        final_norm=norm if c.flag("post_layer_norm", True) else 0,
        context_key="seq_length",
    )


def table(name: str, rows: int, d: int) -> Tensor:
    """A learned table of which a token looks up one row."""
    return Tensor(name, "embedding", (rows, d), 1, "tensor", 1, 0)


def vector(name: str, size: int) -> Tensor:
    """A vector outside the layers."""
    return Tensor(name, "bias", (size,), 1, "replicated", 1, 0)


def _biased(
    c: Config,
    name: str,
    d: int,
    n_heads: int,
    n_kv: int,
    ffn: DenseFfn,
    layers_key: str,
    context_key: str = "max_position_embeddings",
    *,
    bias: bool = True,
    norms: int | None = None,
    final_norm: int | None = None,
    small: int = 0,
    tied: bool = False,
    extra: tuple[Tensor, ...] = (),
    heads_key: str = "num_attention_heads",
) -> Architecture:
    """A decoder with biases in q, k, v, o and layer norms of 2·d parameters."""
    attention = FullAttention(
        n_heads,
        n_kv,
        blocks.head_dim(c, d, n_heads, heads_key),
        qkv_bias=bias,
        o_bias=bias,
        small_parameters=small,
    )
    group = LayerGroup(blocks.layer_count(c, layers_key), attention, ffn, 4 * d if norms is None else norms)
    return blocks.finish(
        c,
        name,
        d,
        [group],
        tied=c.tied(tied),
        final_norm=2 * d if final_norm is None else final_norm,
        context_key=context_key,
        extra=extra,
    )
