"""The compiled state of pipelines: one `State` whose replicas are the lanes, and what those of one home share."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import EngineConfig
from fleetplan.engine.lanes import of_a_lane
from fleetplan.engine.state import COEFFICIENTS, State, make_state
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

STAGE = np.dtype([(name, "f8") for name in COEFFICIENTS])
HOME = np.dtype(
    [
        ("free", "i8"), ("gate_s", "f8"), ("starts", "i8"), ("begin_s", "f8"), ("busy_s", "f8"),
        ("key_s", "f8"), ("kind", "i8"), ("lane", "i8"), ("up", "i8"),
    ]
)  # fmt: skip
"""A replica: its free blocks, when the longest stage is free, how many steps have started, when the next one starts, and the first
of its events: when, of which kind, and of which lane if a step ends; whether it takes new requests."""
LANE = np.dtype([("ready_s", "f8"), ("free_at_s", "f8"), ("turn", "i8")])
"""Since when it has something to look at (infinite: nothing), when its last step ended, and which start of its home that was."""


class Pipelines(NamedTuple):
    """Lane k of home h is replica h·p + k of the state, whose `free` is what the lane would leave free alone."""

    state: State
    stage: NDArray[Any]
    overhead: NDArray[np.float64]
    compute: NDArray[np.float64]
    memory: NDArray[np.float64]
    home: NDArray[Any]
    lane: NDArray[Any]


def make_pipelines(
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    replicas: int,
    router: int,
    seed: int,
    until_s: float = np.inf,
    closed: tuple[int, float] | None = None,
    outages: NDArray[Any] | None = None,
    resolution_s: float = 0.0,
    samples: int = 0,
) -> Pipelines:
    """Everything that the kernel reads and writes, at time 0."""
    stages, longest = steptime.stages, steptime.beat
    state = make_state(
        requests,
        steptime,
        of_a_lane(config, stages),
        replicas * stages,
        router,
        seed,
        until_s,
        closed,
        outages,
        resolution_s,
        samples,
    )
    state.p["stages"], state.p["up"] = stages, replicas
    state.replica["queue"] = np.arange(replicas * stages) // stages
    if router in (1, 5):
        draws = np.random.default_rng(seed).integers(0, replicas, (len(requests), 2))
        state.extra["draw_0"], state.extra["draw_1"] = draws[:, 0], draws[:, 1]
    stage = np.zeros(1, STAGE)
    for name in COEFFICIENTS:
        stage[name] = getattr(longest, name)
    home = np.zeros(replicas, HOME)
    home["up"] = 1
    home["free"] = state.p["total_blocks"][0]
    home["gate_s"], home["begin_s"], home["key_s"] = -np.inf, np.inf, np.inf
    lane = np.zeros(replicas * stages, LANE)
    lane["ready_s"] = np.inf
    return Pipelines(state, stage, longest.overhead_s, longest.compute_s, longest.memory_s, home, lane)
