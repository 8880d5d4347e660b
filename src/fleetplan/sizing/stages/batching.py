"""Rows of the stage `batching`: the saturated rate of every candidate that can run, and what it does below that rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetplan import progress
from fleetplan.engine.result import Promise
from fleetplan.sizing.binding import resource_bound
from fleetplan.sizing.decide import Plan, hopeless
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.saturation import rated, sustainable_rate_per_s

LOAD_SHARES = (0.3, 0.5, 0.7, 0.8, 0.9, 1.0)
MOST_REQUESTS = 20_000
"""A simulation by load needs no more requests than a p99 takes."""


def rows(subject: Plan) -> dict[str, list[dict[str, Any]]]:
    """Table → rows; a candidate whose lone request breaks a promise is left out, as its bounds rule it out."""
    simulations, saturation = [], []
    mix = subject.traffic.requests()
    able = [(identity, built) for identity, built in subject.machines.items() if built.reason is None]
    for identity, built in progress.each(able, "candidate", lambda each: each[1].candidate.label):
        if hopeless(built, subject) is not None:
            progress.say("a lone request breaks a promise")
            continue
        built = rated(built, subject.traffic)
        rate = sustainable_rate_per_s(built, subject.traffic)
        progress.say(f"{rate:.4g} requests/s saturated")
        work = built.least_work_s(mix)
        saturation.append(
            {
                "candidate_id": identity,
                "sustainable_requests_per_s": rate,
                "bound_requests_per_s": built.engines_per_replica / work if work > 0 else rate,
                "resource": resource_bound(built),
            }
        )
        for share in LOAD_SHARES:
            simulations += [
                {"candidate_id": identity, **row} for row in _at_load(built, subject, rate, share)
            ]
    return {"simulations": simulations, "saturation": saturation}


def _at_load(built: Machine, subject: Plan, rate: float, share: float) -> list[dict[str, Any]]:
    replicas = built.candidate.unit_replicas
    offered = built.sustains(rate, replicas) * share
    if not offered > 0:
        return []
    traffic = subject.traffic.steady(MOST_REQUESTS / offered)
    requests = traffic.requests(0, offered / traffic.rate_per_s)
    if len(requests) > MOST_REQUESTS:
        requests = requests.take(np.arange(MOST_REQUESTS))
    if not len(requests):
        return []
    warmup = min(traffic.warmup_s, float(requests.arrival_s[-1]) * 0.1)
    result = built.run(requests, replicas * built.engines_per_replica, traffic.seed)
    if traffic.closed:
        result, warmup = traffic.judged(result)
    promises = {
        name: [
            Promise(metric, limit.share * 100, bound)
            for limit in traffic.limits
            if limit.class_name == name and limit.metric != "attainment"
            for metric, bound, growth in limit.bounds
            if growth == 0
        ]
        for name in requests.classes
    }
    summary = result.summary({name: found for name, found in promises.items() if found}, warmup)
    figures = {"*": summary, **summary["classes"]} if len(requests.classes) > 1 else {"*": summary}
    stable = result.stability(warmup).stable
    return [
        {"replicas": replicas, **_row(name, share, offered, each, stable, built.tokens)}
        for name, each in figures.items()
        if each["requests"]
    ]


def _row(
    name: str, share: float, offered: float, figures: dict[str, Any], stable: bool, tokens: bool
) -> dict[str, Any]:
    of_tokens = (
        "ttft_p50_s",
        "ttft_p95_s",
        "ttft_p99_s",
        "ttfvt_p99_s",
        "tpot_p50_s",
        "tpot_p95_s",
        "tpot_p99_s",
    )
    return {
        "load_share": share,
        "class": name,
        "offered_requests_per_s": offered,
        "requests": figures["requests"],
        "rejected_requests": figures["rejected"] + figures["timed_out"],
        "stable": stable,
        **{key: figures[key] if tokens else None for key in of_tokens},
        "e2e_p95_s": figures["e2e_p95_s"],
        "e2e_p99_s": figures["e2e_p99_s"],
        "attainment": figures.get("attainment"),
        "goodput_requests_per_s": figures.get("goodput_per_s"),
        "throughput_tokens_per_s": (figures["output_tokens_per_s"] or 0.0) if tokens else None,
    }
