"""How published benchmarks started their servers, where their launch scripts or their figures say: a point is simulated so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from fleetplan.calibration.closedloop import Policy
from fleetplan.calibration.points import Point

SPECULATED = {1: 1.75, 3: 2.5}
"""Tokens that a step of a DeepSeek model makes with 1 and with 3 MTP drafts: of the publisher's 85–90% acceptance of a second token."""

_POLICY: dict[str, Policy] = {"vllm": "chunked", "trtllm": "whole", "sglang": "prefill_first"}
_INFERENCEX_SHAPES = ((1024, 1024), (1024, 8192), (8192, 1024))


@dataclass(frozen=True)
class Recipe:
    """Scheduler settings of one benchmarked server."""

    policy: Policy
    max_num_batched_tokens: int
    max_num_seqs: int
    drafts: int = 0
    """Tokens that each decoding sequence drafts a step."""
    tokens_per_step: float = 1.0
    """Tokens that a decoding sequence makes a step."""
    wait_steps: int = 0
    """Steps that a prompt is held for others to fill the batch with it (TensorRT-LLM's batch_wait_timeout_iters)."""
    wait_tokens: int = 0
    """Tokens of a step that end that wait (batch_wait_max_tokens_ratio of the budget)."""
    poll_steps: int = 0
    """Decode steps between two looks at the arrivals (SGLang's scheduler_recv_interval)."""
    source: str = "defaults of the engine"


def recipe(point: Point) -> Recipe:
    """The settings that a point was measured with, as far as they are published; else the engine's defaults."""
    for knows in _KNOWN:
        found = knows(point)
        if found is not None:
            return found
    return default_recipe(point)


def default_recipe(point: Point) -> Recipe:
    """The engine's own settings."""
    # A TensorRT-LLM budget that a prompt beside all decodes does not fit into stalls; who benchmarks raises it.
    budget = {"sglang": 16384, "trtllm": max(8192, point.prompt_tokens + point.concurrency)}
    return Recipe(
        _POLICY[point.engine],
        budget.get(point.engine, 8192),
        max(2048 if point.engine == "trtllm" else 1024, point.concurrency),
    )


def _deepseek_trtllm(point: Point) -> Recipe | None:
    """InferenceX benchmarks/dsr1_fp{4,8}_{b200,h200}_trt[_mtp]*.sh: a budget of one prompt beside all decodes; MTP in runs of their own since 2026-01."""
    if (
        point.engine != "trtllm"
        or not point.model.startswith("deepseek")
        or (point.prompt_tokens, point.output_tokens) not in _INFERENCEX_SHAPES
    ):
        return None
    ranks = point.layout.data_parallel
    # The database names the model of runs with MTP DeepSeek-R1, of those without DeepSeek-V3; MTP came with the new year.
    mtp = "R1" in point.model_path and point.measured >= "2026-01"
    drafts = (1 if ranks > 1 else 3) if mtp or "speculation" in point.flag else 0
    clients = -(-point.concurrency // ranks)
    if drafts:
        budget = _round_up((drafts + 1) * clients + point.prompt_tokens + 64, 64)
        return Recipe(
            "whole",
            budget,
            max(2048, point.concurrency),
            drafts=drafts,
            tokens_per_step=SPECULATED[drafts],
            **_balance(point),
            source="InferenceX dsr1_*_trt_mtp.sh",
        )
    budget = _round_up(point.concurrency + point.prompt_tokens + 64, 64)
    if ranks > 1:
        return Recipe(
            "whole",
            budget,
            max(2048, point.concurrency),
            **_balance(point),
            source="InferenceX dsr1_*_trt.sh",
        )
    late = point.engine_version.startswith("1.2")
    if late:
        budget = max(budget, 8192)
    waits = (
        late
        and point.precision == "fp8"
        and point.output_tokens == point.prompt_tokens
        and 64 <= point.concurrency < 256
    )
    return Recipe(
        "whole",
        budget,
        max(2048, point.concurrency),
        wait_steps=40 if waits else 0,
        wait_tokens=int(0.8 * budget) if waits else 0,
        source="InferenceX dsr1_*_trt.sh",
    )


def _balance(point: Point) -> dict[str, Any]:
    """attention_dp_config of those scripts: prompts wait for one on every rank, at most 60 steps."""
    ranks = point.layout.data_parallel
    if ranks == 1:
        return {}
    return {"wait_steps": 60, "wait_tokens": int(0.8 * point.prompt_tokens) + -(-point.concurrency // ranks)}


def _llama_trtllm(point: Point) -> Recipe | None:
    """InferenceX benchmarks/70b_fp4_b200_trt_slurm.sh: the longest request as budget; equal lengths below TP 8 wait up to 20 steps for a batch."""
    if point.engine != "trtllm" or point.model != "llama-3.1-70b" or not point.measured.startswith("2025"):
        return None
    # The longest request of any of the three shapes: figures of 128 clients allow no smaller one.
    budget = 10240
    waits = point.prompt_tokens == point.output_tokens and point.layout.tensor_parallel < 8
    return Recipe(
        "whole",
        budget,
        max(2048, point.concurrency),
        wait_steps=20 if waits else 0,
        wait_tokens=int(0.9 * budget) if waits else 0,
        source="InferenceX 70b_fp4_b200_trt_slurm.sh",
    )


def _gpt_oss_trtllm(point: Point) -> Recipe | None:
    """InferenceX benchmarks/gptoss_fp4_h200_trt_slurm.sh: 20,000 tokens a step, as many sequences as clients."""
    if point.engine != "trtllm" or not point.model.startswith("gpt-oss") or not point.measured:
        return None
    return Recipe("whole", 20000, point.concurrency, source="InferenceX gptoss_fp4_h200_trt_slurm.sh")


def _qwen35_sglang(point: Point) -> Recipe | None:
    """InferenceX benchmarks/single_node/qwen3.5_fp8_b200.sh: chunks of 32,768; arrivals are looked at every 10 steps, 30 from 16 clients on."""
    if point.engine != "sglang" or not point.model.startswith("qwen3.5"):
        return None
    return Recipe(
        "prefill_first",
        32768,
        max(1024, point.concurrency),
        poll_steps=30 if point.concurrency >= 16 else 10,
        source="InferenceX qwen3.5_fp8_b200.sh",
    )


def _llama_8b(point: Point) -> Recipe | None:
    """The undated sweeps of Llama-3.1-8B-Instruct: one client always waits for a slot, as the figures show.

    TTFT − what the steps take = 1.01 (TensorRT-LLM, 61 points) and 1.02 (SGLang, 13 points) times the time between two departures,
    0.9·osl·TPOT/concurrency; in all other sweeps 0.00 to 0.06 times.
    """
    if point.model != "llama-3.1-8b" or point.measured or point.concurrency < 2:
        return None
    return replace(
        default_recipe(point), max_num_seqs=point.concurrency - 1, source="inferred from the points' own TTFT"
    )


_KNOWN: tuple[Callable[[Point], Recipe | None], ...] = (
    _deepseek_trtllm,
    _llama_trtllm,
    _gpt_oss_trtllm,
    _qwen35_sglang,
    _llama_8b,
)


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
