"""The whole step as one roofline with one efficiency: MODEL section 4's `roofline`, a bound at efficiency 1."""

from __future__ import annotations

import numpy as np

from fleetplan.catalog import Gpu
from fleetplan.errors import InputError
from fleetplan.physics import precision
from fleetplan.physics.architecture import Architecture, MoeFfn
from fleetplan.physics.form import Floats, StepTime
from fleetplan.physics.pipeline import pipeline
from fleetplan.physics.work import Layout, Work, work

_SATURATED = 1e-12


def roofline(
    architecture: Architecture,
    gpu: Gpu,
    *,
    weights: str,
    kv_cache: str,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: int = 1,
    efficiency: float = 1.0,
    overhead_s: float = 0.0,
    attention_flops: bool = False,
    max_tokens: int = 16384,
) -> StepTime:
    """Whole-step roofline of one replica: C[n] = 2·P_act·n/(η·F·t), M[n] = w·P_read(n)/(η·BW·t), m = k_gpu/(η·BW).

    P_read is every stored parameter, of experts those that n tokens touch, E·(1 − (1 − top_k/E)^n). `attention_flops` adds
    c = Σ 4·n_h·d_h/(η·F·t) a query-key pair (MLA as in prefill). A pipeline's step is the sum over its stages, without the sends as without
    any collective; its longest stage is told apart. The overhead is the host's, and the last stage's. Raises `InputError` for an efficiency
    outside (0, 1], an unknown precision, a degree below 1, or more stages than layers.

    >>> from fleetplan import catalog
    >>> step = roofline(catalog.model("llama-2-7b").architecture, catalog.gpu("h100-sxm"), weights="bf16", kv_cache="bf16", efficiency=0.7)
    >>> round(float(step.step_s(tokens=169, sequences=169, decoding=169, kv_tokens=169 * 640, pairs=0)), 6)
    0.029929
    """
    if not 0 < efficiency <= 1:
        raise InputError(
            f"efficiency: a share of the peak above 0 and at most 1 is needed (got {efficiency})"
        )
    layout = checked_layout(tensor_parallel, pipeline_parallel, data_parallel, expert_parallel)
    scheme = precision.scheme(weights, architecture)
    compute, _ = precision.compute_dtype(scheme, gpu)
    flop_per_s = efficiency * peak_flop_per_s(gpu, compute)
    bandwidth = efficiency * gpu.bandwidth_bytes_per_s
    attention = 1.0 / efficiency / peak_flop_per_s(gpu, "bf16") if attention_flops else 0.0
    share = touched_share(architecture, max_tokens)
    t, dp = layout.tensor_parallel, layout.data_parallel

    def of(part: Architecture, hidden_s: float) -> StepTime:
        read_once, experts, active = 0.0, 0.0, 0
        for tensor in part.tensors():
            if tensor.group == "embedding" and part.tied_head and not part.holds_head:
                continue  # the last stage's copy is the one that is multiplied
            active += tensor.parameters_active
            if tensor.shard == "expert":
                experts += scheme.bytes_of(tensor) / t / dp
            else:
                read_once += scheme.bytes_of(tensor) / t
        memory = (read_once + experts * share) / bandwidth
        memory[0] = 0.0
        per_token = 2 * active / (flop_per_s * t * dp)
        load = replica_work(part, gpu, weights=weights, kv_cache=kv_cache, layout=layout, whole=architecture)
        return StepTime(
            overhead_s=np.array([0.0, hidden_s]),
            compute_s=np.array([0.0, per_token]),
            memory_s=memory,
            pair_s=load.flop_per_pair * attention,
            window_pair_s=load.window_flop_per_pair * attention,
            kv_token_s=load.kv_bytes_per_token / bandwidth,
            window_kv_token_s=load.window_kv_bytes_per_token / bandwidth,
            state_s=load.state_bytes_per_sequence / bandwidth,
            window_tokens=load.window_tokens,
            overhead_slope_s=0.0,
            compute_slope_s=per_token,
            memory_slope_s=0.0,
        )

    latency = of(architecture, overhead_s)
    if layout.pipeline_parallel == 1:
        return latency
    stages = checked_stages(architecture, layout)
    return pipeline(latency, [of(stage, overhead_s if stage is stages[-1] else 0.0) for stage in stages])


def checked_stages(architecture: Architecture, layout: Layout) -> tuple[Architecture, ...]:
    """The stages of the layout, or `InputError` where there are fewer layers."""
    if layout.pipeline_parallel > architecture.layer_count:
        raise InputError(
            f"pipeline_parallel: got {layout.pipeline_parallel}, at most the {architecture.layer_count} layers of {architecture.name}"
        )
    return architecture.stages(layout.pipeline_parallel)


def touched_share(architecture: Architecture, max_tokens: int) -> Floats:
    """Share of the experts that n = 0..N tokens touch, N the first that touches all or `max_tokens`; [0, 1] for a dense model."""
    ffn = next((group.ffn for group in architecture.layers if isinstance(group.ffn, MoeFfn)), None)
    if ffn is None or ffn.top_k >= ffn.experts:
        return np.array([0.0, 1.0])
    miss = 1 - ffn.top_k / ffn.experts
    last = min(int(np.ceil(np.log(_SATURATED) / np.log(miss))), max_tokens)
    return np.asarray(1 - miss ** np.arange(last + 1))


def checked_layout(
    tensor_parallel: int, pipeline_parallel: int, data_parallel: int, expert_parallel: int
) -> Layout:
    """The layout, or `InputError` with every degree that is no whole number from 1 up."""
    given = {
        "tensor_parallel": tensor_parallel,
        "pipeline_parallel": pipeline_parallel,
        "data_parallel": data_parallel,
        "expert_parallel": expert_parallel,
    }
    faults = [
        f"{name}: a whole number from 1 up is needed (got {n})"
        for name, n in given.items()
        if n < 1 or n != int(n)
    ]
    ranks = tensor_parallel * data_parallel
    if not faults and ranks % expert_parallel:
        faults.append(
            f"expert_parallel: must divide tensor_parallel · data_parallel = {ranks} (got {expert_parallel})"
        )
    if faults:
        raise InputError(*faults)
    return Layout(**{name: int(n) for name, n in given.items()})


def replica_work(
    architecture: Architecture,
    gpu: Gpu,
    *,
    weights: str,
    kv_cache: str,
    layout: Layout,
    whole: Architecture | None = None,
) -> Work:
    """One GPU's work in a step, with the precision's bytes and compute dtypes by tensor group; `whole`: the model it is a stage of."""
    scheme = precision.scheme(weights, architecture)
    compute, _ = precision.compute_dtype(scheme, gpu)
    return work(
        architecture,
        layout,
        lambda group: scheme.bits_of(group) / 8,
        lambda group: compute if group in scheme.quantised else "bf16",
        precision.kv_dtype_bytes(kv_cache),
        whole,
    )


def peak_flop_per_s(gpu: Gpu, dtype: str) -> float:
    """Dense peak [FLOP/s] in a compute dtype. Raises `InputError` where the catalogue has none."""
    rate = {str(name): value for name, value in gpu.flop_per_s.items()}.get(dtype)
    if rate is None:
        raise InputError(
            f"{gpu.name}: no peak FLOP/s for {dtype} in the catalogue; known: {', '.join(gpu.flop_per_s)}"
        )
    return float(rate)
