"""The one door to the engine: `simulate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import ROUTERS, EngineConfig
from fleetplan.engine.histogram import from_bins, from_values
from fleetplan.engine.lanes import check_pipeline
from fleetplan.engine.load import ClosedLoop, Outage, outage_events
from fleetplan.engine.outcome import REJECTED, UNFINISHED
from fleetplan.engine.plain import Plain
from fleetplan.engine.plain_lanes import PlainLanes
from fleetplan.engine.result import Result, Series
from fleetplan.engine.state import OUTAGE, make_state, successors
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
MOST_SLOTS = 1 << 26
"""Most sequences that all replicas together may run at once: what their state takes of memory stays under some GB."""
MOST_SAMPLES = 100_000
"""Longest time series that a run keeps."""


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
    resolution_s: float | None = None,
    plain: bool = False,
) -> Result:
    """Simulate the requests on like replicas behind a router, exactly, to their last token or to `until_s`.

    `plain` steps every iteration in Python (the twin); the default skips to events in compiled code. The seed feeds
    the random routers and the acceptance of drafts. With `resolution_s` the result has a `series` of at most MOST_SAMPLES times. Raises InputError for what cannot be, or is not supported.

    >>> from fleetplan.physics.steptime import affine
    >>> run = simulate(Requests.of([0.0], 100, 3), affine(0.005, 2e-5, 5e-4), EngineConfig("continuous"))
    >>> [round(float(x), 6) for x in (run.first_token_s[0], run.finish_s[0])], run.steps
    ([0.007, 0.018], 3)
    """
    check_seed(seed)
    check_step(requests, steptime, config)
    check_requests(requests, config, replicas, router, closed_loop, outages)
    check_pipeline(requests, steptime, config, router)
    if resolution_s is not None and not 0 < resolution_s < np.inf:
        raise InputError(f"resolution_s: must be above 0 (got {resolution_s})")
    if plain:
        return _plain(
            requests,
            steptime,
            config,
            replicas,
            router,
            seed,
            until_s,
            closed_loop,
            tuple(outages),
            resolution_s,
        )
    return _compiled(
        requests, steptime, config, replicas, router, seed, until_s, closed_loop, tuple(outages), resolution_s
    )


def check_seed(seed: int) -> None:
    """Raise InputError for what numpy takes as no seed."""
    if not 0 <= seed < 1 << 63:
        raise InputError(f"seed: must be from 0 to 2^63 − 1 (got {seed})")


def check_requests(
    requests: Requests,
    config: EngineConfig,
    replicas: int,
    router: str,
    closed_loop: ClosedLoop | None,
    outages: Sequence[Outage] = (),
) -> None:
    """Raise InputError for what the engine cannot simulate on like replicas."""
    faults = []
    if router not in ROUTERS:
        faults.append(f"router: {unknown_name('router', router, ROUTERS)}")
    if router == "least_kv" and config.kv_blocks is None:
        faults.append("router: least_kv compares blocks in use and needs kv_blocks (got no limit)")
    if replicas < 1:
        faults.append(f"replicas: must be at least 1 (got {replicas})")
    elif replicas * min(config.max_num_seqs, max(len(requests), 1)) > MOST_SLOTS:
        faults.append(
            f"replicas: {replicas} replicas of as many as {min(config.max_num_seqs, len(requests))} sequences are more than "
            f"{MOST_SLOTS} sequences at once, give fewer replicas or a lower max_num_seqs"
        )
    if config.scheduler == "disaggregated":
        faults.append("scheduler: disaggregated takes two pools (got one), simulate_pools would be right")
    if len(requests) and requests.answers.max() > 1:
        if requests.answers.max() >= 1 << 15:
            faults.append(f"requests: answers must be below 2^15 (got {requests.answers.max()})")
        for what, given in (
            ("speculation", config.speculation is not None),
            ("preemption swap", config.preemption == "swap"),
        ):
            if given:
                faults.append(
                    f"requests: answers above 1 are not simulated with {what} (got {requests.answers.max()}), "
                    "take one of them"
                )
    if len(requests) and requests.adapter_id.max() >= 0 and config.max_adapters is None:
        faults.append(
            f"requests: have LoRA adapters (got adapter_id {requests.adapter_id.max()}), max_adapters must say how many are "
            "resident at once"
        )
    if config.retries and config.prefix_cache is not None and np.isfinite(requests.timeout_s).any():
        faults.append(
            "retries: of requests that time out are not simulated with a prefix cache, which may have part of them at several replicas "
            f"(got {config.retries}), drop one of retries, timeout_s and prefix_cache"
        )
    if router == "central_queue" and (config.prefix_cache is not None or config.preemption == "swap"):
        kept = "a prefix is cached" if config.prefix_cache is not None else "a sequence was swapped out"
        faults.append(
            f"router: central_queue does not know where {kept}, take prefix_affine or least_outstanding"
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
    if (~np.isnan(requests.gap_s)).any():
        successors(requests)


def check_step(requests: Requests, steptime: StepTime, config: EngineConfig) -> None:
    """No step, or stage, may take less than no time, as it would with a δ below 0 that is larger than what n tokens cost."""
    if steptime.stage is not None:
        check_step(requests, steptime.stage, config)
    if not steptime.sequence_s + steptime.decode_s < 0:
        return
    most = max(min(config.max_num_seqs, len(requests)), 1)
    # O, C and M are known to the longest of them, and linear beyond: their entries and the end of the line say all.
    held = max(len(v) - 1 for v in (steptime.overhead_s, steptime.compute_s, steptime.memory_s))
    open_ended = not math.isnan(steptime.overhead_slope_s)
    tokens = np.unique(np.append(np.arange(1, held + 1), most if open_ended else held))
    decoding = np.minimum(tokens, most)
    seconds = steptime.step_s(tokens, decoding, decoding, 0, 0)
    worst = int(np.argmin(seconds))
    if seconds[worst] < -1e-12:
        raise InputError(
            f"steptime: a step of {tokens[worst]} tokens with {decoding[worst]} decoding sequences would take {seconds[worst]:.6g} s, "
            f"delta (got {steptime.decode_s}) must leave every step 0 s or more"
        )


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
    resolution_s: float | None,
) -> Result:
    users = None if closed_loop is None else (closed_loop.concurrency, closed_loop.think_s)
    events = outage_events(outages, OUTAGE) if outages else None
    samples = 0 if resolution_s is None else MOST_SAMPLES
    common = (requests, steptime, config, replicas, ROUTERS.index(router), seed, until_s, users)
    if steptime.stages > 1:
        from fleetplan.engine.lanes_kernel import run_lanes
        from fleetplan.engine.lanes_state import make_pipelines

        pipelines = make_pipelines(*common, events, resolution_s or 0.0, samples)
        run_lanes(*pipelines)
        state, busy_s = pipelines.state, pipelines.home["busy_s"].copy()
    else:
        from fleetplan.engine.fleet import run

        state = make_state(*common, events, resolution_s or 0.0, samples)
        run(state)
        busy_s = state.replica["busy_s"].copy()
    if state.p["fault_tokens"][0]:
        raise InputError(
            f"steptime: a step of {state.p['fault_tokens'][0]} tokens is longer than the step-time table "
            f"(got {steptime.max_tokens} entries), give more entries or a slope"
        )
    rows, again = state.request, state.again
    if config.retries:
        rows["outcome"][again["leaving"] != 0] = UNFINISHED
        sent = again["attempts"] > 0
        state.extra["actual_s"][sent] = again["first_s"][sent]
    changed = len(state.extra) == len(requests) and bool(state.p["dynamic"][0])
    result = Result(
        requests=requests,
        arrival_s=state.extra["actual_s"].copy() if changed else requests.arrival_s,
        first_scheduled_s=rows["scheduled_s"].copy(),
        first_token_s=rows["first_token_s"].copy(),
        finish_s=np.where(rows["outcome"] == 0, np.nan, rows["finish_s"]),
        preemptions=rows["preemptions"].copy(),
        replica=np.maximum(rows["served_by"], -1) // steptime.stages,
        outcome=rows["outcome"].copy(),
        reason=rows["reason"].copy(),
        steps=int(state.replica["steps"].sum()),
        busy_s=busy_s,
        itl=tuple(from_bins(gaps["weight"], gaps["weighted_s"]) for gaps in state.gaps),
        visible_s=state.hidden["visible_s"].copy() if state.p["hides"][0] else None,
        restarts=state.extra["restarts"].copy() if outages else None,
        prefix_hit_tokens=state.content["hit"].copy() if config.prefix_cache is not None else None,
        attempts=again["attempts"].copy() if config.retries else None,
        refusals=again["refusals"].copy() if config.retries else None,
    )
    if resolution_s is None:
        return result
    return _with_series(
        result, resolution_s, *(state.series[name] for name in ("running", "kv_blocks", "tokens"))
    )


def _with_series(result: Result, resolution_s: float, running: Ints, kv_blocks: Ints, tokens: Ints) -> Result:
    """The result with its series, which ends with the last request, or with the longest series that is kept."""
    times = np.concatenate([result.finish_s, result.arrival_s])
    end_s = float(np.nanmax(times)) if np.isfinite(times).any() else 0.0
    if not (result.outcome == UNFINISHED).any():
        keep = min(int(end_s / resolution_s) + 2, len(running))
    else:
        keep = min(
            max(int(end_s / resolution_s) + 2, int(np.max(np.nonzero(running)[0], initial=0)) + 2),
            len(running),
        )
    at: Floats = np.arange(keep, dtype=np.float64) * resolution_s
    known = np.isfinite(result.arrival_s)
    arrived = np.searchsorted(np.sort(result.arrival_s[known]), at, side="right")
    left = np.where(result.outcome == REJECTED, result.arrival_s, result.finish_s)
    gone = np.searchsorted(np.sort(left[np.isfinite(left)]), at, side="right")
    waiting = np.maximum(arrived - gone - running[:keep], 0)
    return replace(result, series=Series(at, running[:keep], waiting, kv_blocks[:keep], tokens[:keep]))


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
    resolution_s: float | None,
) -> Result:
    kind = PlainLanes if steptime.stages > 1 else Plain
    engine = kind(requests, steptime, config, replicas, router, seed, until_s, closed_loop, outages)
    engine.run()
    rows = engine.sequences
    for s in rows:
        if s.attempts:
            s.arrival_s = s.first_arrival_s
        if s.leaving:
            s.outcome, s.finish_s = UNFINISHED, math.nan
    gaps = np.array([gap for _, gap in engine.gaps], dtype=np.float64)
    owner = np.array([index for index, _ in engine.gaps], dtype=np.int64)
    floats: dict[str, Any] = {
        name: np.array([getattr(s, name) for s in rows], dtype=np.float64)
        for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    }
    result = Result(
        requests=requests,
        **floats,
        preemptions=np.array([s.preemptions for s in rows], dtype=np.int32),
        replica=np.array([s.replica for s in rows], dtype=np.int32),
        outcome=np.array([s.outcome for s in rows], dtype=np.int8),
        reason=np.array([s.reason for s in rows], dtype=np.int8),
        steps=sum(r.steps for r in engine.replicas),
        busy_s=np.array([r.busy_s for r in engine.replicas]),
        itl=tuple(from_values(gaps[owner == k]) for k in range(len(requests.classes))),
        visible_s=np.array([s.first_visible_s for s in rows]) if (requests.hidden_tokens > 0).any() else None,
        restarts=np.array([s.restarts for s in rows], dtype=np.int32) if outages else None,
        prefix_hit_tokens=None
        if config.prefix_cache is None
        else np.array([s.hit_tokens for s in rows], dtype=np.int32),
        attempts=np.array([s.attempts for s in rows], dtype=np.int32) if config.retries else None,
        refusals=np.array([s.refusals for s in rows], dtype=np.int32) if config.retries else None,
    )
    if resolution_s is None:
        return result
    running, held, tokens = (np.zeros(MOST_SAMPLES, dtype=np.int64) for _ in range(3))
    for start_s, end_s, count, blocks in engine.spans:
        at = math.ceil(start_s / resolution_s)
        while at < MOST_SAMPLES and at * resolution_s < end_s:
            running[at] += count
            held[at] += int(blocks)
            at += 1
    for when_s in engine.emissions_s:
        at = math.ceil(when_s / resolution_s)
        if at < MOST_SAMPLES:
            tokens[at] += 1
    return _with_series(result, resolution_s, running, held, tokens)
