"""What a pipeline of the engine is: as many lanes as stages, each with a step of its own in flight."""

from __future__ import annotations

from dataclasses import replace

from fleetplan.engine.config import EngineConfig
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

LANE_SCHEDULERS = ("continuous", "chunked", "prefill_first")
MOST_STAGES = 256


def of_a_lane(config: EngineConfig, stages: int) -> EngineConfig:
    """The settings of one lane: its share of the replica's sequences, at least one; the blocks are the replica's."""
    return replace(config, max_num_seqs=max(config.max_num_seqs // stages, 1))


def check_pipeline(requests: Requests, steptime: StepTime, config: EngineConfig, router: str) -> None:
    """Raise InputError for what is not simulated in a pipeline."""
    if steptime.stages == 1:
        return
    faults = []
    if steptime.stages > MOST_STAGES:
        faults.append(f"steptime: at most {MOST_STAGES} stages (got {steptime.stages})")
    if config.scheduler not in LANE_SCHEDULERS:
        faults.append(
            f"scheduler: {config.scheduler} is not simulated in a pipeline of {steptime.stages} stages, "
            f"take {', '.join(LANE_SCHEDULERS[:-1])} or {LANE_SCHEDULERS[-1]}"
        )
    for name, given in (
        ("prefix_cache", config.prefix_cache is not None),
        ("preemption: swap", config.preemption == "swap"),
        ("max_adapters", config.max_adapters is not None),
        ("speculation", config.speculation is not None),
        (f"priority: {config.priority}", config.priority != "none"),
        ("retries", config.retries > 0),
        ("requests: answers above 1", len(requests) > 0 and requests.answers.max() > 1),
        ("router: central_queue", router == "central_queue"),
    ):
        if given:
            faults.append(
                f"{name}: is not simulated in a pipeline yet (got one of {steptime.stages} stages), drop it"
            )
    if faults:
        raise InputError(*faults)
