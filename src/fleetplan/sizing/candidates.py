"""The grid of a scenario: every combination that its spec allows, with an id that only its own fields make."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from fleetplan import catalog
from fleetplan.physics.constants import engine_of
from fleetplan.spec.caching import PrefixCaching
from fleetplan.spec.candidates import Speculation
from fleetplan.spec.disaggregation import Disaggregation, PoolSide
from fleetplan.spec.preempting import Swap
from fleetplan.spec.scenario import Scenario

DEFAULT_BUDGET_TOKENS = 8192
"""max_num_batched_tokens of a pool whose scheduler needs one and is given none."""


_LATER = (
    "calibration",
    "prefix_caching",
    "preemption",
    "max_adapters",
    "adapter_load_s",
    "adapter_link_bytes_per_s",
)
"""Fields that ids leave out where they say nothing, so that candidates keep the ids that they had before there was such a choice."""


@dataclass(frozen=True)
class Split:
    """Prefill apart: its pool, how many of its replicas go with how many that decode, and the link between them.

    With `searched` the count of each pool is found on its own, what is counted as a replica is one of either pool, and the two counts
    here are a pair that fleets of any size follow (`Candidate.pools`).
    """

    prefill: Candidate
    """One replica of the prefill pool."""
    prefill_replicas: int
    decode_replicas: int
    link_bytes_per_s: float
    link_latency_s: float
    bypass_tokens: int
    first_token: str
    searched: bool = False

    @property
    def ratio(self) -> str:
        """Prefill to decode replicas, as the spec writes it."""
        return "search" if self.searched else f"{self.prefill_replicas}:{self.decode_replicas}"


@dataclass(frozen=True)
class Candidate:
    """One way to run the model: what is bought, and how it is run."""

    gpu: str
    """Catalogue name, aliases resolved."""
    tensor_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    weights: str
    kv_cache: str
    engine: str
    gpu_memory_utilization: float
    block_size: int
    scheduler: str
    max_num_seqs: int
    max_num_batched_tokens: int | None
    max_queued_requests: int | None
    max_queued_tokens: int | None
    speculation: str
    """Canonical JSON of the speculation, or none."""
    split: Split | None = field(default=None, kw_only=True)
    """Where prefill is a pool of its own: the other fields are then those of one decode replica, and what is counted as a replica is
    the prefill and decode replicas of the ratio together."""
    priority: str = field(default="strict", kw_only=True)
    """How waiting requests of different priorities are taken."""
    priority_weights: tuple[float, ...] = field(default=(), kw_only=True)
    max_wait_s: float | None = field(default=None, kw_only=True)
    calibration: str = field(default="", kw_only=True)
    """Path of the calibration that the engine was named by, from the spec's folder; empty: the shipped one."""
    prefix_caching: str = field(default="", kw_only=True)
    """Canonical JSON of the prefix cache; empty: none."""
    preemption: str = field(default="", kw_only=True)
    """Canonical JSON of the swap to the host; empty: what is preempted is computed again."""
    max_adapters: int | None = field(default=None, kw_only=True)
    """LoRA adapters that are resident at once."""
    adapter_load_s: float | None = field(default=None, kw_only=True)
    adapter_link_bytes_per_s: float | None = field(default=None, kw_only=True)

    @property
    def candidate_id(self) -> str:
        """Twelve hex digits of the hash of its own fields; the same in every scenario, order and version of a spec."""
        fields = asdict(self)
        if self.split is None:
            del fields["split"]
        elif self.split.searched:  # the pair is what is found, not what is asked
            del fields["split"]["prefill_replicas"], fields["split"]["decode_replicas"]
        else:
            del fields["split"]["searched"]
        for each in (fields, (fields.get("split") or {}).get("prefill", {})):
            if (
                each.get("priority") == "strict" and each.get("max_wait_s") is None
            ):  # as before there was a choice
                for name in ("priority", "priority_weights", "max_wait_s"):
                    each.pop(name, None)
            for name in _LATER:
                if each.get(name) in (None, ""):
                    each.pop(name, None)
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def gpus_per_replica(self) -> int | None:
        """GPUs of one replica: t · p · d; expert parallelism spreads over the same GPUs.

        Of two pools the GPUs of their ratio; where their counts are searched, those of a replica of either, None where these differ.
        """
        if self.searched:
            sizes = {side.gpus_per_engine_group for side in self.sides}
            return sizes.pop() if len(sizes) == 1 else None
        return sum(side.gpus_per_engine_group * n for side, n in zip(self.sides, self.pools(1), strict=True))

    @property
    def gpus_per_engine_group(self) -> int:
        """GPUs of one replica of the candidate's own pool."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def engines_per_replica(self) -> int:
        """Engines, each with its own queue and KV pool, of one replica: d."""
        return self.data_parallel

    @property
    def sides(self) -> tuple[Candidate, ...]:
        """One replica of each pool: itself; prefill and decode where they are apart."""
        return (self,) if self.split is None else (self.split.prefill, self.decode)

    @property
    def searched(self) -> bool:
        """Whether prefill is apart and the count of each pool is found on its own."""
        return self.split is not None and self.split.searched

    @property
    def least_replicas(self) -> int:
        """The smallest fleet: 1; one of each pool where each is counted."""
        return 2 if self.searched else 1

    @property
    def unit_replicas(self) -> int:
        """Replicas of the fleet that shows what one does: 1; the pair where both pools' counts are searched."""
        split = self.split
        return split.prefill_replicas + split.decode_replicas if split is not None and split.searched else 1

    def pools(self, replicas: int) -> tuple[int, ...]:
        """Replicas of each pool (of `sides`) at this count.

        So many times the ratio; where both counts are searched, the fleet of this size on the way through their pair: the prefill pool's
        part is rounded, so that one replica more is one more of one pool. At least one of each.
        """
        split = self.split
        if split is None:
            return (replicas,)
        p, d = split.prefill_replicas, split.decode_replicas
        if not split.searched:
            return replicas * p, replicas * d
        if replicas == 0:
            return 0, 0
        total = max(replicas, 2)
        before = min(max((2 * total * p + p + d) // (2 * (p + d)), 1), total - 1)
        return before, total - before

    def paired(self, prefill: int, decode: int) -> Candidate:
        """The same candidate, its fleets on the way through this pair; its id does not change."""
        assert self.split is not None
        return replace(self, split=replace(self.split, prefill_replicas=prefill, decode_replicas=decode))

    @property
    def decode(self) -> Candidate:
        """One replica of the decode pool; where prefill is not apart, the candidate."""
        return self if self.split is None else replace(self, split=None)

    @property
    def mixed(self) -> bool:
        """Whether its pools run on different kinds of GPU."""
        return self.split is not None and self.split.prefill.gpu != self.gpu

    def everywhere(self, **fields: Any) -> Candidate:
        """The candidate with these fields changed, in both of its pools where it has two; a pool without a token budget gets none."""
        own = dict(fields)
        if self.max_num_batched_tokens is None:
            own.pop("max_num_batched_tokens", None)
        apart = self.split
        if apart is not None:
            own["split"] = replace(apart, prefill=apart.prefill.everywhere(**fields))
        return replace(self, **own)

    @property
    def label(self) -> str:
        """In words, short, as reports show it."""
        words = [
            self._hardware,
            f"{self.weights} weights",
            f"{self.kv_cache} KV",
            self._scheduling,
            f"{self.engine} ({self.calibration})" if self.calibration else self.engine,
        ]
        if self.split is not None:
            before = self.split.prefill
            p, d = ("", "") if self.searched else (f"{n} " for n in self.pools(1))
            words[0] = f"{p}prefill ({before._hardware}) + {d}decode ({self._hardware})"
            if before._scheduling != self._scheduling:
                words[3] = f"{before._scheduling} then {self._scheduling}"
            words.append(f"link {self.split.link_bytes_per_s / 1e9:g} GB/s")
            if self.split.bypass_tokens:
                words.append(f"bypass to {self.split.bypass_tokens}")
        if self.priority != "strict" or self.max_wait_s is not None:
            bound = "" if self.max_wait_s is None else f" within {self.max_wait_s:g} s"
            words.append(f"priority {self.priority}{bound}")
        if self.speculation != "none":
            drafts = json.loads(self.speculation)
            words.append(f"{drafts['draft']} × {drafts['tokens']}")
        if (cache := self.caching) is not None:
            tiers = [name for name in ("host", "disk") if getattr(cache, f"{name}_bytes") is not None]
            words.append(" + ".join(["prefix cache", *tiers]))
        if self.preemption:
            words.append(f"swap to {json.loads(self.preemption)['swap_bytes'] / 1e9:g} GB")
        if self.max_adapters is not None:
            words.append(f"{self.max_adapters} adapter{'s' if self.max_adapters > 1 else ''} resident")
        return ", ".join(words)

    @property
    def _hardware(self) -> str:
        degrees = [f"TP {self.tensor_parallel}"]
        for short, degree in (
            ("PP", self.pipeline_parallel),
            ("DP", self.data_parallel),
            ("EP", self.expert_parallel),
        ):
            if degree > 1:
                degrees.append(f"{short} {degree}")
        return f"{catalog.gpu(self.gpu).title}, {' '.join(degrees)}"

    @property
    def _scheduling(self) -> str:
        budget = f" {self.max_num_batched_tokens}" if self.max_num_batched_tokens else ""
        return f"{self.scheduler}{budget}/{self.max_num_seqs}"

    @property
    def caching(self) -> PrefixCaching | None:
        """The prefix cache as the spec has it; None: none."""
        return (
            PrefixCaching.model_construct(**json.loads(self.prefix_caching)) if self.prefix_caching else None
        )

    @property
    def drafts(self) -> Speculation | None:
        """The speculation as the spec has it."""
        if self.speculation == "none":
            return None
        given = json.loads(self.speculation)  # of values that were checked: a size is a bare number by now
        if given["acceptance"] is not None:
            given["acceptance"] = tuple(given["acceptance"])
        return Speculation.model_construct(**given)


def speculation_text(choice: Literal["none"] | Speculation) -> str:
    """A choice of the spec as `Candidate.speculation` has it."""
    return "none" if choice == "none" else choice.model_dump_json()


def preemption_text(choice: Literal["recompute"] | Swap) -> str:
    """A choice of the spec as `Candidate.preemption` has it."""
    return "" if choice == "recompute" else choice.model_dump_json()


def expand(scenario: Scenario) -> tuple[Candidate, ...]:
    """Every candidate of the scenario, in the order of its lists; equal ones once."""
    grid = scenario.candidates
    made = (
        Candidate(
            gpu=catalog.gpu(gpu).name,
            tensor_parallel=tensor,
            pipeline_parallel=pipeline,
            data_parallel=data,
            expert_parallel=expert,
            weights=weights,
            kv_cache=kv_cache,
            engine=engine.name if engine.file is None else engine_of(scenario.folder / engine.file),
            gpu_memory_utilization=engine.gpu_memory_utilization,
            block_size=engine.block_size,
            scheduler=scheduler.policy,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_queued_requests=scheduler.max_queued_requests,
            max_queued_tokens=scheduler.max_queued_tokens,
            priority=scheduler.priority,
            priority_weights=scheduler.priority_weights or (),
            max_wait_s=scheduler.max_wait_s,
            preemption=preemption_text(scheduler.preemption),
            max_adapters=scheduler.max_adapters,
            adapter_load_s=scheduler.adapter_load_s,
            adapter_link_bytes_per_s=scheduler.adapter_link_bytes_per_s,
            speculation=speculation_text(speculation),
            calibration=engine.file or "",
            prefix_caching="" if engine.caching is None else engine.caching.model_dump_json(),
        )
        for gpu, tensor, pipeline, data, expert, weights, kv_cache, scheduler, speculation, engine in itertools.product(
            grid.gpu,
            grid.tensor_parallel,
            grid.pipeline_parallel,
            grid.data_parallel,
            grid.expert_parallel,
            grid.weights,
            grid.kv_cache,
            grid.scheduler,
            grid.speculation,
            grid.engine,
        )
    )
    return tuple(
        dict.fromkeys(
            apart
            for candidate in made
            for choice in grid.disaggregated
            for apart in _apart(candidate, choice)
        )
    )


def split(candidate: Candidate, choice: Disaggregation, ratio: tuple[int, int] | None = None) -> Candidate:
    """The candidate with prefill in a pool of its own; what the pools do not say is as the candidate has it. Without a ratio both
    counts are searched.

    Queue limits stay at prefill, where requests arrive, and drafts at decode.
    """
    prefill_replicas, decode_replicas = ratio or (1, 1)
    before = replace(_pool(candidate, choice.prefill), speculation="none", split=None)
    after = replace(_pool(candidate, choice.decode), max_queued_requests=None, max_queued_tokens=None)
    return replace(
        after,
        split=Split(
            before,
            prefill_replicas,
            decode_replicas,
            choice.link_bytes_per_s,
            choice.link_latency_s,
            choice.bypass_tokens,
            choice.first_token,
            searched=ratio is None,
        ),
    )


def _apart(candidate: Candidate, choice: str | Disaggregation) -> tuple[Candidate, ...]:
    if isinstance(choice, str):
        return (candidate,)
    return tuple(split(candidate, choice, ratio) for ratio in choice.ratios)


def _pool(candidate: Candidate, side: PoolSide) -> Candidate:
    own = side.model_dump(exclude_none=True, exclude={"policy", "gpu"})
    made = replace(
        candidate,
        gpu=candidate.gpu if side.gpu is None else catalog.gpu(side.gpu).name,
        scheduler=side.policy or candidate.scheduler,
        **own,
    )
    if made.scheduler in ("static", "continuous"):
        return replace(made, max_num_batched_tokens=None)
    return replace(made, max_num_batched_tokens=made.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS)
