"""Rows of the stage `roofline`: bounds of every candidate that fits, and its decode step by batch."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetplan import catalog
from fleetplan.physics import precision
from fleetplan.physics.form import StepTime
from fleetplan.physics.intensity import decode_ridge_batch, ridge_flop_per_byte
from fleetplan.physics.pipeline import decode_turn_s, micro_batch
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine
from fleetplan.traffic.requests import Requests

BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def rows(subject: Plan) -> dict[str, list[dict[str, Any]]]:
    """Table → rows, of the candidates that can run."""
    bounds, steps = [], []
    for identity, built in subject.machines.items():
        if built.reason is None and built.tokens:
            mine = _steps(built, subject)
            steps += [{"candidate_id": identity, **row} for row in mine]
            bounds.append({"candidate_id": identity, **_bounds(built, subject, mine)})
    return {"bounds": bounds, "rooflines": steps}


def _bounds(built: Machine, subject: Plan, steps: list[dict[str, Any]]) -> dict[str, Any]:
    assert built.step is not None
    assert built.memory is not None
    assert built.config is not None
    mix = subject.traffic.requests()
    assert subject.model is not None
    mean = Requests.of([0.0], int(mix.prompt_tokens.mean()), max(int(mix.output_tokens.mean()), 2))
    alone = built.lone(mean)
    gpu = catalog.gpu(built.candidate.gpu)
    scheme = precision.scheme(built.candidate.weights, subject.model.architecture)
    compute, _ = precision.compute_dtype(scheme, gpu)
    ridge = ridge_flop_per_byte(gpu.flop_per_s[compute], gpu.bandwidth_bytes_per_s)
    wall = (built.memory.sequences_at_mean or 0) // built.engines_per_replica
    within = [row for row in steps if row["batch"] <= max(wall, 1)] or steps[:1]
    best = max(within, key=lambda row: row["throughput_tokens_per_s"])
    return {
        "ridge_flop_per_byte": ridge,
        "ridge_batch": decode_ridge_batch(ridge, scheme.bits / 8),
        "batch_by_memory": wall,
        "lone_ttft_s": float(alone.ttft_s[0]),
        "lone_tpot_s": float(alone.tpot_s[0]),
        "throughput_tokens_per_s": best["throughput_tokens_per_s"],
        "bound_by": best["bound_by"],
    }


def _steps(built: Machine, subject: Plan) -> list[dict[str, Any]]:
    """A decode step of the mean context, at each batch up to max_num_seqs; of a pipeline, the step of a micro-batch of it."""
    assert built.step is not None
    assert built.config is not None
    assert built.memory is not None
    step, mix = built.step, subject.traffic.requests()
    context = float(mix.prompt_tokens.mean() + mix.output_tokens.mean() / 2)
    wall = (built.memory.sequences_at_mean or 0) // built.engines_per_replica
    most = max(built.config.max_num_seqs // step.stages, 1) * step.stages
    batches = np.array(sorted({b for b in (*BATCHES, wall, most) if 1 <= b <= most}))
    held = micro_batch(step, batches)
    read = held * context
    window = held * min(context, step.window_tokens) if step.window_tokens else np.zeros(len(batches))
    total = step.step_s(held, held, held, read, read, window, window)
    beat = step.beat.step_s(held, held, held, read, read, window, window)
    turn = decode_turn_s(step, batches, context)
    compute, memory = _terms(built.roof or step, held, read, window)
    overhead = np.maximum(total - np.maximum(compute, memory), 0.0)
    flop, moved = _work(built, subject, held, read)
    return [
        {
            "batch": int(b),
            "step_sequences": int(held[i]),
            "step_s": float(total[i]),
            "beat_s": float(beat[i]),
            "compute_s": float(compute[i]),
            "memory_s": float(memory[i]),
            "overhead_s": float(overhead[i]),
            "intensity_flop_per_byte": float(flop[i] / moved[i]),
            "throughput_tokens_per_s": float(b / turn[i]) * built.decoding_engines,
            "bound_by": _roof(compute[i], memory[i], overhead[i]),
        }
        for i, b in enumerate(batches)
    ]


def _terms(step: StepTime, n: Any, read: Any, window: Any) -> tuple[Any, Any]:
    compute = (
        step.at(step.compute_s, step.compute_slope_s, n) + step.pair_s * read + step.window_pair_s * window
    )
    memory = (
        step.at(step.memory_s, step.memory_slope_s, n)
        + step.kv_token_s * read
        + step.window_kv_token_s * window
        + step.state_s * n
    )
    return compute, memory


def _work(built: Machine, subject: Plan, batches: Any, read: Any) -> tuple[Any, Any]:
    """FLOP of the matrix products and bytes read of one GPU in the step."""
    assert built.memory is not None
    assert subject.model is not None
    gpus = built.candidate.tensor_parallel * built.candidate.pipeline_parallel
    flop = 2.0 * subject.model.architecture.parameters_active * batches / gpus
    moved = built.memory.weights_bytes + built.memory.kv_bytes_per_token * read
    return flop, moved


def _roof(compute_s: float, memory_s: float, overhead_s: float) -> str:
    if overhead_s > max(compute_s, memory_s):
        return "overhead"
    return "compute" if compute_s >= memory_s else "memory"
