"""The one door to the engine: `simulate`."""

from __future__ import annotations

import numpy as np

from fleetplan.engine.config import ROUTERS, EngineConfig
from fleetplan.engine.histogram import from_values
from fleetplan.engine.plain import Plain
from fleetplan.engine.result import Result
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests


def simulate(
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    replicas: int = 1,
    router: str = "round_robin",
    seed: int = 0,
    *,
    plain: bool = False,
) -> Result:
    """Simulate the requests on like replicas behind a router, exactly, to their last token.

    `plain` steps every iteration in Python (the twin); the default skips to events in compiled code. The seed feeds
    the random routers. Raises InputError for what cannot be, or is not supported.

    >>> from fleetplan.physics.steptime import affine
    >>> run = simulate(Requests.of([0.0], 100, 3), affine(0.005, 2e-5, 5e-4), EngineConfig("continuous"))
    >>> [round(float(x), 6) for x in (run.first_token_s[0], run.finish_s[0])], run.steps
    ([0.007, 0.018], 3)
    """
    if router not in ROUTERS:
        raise InputError(f"router: {unknown_name('router', router, ROUTERS)}")
    if replicas < 1:
        raise InputError(f"replicas: must be at least 1 (got {replicas})")
    return _plain(requests, steptime, config, replicas, router, seed)


def _plain(
    requests: Requests, steptime: StepTime, config: EngineConfig, replicas: int, router: str, seed: int
) -> Result:
    engine = Plain(requests, steptime, config, replicas, router, seed)
    engine.run()
    rows = engine.sequences
    gaps = np.array([gap for _, gap in engine.gaps])
    owner = np.array([index for index, _ in engine.gaps], dtype=np.int64)
    return Result(
        requests=requests,
        arrival_s=np.array([s.arrival_s for s in rows], dtype=np.float64),
        first_scheduled_s=np.array([s.first_scheduled_s for s in rows], dtype=np.float64),
        first_token_s=np.array([s.first_token_s for s in rows], dtype=np.float64),
        finish_s=np.array([s.finish_s for s in rows], dtype=np.float64),
        preemptions=np.array([s.preemptions for s in rows], dtype=np.int32),
        replica=np.array([s.replica for s in rows], dtype=np.int32),
        outcome=np.array([s.outcome for s in rows], dtype=np.int8),
        reason=np.array([s.reason for s in rows], dtype=np.int8),
        steps=sum(r.steps for r in engine.replicas),
        busy_s=np.array([r.busy_s for r in engine.replicas]),
        itl=tuple(from_values(gaps[owner == k]) for k in range(len(requests.classes))),
    )
