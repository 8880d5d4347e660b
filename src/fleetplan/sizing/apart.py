"""Prefill in a pool of its own: two machines, the link between them, and how many of one go with how many of the other."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Self

import numpy as np

from fleetplan import catalog
from fleetplan.engine import Link, Pool, Result, simulate_pools
from fleetplan.engine.handoff import POOL_SCHEDULERS, check_pools
from fleetplan.physics.kv import sequence_memory
from fleetplan.physics.precision import kv_dtype_bytes
from fleetplan.sizing.bounds import Flags, Lone, least_work_s
from fleetplan.sizing.candidates import Candidate, Split
from fleetplan.sizing.machine import Machine, machine, unserved
from fleetplan.spec.scenario import Scenario
from fleetplan.traffic.requests import Requests

MOST_OF_A_RATIO = 4
"""A balanced pair's larger side is at most this many replicas."""


@dataclass(frozen=True)
class PoolRates:
    """Requests/s of the whole mix, each where nothing else stands in the way, by simulation."""

    prefill: float
    """Of one prefill replica that always has prompts."""
    decode: float
    """Of one decode replica that always has sequences."""
    link: float
    """Of the link."""

    def of(self, prefill: int, decode: int) -> float:
        """What so many of both sustain: the least of the three.

        >>> PoolRates(13.0, 25.0, 400.0).of(4, 2)
        50.0
        """
        return min(prefill * self.prefill, decode * self.decode, self.link)

    @property
    def balanced(self) -> float:
        """Of one replica of either pool at the best of all pairs, 1 / (1/prefill + 1/decode): no pair makes more a replica."""
        if not self.prefill or not self.decode:
            return 0.0
        return 1 / (1 / self.prefill + 1 / self.decode)


@dataclass(frozen=True, eq=False)
class Apart(Machine):
    """Two pools; what is counted as a replica is the prefill and decode replicas of the ratio together, or one of either pool where
    the count of each is searched.

    `prefill` is one prefill replica, the fields of its own are those of one decode replica.
    """

    rates: PoolRates | None = None
    """Of the pools, once they are measured (`saturation.rates_of`)."""

    @property
    def engines_per_replica(self) -> int:
        return 1

    @property
    def decoding_engines(self) -> int:
        return self._split.decode_replicas

    def sustains(self, per_replica_per_s: float, replicas: int) -> float:
        if not self.candidate.searched or self.rates is None:
            return replicas * per_replica_per_s
        return self.rates.of(*self.candidate.pools(replicas))

    def paired(self, prefill: int, decode: int) -> Self:
        """The same machine, its fleets on the way through this pair."""
        return replace(self, candidate=self.candidate.paired(prefill, decode))

    def lone(self, requests: Requests) -> Lone:
        """As of one pool, the prompt on a prefill replica, and the KV's crossing between the first and the second token."""
        own = super().lone(requests)
        before = self._prefill.lone(requests)
        gaps = requests.output_tokens - 1
        apart = self._apart(requests)
        link = self.link or Link()
        crossing = np.where(
            apart & (gaps > 0), requests.prompt_tokens * link.s_per_token + link.latency_s, 0.0
        )
        ttft = np.where(apart, before.ttft_s, own.ttft_s)
        e2e = ttft + crossing + gaps * own.tpot_s
        later = ttft + crossing + (own.ttfvt_s - own.ttft_s)
        if self._split.first_token == "landing":
            ttft, crossing = ttft + crossing, np.zeros(len(requests))
        ttfvt = np.where(requests.hidden_tokens > 0, later, ttft)
        return Lone(
            ttft,
            ttfvt,
            own.tpot_s + crossing / np.maximum(gaps, 1),
            e2e,
            own.itl_s,
            own.last_gap_s,
            own.steps,
        )

    def turned_away(self, requests: Requests) -> Flags:
        return self._apart(requests) & self._prefill.turned_away(requests)

    def least_work_s(self, mix: Requests) -> float:
        """Time [s] of all replicas of the ratio that a request takes at the very least: that of the pool which has more to do.

        Where both counts are searched, the time of the replicas of both pools in sum, which no pair of that size can share out better.
        """
        before, after = self.works_s(mix)
        if self.candidate.searched:
            return before + after
        return max(before / self._split.prefill_replicas, after / self._split.decode_replicas)

    def works_s(self, mix: Requests) -> tuple[float, float]:
        """Least time [s] of a prefill and of a decode replica that a request takes."""
        apart = self._apart(mix)
        before = 0.0
        if apart.any():
            prompts = replace(mix, output_tokens=np.ones(len(mix), dtype=np.int64)).take(apart)
            before = self._prefill.least_work_s(prompts) * float(apart.mean())
        assert self.step is not None
        after = least_work_s(mix, self.step, self.most_tokens(mix), self.tokens_a_step, ~apart)
        return before, after

    def open_door(self) -> Self:
        return replace(self, prefill=self._prefill.open_door())

    def run(self, requests: Requests, engines: int, seed: int = 0) -> Result:
        """Simulate the requests on so many replicas (`Candidate.pools`)."""
        return self.run_pair(requests, self.candidate.pools(engines), self.link, seed)

    def run_pair(self, requests: Requests, pair: tuple[int, ...], link: Link | None, seed: int = 0) -> Result:
        """Simulate the requests on (prefill, decode) replicas."""
        split, (before, after) = self._split, pair
        return simulate_pools(
            requests,
            _pool(self._prefill, before),
            _pool(self, after),
            link,
            bypass_tokens=split.bypass_tokens,
            first_token=split.first_token,
            seed=seed,
        )

    @property
    def _split(self) -> Split:
        assert self.candidate.split is not None
        return self.candidate.split

    @property
    def _prefill(self) -> Machine:
        assert self.prefill is not None
        return self.prefill

    def _apart(self, requests: Requests) -> np.ndarray:
        return requests.prompt_tokens > self._split.bypass_tokens


def build(candidate: Candidate, scenario: Scenario, model: catalog.Model, mix: Requests) -> Machine:
    """The machine of a candidate, of one pool or two, for traffic of these lengths; one that cannot run comes back with the reason.

    A replica must hold the longest sequence whole, one of a prefill pool the longest prompt. The KV that crosses is that of the model on
    one GPU, in the cache's type: each layer's part of the mean prompt that it can still see.
    """
    lengths, prompts = mix.prompt_tokens + mix.output_tokens, mix.prompt_tokens
    decode = machine(candidate.decode, scenario, model, int(lengths.max()), int(lengths.mean()))
    split = candidate.split
    if split is None:
        return decode if decode.reason is not None else replace(decode, reason=unserved(decode, mix))
    mean = max(int(prompts.mean()), 1)
    prefill = machine(split.prefill, scenario, model, int(prompts.max()), mean)
    sequence = sequence_memory(model.architecture, kv_dtype_bytes(candidate.kv_cache))
    link = Link(split.link_bytes_per_s, sequence.theory_bytes(mean) / mean, split.link_latency_s)
    made = Apart(**{f.name: getattr(decode, f.name) for f in fields(Machine)})
    reason = next(
        (
            f"{name} pool: {why}"
            for name, pool in (("prefill", prefill), ("decode", decode))
            if (why := _unfit(pool))
        ),
        None,
    )
    if reason is None:
        faults = check_pools(_pool(prefill, 1), _pool(decode, 1), split.bypass_tokens, split.first_token)
        if mix.answers.max() > 1:
            faults.append("several answers of one prompt are not simulated in two pools")
        reason = "; ".join(faults) or None
    made = replace(made, candidate=candidate, prefill=prefill, link=link, reason=reason)
    return made.paired(*balanced(*made.works_s(mix))) if reason is None and split.searched else made


def _unfit(pool: Machine) -> str | None:
    if pool.reason is not None:
        return pool.reason
    if pool.config is not None and pool.config.priority != "none":
        return "classes of different priorities are not simulated with prefill in a pool of its own"
    if pool.candidate.scheduler not in POOL_SCHEDULERS:
        return f"{pool.candidate.scheduler} is none that a pool can have; {', '.join(POOL_SCHEDULERS)} are"
    if pool.candidate.caching is not None:
        return "a prefix cache is not simulated in two pools; plan one pool with it, or leave it out"
    if pool.candidate.pipeline_parallel > 1:
        return "a pipeline is not simulated in two pools; plan one pool with it, or PP 1"
    if pool.candidate.data_parallel > 1:
        return "data-parallel ranks are not planned in two pools; take more replicas"
    return None


def _pool(built: Machine, replicas: int) -> Pool:
    assert built.step is not None
    assert built.config is not None
    return Pool(built.step, built.config, replicas, built.router)


def balanced(before: float, after: float) -> tuple[int, int]:
    """(prefill, decode) replicas of which each pool has as near to the same work as so few can; from the work of a request in both.

    >>> balanced(0.09, 0.031), balanced(1.0, 1.0), balanced(1.0, 0.0)
    ((3, 1), (1, 1), (4, 1))
    """
    if after <= 0:
        return MOST_OF_A_RATIO, 1
    ratios = {Fraction(p, d) for p in range(1, MOST_OF_A_RATIO + 1) for d in range(1, MOST_OF_A_RATIO + 1)}
    wanted = before / after
    best = min(
        ratios,
        key=lambda r: (
            round(abs(math.log(float(r) / wanted)), 9) if wanted > 0 else float(r),
            r.numerator + r.denominator,
        ),
    )
    return best.numerator, best.denominator
