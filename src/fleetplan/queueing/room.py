"""One row of Little's law and of the KV cache's room: how many run at once, what static batching wastes, what paging and sharing hold."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetplan.engine import EngineConfig
from fleetplan.physics.steptime import StepTime
from fleetplan.queueing.capacity import (
    blocks_of_answers,
    blocks_with_prefix,
    concurrency,
    kv_need_tokens,
    sequences_paged,
    sequences_reserved,
    static_utilisation,
    static_utilisation_geometric,
)
from fleetplan.queueing.rows import Shape, chain
from fleetplan.traffic.requests import Requests


def room_row(
    candidate_id: str,
    shape: Shape,
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    engines: int,
) -> dict[str, Any]:
    """The row of the table `room` for one of so many engines that share the traffic; without a KV pool nothing is told of sequences."""
    rate = shape.arrival_per_s / engines
    result = chain(shape, steptime, config, rate)
    residence = (
        None
        if result.ttft_mean_s is None
        else result.ttft_mean_s + (shape.output_tokens - 1) * (result.tpot_mean_s or 0.0)
    )
    held = requests.prompt_tokens + requests.output_tokens
    longest, mean = int(held.max()), max(round(float(held.mean())), 1)
    pool = None if config.kv_blocks is None else config.kv_blocks * config.block_size
    paged = None if pool is None else sequences_paged(pool, mean, config.block_size)
    batch = max(min(config.max_num_seqs, config.max_num_seqs if paged is None else paged), 1)
    return {
        "candidate_id": candidate_id,
        "engines": engines,
        "arrival_rate_requests_per_s": rate,
        "residence_mean_s": residence,
        "concurrent_requests": None if residence is None else concurrency(rate, residence),
        "kv_need_tokens": None
        if residence is None
        else kv_need_tokens(rate, residence, shape.prompt_tokens, shape.output_tokens),
        "kv_pool_tokens": pool,
        "batch": batch,
        "static_utilisation": static_utilisation(requests.output_tokens.tolist(), batch),
        "static_utilisation_geometric": static_utilisation_geometric(batch, max(shape.output_tokens, 1.0)),
        "longest_request_tokens": longest,
        "mean_request_tokens": mean,
        "sequences_reserved": None if pool is None else sequences_reserved(pool, longest),
        "sequences_paged": paged,
        **_shared(requests, mean, config),
    }


def _shared(requests: Requests, mean: int, config: EngineConfig) -> dict[str, int | None]:
    """Sequences of mean length that fit where all begin with the mean shared prefix, and where each has the mean number of answers."""
    found: dict[str, int | None] = dict.fromkeys(
        ("prefix_tokens", "sequences_sharing_prefix", "answers", "sequences_sharing_prompt")
    )
    blocks, size = config.kv_blocks, config.block_size
    if blocks is None:
        return found
    has = requests.prefix_tokens > 0
    if has.any():
        prefix = min(round(float(requests.prefix_tokens[has].mean())), mean - 1)
        first = blocks_with_prefix([mean], prefix, size)
        each = blocks_with_prefix([mean, mean], prefix, size) - first
        found["prefix_tokens"] = prefix
        found["sequences_sharing_prefix"] = 0 if first > blocks else 1 + (blocks - first) // max(each, 1)
    answers = round(float(np.mean(requests.answers)))
    if answers > 1:
        prompt = max(round(float(requests.prompt_tokens.mean())), 1)
        taken = blocks_of_answers(prompt, answers, max(mean - prompt, 0), block_tokens=size)
        found["answers"] = answers
        found["sequences_sharing_prompt"] = answers * (blocks // taken)
    return found
