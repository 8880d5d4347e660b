"""What replicas that always have work make: requests/s of a long burst of the same mix, by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fleetplan.engine.outcome import FINISHED
from fleetplan.engine.result import Result
from fleetplan.sizing.apart import Apart, PoolRates
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered

BURST_REQUESTS = 3000
BURST_TURNS = 12
"""A saturated run lasts this many times as long as a full batch."""
AMPLE = 2
"""Prefill replicas are ample for one of decode where, by bounds, they make so many times what it takes."""
MOST_AMPLE = 256


def sustainable_rate_per_s(built: Machine, traffic: Offered) -> float:
    """Requests/s of one replica that always has work, by simulation: the middle half of a long burst of the same mix.

    Who finishes in that half may be lighter than the mix by chance, so it is never taken above 1 / least work. Where the counts of both
    pools are searched it is that of the best pair a replica (`PoolRates.balanced`), an upper bound of any pair's.
    """
    assert built.config is not None
    least = built.least_work_s(traffic.requests())
    most = built.engines_per_replica / least if least > 0 else math.inf
    if not built.tokens:
        return most
    if isinstance(built, Apart) and built.candidate.searched:
        return (built.rates or rates_of(built, traffic)).balanced
    count = _burst_requests(built, traffic)
    # A cap on the queue would refuse most of a burst.
    run = built.open_door().run(traffic.burst(count), 1, traffic.seed)
    return min(_middle_rate_per_s(run) * built.engines_per_replica, most)


def rated(built: Machine, traffic: Offered) -> Machine:
    """The machine with the rates of its pools, where the counts of both are searched; any other as it is."""
    if isinstance(built, Apart) and built.candidate.searched and built.rates is None:
        return replace(built, rates=rates_of(built, traffic))
    return built


def rates_of(built: Apart, traffic: Offered) -> PoolRates:
    """The saturated rate of each pool on its own: prompts alone on one prefill replica, and one decode replica behind ample prefill."""
    split, mix = built.candidate.split, traffic.requests()
    assert split is not None
    assert built.prefill is not None
    before, after = built.works_s(mix)
    apart = mix.prompt_tokens > split.bypass_tokens
    prefill = math.inf
    if apart.any():
        burst = traffic.burst(BURST_REQUESTS)
        prompts = burst.take(burst.prompt_tokens > split.bypass_tokens)
        prompts = replace(prompts, output_tokens=np.ones(len(prompts), dtype=prompts.output_tokens.dtype))
        alone = built.prefill.open_door().run(prompts, 1, traffic.seed)
        prefill = _middle_rate_per_s(alone) / float(apart.mean())
    ample = min(math.ceil(AMPLE * before / after), MOST_AMPLE) if after > 0 else 1
    burst = traffic.burst(_burst_requests(built, traffic))
    decode = _middle_rate_per_s(built.open_door().run_pair(burst, (max(ample, 1), 1), None, traffic.seed))
    assert built.link is not None
    tokens = float((mix.prompt_tokens * (apart & (mix.output_tokens > 1))).mean())
    crossing = tokens * built.link.s_per_token
    return PoolRates(
        min(prefill, 1 / before if before > 0 else math.inf),
        min(decode, 1 / after if after > 0 else math.inf),
        1 / crossing if crossing > 0 else math.inf,
    )


def _burst_requests(built: Machine, traffic: Offered) -> int:
    assert built.config is not None
    mix = traffic.requests()
    lengths = float((mix.prompt_tokens + mix.output_tokens).mean())
    batch = built.config.max_num_seqs
    if built.config.kv_blocks is not None:
        batch = min(batch, max(int(built.config.kv_blocks * built.config.block_size / lengths), 1))
    return max(BURST_REQUESTS, BURST_TURNS * batch)


def _middle_rate_per_s(run: Result) -> float:
    """Requests/s of the middle half of those that finish; 0: hardly any does."""
    finish = np.sort(run.finish_s[run.outcome == FINISHED])
    if len(finish) < 8:
        return 0.0
    first, last = finish[len(finish) // 4], finish[3 * len(finish) // 4]
    share_served = len(finish) / len(run.requests)
    return float((3 * len(finish) // 4 - len(finish) // 4) / (last - first) / share_served)


__all__ = ["rated", "rates_of", "sustainable_rate_per_s"]
