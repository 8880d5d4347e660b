"""The one door to the engine: `simulate`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetplan.engine.config import ROUTERS, EngineConfig
from fleetplan.engine.histogram import from_bins, from_values
from fleetplan.engine.load import ClosedLoop, Outage, outage_events
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
    until_s: float = np.inf,
    closed_loop: ClosedLoop | None = None,
    outages: Sequence[Outage] = (),
    plain: bool = False,
) -> Result:
    """Simulate the requests on like replicas behind a router, exactly, to their last token or to `until_s`.

    `plain` steps every iteration in Python (the twin); the default skips to events in compiled code. The seed feeds
    the random routers. Raises InputError for what cannot be, or is not supported.

    >>> from fleetplan.physics.steptime import affine
    >>> run = simulate(Requests.of([0.0], 100, 3), affine(0.005, 2e-5, 5e-4), EngineConfig("continuous"))
    >>> [round(float(x), 6) for x in (run.first_token_s[0], run.finish_s[0])], run.steps
    ([0.007, 0.018], 3)
    """
    _check(requests, config, replicas, router, closed_loop, outages)
    if plain:
        return _plain(
            requests, steptime, config, replicas, router, seed, until_s, closed_loop, tuple(outages)
        )
    return _compiled(requests, steptime, config, replicas, router, seed, until_s, closed_loop, tuple(outages))


def _check(
    requests: Requests,
    config: EngineConfig,
    replicas: int,
    router: str,
    closed_loop: ClosedLoop | None,
    outages: Sequence[Outage],
) -> None:
    faults = []
    if router not in ROUTERS:
        faults.append(f"router: {unknown_name('router', router, ROUTERS)}")
    if replicas < 1:
        faults.append(f"replicas: must be at least 1 (got {replicas})")
    if config.scheduler == "disaggregated":
        faults.append("scheduler: disaggregated is not simulated by simulate() yet; take one of the others")
    if len(requests) and requests.answers.max() > 1:
        faults.append(f"requests: answers above 1 are not simulated yet (got {requests.answers.max()})")
    if len(requests) and requests.adapter_id.max() >= 0:
        faults.append(
            f"requests: LoRA adapters are not simulated yet (got adapter_id {requests.adapter_id.max()})"
        )
    if closed_loop is not None and (~np.isnan(requests.gap_s)).any():
        faults.append(
            "closed_loop: cannot be joined with sessions whose turns wait (gap_s), take one of them"
        )
    faults += [
        f"outages: replica {o.replica} is not one of the {replicas}, numbered from 0"
        for o in outages
        if o.replica >= replicas
    ]
    if faults:
        raise InputError(*faults)


def _compiled(
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    replicas: int,
    router: str,
    seed: int,
    until_s: float,
    closed_loop: ClosedLoop | None,
    outages: tuple[Outage, ...],
) -> Result:
    from fleetplan.engine.fleet import run
    from fleetplan.engine.state import OUTAGE, make_state

    users = None if closed_loop is None else (closed_loop.concurrency, closed_loop.think_s)
    events = outage_events(outages, OUTAGE) if outages else None
    state = make_state(
        requests, steptime, config, replicas, ROUTERS.index(router), seed, until_s, users, events
    )
    run(state)
    if state.p["fault_tokens"][0]:
        raise InputError(
            f"steptime: a step of {state.p['fault_tokens'][0]} tokens is longer than the step-time table "
            f"(got {steptime.max_tokens} entries), give more entries or a slope"
        )
    rows = state.request
    changed = len(state.extra) == len(requests) and bool(state.p["dynamic"][0])
    return Result(
        requests=requests,
        arrival_s=state.extra["actual_s"].copy() if changed else requests.arrival_s,
        first_scheduled_s=rows["scheduled_s"].copy(),
        first_token_s=rows["first_token_s"].copy(),
        finish_s=np.where(rows["outcome"] == 0, np.nan, rows["finish_s"]),
        preemptions=rows["preemptions"].copy(),
        replica=rows["served_by"].copy(),
        outcome=rows["outcome"].copy(),
        reason=rows["reason"].copy(),
        steps=int(state.replica["steps"].sum()),
        busy_s=state.replica["busy_s"].copy(),
        itl=tuple(from_bins(gaps["weight"], gaps["weighted_s"]) for gaps in state.gaps),
        restarts=state.extra["restarts"].copy() if outages else None,
    )


def _plain(
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    replicas: int,
    router: str,
    seed: int,
    until_s: float,
    closed_loop: ClosedLoop | None,
    outages: tuple[Outage, ...],
) -> Result:
    engine = Plain(requests, steptime, config, replicas, router, seed, until_s, closed_loop, outages)
    engine.run()
    rows = engine.sequences
    gaps = np.array([gap for _, gap in engine.gaps], dtype=np.float64)
    owner = np.array([index for index, _ in engine.gaps], dtype=np.int64)
    floats = {
        name: np.array([getattr(s, name) for s in rows], dtype=np.float64)
        for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    }
    return Result(
        requests=requests,
        **floats,
        preemptions=np.array([s.preemptions for s in rows], dtype=np.int32),
        replica=np.array([s.replica for s in rows], dtype=np.int32),
        outcome=np.array([s.outcome for s in rows], dtype=np.int8),
        reason=np.array([s.reason for s in rows], dtype=np.int8),
        steps=sum(r.steps for r in engine.replicas),
        busy_s=np.array([r.busy_s for r in engine.replicas]),
        itl=tuple(from_values(gaps[owner == k]) for k in range(len(requests.classes))),
        restarts=np.array([s.restarts for s in rows], dtype=np.int32) if outages else None,
    )
