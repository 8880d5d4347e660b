"""What fits on one GPU: weights, what the engine takes besides, and what is left for the KV cache."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from fleetplan.catalog import Gpu
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.architecture import Architecture, MoeFfn
from fleetplan.physics.kv import SequenceMemory, check_tensor_parallel, planned_blocks, sequence_memory
from fleetplan.physics.precision import SCHEMES, kv_dtype_bytes, scheme
from fleetplan.physics.weights import (
    Adapters,
    activation_workspace_bytes,
    adapter_bytes,
    draft_bytes,
    draft_split,
    stage_weights,
)

__all__ = [
    "NO_OVERHEADS",
    "POLICIES",
    "Adapters",
    "EnginePolicy",
    "Memory",
    "Overheads",
    "larger_bytes",
    "memory",
]

GIB = 2**30

UtilisationOf = Literal["total", "free", "static"]


@dataclass(frozen=True)
class EnginePolicy:
    """How an engine turns a memory fraction into a KV pool, and how it gives out windowed layers."""

    name: str
    utilisation_of: UtilisationOf
    """total: usable·f - rest; free: (usable - rest)·f; static: usable·f holds weights and pool, the rest lives in 1 - f."""
    frees_window: bool = True
    """False: a windowed layer is given pages for the whole length."""


POLICIES = {
    "vllm": EnginePolicy("vllm", "total"),
    "vllm-no-hybrid": EnginePolicy("vllm-no-hybrid", "total", frees_window=False),
    "trtllm": EnginePolicy("trtllm", "free"),
    "sglang": EnginePolicy("sglang", "static"),
}


@dataclass(frozen=True)
class Overheads:
    """What the engine takes besides weights and KV on each GPU; None takes the stated formula, 0 switches a term off."""

    activation_bytes: float | None = None
    """Workspace of one step; None: `activation_workspace_bytes`."""
    runtime_bytes: float | None = None
    """CUDA context, libraries and collectives' buffers; None: 0.75 GiB, and 0.5 GiB more where GPUs talk."""
    graph_bytes: float | None = None
    """Captured CUDA graphs; None: 0.5 GiB."""
    replicated: bool = True
    """Count what a tensor-parallel rank holds besides its t-th part: norms, routers, latent projections, KV heads past n_kv."""


MOST_DEGREE = 1 << 20
"""More GPUs in one replica, or tokens in a block, are a slip."""
NO_OVERHEADS = Overheads(0.0, 0.0, 0.0, replicated=False)
"""The textbook's account: weights split t ways, nothing else taken."""


@dataclass(frozen=True)
class Memory:
    """The account of one GPU of the fullest pipeline stage; sizes in bytes."""

    model: str
    gpu: str
    gpus_per_replica: int
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    weights: str
    kv_cache: str
    engine: str
    memory_bytes: int
    usable_bytes: float
    gpu_memory_utilization: float
    weights_bytes: float
    """Each tensor's bytes over the GPUs that share it."""
    replicated_weights_bytes: float
    """What ranks hold besides, because some tensors are not split."""
    vision_bytes: float
    draft_bytes: float
    adapters_bytes: float
    activation_bytes: float
    runtime_bytes: float
    graph_bytes: float
    prefill_window_bytes: float
    """Windowed layers hold one step's chunk of prompt beyond their window while it is computed."""
    left_bytes: float
    """For KV and state; negative where the rest alone is too much."""
    kv_bytes_per_token: float
    """On this GPU, of a short sequence, drafts included."""
    state_bytes_per_sequence: float
    block_size: int
    kv_tokens: int
    """left / kv_bytes_per_token: of one GPU's pool, before rounding to blocks."""
    kv_blocks: int
    planned_blocks: int
    """Blocks that a simulation may give out: `kv_blocks`, but for windows and states worth what a sequence of half the mean holds."""
    context_tokens: int | None
    mean_tokens: int | None
    sequence_bytes_theory: float | None
    """One sequence of `context_tokens`, each layer what it can still see."""
    sequence_bytes_engine: float | None
    """The same as the engine gives it out, in blocks; the planner uses the larger of the two."""
    sequences_at_context: int | None
    """Of `context_tokens`, in all data-parallel pools."""
    sequences_at_mean: int | None
    longest_sequence_tokens: int | None
    """What one pool holds as a single sequence; None: no limit (no layer's cache grows)."""
    fits: bool
    shortfall_bytes: float
    """Missing for one sequence of `context_tokens` (or for the first block); 0 where it fits."""
    verdict: str
    remedies: tuple[str, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All fields, and the shortfall in GiB, as JSON has them."""
        return dataclasses.asdict(self) | {"shortfall_gib": self.shortfall_bytes / GIB}


def memory(
    architecture: Architecture,
    gpu: Gpu,
    *,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: int = 1,
    weights: str = "bf16",
    kv_cache: str = "bf16",
    context_tokens: int | None = None,
    mean_tokens: int | None = None,
    engine: str | EnginePolicy = "vllm",
    gpu_memory_utilization: float = 0.9,
    block_size: int = 16,
    max_num_batched_tokens: int = 8192,
    max_num_seqs: int = 256,
    usable_bytes: float | None = None,
    draft: Architecture | None = None,
    draft_weights: str = "bf16",
    draft_expert_parallel: int = 1,
    draft_extra_bytes: float = 0.0,
    mtp: bool = False,
    vision: bool = True,
    adapters: Adapters | None = None,
    overheads: Overheads = Overheads(),
    remedies: bool = True,
) -> Memory:
    """The memory of one GPU, and how many sequences it holds.

    MODEL, memory: left = usable·utilisation - weights - activations - runtime - draft - adapters (the engine's policy says what
    the factor multiplies). `draft_extra_bytes` are held by each GPU of the last stage besides a draft's own weights. `usable_bytes` replaces the catalogue's usable memory. Raises InputError for a layout that cannot run.
    """
    policy = _policy(engine)
    t, p, d, e = tensor_parallel, pipeline_parallel, data_parallel, expert_parallel
    _check(architecture, t, p, d, e, gpu_memory_utilization, block_size)
    if mean_tokens is not None and context_tokens is not None and mean_tokens > context_tokens:
        raise InputError(
            f"mean: got {mean_tokens} tokens, at most the {context_tokens} of the longest sequence (context)"
        )
    chosen, kv_bytes = scheme(weights, architecture), kv_dtype_bytes(kv_cache)
    usable = float(gpu.memory_usable_bytes) if usable_bytes is None else float(usable_bytes)
    runtime = overheads.runtime_bytes
    if runtime is None:
        runtime = 0.75 * GIB + (0.5 * GIB if t * p * d > 1 else 0.0)
    graphs = 0.5 * GIB if overheads.graph_bytes is None else overheads.graph_bytes
    drafts = draft_extra_bytes + draft_bytes(
        architecture, draft, draft_weights, mtp, chosen, t, e, draft_expert_parallel
    )
    seen = sum(x.parameters for x in architecture.vision) * 2.0 if vision else 0.0
    lora = adapter_bytes(architecture, adapters, t) / p if adapters else 0.0
    workspace = overheads.activation_bytes
    if workspace is None:
        workspace = activation_workspace_bytes(architecture, t, max_num_batched_tokens, max_num_seqs)

    def account(stage: Architecture) -> tuple[float, SequenceMemory, dict[str, float]]:
        split, held = stage_weights(stage, chosen, t, e)
        sequence = sequence_memory(stage, kv_bytes, t)
        if draft is not None and stage.holds_head:
            sequence = _joined(sequence, sequence_memory(draft, kv_bytes, draft_split(draft, t)))
        chunk = sequence.windowed_bytes_per_token * max_num_batched_tokens if policy.frees_window else 0.0
        terms = {
            "weights_bytes": split,
            "replicated_weights_bytes": held - split if overheads.replicated else 0.0,
            "vision_bytes": seen if stage.holds_embedding else 0.0,
            "draft_bytes": drafts if stage.holds_head else 0.0,
            "adapters_bytes": lora,
            "activation_bytes": workspace,
            "runtime_bytes": runtime,
            "graph_bytes": graphs,
            "prefill_window_bytes": chunk if overheads.activation_bytes is None else 0.0,
        }
        return _left(policy, usable, gpu_memory_utilization, terms), sequence, terms

    context = context_tokens if context_tokens is not None else 1

    def room(found: tuple[float, SequenceMemory, dict[str, float]]) -> float:
        need = larger_bytes(found[1], context, block_size, policy)
        return found[0] / need if need > 0 and found[0] > 0 else found[0]

    left, sequence, terms = min((account(stage) for stage in architecture.stages(p)), key=room)
    per_token = sequence.bytes_per_token
    need = larger_bytes(sequence, context, block_size, policy)
    fits = left > 0 and left >= need
    shortfall = 0.0 if fits else need - left
    pool = max(0.0, left)
    base = {
        "tensor_parallel": t,
        "pipeline_parallel": p,
        "data_parallel": d,
        "expert_parallel": e,
        "context_tokens": context_tokens,
        "engine": policy,
        "gpu_memory_utilization": gpu_memory_utilization,
        "block_size": block_size,
        "max_num_batched_tokens": max_num_batched_tokens,
        "max_num_seqs": max_num_seqs,
        "usable_bytes": usable_bytes,
        "draft": draft,
        "draft_weights": draft_weights,
        "draft_expert_parallel": draft_expert_parallel,
        "draft_extra_bytes": draft_extra_bytes,
        "mtp": mtp,
        "vision": vision,
        "adapters": adapters,
        "overheads": overheads,
    }
    helps = () if fits or not remedies else _remedies(architecture, gpu, weights, kv_cache, base)
    longest = sequence.tokens(pool)
    given = context_tokens is not None
    return Memory(
        model=architecture.name,
        gpu=gpu.name,
        gpus_per_replica=t * p * d,
        tensor_parallel=t,
        pipeline_parallel=p,
        data_parallel=d,
        expert_parallel=e,
        weights=chosen.name,
        kv_cache=kv_cache,
        engine=policy.name,
        memory_bytes=gpu.memory_bytes,
        usable_bytes=usable,
        gpu_memory_utilization=gpu_memory_utilization,
        **terms,
        left_bytes=left,
        kv_bytes_per_token=per_token,
        state_bytes_per_sequence=sequence.state_bytes,
        block_size=block_size,
        kv_tokens=math.floor(pool / per_token) if per_token else 0,
        kv_blocks=math.floor(pool / (per_token * block_size)) if per_token else 0,
        planned_blocks=planned_blocks(sequence, pool, block_size, mean_tokens, context, policy.frees_window),
        context_tokens=context_tokens,
        mean_tokens=mean_tokens,
        sequence_bytes_theory=sequence.theory_bytes(context) if given else None,
        sequence_bytes_engine=sequence.engine_bytes(context, block_size, policy.frees_window)
        if given
        else None,
        sequences_at_context=d * _count(pool, need) if given else None,
        sequences_at_mean=(
            None
            if mean_tokens is None
            else d * _count(pool, larger_bytes(sequence, mean_tokens, block_size, policy))
        ),
        longest_sequence_tokens=None if math.isinf(longest) else math.floor(longest),
        fits=fits,
        shortfall_bytes=shortfall,
        verdict=_verdict(fits, shortfall, left, context_tokens, helps),
        remedies=helps,
        notes=_notes(architecture, gpu, sequence, policy),
    )


def larger_bytes(sequence: SequenceMemory, tokens: int, block_size: int, policy: EnginePolicy) -> float:
    """What the planner charges a sequence: the larger of theory and the engine's allocation [bytes]."""
    return max(sequence.theory_bytes(tokens), sequence.engine_bytes(tokens, block_size, policy.frees_window))


def _policy(engine: str | EnginePolicy) -> EnginePolicy:
    if isinstance(engine, EnginePolicy):
        return engine
    if engine not in POLICIES:
        raise InputError(f"engine: {unknown_name('memory policy', engine, POLICIES)}")
    return POLICIES[engine]


def _check(a: Architecture, t: int, p: int, d: int, e: int, utilisation: float, block_size: int) -> None:
    for name, value in (
        ("tensor_parallel", t),
        ("pipeline_parallel", p),
        ("data_parallel", d),
        ("expert_parallel", e),
        ("block_size", block_size),
    ):
        if value < 1:
            raise InputError(f"{name}: got {value}, a whole number of at least 1 is needed")
        if value > MOST_DEGREE:
            raise InputError(f"{name}: got {value}, at most {MOST_DEGREE:,} is taken")
    if not 0 < utilisation <= 1:
        raise InputError(f"gpu_memory_utilization: got {utilisation}, more than 0 and at most 1 is needed")
    if p > a.layer_count:
        raise InputError(f"pipeline_parallel: got {p}, at most the {a.layer_count} layers of {a.name}")
    check_tensor_parallel(a, t)
    if e > 1:
        experts = min((g.ffn.experts for g in a.layers if isinstance(g.ffn, MoeFfn)), default=0)
        if not experts:
            raise InputError(f"expert_parallel: got {e}, but {a.name} has no experts: 1 is right")
        if e > experts or (t * d) % e:
            raise InputError(
                f"expert_parallel: got {e}, a divisor of tensor · data parallel = {t * d} and at most {experts} experts"
            )


def _left(policy: EnginePolicy, usable: float, factor: float, terms: dict[str, float]) -> float:
    rest = sum(terms.values())
    if policy.utilisation_of == "free":
        return (usable - rest) * factor
    if policy.utilisation_of == "total":
        return usable * factor - rest
    working = sum(terms[k] for k in ("activation_bytes", "runtime_bytes", "graph_bytes"))
    static = usable * factor - (rest - working)
    # Work that does not fit beside the static part comes out of the pool.
    return static - max(0.0, working - usable * (1 - factor))


def _joined(one: SequenceMemory, other: SequenceMemory) -> SequenceMemory:
    rates = dict(one.pieces)
    for window, rate in other.pieces:
        rates[window] = rates.get(window, 0.0) + rate
    return SequenceMemory(tuple(rates.items()), one.state_bytes + other.state_bytes)


def _count(pool: float, need: float) -> int:
    return math.floor(pool / need) if need > 0 else 0


def _remedies(
    a: Architecture, gpu: Gpu, weights: str, kv_cache: str, base: dict[str, Any]
) -> tuple[str, ...]:
    """The least tensor parallelism that fits, and the first precision that fits at the given one."""

    def fits(**change: Any) -> bool:
        try:
            found = memory(
                a, gpu, **(base | {"weights": weights, "kv_cache": kv_cache} | change), remedies=False
            )
        except InputError:
            return False
        return found.fits

    helps = []
    degrees = [t for t in range(base["tensor_parallel"] + 1, 65) if t & (t - 1) == 0]
    least = next((t for t in degrees if fits(tensor_parallel=t)), None)
    if least:
        helps.append(f"tensor parallel {least}")
    bits = scheme(weights, a).bits
    for name in ("fp8", "int8", "int4", "nvfp4"):
        if SCHEMES[name].bits < bits and fits(weights=name):
            helps.append(f"{name} weights")
            break
    if kv_cache in ("bf16", "fp16") and fits(kv_cache="fp8"):
        helps.append("fp8 KV cache")
    return tuple(helps)


def _verdict(fits: bool, shortfall: float, left: float, context: int | None, helps: tuple[str, ...]) -> str:
    wanted = "the first block" if context is None else f"one sequence of {context:,} tokens"
    if fits:
        return f"fits: {left / GIB:.2f} GiB are left for KV on each GPU"
    what = "with" if left > 0 else "before"
    way = (
        f"; what fits: {', '.join(helps)}" if helps else "; no tensor parallelism up to 64 nor precision fits"
    )
    return f"does not fit: {shortfall / GIB:.2f} GiB short {what} {wanted}{way}"


def _notes(a: Architecture, gpu: Gpu, sequence: SequenceMemory, policy: EnginePolicy) -> tuple[str, ...]:
    notes = list(a.notes)
    if not gpu.usable_measured:
        notes.append(f"{gpu.title}: no reported usable memory is known, the datasheet's figure was taken")
    if sequence.windowed_bytes_per_token:
        how = "frees blocks outside the window" if policy.frees_window else "keeps windowed layers whole"
        notes.append(
            f"KV(length) bends at {', '.join(map(str, a.windows))} tokens; {policy.name} {how};"
            " a sequence is charged the larger of theory and the engine's allocation"
        )
    if sequence.state_bytes:
        notes.append("each sequence also holds a constant state, whatever its length")
    return tuple(notes)
