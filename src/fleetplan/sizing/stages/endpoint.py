"""Rows of the stage `queueing` of an endpoint that is no LLM: its size by the closed form, and G/G/c about each count."""

from __future__ import annotations

import math
from typing import Any

from fleetplan.queueing.endpoint import size_endpoint, sojourn_percentile_s
from fleetplan.queueing.multi import ggc
from fleetplan.queueing.rows import formula_row, gaps_cv
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.endpoint import EndpointCandidate, moments

Rows = dict[str, list[dict[str, Any]]]


def endpoint_rows(subject: Plan, chosen: str | None, replicas: int | None) -> Rows:
    """Table → rows; the closed form takes the service times as a gamma law of their mean and spread."""
    made: Rows = {"queueing": [], "chain_errors": [], "goodput": [], "room": [], "endpoints": []}
    traffic, policy = subject.traffic, subject.scenario.policy
    rate, arrival_cv = traffic.rate_per_s, gaps_cv(traffic.requests())
    for name, machine in subject.machines.items():
        assert isinstance(machine.candidate, EndpointCandidate)
        mean, cv = moments(machine.candidate.law)
        each = machine.engines_per_replica
        near = {replicas} if name == chosen and replicas is not None else {math.ceil(rate * mean / each)}
        for limit in traffic.limits:
            assert limit.limit_s is not None
            size = size_endpoint(
                rate, mean, limit.limit_s, percentile=limit.share * 100, service_cv=cv, arrival_cv=arrival_cv,
                max_utilisation=policy.max_utilisation, most=policy.max_replicas * each,
            )  # fmt: skip
            counted = None if size.servers is None else -(-size.servers // each)
            near |= {counted} if counted is not None else set()
            made["endpoints"].append(
                {
                    "candidate_id": name,
                    "class": limit.class_name,
                    "percentile": round(limit.share * 100, 9),
                    "limit_s": limit.limit_s,
                    "service_mean_s": mean,
                    "service_cv": cv,
                    "interarrival_cv": arrival_cv,
                    "servers_per_gpu": each,
                    "servers": size.servers,
                    "replicas": counted,
                    "utilisation": size.utilisation,
                    "e2e_s": size.latency_s,
                    "e2e_one_server_less_s": size.latency_one_less_s,
                    "binding_limit": size.limit,
                }
            )
        for count in sorted(n for n in {n + by for n in near for by in (-1, 0, 1)} if n > 0):
            result = ggc(rate, mean, count * each, arrival_cv, cv)
            row = formula_row("ggc", result, mean) | {"candidate_id": name, "replicas": count}
            row["e2e_p95_s"] = sojourn_percentile_s(result, mean, cv, 0.95)
            row["e2e_p99_s"] = sojourn_percentile_s(result, mean, cv, 0.99)
            made["queueing"].append(row)
    return made
