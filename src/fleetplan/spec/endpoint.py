"""A scenario of an endpoint that is no LLM (an embedding model, a classifier): service times instead of tokens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleetplan.spec.arrivals import Arrivals
from fleetplan.spec.base import (
    Count,
    Cv,
    Factor,
    Model,
    Name,
    NotEmpty,
    PositiveShare,
    Seconds,
    Text,
    Whole,
    fault,
    forms,
)
from fleetplan.spec.lengths import Uniform, UniformParameters
from fleetplan.spec.percentiles import Percentile, fraction
from fleetplan.spec.policy import Policy
from fleetplan.spec.scenario import Asked, Simulation
from fleetplan.spec.slo import Limits, Slo
from fleetplan.spec.units import shown
from fleetplan.spec.workload import ClassesWorkload, TrafficClass, coherent

RANKS = 10_000
"""A request's service time is drawn as a rank of this many equally likely ones, the same for every candidate."""


class ServiceMoments(Model):
    """Service times by their mean and spread."""

    mean_s: Seconds
    """Mean time that a request keeps a server."""
    cv: Cv = 1.0
    """Coefficient of variation; 0: always the mean, 1: exponential (of the gamma law)."""
    law: Literal["gamma", "lognormal"] = "gamma"
    """The law with this mean and spread."""


def _rising(points: dict[str, float]) -> dict[str, float]:
    ordered = dict(sorted(points.items(), key=lambda item: fraction(item[0])))
    if "p0" not in ordered or "p100" not in ordered:
        raise fault(
            f"needs p0 and p100, the ends (got {', '.join(ordered) or 'none'}), like {{p0: 2 ms, p50: 4 ms, p100: 30 ms}}"
        )
    if any(a > b for a, b in pairwise(ordered.values())):
        raise fault(f"has times that fall while the percentile rises (got {ordered})")
    return ordered


class ServiceQuantiles(Model):
    """Service times by their percentiles, straight in between."""

    quantiles: Annotated[dict[Percentile, Seconds], AfterValidator(_rising)]
    """Percentile to time, p0 and p100 among them."""


def _which(value: Any) -> str:
    if isinstance(value, ServiceQuantiles) or (isinstance(value, dict) and "quantiles" in value):
        return "quantiles"
    if isinstance(value, (dict, ServiceMoments)):
        return "moments"
    raise fault(f"must be a mapping (got {shown(value)}), like {{mean: 4 ms, cv: 0.5}}")


if TYPE_CHECKING:
    ServiceTime = ServiceMoments | ServiceQuantiles
else:
    ServiceTime = forms(_which, moments=ServiceMoments, quantiles=ServiceQuantiles)


class EndpointServers(Model):
    """What one GPU of a kind does for the endpoint, as it was measured."""

    gpu: Text
    """A GPU of data/gpus.yaml, by name or alias."""
    service_time: ServiceTime
    """Time that one request keeps one server, while the GPU's other servers are busy too."""
    servers_per_gpu: Annotated[Count, Field(le=10_000)] = 1
    """Requests that one GPU serves at once, each by a server of its own."""


class EndpointSlo(Model):
    """Promises on the time from arrival to answer."""

    e2e_s: Limits
    """Arrival to answer, by percentile of the requests."""


class EndpointClass(Model):
    """One class of requests with its own arrivals and promises."""

    name: Name
    """Name of the class, unique in the scenario."""
    arrivals: Arrivals | None = None
    """When its requests arrive; left out where the workload has common `arrivals` and the class a `share`."""
    share: PositiveShare | None = None
    """Share of the workload's common arrivals."""
    slo: EndpointSlo | None = None
    """Its promises; a class without is carried and not judged."""


class EndpointWorkload(Model):
    """Traffic by classes, each with its own arrivals, or sharing common ones."""

    classes: Annotated[tuple[EndpointClass, ...], *NotEmpty]
    """The classes."""
    arrivals: Arrivals | None = None
    """Common arrivals, of which each class takes its `share`."""
    rate_scale: Factor = 1.0
    """Factor on every rate."""

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        coherent(self.classes, self.arrivals)
        return self


class EndpointScenario(Asked):
    """What a file of data/scenarios/ asks about an endpoint that is no LLM: this traffic, these promises, on which hardware."""

    scenario: Name
    """Name of the scenario; it names its parts and reports."""
    title: Text = ""
    """A line for people."""
    endpoint: Annotated[tuple[EndpointServers, ...], *NotEmpty]
    """The hardware that is searched: by GPU, the service time and how many servers one runs."""
    workload: EndpointWorkload
    """The traffic and its promises."""
    policy: Policy
    """Prices, headroom, spares and confidence of the decision."""
    simulation: Simulation = Simulation()
    """Length and number of the simulations."""
    seed: Whole = 0
    """Seed of every random draw."""

    @property
    def drawn(self) -> ClassesWorkload:
        """The traffic as requests of one answer, whose prompt is the rank of their service time."""
        ranks = Uniform(uniform=UniformParameters(min=1, max=RANKS))
        classes = [
            TrafficClass(
                name=c.name, arrivals=c.arrivals, share=c.share, prompt_tokens=ranks, output_tokens=1,
                slo=None if c.slo is None else Slo.model_construct(e2e_s=c.slo.e2e_s),
            )
            for c in self.workload.classes
        ]  # fmt: skip
        return ClassesWorkload(classes=tuple(classes), arrivals=self.workload.arrivals, rate_scale=self.workload.rate_scale)  # fmt: skip

    def gpus(self) -> tuple[str, ...]:
        """GPUs that it names, as written."""
        return tuple(each.gpu for each in self.endpoint)

    def files(self) -> dict[str, Path]:
        """None: an endpoint is all in its spec."""
        return {}
