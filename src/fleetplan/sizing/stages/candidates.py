"""Rows of the stage `candidates`: the grid, what fits, and why the rest cannot run."""

from __future__ import annotations

from typing import Any

from fleetplan import catalog
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine


def rows(subject: Plan) -> dict[str, list[dict[str, Any]]]:
    """Table → rows."""
    return {"candidates": [_row(subject, identity) for identity in subject.machines]}


def _row(subject: Plan, identity: str) -> dict[str, Any]:
    built = subject.machines[identity]
    candidate, memory = built.candidate, built.memory
    drafts = candidate.drafts
    return {
        "candidate_id": identity,
        "label": candidate.label,
        "gpu": candidate.gpu,
        "gpus_per_replica": candidate.gpus_per_replica,
        "tensor_parallel": candidate.tensor_parallel,
        "pipeline_parallel": candidate.pipeline_parallel,
        "data_parallel": candidate.data_parallel,
        "expert_parallel": candidate.expert_parallel,
        "weights": candidate.weights,
        "kv_cache": candidate.kv_cache,
        "engine": candidate.engine,
        "scheduler": candidate.scheduler,
        "max_num_seqs": candidate.max_num_seqs,
        "max_num_batched_tokens": candidate.max_num_batched_tokens,
        "prefix_caching": candidate.caching is not None,
        "preemption": "swap" if candidate.preemption else "recompute",
        "swap_blocks": built.config.swap_blocks if built.config and candidate.preemption else None,
        "max_adapters": candidate.max_adapters,
        "adapter_load_s": built.config.adapter_load_s if built.config and built.config.max_adapters else None,
        "speculation": "none" if drafts is None else f"{drafts.draft} × {drafts.tokens}",
        "expected_step_tokens": _tokens_a_step(built),
        **_layout(built),
        "fits": _fits(built) and (built.prefill is None or _fits(built.prefill)),
        "reason": built.reason,
        "usable_bytes": int(memory.usable_bytes if memory else catalog.gpu(candidate.gpu).memory_usable_bytes),
        "weights_bytes": int(memory.weights_bytes + memory.replicated_weights_bytes) if memory else None,
        "other_bytes": int(
            memory.activation_bytes + memory.runtime_bytes + memory.graph_bytes + memory.draft_bytes
            + memory.adapters_bytes + memory.vision_bytes + memory.prefill_window_bytes
        ) if memory else None,
        "draft_bytes": int(memory.draft_bytes) if memory else None,
        "adapters_bytes": int(memory.adapters_bytes) if memory else None,
        "left_bytes": int(memory.left_bytes) if memory else None,
        "kv_bytes_per_token": memory.kv_bytes_per_token if memory else None,
        "kv_blocks": memory.planned_blocks if memory and memory.fits else None,
        "longest_request_tokens": memory.context_tokens if memory else None,
        "concurrent_requests": memory.sequences_at_mean if memory and memory.fits else None,
    }  # fmt: skip


def _tokens_a_step(built: Machine) -> float | None:
    """1 + Σ S_i of its drafts, 1 without; None where it cannot run."""
    if built.config is None or not built.tokens:
        return None
    drafts = built.config.speculation
    return 1.0 if drafts is None else 1.0 + sum(drafts.survival)


def _fits(built: Machine) -> bool:
    return built.memory.fits if built.memory is not None else built.reason is None


def _layout(built: Machine) -> dict[str, Any]:
    split, prefill = built.candidate.split, built.prefill
    if split is None:
        keys = (
            "prefill_gpu", "prefill_tensor_parallel", "prefill_scheduler", "prefill_kv_blocks", "prefill_ratio", "decode_ratio",
            "link_bytes_per_s", "link_latency_s", "bypass_tokens",
        )  # fmt: skip
        return {"layout": "colocated", **dict.fromkeys(keys)}
    memory = prefill.memory if prefill else None
    return {
        "layout": "disaggregated",
        "prefill_gpu": split.prefill.gpu,
        "prefill_tensor_parallel": split.prefill.tensor_parallel,
        "prefill_scheduler": split.prefill.scheduler,
        "prefill_kv_blocks": memory.planned_blocks if memory and memory.fits else None,
        "prefill_ratio": None if split.searched else split.prefill_replicas,
        "decode_ratio": None if split.searched else split.decode_replicas,
        "link_bytes_per_s": split.link_bytes_per_s,
        "link_latency_s": split.link_latency_s,
        "bypass_tokens": split.bypass_tokens,
    }
