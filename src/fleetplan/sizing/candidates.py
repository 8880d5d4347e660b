"""The grid of a scenario: every combination that its spec allows, with an id that only its own fields make."""

from __future__ import annotations

import hashlib
import itertools
import json
from dataclasses import asdict, dataclass
from typing import Literal

from fleetplan import catalog
from fleetplan.spec.candidates import Speculation
from fleetplan.spec.scenario import Scenario


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

    @property
    def candidate_id(self) -> str:
        """Twelve hex digits of the hash of its own fields; the same in every scenario, order and version of a spec."""
        text = json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def gpus_per_replica(self) -> int:
        """GPUs of one replica: t · p · d; expert parallelism spreads over the same GPUs."""
        return self.tensor_parallel * self.pipeline_parallel * self.data_parallel

    @property
    def engines_per_replica(self) -> int:
        """Engines, each with its own queue and KV pool, of one replica: d."""
        return self.data_parallel

    @property
    def label(self) -> str:
        """In words, short, as reports show it."""
        degrees = [f"TP {self.tensor_parallel}"]
        for short, degree in (
            ("PP", self.pipeline_parallel),
            ("DP", self.data_parallel),
            ("EP", self.expert_parallel),
        ):
            if degree > 1:
                degrees.append(f"{short} {degree}")
        budget = f" {self.max_num_batched_tokens}" if self.max_num_batched_tokens else ""
        words = [
            catalog.gpu(self.gpu).title,
            " ".join(degrees),
            f"{self.weights} weights",
            f"{self.kv_cache} KV",
            f"{self.scheduler}{budget}/{self.max_num_seqs}",
            self.engine,
        ]
        if self.speculation != "none":
            drafts = json.loads(self.speculation)
            words.append(f"{drafts['draft']} × {drafts['tokens']}")
        return ", ".join(words)

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
            engine=engine.name,
            gpu_memory_utilization=engine.gpu_memory_utilization,
            block_size=engine.block_size,
            scheduler=scheduler.policy,
            max_num_seqs=scheduler.max_num_seqs,
            max_num_batched_tokens=scheduler.max_num_batched_tokens,
            max_queued_requests=scheduler.max_queued_requests,
            max_queued_tokens=scheduler.max_queued_tokens,
            speculation=speculation_text(speculation),
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
    return tuple(dict.fromkeys(made))
