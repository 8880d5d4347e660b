"""What one GPU of a replica does in one step: matrix products by operator, KV and state it reads, query-key pairs, layers and links."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fleetplan.physics.architecture import (
    Architecture,
    CompressedAttention,
    FullAttention,
    LatentAttention,
    MoeFfn,
    NoMixer,
    StateMixer,
    Tensor,
)
from fleetplan.physics.form import Floats
from fleetplan.physics.tensor import Group


@dataclass(frozen=True)
class Layout:
    """How a replica's GPUs share the model: tensor · pipeline · data parallel GPUs; experts over `expert_parallel` ranks of a stage.

    Data parallel here is attention data parallel inside one replica: its ranks hold different sequences and share the experts.
    """

    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    data_parallel: int = 1
    expert_parallel: int = 1

    @property
    def gpus(self) -> int:
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tensor_parallel * self.data_parallel


@dataclass(frozen=True, eq=False)
class Operators:
    """Matrix products of one GPU, one row a kind of kernel; all stages of a pipeline together, for a step passes each."""

    name: tuple[str, ...]
    dtype: tuple[str, ...]
    """Compute dtype."""
    stored: tuple[str, ...]
    """Precision family of the stored weights: bf16, fp8, int8, int4 or fp4."""
    flop_per_token: Floats
    """FLOP for each of the replica's n tokens."""
    bytes: Floats
    """Weight bytes, all experts counted."""
    kernels: Floats
    """Launches: layers that have it."""
    experts: Floats
    """Experts it chooses from; 0 for a dense product."""
    top_k: Floats

    def touched(self, tokens: Floats, correlation: float = 1.0) -> Floats:
        """Share of the bytes that n tokens read, (tokens, operators): 1 − (1 − top_k/E)^(n^correlation).

        1 is uniform, independent routing; neighbouring tokens prefer the same experts, so below 1 fewer are distinct.
        """
        n = np.asarray(tokens, dtype=np.float64)[..., None] ** correlation
        miss = np.where(self.experts > 0, 1 - self.top_k / np.maximum(self.experts, 1), 0.0)
        return np.where(self.experts > 0, 1 - miss**n, 1.0)


@dataclass(frozen=True, eq=False)
class Work:
    """One GPU's share of a step, linear in what the step holds. Everything is for one GPU but n, B, R and X are the replica's."""

    layout: Layout
    operators: Operators
    head_bytes: float
    """Output head: weights [bytes], read once a step; one row a sequence is multiplied."""
    head_flop_per_sequence: float
    head_dtype: str
    kv_bytes_per_token: float
    """KV read a context token in layers without a window [bytes]."""
    window_kv_bytes_per_token: float
    decode_flop_per_kv_token: float
    """Attention FLOP a context token when decoding, layers without a window (MLA: absorbed)."""
    window_decode_flop_per_kv_token: float
    flop_per_pair: float
    """Attention FLOP a query-key pair of prefill, layers without a window."""
    window_flop_per_pair: float
    state_bytes_per_sequence: float
    window_tokens: int
    layers: int
    waiting_gpus: int
    """GPUs that wait for one another in a layer: the tensor-parallel group, of a model with experts all of the stage."""
    attention_layers: int
    moe_layers: int
    activation_bytes_per_token: float
    """d·2: what one all-reduce carries a token."""
    all_reduces: int
    """All-reduces over the tensor-parallel group in a step."""
    expert_exchanges: int
    """MoE layers whose tokens cross to other ranks."""
    expert_bytes_per_token: float
    """top_k·d·2 [bytes] a token in one direction of one exchange."""


def work(
    architecture: Architecture,
    layout: Layout,
    bytes_per_weight: Callable[[Group], float],
    compute_dtype: Callable[[Group], str],
    kv_dtype_bytes: float,
    whole: Architecture | None = None,
) -> Work:
    """The work of one GPU; `bytes_per_weight` and `compute_dtype` answer for a tensor's group.

    `whole` is the model that the architecture is a pipeline stage of, whose window and experts count: the work of all stages then adds up
    to that of the model.
    """
    t, dp = layout.tensor_parallel, layout.data_parallel
    rows: dict[tuple[str, str, str, float, float, float, float], float] = {}
    kv = kv_w = decode = decode_w = pair = pair_w = state = 0.0
    moe_layers = attention_layers = all_reduces = exchanges = 0
    top_k = 0
    window = common_window(whole or architecture)
    for group in architecture.layers:
        for name, members in _fused([x for x in group.tensors(architecture.d) if x.multiplied]).items():
            key, copies = _operator(name, members, group.ffn, layout, bytes_per_weight, compute_dtype)
            rows[key] = rows.get(key, 0.0) + copies * group.count
        mixer, count = group.mixer, group.count
        if isinstance(mixer, FullAttention):
            attention_layers += count
            heads_here = max(1.0, mixer.n_kv_heads / t) / mixer.n_kv_heads if mixer.n_kv_heads else 0.0
            read = mixer.n_kv_heads * (mixer.head_dim + mixer.v_dim) * kv_dtype_bytes * heads_here / dp
            flop = mixer.flop_per_pair / t / dp
            if mixer.window:
                kv_w, decode_w, pair_w = kv_w + count * read, decode_w + count * flop, pair_w + count * flop
            else:
                kv, decode, pair = kv + count * read, decode + count * flop, pair + count * flop
        elif isinstance(mixer, LatentAttention):
            attention_layers += count
            read = mixer.kv_elements_per_token * kv_dtype_bytes / dp
            absorbed, plain = mixer.flop_per_pair / t / dp, mixer.flop_per_pair_prefill / t / dp
            if mixer.indexer and mixer.indexer.tokens:
                index = 2 * mixer.indexer.n_heads * mixer.indexer.head_dim / dp
                kv += count * mixer.indexer_bytes_per_token / dp
                decode, pair = decode + count * index, pair + count * index
                kv_w, decode_w, pair_w = (
                    kv_w + count * read,
                    decode_w + count * absorbed,
                    pair_w + count * plain,
                )
            else:
                kv, decode, pair = kv + count * read, decode + count * absorbed, pair + count * plain
        elif isinstance(mixer, CompressedAttention):
            attention_layers += count
            entry, flop = mixer.head_dim * kv_dtype_bytes / dp, mixer.flop_per_pair / t / dp
            # A full window is read in every step whatever the context: as a state is. Its pairs are spread over the common window.
            state += count * mixer.window * entry
            near = count * flop * mixer.window / window
            decode_w, pair_w = decode_w + near, pair_w + near
            if mixer.ratio:
                state += count * mixer.state_bytes / mixer.ratio / dp
                read, each = count * entry / mixer.ratio, count * flop / mixer.ratio
                if mixer.indexer:
                    chooser = mixer.indexer
                    kv += count * chooser.entry_bytes / mixer.ratio / dp
                    score = count * 2 * chooser.n_heads * chooser.head_dim / mixer.ratio / dp
                    decode, pair = decode + score, pair + score
                    kv_w, decode_w, pair_w = kv_w + read, decode_w + each, pair_w + each
                else:
                    kv, decode, pair = kv + read, decode + each, pair + each
        elif isinstance(mixer, StateMixer):
            state += count * mixer.state_bytes / t / dp
        all_reduces += count * ((not isinstance(mixer, NoMixer)) + 1)
        if isinstance(group.ffn, MoeFfn):
            moe_layers += count
            top_k = max(top_k, group.ffn.top_k)
            if dp > 1:
                exchanges += count
    head = next((x for x in architecture.tensors() if x.group == "head"), None)
    head_size = head.size / t if head else 0.0
    return Work(
        layout=layout,
        operators=_operators(rows),
        head_bytes=head_size * bytes_per_weight("head"),
        head_flop_per_sequence=2 * head_size / dp,
        head_dtype=compute_dtype("head"),
        kv_bytes_per_token=kv,
        window_kv_bytes_per_token=kv_w,
        decode_flop_per_kv_token=decode,
        window_decode_flop_per_kv_token=decode_w,
        flop_per_pair=pair,
        window_flop_per_pair=pair_w,
        state_bytes_per_sequence=state,
        window_tokens=window,
        layers=architecture.layer_count,
        waiting_gpus=layout.stage_gpus if (whole or architecture).is_moe else t,
        attention_layers=attention_layers,
        moe_layers=moe_layers,
        activation_bytes_per_token=2.0 * architecture.d / dp,
        all_reduces=all_reduces if t > 1 else 0,
        expert_exchanges=exchanges,
        expert_bytes_per_token=2.0 * architecture.d * top_k / dp,
    )


def common_window(architecture: Architecture) -> int:
    """One window for all layers that have one [tokens]: the widest, so that no layer is charged less than it reads; 0: none has one."""
    windows = list(architecture.windows)
    for group in architecture.layers:
        mixer = group.mixer
        if isinstance(mixer, LatentAttention) and mixer.indexer and mixer.indexer.tokens:
            windows.append(mixer.indexer.tokens)
        elif isinstance(mixer, CompressedAttention) and mixer.indexer:
            windows.append(mixer.indexer.entries * mixer.ratio)
    return max(windows, default=0)


def weight_family(bytes_per_weight: float, compute: str) -> str:
    """Precision family by stored bytes: bf16, fp8 or int8, fp4 where the matrix units take 4 bits as they are, int4 where they are unpacked first."""
    if bytes_per_weight >= 1.5:
        return "bf16"
    if bytes_per_weight >= 0.75:
        return "int8" if compute == "int8" else "fp8"
    return "fp4" if compute in ("fp4", "fp8") else "int4"


def _fused(tensors: list[Tensor]) -> dict[str, list[Tensor]]:
    """Products of one layer that read the same input run as one kernel: q, k and v; up and gate."""
    fused: dict[tuple[object, ...], list[Tensor]] = {}
    for tensor in tensors:
        fused.setdefault(
            (tensor.group, tensor.shape[0], tensor.multiplied, tensor.shard == "replicated"), []
        ).append(tensor)
    return {" + ".join(x.name for x in members): members for members in fused.values()}


def _operator(
    name: str,
    members: list[Tensor],
    ffn: object,
    layout: Layout,
    bytes_per_weight: Callable[[Group], float],
    compute_dtype: Callable[[Group], str],
) -> tuple[tuple[str, str, str, float, float, float, float], float]:
    t, dp = layout.tensor_parallel, layout.data_parallel
    group = members[0].group
    stored = bytes_per_weight(group)
    dtype = compute_dtype(group)
    if members[0].shard == "expert" and isinstance(ffn, MoeFfn):
        size = sum(x.size * x.count for x in members) / layout.stage_gpus
        flop = sum(x.flop_per_token for x in members) / layout.stage_gpus
        return (
            name,
            dtype,
            weight_family(stored, dtype),
            flop,
            size * stored,
            float(ffn.experts),
            float(ffn.top_k),
        ), 1.0
    size = flop = 0.0
    for x in members:
        parts = 1 if x.shard == "replicated" else t
        size += x.size * x.count / parts
        flop += x.flop_per_token / parts / dp
    return (name, dtype, weight_family(stored, dtype), flop, size * stored, 0.0, 0.0), 1.0


def _operators(rows: dict[tuple[str, str, str, float, float, float, float], float]) -> Operators:
    keys = list(rows)
    copies = np.array([rows[key] for key in keys])
    return Operators(
        name=tuple(key[0] for key in keys),
        dtype=tuple(key[1] for key in keys),
        stored=tuple(key[2] for key in keys),
        flop_per_token=np.array([key[3] for key in keys]) * copies,
        bytes=np.array([key[4] for key in keys]) * copies,
        kernels=copies,
        experts=np.array([key[5] for key in keys]),
        top_k=np.array([key[6] for key in keys]),
    )
