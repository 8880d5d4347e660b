"""Two pools and what lies between them: the prefill and the decode pool, the link, and the record of each handoff."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import ROUTERS, EngineConfig
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.form import StepTime

Floats = NDArray[np.float64]
POOL_SCHEDULERS = ("continuous", "chunked", "prefill_first")
"""Schedulers that a pool's replicas may have."""
FIRST_TOKEN_AT = ("prefill", "landing")
"""Where TTFT ends: when prefill emits token 1, or when the KV has crossed the link."""


@dataclass(frozen=True, eq=False)
class Pool:
    """Like replicas of one stage: their hardware (as a step time), settings, number and router."""

    steptime: StepTime
    config: EngineConfig
    """Its scheduler is one of POOL_SCHEDULERS."""
    replicas: int = 1
    router: str = "least_outstanding"


@dataclass(frozen=True)
class Link:
    """The one link that all KV crosses, first in first out. Raises InputError where a value cannot be.

    A prompt of S tokens occupies it for S·kv_bytes_per_token/bytes_per_s and is there `latency_s` after that; the latency occupies
    nothing.

    >>> Link(50e9, 131072, 1e-3).crossing_s(1000)
    0.00262144
    """

    bytes_per_s: float = math.inf
    """Bandwidth [bytes/s]; inf: crossing takes the latency only."""
    kv_bytes_per_token: float = 0.0
    """KV cache of one token of the whole model [bytes]."""
    latency_s: float = 0.0

    def __post_init__(self) -> None:
        faults = []
        if not self.bytes_per_s > 0:
            faults.append(f"link: bytes_per_s must be above 0 (got {self.bytes_per_s})")
        for name in ("kv_bytes_per_token", "latency_s"):
            if not 0 <= getattr(self, name) < math.inf:
                faults.append(f"link: {name} must be finite and at least 0 (got {getattr(self, name)})")
        if not faults and self.bytes_per_s < math.inf and self.kv_bytes_per_token == 0:
            faults.append(
                "link: kv_bytes_per_token is missing (got 0), a bandwidth needs it to tell how long a prompt takes"
            )
        if faults:
            raise InputError(*faults)

    @property
    def s_per_token(self) -> float:
        """Time that one token's KV occupies the link [s]."""
        return self.kv_bytes_per_token / self.bytes_per_s

    def crossing_s(self, tokens: int) -> float:
        """Time that these tokens' KV occupies the link [s]."""
        return tokens * self.s_per_token


@dataclass(frozen=True, eq=False)
class Handoff:
    """Where and when each request went from prefill to decode; arrays in the order of the requests, NaN or −1 where it did not."""

    prefill_replica: NDArray[np.int32]
    """Number within the prefill pool; −1: it never ran there (bypassed, refused or gave up)."""
    decode_replica: NDArray[np.int32]
    """Number within the decode pool; −1: it never came to one."""
    prefilled_s: Floats
    """Prefill emitted token 1."""
    reserved_s: Floats
    """The decode replica had its blocks free and reserved them."""
    sent_s: Floats
    """The KV began to cross the link."""
    landed_s: Floats
    """The KV was there."""


def check_pools(prefill: Pool, decode: Pool, bypass_tokens: int, first_token: str) -> list[str]:
    """What cannot be, or not together, in words."""
    faults = []
    for name, pool in (("prefill", prefill), ("decode", decode)):
        if pool.config.scheduler not in POOL_SCHEDULERS:
            faults.append(
                f"{name}: scheduler {pool.config.scheduler} is none that a pool can have, take one of {', '.join(POOL_SCHEDULERS)}"
            )
        if pool.router not in ROUTERS:
            faults.append(f"{name}: {unknown_name('router', pool.router, ROUTERS)}")
        if pool.router == "least_kv" and pool.config.kv_blocks is None:
            faults.append(f"{name}: least_kv compares blocks in use and needs kv_blocks (got no limit)")
        if pool.replicas < 1:
            faults.append(f"{name}: replicas must be at least 1 (got {pool.replicas})")
        for what, given in (
            ("a prefix cache", pool.config.prefix_cache is not None),
            ("preemption swap", pool.config.preemption == "swap"),
            ("LoRA adapters", pool.config.max_adapters is not None),
            ("retries", pool.config.retries > 0),
        ):
            if given:
                faults.append(f"{name}: {what} in pools is not simulated yet, take one pool, or leave it out")
    config = prefill.config
    if prefill.router == "central_queue" and config.scheduler == "chunked" and config.kv_blocks is not None:
        faults.append(
            "prefill: central_queue with kv_blocks needs a scheduler that takes whole prompts (got chunked), continuous or "
            "prefill_first would be right"
        )
    if decode.router == "central_queue":
        faults.append(
            "decode: central_queue cannot say which replica reserves the blocks of a handoff, take another router"
        )
    if decode.config.max_queued_requests is not None or decode.config.max_queued_tokens is not None:
        faults.append(
            "decode: max_queued_requests and max_queued_tokens belong to the prefill pool, drop them"
        )
    faults += [
        f"{name}: priorities are not simulated in pools, take priority none"
        for name, pool in (("prefill", prefill), ("decode", decode))
        if pool.config.priority != "none"
    ]
    if prefill.config.speculation is not None:
        faults.append("prefill: speculation drafts after token 1, which the decode pool does; drop it there")
    if bypass_tokens < 0:
        faults.append(f"bypass_tokens: must be at least 0 (got {bypass_tokens})")
    if first_token not in FIRST_TOKEN_AT:
        faults.append(f"first_token: {unknown_name('choice', first_token, FIRST_TOKEN_AT)}")
    return faults
