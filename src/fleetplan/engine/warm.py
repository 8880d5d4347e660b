"""`python -m fleetplan.engine.warm`: compile the kernels into their cache, so that set-up pays for it once and no run does."""

from __future__ import annotations

from dataclasses import replace

from fleetplan.engine.config import EngineConfig
from fleetplan.engine.handoff import Pool
from fleetplan.engine.pools import simulate_pools
from fleetplan.engine.run import simulate
from fleetplan.physics.form import affine
from fleetplan.traffic.requests import Requests


def warm() -> None:
    """Simulate two requests, in one pool, in two and in a pipeline: the compiled code does not hang on scheduler, router or sizes."""
    requests, step = Requests.of([0.0, 1.0], 100, 3), affine(0.005, 2e-5, 5e-4)
    simulate(requests, step, EngineConfig(), 2, "least_outstanding")
    simulate_pools(requests, Pool(step, EngineConfig()), Pool(step, EngineConfig()))
    simulate(requests, replace(step, stages=2, stage=step), EngineConfig())


if __name__ == "__main__":
    warm()
