"""DeepSeek V4: window and compressed attention by compress_ratios, hashed first routers, several residual streams."""

from __future__ import annotations

from fleetplan.hf import blocks
from fleetplan.hf.families.mixture import experts
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import (
    Architecture,
    CompressedAttention,
    CompressedIndexer,
    LayerGroup,
    MoeFfn,
    Tensor,
)
from fleetplan.physics.tensor import matrix, vector

OVERLAPPING = 4
"""The ratio at which entries overlap and an indexer chooses among them; at others all entries are read."""


def deepseek_v4(c: Config, name: str) -> Architecture:
    """DeepSeek V4 Flash and Pro; shapes as in the checkpoints' index, tables from token to expert (integers) not counted."""
    d, layers = c.integer("hidden_size"), blocks.layer_count(c)
    ratios = c.whole("compress_ratios")
    predict = c.integer_or("num_nextn_predict_layers", 0, least=0)
    if len(ratios) not in (layers, layers + predict):
        raise c.fault("compress_ratios", f"got {len(ratios)} entries", f"one a layer is needed, {layers}")
    if c.integer("num_key_value_heads") != 1:
        raise c.fault("num_key_value_heads", f"got {c.values['num_key_value_heads']}", "1 is needed")
    mixers = {ratio: _attention(c, ratio) for ratio in {0, *ratios[:layers]}}
    count, top = experts(c, "n_routed_experts")
    width = c.integer("moe_intermediate_size")
    shared = c.integer_or("n_shared_experts", 0, least=0) * width
    hashed = c.integer_or("num_hash_layers", 0, least=0)
    streams = c.integer("hc_mult")
    mixing = tuple(_mixing(block, streams, d) for block in ("attention", "ffn"))

    def layer(ratio: int, number: int, learned: bool) -> LayerGroup:
        ffn = MoeFfn(count, top, width, shared_d_ff=shared, router_bias=count if learned else 0)
        extra = tuple(tensor for pair in mixing for tensor in pair)
        return LayerGroup(number, mixers[ratio], ffn, 2 * d, extra)

    groups = [layer(ratios[index], 1, index >= hashed) for index in range(layers)]
    mtp: tuple[Tensor, ...] = ()
    if predict:
        mtp = (
            blocks.prediction_layers([layer(0, predict, True)], d, predict) + _collapse(streams, d) * predict
        )
        c.note(f"{predict} multi-token-prediction layer(s) are kept apart from every total")
    c.note(
        "KV of compressed entries is spread evenly over the tokens that they stand for; the compressors' unfinished entries"
        " are the state, in fp32"
    )
    return blocks.finish(c, name, d, groups, tied=c.tied(False), extra=_collapse(streams, d), mtp=mtp)


def _attention(c: Config, ratio: int) -> CompressedAttention:
    n_heads, head = c.integer("num_attention_heads"), c.integer("head_dim")
    groups = c.integer("o_groups")
    if n_heads % groups:
        raise c.fault("o_groups", f"got {groups}", f"a divisor of the {n_heads} heads is needed")
    indexer = None
    if ratio == OVERLAPPING:
        width = c.integer("index_head_dim")
        # One fp8 key and one 4-byte scale for each 128 of it.
        stored = width + 4 * -(-width // 128)
        indexer = CompressedIndexer(c.integer("index_n_heads"), width, stored, c.integer("index_topk"))
    c.read |= {"index_topk", "expert_dtype"}
    return CompressedAttention(
        n_heads,
        head,
        c.integer("q_lora_rank"),
        groups,
        c.integer("o_lora_rank"),
        c.integer("sliding_window"),
        ratio,
        overlap=ratio == OVERLAPPING,
        indexer=indexer,
    )


def _mixing(block: str, streams: int, d: int) -> tuple[Tensor, ...]:
    """How the residual streams are read, written and mixed around one block: streams·(streams + 2) numbers from all of them."""
    numbers = streams * (streams + 2)
    return (
        matrix(f"{block} streams", "router", streams * d, numbers, "replicated"),
        vector(f"{block} streams' base and scale", "norm", numbers + 3),
    )


def _collapse(streams: int, d: int) -> tuple[Tensor, ...]:
    """The streams joined into one before the head."""
    return (
        matrix("head streams", "router", streams * d, streams, "replicated"),
        vector("head streams' base and scale", "norm", streams + 1),
    )
