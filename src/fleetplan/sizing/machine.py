"""A candidate in numbers: what memory leaves for the KV cache, the time of a step, and the engine's settings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fleetplan import catalog
from fleetplan.engine import EngineConfig, Result, simulate
from fleetplan.errors import InputError
from fleetplan.physics import steptime
from fleetplan.physics.calibrated import Calibrated, calibrate_step
from fleetplan.physics.form import StepTime
from fleetplan.physics.memory import Memory, memory
from fleetplan.sizing import bounds
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.client import NO_CLIENT, ClientTime
from fleetplan.spec.scenario import Scenario
from fleetplan.spec.steptime import Affine, Roofline, Table
from fleetplan.traffic.requests import Requests

DEFAULT_BUDGET_TOKENS = 8192
"""max_num_batched_tokens that sizes activations where the scheduler has no budget of its own."""
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

    def least_work_s(self, mix: Requests) -> float:
        """Time [s] of an engine that a request takes at the very least, on average; of an endpoint just what it takes."""
        assert self.step is not None
        assert self.config is not None
        if not self.tokens:
            return float(self.step.overhead_s[1:].mean())
        budget = self.config.max_num_batched_tokens if self.candidate.scheduler == "chunked" else None
        return bounds.least_work_s(
            mix, self.step, budget or self.config.max_num_seqs * int(mix.prompt_tokens.max())
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
    try:
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
        )
    except InputError as error:
        return Machine(candidate, None, None, None, "; ".join(error.lines))
    if not made.fits:
        return Machine(candidate, made, None, None, made.verdict)
    if candidate.pipeline_parallel > 1:
        return Machine(
            candidate, made, None, None, "pipeline parallelism is not simulated; plan it with TP or DP"
        )
    if candidate.speculation != "none":
        return Machine(
            candidate, made, None, None, "speculation is not simulated in a fleet; see the stage speculation"
        )
    config = EngineConfig(
        candidate.scheduler,
        candidate.max_num_seqs,
        candidate.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS,
        made.planned_blocks,
        candidate.block_size,
        candidate.max_queued_requests,
        candidate.max_queued_tokens,
    )
    try:
        step, calibrated = _step(candidate, scenario, model, gpu)
        given = isinstance(scenario.step_time, (Affine, Table))
        roof = (
            None
            if given
            else steptime.roofline(model.architecture, gpu, attention_flops=True, **_layout(candidate))
        )
    except InputError as error:
        return Machine(candidate, made, None, config, "; ".join(error.lines))
    return Machine(candidate, made, step, config, None, calibrated, roof=roof)


def _step(
    candidate: Candidate, scenario: Scenario, model: catalog.Model, gpu: catalog.Gpu
) -> tuple[StepTime, Calibrated | None]:
    choice = scenario.step_time
    if isinstance(choice, Affine):
        given = choice.affine
        return steptime.affine(given.fixed_s, given.prefill_s_per_token, given.decode_s_per_sequence), None
    if isinstance(choice, Table):
        return steptime.from_json(scenario.folder / choice.table), None
    layout = _layout(candidate)
    if isinstance(choice, Roofline):
        given_roofline = choice.roofline
        return (
            steptime.roofline(
                model.architecture,
                gpu,
                efficiency=given_roofline.efficiency,
                overhead_s=given_roofline.overhead_s,
                attention_flops=given_roofline.attention_flops,
                **layout,
            ),
            None,
        )
    most = max(candidate.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS, candidate.max_num_seqs)
    made = calibrate_step(model.architecture, gpu, engine=candidate.engine, max_tokens=most, **layout)
    return made.step, made


def _layout(candidate: Candidate) -> dict[str, Any]:
    return {
        "weights": candidate.weights,
        "kv_cache": candidate.kv_cache,
        "tensor_parallel": candidate.tensor_parallel,
        "pipeline_parallel": candidate.pipeline_parallel,
        "data_parallel": candidate.data_parallel,
        "expert_parallel": candidate.expert_parallel,
    }
