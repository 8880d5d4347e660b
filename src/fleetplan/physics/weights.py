"""What weights, drafts, adapters and the workspace of a step take on one GPU."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.architecture import Architecture, MoeFfn
from fleetplan.physics.kv import check_tensor_parallel, kv_share
from fleetplan.physics.layers import Ffn, LayerGroup
from fleetplan.physics.precision import Scheme, scheme
from fleetplan.physics.tensor import Tensor


@dataclass(frozen=True)
class Adapters:
    """Resident low-rank adapters: r·(in + out) parameters a targeted matrix each."""

    rank: int
    resident: int
    targets: tuple[str, ...] = ("q", "k", "v", "o")
    """Names of the matrices of a layer, as `Architecture.tensors` has them."""
    dtype_bytes: float = 2.0


def activation_workspace_bytes(
    architecture: Architecture, tensor_parallel: int, batched_tokens: int, sequences: int
) -> float:
    """Peak workspace of one step [bytes], stated: 2·n·(3·d + widest block/t) and 4-byte logits of the sampled rows.

    The widest block: 3·d_ff gated (up, gate, product), 2·d_ff otherwise; of a mixture top_k·(3·d_ff + d) and the shared expert;
    or the heads' q, k, v and output.
    """
    d = architecture.d
    widest = max(_widest(group, d) for group in architecture.layers)
    rows = min(batched_tokens, sequences)
    return 2.0 * batched_tokens * (3 * d + widest / tensor_parallel) + 4.0 * rows * architecture.vocabulary


def _widest(group: LayerGroup, d: int) -> float:
    mixer = sum(x.shape[1] for x in group.mixer.tensors(d) if len(x.shape) == 2)
    return max(mixer, _ffn_width(group.ffn, d))


def _ffn_width(ffn: Ffn, d: int) -> float:
    if isinstance(ffn, MoeFfn):
        return ffn.top_k * (3 * ffn.d_ff + d) + 3 * ffn.shared_d_ff
    return (3 if getattr(ffn, "gated", False) else 2) * getattr(ffn, "d_ff", 0)


def stage_weights(stage: Architecture, chosen: Scheme, t: int, e: int) -> tuple[float, float]:
    """(bytes if every tensor were split evenly, bytes that the fullest rank really holds)."""
    split = held = 0.0
    for group in stage.layers:
        for x in group.tensors(stage.d):
            size = chosen.bytes_of(x) * group.count
            even, real = _shares(x, group, t, e)
            split += size * even
            held += size * real
    for x in replace(stage, layers=()).tensors():
        size = chosen.bytes_of(x)
        split += size / t
        held += size / t if x.shard == "tensor" else size
    return split, held


def _shares(x: Tensor, group: LayerGroup, t: int, e: int) -> tuple[float, float]:
    if x.shard == "expert":
        if e <= t:
            return 1 / t, 1 / t
        # A rank holds whole experts: the fullest one ceil(E/e) of them.
        experts = group.ffn.experts if isinstance(group.ffn, MoeFfn) else 1
        return 1 / e, math.ceil(experts / e) / experts
    if x.shard == "kv_heads":
        return 1 / t, kv_share(group, t)
    return 1 / t, (1 / t if x.shard == "tensor" else 1.0)


def draft_bytes(
    a: Architecture,
    draft: Architecture | None,
    weights: str,
    mtp: bool,
    chosen: Scheme,
    t: int,
    e: int,
    draft_e: int = 1,
) -> float:
    """What the fullest rank holds of a draft model, whose experts are spread over `draft_e` ranks, and of the model's own MTP layers."""
    size = 0.0
    if draft is not None:
        size += stage_weights(draft, scheme(weights, draft), draft_split(draft, t), draft_e)[1]
    if mtp:
        if not a.mtp:
            raise InputError(f"mtp: {a.name} has no multi-token-prediction layers, false is right")
        size += sum(chosen.bytes_of(x) / (max(t, e) if x.shard == "expert" else t) for x in a.mtp)
    return size


def draft_split(draft: Architecture, t: int) -> int:
    """A draft is split like its target where its heads allow, else every rank holds all of it."""
    try:
        check_tensor_parallel(draft, t)
    except InputError:
        return 1
    return t


def adapter_matrices(a: Architecture) -> tuple[str, ...]:
    """Matrices that engines keep room for adapters of unless told otherwise: of attention, of other mixers and of dense feed-forward layers."""
    groups = ("attention", "mixer", "ffn", "shared_expert")
    return tuple(dict.fromkeys(x.name for x in a.tensors() if len(x.shape) == 2 and x.group in groups))


def adapter_bytes(a: Architecture, adapters: Adapters, t: int) -> float:
    """Bytes of all resident adapters on one GPU: r·(in + out) numbers a targeted matrix W (in × out), as A (in × r) and B (r × out).

    The side next to the dimension that W is split in over t GPUs is split as W is, the other held whole: B of a matrix that is split by
    its outputs (q, k, v, up), A of one that is split by its inputs (o, down); of a matrix that every GPU holds both are whole. The
    parameters are those of Hu et al. 2021 (arXiv:2106.09685, section 4.1); the split is that of vLLM unless `fully_sharded_loras`.
    """
    if adapters.rank < 1 or adapters.resident < 0:
        raise InputError(
            f"adapters: got rank {adapters.rank}, resident {adapters.resident}; positive ones are needed"
        )
    known = {x.name for x in a.tensors() if len(x.shape) == 2}
    unknown = [name for name in adapters.targets if name not in known]
    if unknown:
        raise InputError(*(f"adapters.targets: {unknown_name('matrix', name, known)}" for name in unknown))

    def numbers(x: Tensor, part: float) -> float:
        rows = x.name in _SPLIT_BY_INPUTS
        whole, split = (x.shape[1], x.shape[0]) if rows else (x.shape[0], x.shape[1])
        return x.count * (whole + split * part)

    total = 0.0
    for group in a.layers:
        for x in group.tensors(a.d):
            if x.name in adapters.targets and len(x.shape) == 2:
                part = {"replicated": 1.0, "kv_heads": kv_share(group, t)}.get(x.shard, 1 / t)
                total += group.count * numbers(x, part)
    for x in replace(a, layers=()).tensors():
        if x.name in adapters.targets and len(x.shape) == 2:
            total += numbers(x, 1.0 if x.shard == "replicated" else 1 / t)
    return total * adapters.rank * adapters.dtype_bytes * adapters.resident


_SPLIT_BY_INPUTS = ("o", "out", "ffn down", "expert down", "shared expert down")
