"""What an engine may be set to: scheduler, limits, KV blocks and options, checked when it is made."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetplan.engine.speculate import Speculation
from fleetplan.errors import InputError, unknown_name

SCHEDULERS = ("static", "continuous", "chunked", "prefill_first", "disaggregated")
ROUTERS = (
    "round_robin",
    "random",
    "least_outstanding",
    "least_kv",
    "prefix_affine",
    "power_of_two",
    "central_queue",
)
PRIORITIES = ("none", "strict", "weighted")
NANOSECOND = 1e-9
"""An arrival may join a step that starts at t if arrival ≤ t + 1 ns, so that equal times stay equal whatever the order of additions."""

GRID_PER_S = float(1 << 32)
"""Arrivals that follow from a finish are kept to 2^-32 s, so that equal finishes give equal arrivals."""


MOST = (1 << 40) - 1
"""Largest count that may be set: sums of any of them stay far inside 64 bits."""
MOST_RETRIES = 100
"""Most times that one request is sent again."""
LEAST_BACKOFF_S = 1e-6
"""A retry is later than what caused it by far more than the clock's nanosecond."""
LONGEST_BACKOFF_S = 1e9
MOST_ADAPTERS = 4096
"""Most adapters that are resident at once."""
MOST_BLOCKS = (1 << 31) - 1
"""Most blocks of one tier of the prefix cache."""


@dataclass(frozen=True)
class PrefixCache:
    """Whole blocks of earlier sequences are kept while there is room, and shared: what vLLM calls automatic prefix caching.

    A prompt finds the whole blocks at its beginning that are cached (of a shared prefix, of equal hashed blocks, of the session's
    turn before), but its last token is always computed. Shared blocks are held once. Those that nobody holds count as free, and are
    evicted when their room is needed: the least recently released first, a sequence's last block before its first. Evicted blocks
    move to the host, from there to the disk, and are lost beyond; a hit brings them back, which adds their transfer time to the step
    that admits the request (moving down takes no time of the engine's). A block is there for who is admitted after the sequence that
    computes it, in the same step even; a last block that is wholly cached is computed again in its place, without a copy.
    """

    host_blocks: int = 0
    """Evicted blocks that the host's memory keeps for one replica."""
    host_block_s: float = 0.0
    """Time [s] to bring one block from the host to HBM: its bytes over the link's bandwidth."""
    disk_blocks: int = 0
    """Blocks evicted from the host that the disk keeps for one replica."""
    disk_block_s: float = 0.0
    """Time [s] to bring one block from the disk to HBM."""

    def __post_init__(self) -> None:
        faults = []
        for tier in ("host", "disk"):
            blocks, seconds = getattr(self, f"{tier}_blocks"), getattr(self, f"{tier}_block_s")
            if not 0 <= blocks <= MOST_BLOCKS:
                faults.append(f"prefix_cache: {tier}_blocks must be from 0 to {MOST_BLOCKS} (got {blocks})")
            if not 0 <= seconds < math.inf:
                faults.append(f"prefix_cache: {tier}_block_s must be at least 0 and finite (got {seconds})")
        if self.disk_blocks and not self.host_blocks:
            faults.append(
                f"prefix_cache: disk_blocks without host_blocks (got {self.disk_blocks}), blocks reach the disk through the host"
            )
        if faults:
            raise InputError(*faults)


@dataclass(frozen=True)
class EngineConfig:
    """How each replica runs. Raises InputError where a value cannot be."""

    scheduler: str = "chunked"
    """One of SCHEDULERS."""
    max_num_seqs: int = 256
    """Most sequences that run at once."""
    max_num_batched_tokens: int = 8192
    """Token budget of a step: `chunked` and, for prompts, `prefill_first`; the others do not use it."""
    kv_blocks: int | None = None
    """KV blocks of one replica; None: no limit."""
    block_size: int = 16
    """Tokens of a block."""
    max_queued_requests: int | None = None
    """An arrival that finds this many waiting at its replica is rejected; None: no limit."""
    max_queued_tokens: int | None = None
    """An arrival whose prompt would lift the waiting prompt tokens of its replica above this is rejected; None: no limit."""
    retries: int = 0
    """Times that the client sends a request again which was refused because the queue was full, or timed out. Each attempt is routed
    anew, as an arrival of its own with its own deadline; latency counts from the first arrival, the outcome is the last attempt's."""
    retry_backoff_s: float = 1.0
    """Time [s] from the end of the first attempt to the second. An attempt that times out while it is computed ends at its deadline, but
    leaves its batch at the end of the step (of a static batch, with the batch), and is not sent again before."""
    retry_growth: float = 2.0
    """Each further backoff is this many times the one before."""
    priority: str = "none"
    """One of PRIORITIES: first come first served; the most urgent first; or levels by turns, as their weights say."""
    priority_weights: tuple[float, ...] = ()
    """`weighted`: admissions of each priority, from 0 on, among those that wait."""
    max_wait_s: float = math.inf
    """A request that waits and arrived longer ago than this goes before all that did not, whatever its priority."""
    speculation: Speculation | None = None
    """Drafts of every decoding sequence; None: one token a step."""
    prefix_cache: PrefixCache | None = None
    """None: nothing is shared or kept. Not with `static`, which has no blocks to keep, nor with a central queue."""
    preemption: str = "recompute"
    """`recompute`: a preempted sequence is computed again; `swap`: its KV goes to the host and comes back, each of which adds its
    time to the step that preempts or admits; where the host is full it is computed again."""
    swap_blocks: int = 0
    """Blocks of preempted sequences that the host keeps for one replica."""
    swap_block_s: float = 0.0
    """Time [s] of one block over the link between host and GPU, in each direction."""
    max_adapters: int | None = None
    """LoRA adapters that are resident at once; the KV blocks are what is left beside them. None: adapters are not simulated."""
    adapter_load_s: float = 0.0
    """Time [s] that an adapter which is not resident adds to the step that admits its request. One that a running request uses stays;
    of the others the one idle for longest goes; where all are in use the head of the queue waits."""

    def __post_init__(self) -> None:
        faults = []
        if self.scheduler not in SCHEDULERS:
            faults.append(f"scheduler: {unknown_name('scheduler', self.scheduler, SCHEDULERS)}")
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            if getattr(self, name) < 1:
                faults.append(f"{name}: must be at least 1 (got {getattr(self, name)})")
            elif getattr(self, name) > MOST:
                faults.append(f"{name}: must be at most {MOST} (got {getattr(self, name)})")
        for name, least in (("kv_blocks", 1), ("max_queued_requests", 0), ("max_queued_tokens", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                faults.append(f"{name}: must be at least {least}, or None for no limit (got {value})")
            elif value is not None and value > MOST:
                faults.append(f"{name}: must be at most {MOST}, or None for no limit (got {value})")
        faults += self._retry_faults()
        faults += self._memory_faults()
        faults += self._priority_faults()
        if self.prefix_cache is not None and self.scheduler == "static":
            faults.append(
                "prefix_cache: static batches share nothing, take chunked, prefill_first or continuous"
            )
        if faults:
            raise InputError(*faults)

    @property
    def backoffs_s(self) -> tuple[float, ...]:
        """Time [s] before each retry."""
        return tuple(self.retry_backoff_s * self.retry_growth**k for k in range(self.retries))

    def _retry_faults(self) -> list[str]:
        faults = []
        if not 0 <= self.retries <= MOST_RETRIES:
            faults.append(f"retries: must be from 0 to {MOST_RETRIES} (got {self.retries})")
        if not LEAST_BACKOFF_S <= self.retry_backoff_s <= LONGEST_BACKOFF_S:
            faults.append(
                f"retry_backoff_s: must be from {LEAST_BACKOFF_S:g} to {LONGEST_BACKOFF_S:g} s (got {self.retry_backoff_s})"
            )
        if not 1 <= self.retry_growth <= LONGEST_BACKOFF_S:
            faults.append(f"retry_growth: must be from 1 to {LONGEST_BACKOFF_S:g} (got {self.retry_growth})")
        if faults:
            return faults
        if self.retries == 0 and (self.retry_backoff_s, self.retry_growth) != (1.0, 2.0):
            faults.append(
                "retry_backoff_s, retry_growth: say how to retry (got 0 retries), give retries or drop them"
            )
        last = math.log(self.retry_backoff_s) + max(self.retries - 1, 0) * math.log(self.retry_growth)
        if last > math.log(LONGEST_BACKOFF_S) + 1e-9:
            faults.append(
                f"retries: the backoff before the last would be longer than {LONGEST_BACKOFF_S:g} s (got {self.retries} retries that grow "
                f"{self.retry_growth:g}-fold), give fewer or a smaller retry_growth"
            )
        return faults

    def _memory_faults(self) -> list[str]:
        faults = []
        if self.preemption not in ("recompute", "swap"):
            faults.append(f"preemption: must be recompute or swap (got {self.preemption!r})")
        elif self.preemption == "swap":
            if not 1 <= self.swap_blocks <= MOST_BLOCKS:
                faults.append(
                    f"swap_blocks: must be from 1 to {MOST_BLOCKS} with preemption swap (got {self.swap_blocks})"
                )
            if self.scheduler not in ("chunked", "prefill_first"):
                faults.append(f"preemption: {self.scheduler} never preempts (got swap), drop it")
            if self.prefix_cache is not None:
                faults.append(
                    "preemption: swap cannot be joined with a prefix cache, whose blocks several sequences hold; take recompute"
                )
        elif self.swap_blocks or self.swap_block_s:
            faults.append(
                "swap_blocks: are used with preemption swap alone (got recompute), drop them or take swap"
            )
        for name in ("swap_block_s", "adapter_load_s"):
            if not 0 <= getattr(self, name) < math.inf:
                faults.append(f"{name}: must be at least 0 and finite (got {getattr(self, name)})")
        if self.max_adapters is not None and not 1 <= self.max_adapters <= MOST_ADAPTERS:
            faults.append(f"max_adapters: must be from 1 to {MOST_ADAPTERS} (got {self.max_adapters})")
        if self.max_adapters is None and self.adapter_load_s:
            faults.append(
                f"adapter_load_s: needs max_adapters (got {self.adapter_load_s}), say how many are resident"
            )
        return faults

    def _priority_faults(self) -> list[str]:
        faults = []
        if self.priority not in PRIORITIES:
            faults.append(f"priority: {unknown_name('way of priorities', self.priority, PRIORITIES)}")
        if (self.priority == "weighted") != bool(self.priority_weights):
            faults.append(
                f"priority_weights: come with the priority weighted, one each (got {self.priority_weights} with {self.priority})"
            )
        if not all(0 < weight < math.inf for weight in self.priority_weights):
            faults.append(f"priority_weights: each must be above 0 (got {self.priority_weights})")
        if not self.max_wait_s > 0:
            faults.append(f"max_wait_s: must be above 0 (got {self.max_wait_s})")
        if self.max_wait_s < math.inf and self.priority == "none":
            faults.append(f"max_wait_s: bounds what priorities do (got {self.max_wait_s} with none), drop it")
        if self.priority != "none" and self.prefix_cache is not None:
            faults.append(
                "priority: is not simulated together with a prefix cache, take priority none, or drop the cache"
            )
        return faults


def widest(config: EngineConfig) -> int:
    """Most sequences that can run at once: each takes a token of a chunked step."""
    if config.scheduler == "chunked":
        return min(config.max_num_seqs, config.max_num_batched_tokens)
    return config.max_num_seqs


def blocks_for(tokens: int, block_size: int) -> int:
    """Blocks that hold this many tokens: ceil(tokens/block_size).

    >>> blocks_for(1000, 16), blocks_for(16, 16), blocks_for(0, 16)
    (63, 1, 0)
    """
    return -(-tokens // block_size)
