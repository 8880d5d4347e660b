"""The instant answer, on means: batch by memory and by TPOT, then the load of decode and of prefill, and their sum.

It teaches and it bounds; it decides nothing, since it knows no percentile. Leaving prefill out is the classic fault: it shares the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

from fleetplan.physics.form import StepTime
from fleetplan.physics.pipeline import decode_turn_s
from fleetplan.sizing.counting import ceil_ratio


@dataclass(frozen=True)
class Instant:
    """Mean-value sizing of one kind of replica."""

    max_batch_memory: int
    """Sequences of prompt + output tokens that the KV pool holds."""
    max_batch_slo: int
    """Largest batch that decodes, at context prompt + output/2, within the TPOT limit; 0: none."""
    batch: int
    """The smaller of both."""
    tpot_s: float
    tokens_per_s: float
    """Output tokens per second of a replica that only decodes, at that batch."""
    prefill_s: float
    """What one lone prompt keeps a replica busy: of a pipeline, its longest stage."""
    residence_s: float
    """Prefill, all stages of it, and output − 1 steps at that batch."""
    concurrent_sequences: float
    """Little: rate · residence."""
    decode_load: float
    """Replicas that decode keeps busy."""
    prefill_load: float
    """Replicas that prefill keeps busy."""
    replicas: int | None
    """ceil((decode + prefill) · headroom); None: no batch meets the TPOT limit."""

    @property
    def total_load(self) -> float:
        """Replicas kept busy in all."""
        return self.decode_load + self.prefill_load


def instant(
    step: StepTime,
    *,
    kv_tokens: float,
    prompt_tokens: int,
    output_tokens: int,
    rate_per_s: float,
    tpot_limit_s: float,
    prefill_s: float | None = None,
    headroom: float = 1.0,
) -> Instant:
    """Mean-value sizing; `prefill_s` (None: the step of one whole prompt) is the time that a prompt keeps a replica busy.

    Raises ValueError for a rate or a limit that is not above 0.
    """
    if not rate_per_s > 0 or not tpot_limit_s > 0:
        raise ValueError(f"rate and TPOT limit must be > 0 (got {rate_per_s}, {tpot_limit_s})")
    context = prompt_tokens + output_tokens / 2
    by_memory = int(kv_tokens // (prompt_tokens + output_tokens))
    by_slo = largest_batch(step, context, tpot_limit_s)
    batch = min(by_memory, by_slo)
    s = float(prompt_tokens)
    held = (prompt_tokens, 1, 0, s, s * (s + 1) / 2, s, s * (s + 1) / 2)
    if prefill_s is None:
        prefill_s, first_s = float(step.beat.step_s(*held)), float(step.step_s(*held))
    else:
        first_s = prefill_s
    prefill_load = rate_per_s * prefill_s
    if batch < 1:
        return Instant(by_memory, by_slo, 0, 0.0, 0.0, prefill_s, 0.0, 0.0, 0.0, prefill_load, None)
    tpot = float(decode_step_s(step, batch, context))
    rate = batch / tpot
    residence = first_s + (output_tokens - 1) * tpot
    decode_load = rate_per_s * output_tokens / rate
    replicas = ceil_ratio((decode_load + prefill_load) * headroom, 1.0)
    return Instant(
        by_memory,
        by_slo,
        batch,
        tpot,
        rate,
        prefill_s,
        residence,
        rate_per_s * residence,
        decode_load,
        prefill_load,
        replicas,
    )


def decode_step_s(step: StepTime, batch: int, context_tokens: float) -> float:
    """Time [s] in which `batch` sequences of this context decode a token each: a step, of a pipeline the turn of its micro-batches."""
    return float(decode_turn_s(step, batch, context_tokens))


def largest_batch(step: StepTime, context_tokens: float, limit_s: float, most: int = 1 << 20) -> int:
    """Largest batch whose decode step is within the limit; a step's time never falls with the batch. 0: none."""
    if decode_step_s(step, 1, context_tokens) > limit_s:
        return 0
    low, high = 1, 2
    while high < most and decode_step_s(step, high, context_tokens) <= limit_s:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if decode_step_s(step, middle, context_tokens) <= limit_s:
            low = middle
        else:
            high = middle
    return low


__all__ = ["Instant", "decode_step_s", "instant", "largest_batch"]
