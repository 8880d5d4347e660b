"""A calibrated step, operator by operator: the ideal time of each term and the constants that multiply it.

A term's time is its time on ideal hardware (FLOP/peak, bytes/bandwidth, a unit of overhead) times constants of at least 1 for hardware
and at least 0 for overheads. So no step is faster than the hardware, whatever was fitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fleetplan.catalog import Gpu
from fleetplan.physics.collectives import all_reduce_s, all_to_all_s, send_s
from fleetplan.physics.form import Floats
from fleetplan.physics.nodes import Nodes, hops, link_kind, nodes_of
from fleetplan.physics.roofline import peak_flop_per_s
from fleetplan.physics.work import Work

TERMS = {
    "matmul": "dense matrix products: max of FLOP and weight bytes, each with its efficiency",
    "experts": "expert matrix products of MoE layers",
    "head": "output head",
    "attention": "attention FLOPs of prompts",
    "kv_read": "KV cache (and MLA's compute) of the context, state of linear layers",
    "all_reduce": "tensor-parallel all-reduces, α–β",
    "sends": "activations from one pipeline stage to the next",
    "expert_exchange": "expert-parallel dispatch and combine",
    "layers": "launch and synchronisation a layer, by tensor-parallel degree",
    "moe_layers": "routing and permutation a MoE layer",
    "step": "scheduler, sampler and input preparation a step",
    "decoding_sequences": "host time a decoding sequence",
    "prompt_sequences": "host time a sequence in prefill",
}
"""Terms of a step that can be switched off by name."""

SWITCHES = {
    "experts_touched": "off: every step reads all experts, touched or not",
    "routing_correlation": "off: tokens choose their experts independently",
    "imbalance": "off: expert-parallel ranks are equally full",
    "mla_compute": "off: MLA's decode is bound by its bytes alone",
    "shard_efficiency": "off: small weight shards are read as fast as large ones",
    "token_efficiency": "off: few tokens reach the same FLOP/s as many",
}
"""Refinements inside terms that can be switched off by name."""

# Time of one launch that a small shard cannot hide [s] (kernel tables: 2.3–4.0 µs by GPU).
LAUNCH_S = 2.5e-6
# Tokens at which a matrix product reaches half of its large-batch FLOP/s beyond the bandwidth roof: bf16 on H100 0.67, 0.73, 0.84 of peak at 256, 512, 4096 tokens.
HALF_TOKENS = 64.0
HALF_TOKENS_EXPERT = 24.0
# Distinct experts of n tokens grow as those of n^0.7 independent ones: requests prefer some experts (found by fit: 0.7–0.8).
ROUTING_CORRELATION = 0.7
# The fullest of e expert ranks holds this much more than its share, times (1 − 1/e).
IMBALANCE = 0.25

OVERHEAD_UNITS = {
    "layer_tp1": 11e-6,
    "layer_tp2": 27e-6,
    "layer_tp4": 35e-6,
    "layer_tp8": 48e-6,
    "moe_layer": 35e-6,
    "step": 0.75e-3,
    "decoding_sequence": 14e-6,
    "prompt_sequence": 250e-6,
    "client": 25e-3,
    "client_token": 2.5e-6,
    "client_concurrent": 1e-3,
}
"""One unit of each overhead [s]; a constant of 1 is the middle of what two independent fits of public points found."""

IDEAL = {
    **{f"weights_{x}": 1 / e for x, e in (("bf16", 0.80), ("fp8", 0.72), ("fp4", 0.56), ("int4", 0.50))},
    **{f"matmul_{x}": 1 / e for x, e in (("bf16", 0.74), ("fp8", 0.58), ("fp4", 0.42))},
    **{
        f"expert_weights_{x}": 1 / e
        for x, e in (("bf16", 0.65), ("fp8", 0.60), ("fp4", 0.56), ("int4", 0.40))
    },
    **{f"expert_matmul_{x}": 1 / e for x, e in (("bf16", 0.36), ("fp8", 0.28), ("fp4", 0.20))},
    "kv": 1 / 0.77,
    "mla": 1 / 0.50,
    "attention": 1 / 0.50,
    "all_reduce": 1.0,
    "exchange": 1.0,
}
"""Prior of the hardware constants: 1/efficiency, from kernel tables of eight GPUs."""

# Median efficiency of expert products in kernel tables (aiconfigurator-core 0.12.0, data/<gpu>/moe/<engine>: vLLM 0.24, SGLang 0.5.14, TensorRT-LLM 1.3), by engine and by
# whether the GPU has fp4 units: share of bandwidth at up to 128 tokens, share of peak FLOP/s from 256 tokens an expert on. FP8 is block-scaled but in TensorRT-LLM on Hopper.
_KERNELS = {
    # engine, fp4 units: weights fp8, fp4, int4, bf16; FLOP/s fp8, fp4, bf16
    ("vllm", False): (0.60, 0.56, 0.36, 0.69, 0.25, 0.20, 0.42),
    ("sglang", False): (0.55, 0.56, 0.30, 0.51, 0.18, 0.20, 0.14),
    ("trtllm", False): (0.88, 0.56, 0.36, 0.77, 0.45, 0.20, 0.38),
    ("vllm", True): (0.54, 0.54, 0.32, 0.68, 0.15, 0.25, 0.35),
    ("sglang", True): (0.42, 0.58, 0.33, 0.57, 0.10, 0.22, 0.20),
    ("trtllm", True): (0.54, 0.54, 0.36, 0.68, 0.15, 0.22, 0.35),
}
_KERNEL_CLASSES = (
    *(f"expert_weights_{x}" for x in ("fp8", "fp4", "int4", "bf16")),
    *(f"expert_matmul_{x}" for x in ("fp8", "fp4", "bf16")),
)


def prior(engine: str, fp4_units: bool) -> dict[str, float]:
    """The prior of every constant for an engine on a GPU with or without fp4 units."""
    known = _KERNELS.get((engine, fp4_units))
    return PRIOR | ({name: 1 / e for name, e in zip(_KERNEL_CLASSES, known, strict=True)} if known else {})


CLASSES = (*IDEAL, *OVERHEAD_UNITS)
PRIOR: dict[str, float] = {**IDEAL, **dict.fromkeys(OVERHEAD_UNITS, 1.0)}
_FAMILY = {"bf16": "bf16", "fp8": "fp8", "int8": "fp8", "fp4": "fp4", "int4": "int4"}


@dataclass(frozen=True, eq=False)
class Rows:
    """Times linear in the constants: row r adds max(left·k[left_class], right·k[right_class]) [s]."""

    term: tuple[str, ...]
    left_class: tuple[str, ...]
    right_class: tuple[str, ...]
    left: Floats
    """(rows, steps) ideal seconds."""
    right: Floats


def token_rows(
    work: Work,
    gpu: Gpu,
    engine: str,
    tokens: Floats,
    without: frozenset[str] = frozenset(),
    nodes: Nodes | None = None,
) -> Rows:
    """Everything that depends on n alone (O[n]): matmuls, experts, head weights, collectives, overheads a layer and a step.

    `nodes`: where the GPUs stand (None: as the catalogue has them). Raises InputError where a link between nodes is used and not known.
    """
    n = np.asarray(tokens, dtype=np.float64)
    one, zero = np.ones_like(n), np.zeros_like(n)
    out: list[tuple[str, str, str, Floats, Floats]] = []
    ops, layout = work.operators, work.layout
    correlation = ROUTING_CORRELATION if "routing_correlation" not in without else 1.0
    touched = (
        ops.touched(n, correlation) if "experts_touched" not in without else np.ones((len(n), len(ops.name)))
    )
    launch = LAUNCH_S if "shard_efficiency" not in without else 0.0
    for k, dtype in enumerate(ops.dtype):
        expert = ops.experts[k] > 0
        peak = peak_flop_per_s(gpu, dtype)
        flop_s = ops.flop_per_token[k] * n / peak
        bytes_s = ops.bytes[k] * touched[:, k] / gpu.bandwidth_bytes_per_s + launch * ops.kernels[k]
        if "token_efficiency" not in without:
            if expert:
                rows_each = n * ops.top_k[k] / np.maximum(ops.experts[k] * touched[:, k], 1e-9)
                flop_s = flop_s * (1 + HALF_TOKENS_EXPERT / rows_each)
            else:
                flop_s = flop_s * (1 + HALF_TOKENS * layout.data_parallel / np.maximum(n, 1))
        if expert and "imbalance" not in without and layout.expert_parallel > 1:
            fullest = 1 + IMBALANCE * (1 - 1 / layout.expert_parallel)
            # A rank never reads more than all of its experts.
            flop_s = flop_s * fullest
            bytes_s = np.minimum(
                bytes_s * fullest, ops.bytes[k] / gpu.bandwidth_bytes_per_s + launch * ops.kernels[k]
            )
        kind = "expert_" if expert else ""
        out.append(
            (
                "experts" if expert else "matmul",
                f"{kind}matmul_{'fp4' if ops.stored[k] == 'fp4' else _FAMILY[dtype]}",
                f"{kind}weights_{_FAMILY[ops.stored[k]]}",
                flop_s,
                bytes_s,
            )
        )
    out.append(
        ("head", "weights_bf16", "weights_bf16", one * work.head_bytes / gpu.bandwidth_bytes_per_s, zero)
    )
    t, e = layout.tensor_parallel, layout.expert_parallel
    place = nodes or nodes_of(gpu)
    spanned = -(-layout.stage_gpus // place.gpus)
    link = link_kind(gpu)
    speed = gpu.link.bytes_per_s_per_direction if spanned == 1 else place.network(gpu, layout)
    if work.all_reduces:
        each = all_reduce_s(work.activation_bytes_per_token * n, t, link, speed, engine, spanned)
        out.append(("all_reduce", "all_reduce", "all_reduce", each * work.all_reduces, zero))
    if work.expert_exchanges:
        ranks = max(e, layout.data_parallel)
        each = 2 * all_to_all_s(work.expert_bytes_per_token * n, ranks, link, speed, engine, spanned)
        out.append(("expert_exchange", "exchange", "exchange", each * work.expert_exchanges, zero))
    if layout.pipeline_parallel > 1:
        inside, across = hops(layout, place)
        sent = work.activation_bytes_per_token * n
        each = inside * send_s(sent, link, gpu.link.bytes_per_s_per_direction)
        if across:
            each = each + across * send_s(sent, "network", place.network(gpu, layout))
        out.append(("sends", "all_reduce", "all_reduce", each, zero))
    for name, share in degree_shares(work.waiting_gpus).items():
        out.append(("layers", name, name, one * share * work.layers * OVERHEAD_UNITS[name], zero))
    if work.moe_layers:
        out.append(
            (
                "moe_layers",
                "moe_layer",
                "moe_layer",
                one * work.moe_layers * OVERHEAD_UNITS["moe_layer"],
                zero,
            )
        )
    out.append(("step", "step", "step", one * OVERHEAD_UNITS["step"], zero))
    kept = [row for row in out if row[0] not in without]
    return Rows(
        tuple(r[0] for r in kept),
        tuple(r[1] for r in kept),
        tuple(r[2] for r in kept),
        np.array([r[3] for r in kept]).reshape(len(kept), len(n)),
        np.array([r[4] for r in kept]).reshape(len(kept), len(n)),
    )


@dataclass(frozen=True)
class Slopes:
    """Ideal seconds of what a step's sequences, context and pairs add; each with the name of its constant."""

    pair_s: float
    window_pair_s: float
    kv_s: float
    window_kv_s: float
    mla_s: float
    """Absorbed MLA compute a context token."""
    window_mla_s: float
    state_s: float
    head_s: float
    """Output head's FLOPs a sequence."""
    head_class: str


def slopes(work: Work, gpu: Gpu, without: frozenset[str] = frozenset()) -> Slopes:
    """The scalar coefficients on ideal hardware."""
    bandwidth, bf16 = gpu.bandwidth_bytes_per_s, peak_flop_per_s(gpu, "bf16")
    on = {term: 0.0 if term in without else 1.0 for term in (*TERMS, *SWITCHES)}
    mla = on["kv_read"] * on["mla_compute"] / bf16
    return Slopes(
        pair_s=on["attention"] * work.flop_per_pair / bf16,
        window_pair_s=on["attention"] * work.window_flop_per_pair / bf16,
        kv_s=on["kv_read"] * work.kv_bytes_per_token / bandwidth,
        window_kv_s=on["kv_read"] * work.window_kv_bytes_per_token / bandwidth,
        mla_s=mla * work.decode_flop_per_kv_token,
        window_mla_s=mla * work.window_decode_flop_per_kv_token,
        state_s=on["kv_read"] * work.state_bytes_per_sequence / bandwidth,
        head_s=on["head"] * work.head_flop_per_sequence / peak_flop_per_s(gpu, work.head_dtype),
        head_class=f"matmul_{_FAMILY[work.head_dtype]}",
    )


def degree_shares(gpus: int) -> dict[str, float]:
    """Weights of the measured degrees 1, 2, 4, 8 that stand for a degree between them; above 8, that of 8.

    >>> degree_shares(4)
    {'layer_tp4': 1.0}
    >>> degree_shares(8)
    {'layer_tp8': 1.0}
    """
    at = float(np.log2(min(max(gpus, 1), 8)))
    low = min(int(at), 2)
    shares = {f"layer_tp{2**low}": 1 - (at - low), f"layer_tp{2 ** (low + 1)}": at - low}
    return {name: share for name, share in shares.items() if share > 0}


def floor_constants(constants: Mapping[str, float]) -> dict[str, float]:
    """The constants with every hardware one at least 1 (an efficiency of at most 1) and every overhead at least 0."""
    return {
        name: max(
            float(constants.get(name, PRIOR[name])),
            1.0 if name in IDEAL and name not in ("all_reduce", "exchange") else 0.0,
        )
        for name in CLASSES
    }
