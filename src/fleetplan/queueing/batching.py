"""Continuous batching as a birth–death chain whose service rates come from the step-time model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammainc

from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.queueing.multi import stationary
from fleetplan.queueing.result import check_count, check_not_negative, check_positive, is_unstable

Floats = NDArray[np.float64]
Policy = Literal["chunked", "continuous", "prefill_first"]
_RESIDUALS = (np.arange(16) + 0.5) / 16


@dataclass(frozen=True, eq=False)
class BatchRates:
    """What b = 1..N running requests of mean lengths do, entry b − 1 of each array."""

    decode_s: Floats
    """A step of b decodes [s]."""
    own_prefill_s: Floats
    """Steps that hold a request's own prompt, summed, with b − 1 others decoding [s]."""
    delay_s: Floats
    """What one prompt adds to the others' steps, summed over its chunks [s]."""
    step_s: Floats
    """Mean step with prompts mixed in at the rate that b requests bring them [s]: a decoding request's mean gap."""
    residence_s: Floats
    """First scheduled to last token of one of b requests, all slots always filled [s]."""
    residual_s: Floats
    """Mean time to the end of the step that an arrival meets [s]."""
    completions_per_s: Floats
    """μ(b) = b/residence(b)."""


def batch_rates(
    steptime: StepTime,
    prompt_tokens: float,
    output_tokens: float,
    largest: int,
    *,
    policy: Policy = "chunked",
    max_num_batched_tokens: int = 8192,
    output_cv: float = 1.0,
    prompt_cv: float = 0.0,
) -> BatchRates:
    """Step times and rates of b = 1..`largest` requests of mean prompt S and output G (cv: spread of the lengths).

    A request takes G − 1 decode steps and k = ceil(S/chunk) prompt steps; at b running each of the other b − 1 slots
    brings one prompt in that time, which delays all by Δ(b). So residence(b) = (G−1)·dt(b) + own prompt + (b−1)·Δ(b).
    """
    check_positive(prompt_tokens=prompt_tokens, output_tokens=output_tokens)
    check_count(largest=largest, max_num_batched_tokens=max_num_batched_tokens)
    check_not_negative(output_cv=output_cv, prompt_cv=prompt_cv)
    if policy not in ("chunked", "continuous", "prefill_first"):
        raise InputError(f"policy: must be chunked, continuous or prefill_first (got {policy!r})")
    if output_tokens < 1:
        raise InputError(f"output_tokens: a request gives at least 1 token (got {output_tokens!r})")
    b = np.arange(1, largest + 1)
    # A running request has made (E[G²]/E[G] − 1)/2 tokens, seen at a random step: long answers are seen more often.
    context = prompt_tokens + max(0.0, (output_tokens * (1 + output_cv**2) - 1) / 2) + 1
    decode = _step(steptime, b, context, 0.0, 0.0, 0, largest)
    chunks = _chunks(prompt_tokens, largest, max_num_batched_tokens, policy)
    spread = (1 + prompt_cv**2) if len(chunks) == 1 else 1.0
    own, delay = np.zeros(largest), np.zeros(largest)
    for done, size in chunks:
        with_own = _step(
            steptime, b - 1 if policy != "prefill_first" else b * 0, context, done, size, 1, largest, spread
        )
        with_other = _step(
            steptime, b if policy != "prefill_first" else b * 0, context, done, size, 1, largest, spread
        )
        own += with_own
        delay += with_other - (decode if policy != "prefill_first" else 0.0)
    residence = (output_tokens - 1) * decode + own + (b - 1) * delay
    # Steps that b requests take: their decodes are shared; prompts share steps with decodes but under prefill_first.
    steps = output_tokens - 1 + (b if policy == "prefill_first" else 1) * len(chunks)
    share = np.minimum(1.0, b * len(chunks) / steps)
    mean = residence / (output_tokens - 1 + len(chunks))
    long = delay / len(chunks) + (decode if policy != "prefill_first" else 0.0)
    residual = ((1 - share) * decode**2 + share * long**2) / (2 * ((1 - share) * decode + share * long))
    return BatchRates(decode, own, delay, mean, residence, residual, b / residence)


@dataclass(frozen=True, eq=False)
class BatchingResult:
    """Stationary figures of one replica; every figure is None where `stable` is False."""

    arrival_per_s: float
    cap: int
    """N: most that run together, by max_num_seqs and KV memory."""
    bound_by: str
    """max_num_seqs or kv_memory."""
    capacity_per_s: float
    """μ(N): completions per second with all slots filled."""
    rho: float
    """λ/μ(N)."""
    stable: bool
    reason: str = ""
    wait_probability: float | None = None
    wait_mean_s: float | None = None
    ttft_mean_s: float | None = None
    tpot_mean_s: float | None = None
    """None for outputs of one token too."""
    e2e_mean_s: float | None = None
    running_mean: float | None = None
    waiting_mean: float | None = None
    throughput_per_s: float | None = None
    output_tokens_per_s: float | None = None
    loss_share: float | None = None
    law: Floats | None = field(default=None, repr=False)
    """Chance of n in the system, n = 0, 1, …, cut where 1e-12 is left."""
    rates: BatchRates | None = field(default=None, repr=False)
    places: int | None = None
    spread: float = 1.0
    """(1 + cv²)/2 of the output lengths: waits are those of exponential service times this."""

    def ttft_attainment(self, at_most_s: float) -> float | None:
        """Share of arrivals, lost ones missing, whose TTFT is at most this [s]; None when unstable."""
        if self.law is None or self.rates is None:
            return None
        n = np.arange(len(self.law))
        entering = self.law if self.places is None else np.where(n < self.places, self.law, 0.0)
        at = np.minimum(n + 1, self.cap) - 1
        met = np.clip(n, 0, self.cap) - 1
        residual = np.where(n > 0, self.rates.residual_s[np.maximum(met, 0)], 0.0)
        together = self.arrival_per_s * 2 * residual * self.rates.delay_s[at] * (1 - (n >= self.cap))
        left = (
            at_most_s
            - (self.rates.own_prefill_s[at] + together)[:, None]
            - 2 * residual[:, None] * _RESIDUALS
        )
        waits = (n - self.cap + 1)[:, None]
        tail = np.where(
            waits > 0,
            gammainc(np.maximum(waits, 1), self.capacity_per_s / self.spread * np.maximum(left, 0.0)),
            (left >= 0).astype(np.float64),
        )
        return float(entering @ tail.mean(axis=1))

    def ttft_percentile_s(self, q: float) -> float | None:
        """The least x [s] with TTFT attainment ≥ q; None when unstable or when losses alone miss it."""
        from fleetplan.queueing.result import percentile_s

        if not self.stable or (self.loss_share or 0.0) >= 1 - q:
            return None

        def tail(t: float) -> float:
            met = self.ttft_attainment(t)
            assert met is not None
            return 1.0 - met

        return percentile_s(tail, q, self.ttft_mean_s)

    def tpot_attainment(self, at_most_s: float) -> float | None:
        """Share of requests whose TPOT is at most this [s], each taken to keep the batch that it meets; None when unstable."""
        if self.law is None or self.rates is None:
            return None
        n = np.arange(len(self.law))
        running = np.minimum(n, self.cap)
        weight = self.law * np.where(
            running > 0, self.rates.completions_per_s[np.maximum(running, 1) - 1], 0.0
        )
        met = self.rates.step_s[np.maximum(running, 1) - 1] <= at_most_s
        return float((weight * met)[running > 0].sum() / weight.sum() * (1 - (self.loss_share or 0.0)))


def continuous_batching(
    arrival_per_s: float,
    steptime: StepTime,
    prompt_tokens: float,
    output_tokens: float,
    *,
    max_num_seqs: int = 256,
    max_num_batched_tokens: int = 8192,
    kv_tokens: float | None = None,
    queue_limit: int | None = None,
    policy: Policy = "chunked",
    output_cv: float = 1.0,
    prompt_cv: float = 0.0,
) -> BatchingResult:
    """One replica under Poisson arrivals: n in the system goes up at λ and down at μ(min(n, N)), μ from `batch_rates`.

    N is max_num_seqs or, if less, the number of sequences that `kv_tokens` holds: at mean context under `chunked` and
    `prefill_first`, which give blocks out as a sequence grows, at S + G under `continuous`, which reserves them. With
    `queue_limit` arrivals that find that many waiting are lost, and no load is unstable. TTFT = queue + rest of the
    running step + own prompt + prompts admitted in the same step; TPOT by Little's law from the mean number running;
    waits are scaled by (1 + output_cv²)/2, as those of M/G/c are.
    Exact rates would need the batch's history: the chain takes steps as memoryless and lengths by their mean, so it
    is good at the mean and up to ρ ≈ 0.9; docs/queueing.md has its error by load. Raises `InputError` when not even
    one sequence fits.
    """
    check_positive(arrival_per_s=arrival_per_s)
    check_count(max_num_seqs=max_num_seqs)
    cap, bound = max_num_seqs, "max_num_seqs"
    if kv_tokens is not None:
        check_positive(kv_tokens=kv_tokens)
        grown = output_tokens if policy == "continuous" else max(1.0, output_tokens * (1 + output_cv**2) / 2)
        fits = math.floor(kv_tokens / (prompt_tokens + grown) * (1 + 1e-12))
        if fits < 1:
            raise InputError(
                f"kv_tokens: one sequence of {prompt_tokens + grown:g} tokens must fit (got room for {kv_tokens:g})"
            )
        if fits < cap:
            cap, bound = fits, "kv_memory"
    rates = batch_rates(
        steptime, prompt_tokens, output_tokens, cap, policy=policy,
        max_num_batched_tokens=max_num_batched_tokens, output_cv=output_cv, prompt_cv=prompt_cv,
    )  # fmt: skip
    full = float(rates.completions_per_s[-1])
    rho = arrival_per_s / full
    if queue_limit is None and is_unstable(rho):
        reason = f"unstable: {arrival_per_s:.4g} requests/s arrive, a full batch of {cap} finishes {full:.4g}"
        return BatchingResult(arrival_per_s, cap, bound, full, rho, False, reason)
    if queue_limit is None:
        size = cap + max(1, math.ceil(math.log(1e-12) / math.log(rho)))
    else:
        check_count(0, queue_limit=queue_limit)
        size = cap + queue_limit
    death = np.concatenate([rates.completions_per_s, np.full(size - cap, full)])
    law = stationary(np.full(size, arrival_per_s), death)
    n = np.arange(size + 1)
    running = np.minimum(n, cap)
    lost = float(law[-1]) if queue_limit is not None else 0.0
    enters = arrival_per_s * (1 - lost)
    # PASTA: an arrival meets n as time does; those that enter meet n < size.
    met = law if queue_limit is None else law[:-1] / (1 - lost)
    found = np.arange(len(met))
    at = np.minimum(found + 1, cap) - 1
    residual = np.where(found > 0, rates.residual_s[np.maximum(np.minimum(found, cap), 1) - 1], 0.0)
    together = arrival_per_s * 2 * residual * rates.delay_s[at] * (found < cap)
    waiting, held = float(law @ (n - running)), float(law @ running)
    spread = (1 + output_cv**2) / 2
    wait = waiting / enters * spread
    start = float(met @ (residual + together))
    prefill = float(met @ rates.own_prefill_s[at])
    decoding = max(0.0, held / enters - prefill)
    return BatchingResult(
        arrival_per_s, cap, bound, full, rho, True,
        wait_probability=float(met[cap:].sum()),
        wait_mean_s=wait,
        ttft_mean_s=wait + start + prefill,
        tpot_mean_s=decoding / (output_tokens - 1) if output_tokens > 1 else None,
        e2e_mean_s=wait + start + prefill + decoding,
        running_mean=held,
        waiting_mean=wait * enters,
        throughput_per_s=enters,
        output_tokens_per_s=enters * output_tokens,
        loss_share=lost,
        law=law,
        rates=rates,
        places=None if queue_limit is None else size,
        spread=spread,
    )  # fmt: skip


def _chunks(prompt: float, running: int, budget: int, policy: Policy) -> list[tuple[float, float]]:
    # (tokens done before, tokens) of a prompt's steps. Decodes go first, so that a full batch leaves budget − b.
    size = max(1.0, budget - running) if policy == "chunked" else math.inf
    if prompt <= size:
        return [(0.0, prompt)]
    count = math.ceil(prompt / size)
    return [(i * size, min(size, prompt - i * size)) for i in range(count)]


def _step(
    steptime: StepTime, decodes: NDArray[np.int64], context: float, done: float, size: float, prompts: int, largest: int,
    spread: float = 1.0,
) -> Floats:  # fmt: skip
    # A step of `decodes` sequences at `context` and of `prompts` chunks of `size` tokens after `done` cached ones.
    tokens = decodes + prompts * size
    window = steptime.window_tokens or math.inf
    read = context * decodes + prompts * (done + size)
    pairs = context * decodes + prompts * (size * done + size * (size * spread + 1) / 2)
    cut = min(context, window) * decodes + prompts * min(done + size, window)
    cut_pairs = min(context, window) * decodes + prompts * size * min(done + (size + 1) / 2, window)
    low = np.maximum(1, np.floor(tokens)).astype(np.int64)
    part = np.clip(tokens - low, 0.0, 1.0)
    sequences = decodes + prompts
    windows = (cut, cut_pairs) if steptime.window_tokens else (0, 0)
    below = steptime.step_s(low, sequences, decodes, read, pairs, *windows)
    if not part.any():
        return below
    above = steptime.step_s(low + 1, sequences, decodes, read, pairs, *windows)
    return np.asarray(below + part * (above - below))
