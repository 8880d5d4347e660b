"""A candidate in numbers: what memory leaves for the KV cache, the time of a step, and the engine's settings."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fleetplan import catalog
from fleetplan.engine import EngineConfig, Link, Result, simulate
from fleetplan.engine.lanes import check_pipeline
from fleetplan.engine.priority import levels_of
from fleetplan.engine.run import check_requests
from fleetplan.errors import InputError
from fleetplan.physics import steptime
from fleetplan.physics.calibrated import Calibrated
from fleetplan.physics.form import StepTime
from fleetplan.physics.memory import Memory, memory
from fleetplan.sizing import bounds
from fleetplan.sizing.caching import least_prompts, prefix_cache
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.client import NO_CLIENT, ClientTime
from fleetplan.sizing.drafting import drafting
from fleetplan.sizing.residents import adapter_settings, resident, swap_settings
from fleetplan.sizing.step import DEFAULT_BUDGET_TOKENS, is_given, layout, step_of
from fleetplan.spec.scenario import Scenario
from fleetplan.traffic.requests import Requests

ROUTER = "least_outstanding"
"""How a fleet's front door shares requests out: to the replica with the fewest outstanding ones."""


@dataclass(frozen=True, eq=False)
class Machine:
    """What one replica of a candidate is; a replica of data-parallel degree d is d engines."""

    candidate: Candidate
    memory: Memory | None
    """None: the layout itself cannot be."""
    step: StepTime | None
    config: EngineConfig | None
    reason: str | None
    """Why it cannot run; None: it can."""
    made: Calibrated | None = None
    """Where the step time is calibrated: its terms, its basis and its error band."""
    router: str = ROUTER
    """How requests are shared out to its engines."""
    roof: StepTime | None = None
    """The roofline at efficiency 1 of the same candidate, which tells compute from bandwidth; None: the spec gives the step time."""
    prefill: Machine | None = None
    """Where prefill is a pool of its own: one of its replicas; the other fields are then those of one decode replica."""
    link: Link | None = None
    """What the KV crosses from one pool to the other."""

    @property
    def client_s(self) -> ClientTime:
        """What a client's TTFT has on top of the engine's."""
        if self.made is None:
            return NO_CLIENT
        return ClientTime(self.made.client_s, self.made.client_token_s, self.made.client_concurrent_s)

    @property
    def basis(self) -> str:
        """Where the step time comes from, in words."""
        return self.made.calibration.named if self.made else "as the spec gives it"

    @property
    def engines_per_replica(self) -> int:
        """Engines, each with its own queue and KV pool, of one replica."""
        return self.candidate.engines_per_replica

    @property
    def tokens(self) -> bool:
        """Whether it serves an LLM; else it is an endpoint, whose prompts are ranks of service times."""
        return self.memory is not None

    @property
    def tokens_a_step(self) -> int:
        """The most tokens that a sequence gets of one decode step: 1, and its drafts."""
        assert self.config is not None
        return 1 if self.config.speculation is None else 1 + self.config.speculation.drafts

    @property
    def budget_tokens(self) -> int | None:
        """Tokens of a step, where the scheduler cuts prompts to it; None: prompts run whole."""
        assert self.config is not None
        return self.config.max_num_batched_tokens if self.candidate.scheduler == "chunked" else None

    def lone(self, requests: Requests) -> bounds.Lone:
        """Lower bounds of each request's latencies: what it has with a replica to itself."""
        assert self.step is not None
        return bounds.lone(
            self._computed(requests), self.step, self.budget_tokens, self.client_s, self.tokens_a_step
        )

    def at_best(self, requests: Requests) -> bounds.Lone:
        """As `lone`, infinite for those that an idle replica turns away, or that give up before it has their first token."""
        alone, away = self.lone(requests), self.turned_away(requests)
        if self.prefill is None:
            waits_s = alone.ttft_s - self.client_s.of(requests.prompt_tokens)
            away = away | (waits_s > requests.timeout_s * (1 + 1e-9))
        return alone.without(away)

    def turned_away(self, requests: Requests) -> bounds.Flags:
        """Requests that find the queue full even where nobody waits."""
        assert self.config is not None
        if self.config.max_queued_requests == 0:
            return np.ones(len(requests), dtype=bool)
        if self.config.max_queued_tokens is None:
            return np.zeros(len(requests), dtype=bool)
        return requests.prompt_tokens > self.config.max_queued_tokens

    def least_work_s(self, mix: Requests) -> float:
        """Time [s] of an engine that a request takes at the very least, on average; of an endpoint just what it takes."""
        assert self.step is not None
        assert self.config is not None
        if not self.tokens:
            return float(self.step.overhead_s[1:].mean())
        computed, most = self._computed(mix), self.most_tokens(mix)
        whole = bounds.least_work_s(computed, self.step, most, self.tokens_a_step)
        if self.step.stage is None:
            return whole
        # As many steps as stages are in flight at most, and each has the longest stage to itself.
        return max(
            whole / self.step.stages,
            bounds.least_work_s(computed, self.step.stage, most, self.tokens_a_step),
        )

    def _computed(self, requests: Requests) -> Requests:
        """The requests with the least that a prefix cache leaves of their prompts."""
        assert self.config is not None
        return (
            requests if self.config.prefix_cache is None else least_prompts(requests, self.config.block_size)
        )

    def most_tokens(self, mix: Requests) -> int:
        """The most tokens that a step of these requests may have."""
        assert self.config is not None
        longest = int(mix.prompt_tokens.max()) + self.tokens_a_step - 1
        return self.budget_tokens or self.config.max_num_seqs * longest

    @property
    def decoding_engines(self) -> int:
        """Engines of `unit_replicas` that decode."""
        return self.engines_per_replica

    def sustains(self, per_replica_per_s: float, replicas: int) -> float:
        """Requests/s of this many replicas that always have work, where one makes `per_replica_per_s`."""
        return replicas * per_replica_per_s

    def open_door(self) -> Machine:
        """The same without limits on its queues: what a replica sustains is its own work, not its door."""
        assert self.config is not None
        return replace(
            self,
            config=replace(
                self.config,
                max_queued_requests=None,
                max_queued_tokens=None,
                retries=0,
                retry_backoff_s=1.0,
                retry_growth=2.0,
            ),
        )

    def run(self, requests: Requests, engines: int, seed: int = 0) -> Result:
        """Simulate the requests on this many engines behind the router."""
        assert self.step is not None
        assert self.config is not None
        return simulate(requests, self.step, self.config, engines, self.router, seed)


def machine(
    candidate: Candidate, scenario: Scenario, model: catalog.Model, longest_tokens: int, mean_tokens: int
) -> Machine:
    """Build it; a candidate that cannot run comes back with the reason.

    It must hold the longest sequence of the traffic, `longest_tokens` (prompt and output), whole.
    """
    gpu = catalog.gpu(candidate.gpu)
    given = candidate.drafts
    try:
        drafts = None if given is None else drafting(given, candidate, scenario, model, longest_tokens)
        adapters = resident(candidate, scenario, model)
        made = memory(
            model.architecture,
            gpu,
            tensor_parallel=candidate.tensor_parallel,
            pipeline_parallel=candidate.pipeline_parallel,
            data_parallel=candidate.data_parallel,
            expert_parallel=candidate.expert_parallel,
            weights=candidate.weights,
            kv_cache=candidate.kv_cache,
            context_tokens=longest_tokens,
            mean_tokens=mean_tokens,
            engine=candidate.engine,
            gpu_memory_utilization=candidate.gpu_memory_utilization,
            block_size=candidate.block_size,
            max_num_batched_tokens=candidate.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS,
            max_num_seqs=candidate.max_num_seqs,
            adapters=adapters,
            **(drafts.memory if drafts else {}),
        )
    except InputError as error:
        return Machine(candidate, None, None, None, "; ".join(error.lines))
    if not made.fits:
        return Machine(candidate, made, None, None, made.verdict)
    if candidate.caching is not None and candidate.scheduler == "static":
        return Machine(
            candidate, made, None, None, "static batches have no prefix cache; take another scheduler"
        )
    router = ROUTER if candidate.caching is None else candidate.caching.router
    ranked = len(priorities(scenario)) > 1 and candidate.priority != "none"
    if ranked and candidate.caching is not None:
        why = "a prefix cache and classes of different priorities are not simulated together"
        return Machine(candidate, made, None, None, why)
    try:
        config = EngineConfig(
            candidate.scheduler,
            candidate.max_num_seqs,
            candidate.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS,
            made.planned_blocks,
            candidate.block_size,
            candidate.max_queued_requests,
            candidate.max_queued_tokens,
            priority=candidate.priority if ranked else "none",
            priority_weights=candidate.priority_weights if ranked else (),
            max_wait_s=candidate.max_wait_s or math.inf if ranked else math.inf,
            speculation=drafts.drafts if drafts else None,
            prefix_cache=prefix_cache(candidate, made),
            **retry_settings(scenario),
            **swap_settings(candidate, made),
            **adapter_settings(candidate, adapters, model),
        )
    except InputError as error:
        return Machine(candidate, made, None, None, "; ".join(error.lines))
    try:
        most = candidate.max_num_seqs * (1 + drafts.drafts.drafts) if drafts else 0
        step, calibrated = step_of(candidate, scenario, model, most)
        roof = (
            None
            if is_given(scenario)
            else steptime.roofline(model.architecture, gpu, attention_flops=True, **layout(candidate))
        )
    except InputError as error:
        return Machine(candidate, made, None, config, "; ".join(error.lines))
    return Machine(candidate, made, step, config, None, calibrated, router=router, roof=roof)


def priorities(scenario: Scenario) -> set[int]:
    """The priorities of its classes; one where its traffic has no classes."""
    return {each.priority for each in getattr(scenario.workload, "classes", ())} or {0}


def retry_settings(scenario: Scenario) -> dict[str, Any]:
    """The engine's settings of clients that send again what was refused or timed out."""
    clients = scenario.workload.clients
    if clients is None:
        return {}
    return {"retries": clients.retries, "retry_backoff_s": clients.backoff_s, "retry_growth": clients.growth}


def unserved(built: Machine, mix: Requests) -> str | None:
    """Why the engine does not simulate these requests on this machine, in its words; None: it does."""
    if built.config is None or built.step is None:
        return built.reason
    try:
        check_requests(mix, built.config, 1, built.router, None)
        levels_of(mix, built.config)
        check_pipeline(mix, built.step, built.config, built.router)
    except InputError as error:
        told = "; ".join(_sentence(line) for line in error.lines)
        ranked = built.config.priority != "none"
        return told + ("; scheduler.priority none serves all classes in order of arrival" if ranked else "")
    return None


def _sentence(line: str) -> str:
    """What a line of an error says without where; with it where it is the subject."""
    subject, verb, said = line.rpartition(": is ")
    return f"{subject} is {said}" if verb else line.partition(": ")[2] or line
