"""Candidates of an endpoint that is no LLM: one GPU's servers, each with one request at a time, before one queue."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fleetplan import catalog
from fleetplan.engine import EngineConfig
from fleetplan.physics.form import StepTime
from fleetplan.sizing.bounds import spoken_s
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.machine import Machine
from fleetplan.spec.endpoint import RANKS, EndpointScenario, ServiceMoments, ServiceQuantiles, ServiceTime
from fleetplan.spec.percentiles import fraction

Floats = NDArray[np.float64]
NONE = "none"
"""Of what only an LLM has: precisions, speculation."""


@dataclass(frozen=True)
class EndpointCandidate(Candidate):
    """One kind of GPU with the servers that it runs."""

    servers_per_gpu: int
    service_time: str
    """Canonical JSON of the service time as the spec has it."""

    @property
    def engines_per_replica(self) -> int:
        return self.servers_per_gpu

    @property
    def label(self) -> str:
        many = f"{self.servers_per_gpu} servers" if self.servers_per_gpu > 1 else "1 server"
        mean, cv = moments(self.law)
        return f"{catalog.gpu(self.gpu).title}, {many} a GPU, {spoken_s(mean)} a request (CV {cv:.3g})"

    @property
    def law(self) -> ServiceTime:
        """The service time as the spec has it."""
        given = json.loads(self.service_time)
        kind = ServiceQuantiles if "quantiles" in given else ServiceMoments
        return kind.model_construct(**given)


def machines(scenario: EndpointScenario) -> dict[str, Machine]:
    """By candidate id: each kind of GPU as servers that take one request at a time, all behind one queue."""
    made = {}
    for each in scenario.endpoint:
        candidate = EndpointCandidate(
            gpu=catalog.gpu(each.gpu).name, tensor_parallel=1, pipeline_parallel=1, data_parallel=1, expert_parallel=1,
            weights=NONE, kv_cache=NONE, engine="endpoint", gpu_memory_utilization=1.0, block_size=1, scheduler="static",
            max_num_seqs=1, max_num_batched_tokens=None, max_queued_requests=None, max_queued_tokens=None, speculation=NONE,
            servers_per_gpu=each.servers_per_gpu, service_time=_canonical(each.service_time),
        )  # fmt: skip
        config = EngineConfig("continuous", max_num_seqs=1, priority="strict")
        made[candidate.candidate_id] = Machine(
            candidate, None, step(service_s(each.service_time)), config, None, router="central_queue"
        )
    return made


def service_s(law: ServiceTime) -> Floats:
    """RANKS equally likely service times [s], rising; their mean is the stated one.

    >>> times = service_s(ServiceMoments(mean="4 ms", cv=0.5))
    >>> [round(float(v), 4) for v in (times.mean(), times.std() / times.mean())]
    [0.004, 0.4999]
    """
    share = (np.arange(RANKS) + 0.5) / RANKS
    if not isinstance(law, ServiceMoments):
        points = law.quantiles
        return np.interp(share, [fraction(key) for key in points], list(points.values()))
    if law.cv == 0:
        return np.full(RANKS, law.mean_s)
    if law.law == "lognormal":
        times = np.exp(math.sqrt(math.log1p(law.cv**2)) * special.ndtri(share))
    else:
        times = special.gammaincinv(1 / law.cv**2, share)
    return np.asarray(times * (law.mean_s / times.mean()))


def moments(law: ServiceTime) -> tuple[float, float]:
    """(mean [s], coefficient of variation) of a service time."""
    if isinstance(law, ServiceMoments):
        return law.mean_s, law.cv
    times = service_s(law)
    mean = float(times.mean())
    return mean, float(times.std()) / mean


def step(times_s: Floats) -> StepTime:
    """The step time of a server: a step with the one request of rank n takes the n-th of these times."""
    vector = np.concatenate([[0.0], times_s])
    zero = np.zeros_like(vector)
    return StepTime(overhead_s=vector, compute_s=zero, memory_s=zero)


def _canonical(law: ServiceTime) -> str:
    return json.dumps(law.model_dump(mode="json"))
