"""Closed-loop benchmarks: the sequence of step compositions of a fixed number of clients, which no step time changes.

A client sends its next request when the last one ends. Which sequences share a step then follows from the lengths alone, so a benchmark is
simulated once and any cost model is a weighted sum over its steps.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

import numba
import numpy as np
from numpy.typing import NDArray

Policy = Literal["chunked", "whole", "prefill_first"]
"""How prompts join: in chunks beside decodes (vLLM), whole beside decodes (TensorRT-LLM), or alone while decodes wait (SGLang)."""

_POLICY = {"chunked": 0, "whole": 1, "prefill_first": 2}
COLUMNS = (
    "tokens",
    "sequences",
    "decoding",
    "kv_tokens",
    "pairs",
    "window_kv_tokens",
    "window_pairs",
)
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Benchmark:
    """One closed-loop run: `concurrency` clients, lengths drawn uniformly in `low`..1 of nominal."""

    concurrency: int
    prompt_tokens: int
    output_tokens: int
    policy: Policy = "chunked"
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    kv_tokens: int = 0
    """Tokens that the KV pool holds; 0: no limit."""
    life_share: float = 1.0
    """Share of a sequence's output tokens that admission counts: 1 where an engine reserves whole lives, about a half where it does not."""
    window_tokens: int = 0
    drafts: int = 0
    """Tokens that each decoding sequence drafts, and has verified, in a step."""
    tokens_per_step: float = 1.0
    """Tokens that a decoding sequence makes a step."""
    wait_steps: int = 0
    """Steps that prompts are held beside decodes while the step would have fewer than `wait_tokens` tokens."""
    wait_tokens: int = 0
    poll_steps: int = 0
    """Decode steps between two looks at the arrivals; 0: every step."""
    rounds: int = 10
    low: float = 0.8
    seed: int = 0


@dataclass(frozen=True, eq=False)
class Composition:
    """Weighted steps: a metric is Σ weight·dt over the rows of its kind."""

    steps: Floats
    """One row a bin of steps, columns as `COLUMNS`, averaged by weight."""
    tpot: Floats
    """Weight of each row in the mean TPOT [1/token]."""
    ttft: Floats
    """Weight of each row in the mean TTFT [steps]."""
    ttft_median: Floats
    """Weight of each row in the TTFT of the requests around the median [steps]."""
    waiting_share: float
    """Share of requests that waited for a slot or for KV memory before their first step."""
    prompt_tokens_mean: float
    output_tokens_mean: float


@functools.lru_cache(maxsize=4096)
def compose(run: Benchmark) -> Composition | None:
    """Simulate the run and bin its steps; None when a single request exceeds the KV pool."""
    rng = np.random.default_rng(run.seed)
    count = max(run.rounds * run.concurrency, 8)
    count = min(count, max(4 * run.concurrency, 6000))
    prompts = _draw(rng, run.prompt_tokens, run.low, count)
    outputs = _draw(rng, run.output_tokens, run.low, count)
    if run.kv_tokens and (prompts + outputs).max() > run.kv_tokens:
        return None
    # A sequence that makes several tokens a step lives for fewer steps.
    lives = np.maximum(np.round((outputs - 1) / run.tokens_per_step).astype(np.int64), 1) + 1
    lives = np.where(outputs > 1, lives, 1)
    steps, sent, first, finish, waited = _simulate(
        prompts,
        lives,
        run.concurrency,
        _POLICY[run.policy],
        run.max_num_batched_tokens,
        run.max_num_seqs,
        run.kv_tokens,
        run.window_tokens,
        run.life_share,
        run.drafts,
        run.tokens_per_step,
        run.wait_steps,
        run.wait_tokens,
        run.poll_steps,
    )
    tpot = _interval_weights(
        len(steps), first + 1, finish + 1, np.where(outputs > 1, 1 / np.maximum(outputs - 1, 1), 0.0)
    )
    tpot /= max((outputs > 1).sum(), 1)
    ttft = _interval_weights(len(steps), sent, first + 1, np.full(count, 1 / count))
    # Which requests lie around the median: ranked by a rough step time, 5 ms + 30 µs a token. Only the rank counts.
    clock = np.concatenate([[0.0], np.cumsum(0.005 + 30e-6 * steps[:, 0])])
    rank = np.argsort(clock[first + 1] - clock[sent], kind="stable")
    middle = rank[int(0.4 * count) : max(int(0.6 * count), int(0.4 * count) + 1)]
    chosen = np.zeros(count)
    chosen[middle] = 1 / len(middle)
    median = _interval_weights(len(steps), sent, first + 1, chosen)
    rows, weights = _bin(steps, np.stack([tpot, ttft, median]))
    return Composition(
        rows,
        weights[0],
        weights[1],
        weights[2],
        waiting_share=float(waited.mean()),
        prompt_tokens_mean=float(prompts.mean()),
        output_tokens_mean=float(outputs.mean()),
    )


def _draw(rng: np.random.Generator, nominal: int, low: float, count: int) -> NDArray[np.int64]:
    return np.maximum(rng.integers(int(np.floor(low * nominal)), nominal + 1, size=count), 1)


def _interval_weights(
    steps: int, start: NDArray[np.int64], stop: NDArray[np.int64], weight: Floats
) -> Floats:
    """Sum of `weight` over the steps start..stop−1 of each request."""
    edge = np.zeros(steps + 1)
    np.add.at(edge, start, weight)
    np.add.at(edge, stop, -weight)
    return np.maximum(np.cumsum(edge)[:-1], 0.0)


def _bin(steps: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Steps of one kind (which metric, with prompts or not, tokens within a fifth of an octave) joined to their mean."""
    kept_rows, kept_weights = [], []
    prefills = steps[:, 1] > steps[:, 2]
    key = np.round(5 * np.log2(steps[:, 0])).astype(np.int64) * 2 + prefills
    for metric, weight in enumerate(weights):
        used = weight > 1e-15
        if not used.any():
            continue
        _, index = np.unique(key[used], return_inverse=True)
        total = np.bincount(index, weight[used])
        means = np.stack(
            [
                np.bincount(index, weight[used] * steps[used, column]) / total
                for column in range(steps.shape[1])
            ],
            axis=1,
        )
        kept_rows.append(means)
        block = np.zeros((len(weights), len(total)))
        block[metric] = total
        kept_weights.append(block)
    return np.concatenate(kept_rows), np.concatenate(kept_weights, axis=1)


@numba.njit(cache=True)
def _simulate(  # type: ignore[no-untyped-def]
    prompts,
    outputs,
    clients,
    policy,
    budget,
    max_seqs,
    kv_limit,
    window,
    life,
    drafts,
    grows,
    wait_steps,
    wait_tokens,
    poll_steps,
):
    count = prompts.size
    capacity = 4096
    steps = np.zeros((capacity, 7))
    sent = np.zeros(count, np.int64)
    first = np.zeros(count, np.int64)
    finish = np.zeros(count, np.int64)
    waited = np.zeros(count, np.bool_)
    computed = np.zeros(count, np.int64)
    made = np.zeros(count, np.int64)
    running = np.zeros(count, np.int64)
    n_running = 0
    arrived = min(clients, count)  # requests 0..arrived-1 have been sent, in order
    head = 0  # next request to admit
    held = 0  # KV tokens reserved: whole lives, as an engine under steady load in effect holds
    step = 0
    held_steps = 0
    since_poll = poll_steps
    seen = 0  # requests that the scheduler has looked at
    taken = np.zeros(count, np.int64)
    while n_running > 0 or head < arrived:
        tokens = 0
        sequences = 0
        decoding = 0
        kv = 0.0
        pairs = 0.0
        kv_w = 0.0
        pairs_w = 0.0
        left = budget
        pending = False
        if poll_steps == 0 or since_poll >= poll_steps or n_running == 0:
            seen = arrived
            since_poll = 0
        if policy == 2:
            for k in range(n_running):
                if computed[running[k]] < prompts[running[k]]:
                    pending = True
            if (
                head < seen
                and n_running < max_seqs
                and (
                    kv_limit == 0
                    or held + prompts[head] + int(life * grows * outputs[head]) <= kv_limit
                    or n_running == 0
                )
            ):
                pending = True
        decode_now = policy != 2 or not pending
        for k in range(n_running):
            i = running[k]
            taken[i] = 0
            if computed[i] < prompts[i]:
                taken[i] = min(prompts[i] - computed[i], left)
                left -= taken[i]
            elif decode_now and left > 0:
                taken[i] = 1
                left -= 1 + drafts
        # Prompts that would not fill the step are held for others, a while.
        admit = True
        if wait_steps > 0 and n_running > 0 and head < seen:
            filled = budget - left
            free = left
            for i in range(head, seen):
                if prompts[i] > free:
                    break
                free -= prompts[i]
                filled += prompts[i]
            if filled < wait_tokens and held_steps < wait_steps:
                held_steps += 1
                admit = False
            else:
                held_steps = 0
        while admit and left > 0 and head < seen and n_running < max_seqs:
            i = head
            need = prompts[i] + int(life * grows * outputs[i])
            if kv_limit > 0 and held + need > kv_limit and n_running > 0:
                break
            if policy == 1 and prompts[i] > left and prompts[i] <= budget:
                break
            held += need
            taken[i] = min(prompts[i], left)
            left -= taken[i]
            running[n_running] = i
            n_running += 1
            head += 1
            if sent[i] < step:
                waited[i] = True
        for k in range(n_running):
            i = running[k]
            n = taken[i]
            if n == 0:
                continue
            c = computed[i] + 0.0
            if made[i] > 0:
                c = prompts[i] + made[i] * grows - 1
                n = 1 + drafts
            tokens += n
            sequences += 1
            if made[i] > 0:
                decoding += 1
            kv += c + n
            pairs += n * c + n * (n + 1) / 2
            if window > 0:
                kv_w += min(c + n, window + n - 1)
                if c + n <= window:
                    pairs_w += n * c + n * (n + 1) / 2
                elif c >= window:
                    pairs_w += n * window
                else:
                    ramp = window - c
                    pairs_w += ramp * c + ramp * (ramp + 1) / 2 + (n - ramp) * window
        if step == capacity:
            grown = np.zeros((2 * capacity, 7))
            grown[:capacity] = steps
            steps = grown
            capacity *= 2
        steps[step, 0] = tokens
        steps[step, 1] = sequences
        steps[step, 2] = decoding
        steps[step, 3] = kv
        steps[step, 4] = pairs
        steps[step, 5] = kv_w
        steps[step, 6] = pairs_w
        kept = 0
        ended = 0
        for k in range(n_running):
            i = running[k]
            n = taken[i]
            taken[i] = 0
            computed[i] += n
            if n > 0 and computed[i] >= prompts[i]:
                if made[i] == 0:
                    first[i] = step
                made[i] += 1
            if made[i] >= outputs[i]:
                finish[i] = step
                held -= prompts[i] + int(life * grows * outputs[i])
                ended += 1
            else:
                running[kept] = i
                kept += 1
        n_running = kept
        if sequences > decoding:
            since_poll = poll_steps
        else:
            since_poll += 1
        for _ in range(ended):
            if arrived < count:
                sent[arrived] = step + 1
                arrived += 1
        step += 1
    return steps[:step], sent, first, finish, waited
