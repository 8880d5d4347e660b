"""Rows of the stage `queueing`: closed forms about the decided count, the chain's error and the goodput curve."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fleetplan import progress
from fleetplan.engine import Result
from fleetplan.queueing.goodput import caps_to, goodput_curve
from fleetplan.queueing.room import room_row
from fleetplan.queueing.rows import (
    Shape,
    chain,
    chain_error_rows,
    goodput_rows,
    least_stable,
    queueing_rows,
)
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.saturation import rated, sustainable_rate_per_s
from fleetplan.sizing.stages.endpoint import endpoint_rows
from fleetplan.traffic.requests import Requests

REPLAYED_REQUESTS = 1500
LOAD = 0.7
"""Of a full batch's rate: the load of the goodput curve."""

Rows = dict[str, list[dict[str, Any]]]


def rows(subject: Plan, chosen: str | None, replicas: int | None) -> Rows:
    """Table → rows; the chain's error, the room and the goodput curve are those of the chosen candidate.

    The goodput curve is simulated, of whatever was chosen. Closed forms are of the first candidate that has them where the chosen one drafts,
    has two pools, is a pipeline or holds adapters, or nothing was chosen.
    """
    if subject.model is None:
        return endpoint_rows(subject, chosen, replicas)
    traffic = subject.traffic
    shape = Shape.of(traffic.requests(), traffic.rate_per_s)
    # A closed form has one queue, one step at a time, one token a sequence in it, and nothing to load: candidates that draft, have two
    # pools, are pipelines or hold adapters have none.
    runnable = {
        name: m
        for name, m in subject.machines.items()
        if m.reason is None
        and m.prefill is None
        and m.candidate.pipeline_parallel == 1
        and m.candidate.speculation == "none"
        and m.candidate.max_adapters is None
    }
    made: Rows = {"queueing": [], "chain_errors": [], "goodput": [], "room": [], "endpoints": []}
    for name, machine in progress.each(
        list(runnable.items()), "closed forms of candidate", lambda each: each[1].candidate.label
    ):
        assert machine.step is not None
        assert machine.config is not None
        made["queueing"] += queueing_rows(
            name, shape, machine.step, machine.config, machine.engines_per_replica,
            decided=replicas if name == chosen else None,
        )  # fmt: skip
    shown = chosen if chosen in runnable else next(iter(runnable), None)
    if shown is not None:
        machine = runnable[shown]
        assert machine.step is not None
        assert machine.config is not None
        made["chain_errors"] = chain_error_rows(shown, shape, machine.step, machine.config, seed=traffic.seed)
        count = (
            replicas
            if shown == chosen and replicas
            else least_stable(shape, machine.step, machine.config, machine.engines_per_replica)
        )
        engines = count * machine.engines_per_replica
        made["room"] = [room_row(shown, shape, traffic.requests(), machine.step, machine.config, engines)]
    built = subject.machines.get(chosen or shown or "")
    if built is not None and built.reason is None:
        made["goodput"] = _goodput(
            built, shape, subject, in_closed_form=built.candidate.candidate_id in runnable
        )
    return made


def _goodput(machine: Machine, shape: Shape, subject: Plan, in_closed_form: bool) -> list[dict[str, Any]]:
    """The curve over batch caps, of two pools over those of decode; without a promise on both TTFT and TPOT there is none.

    The load is a share of what the birth–death chain, or, where there is none, a saturated simulation says is sustained.
    """
    assert machine.step is not None
    assert machine.config is not None
    config, traffic = machine.config, subject.traffic
    limits = {
        limit.metric: limit.limit_s
        for limit in reversed(subject.traffic.limits)
        if limit.metric in ("ttft", "tpot") and limit.limit_s is not None
    }
    if len(limits) < 2:
        return []
    if in_closed_form:
        rate, engines, replicas = LOAD * chain(shape, machine.step, config, 1e-9).capacity_per_s, 1, 1
    else:
        machine, replicas = rated(machine, traffic), machine.candidate.unit_replicas
        rate = LOAD * machine.sustains(sustainable_rate_per_s(machine, traffic), replicas)
        engines = replicas * machine.engines_per_replica
    if not rate > 0:
        return []
    requests = _poisson(traffic.burst(REPLAYED_REQUESTS * replicas), rate, traffic.seed)

    def run(cap: int) -> Result:
        return replace(machine, config=replace(config, max_num_seqs=cap)).run(requests, engines, traffic.seed)

    points = goodput_curve(
        requests, run, caps_to(config.max_num_seqs, 10), ttft_at_most_s=limits["ttft"], tpot_at_most_s=limits["tpot"]
    )  # fmt: skip
    return goodput_rows(machine.candidate.candidate_id, rate, points)


def _poisson(requests: Requests, rate_per_s: float, seed: int) -> Requests:
    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, len(requests))
    return replace(requests, arrival_s=np.cumsum(gaps))
