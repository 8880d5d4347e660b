"""From what a user writes about traffic (`fleetplan.spec`) to what traffic is drawn from (`fleetplan.traffic.model`)."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from fleetplan.spec import arrivals as spec_arrivals
from fleetplan.spec import lengths as spec_lengths
from fleetplan.spec import workload as spec_workload
from fleetplan.spec.adapters import Adapters
from fleetplan.traffic import lengths, model, workloads


def workload_of(
    spec: Any, folder: Path | None = None, max_context_tokens: int | None = None
) -> tuple[model.Workload, float]:
    """(workload, rate scale) of a scenario's `workload`; files are looked for from the spec's folder.

    `max_context_tokens` is the model's context, to which prompts and outputs are clipped.
    """
    folder = folder or Path()
    if isinstance(spec, spec_workload.ClassesWorkload):
        made = model.Workload(
            classes=tuple(_class(c, folder) for c in spec.classes),
            arrivals=None if spec.arrivals is None else arrivals_of(spec.arrivals),
        )
    else:
        if isinstance(spec, spec_workload.EmpiricalWorkload):
            made = workloads.empirical(
                spec.empirical, class_name=spec.name, spread_s=spec.spread_s, folder=folder
            )
            if spec.arrivals is not None:
                made = model.Workload((replace(made.classes[0], arrivals=arrivals_of(spec.arrivals)),))
        else:
            path = folder / Path(spec.trace).expanduser()
            made = workloads.replay(path, spec.format, class_name=spec.name, spread_s=spec.spread_s)
        one = replace(
            made.classes[0],
            priority=spec.priority,
            timeout_s=_or_never(spec.timeout_s),
            max_output_tokens=spec.max_output_tokens,
            adapters=_adapters(spec.adapters),
        )
        made = model.Workload((one,))
    return replace(made, max_context_tokens=max_context_tokens), float(spec.rate_scale)


def arrivals_of(spec: Any) -> model.Arrivals:
    """The arrival process of a spec."""
    if isinstance(spec, spec_arrivals.Profile):
        inside = arrivals_of(spec.inside)
        assert isinstance(inside, model.Process)
        return model.Profile(inside, spec.factors, spec.slot_s, spec.start_s, spec.growth_per_month)
    if isinstance(spec, spec_arrivals.ClosedLoop):
        return model.ClosedLoop(spec.concurrency, spec.think_time_s)
    if isinstance(spec, spec_arrivals.Mmpp):
        return model.Mmpp(
            tuple(s.rate_per_s for s in spec.states), tuple(s.mean_stay_s for s in spec.states), spec.moves
        )
    if isinstance(spec, spec_arrivals.Hawkes):
        return model.Hawkes(spec.rate_per_s, spec.branching, spec.decay_s)
    if isinstance(spec, spec_arrivals.GammaGaps):
        return model.Gamma(spec.rate_per_s, spec.gap_cv)
    if isinstance(spec, spec_arrivals.Weibull):
        return model.Weibull(spec.rate_per_s, spec.cv)
    if isinstance(spec, spec_arrivals.Poisson):
        return model.Poisson(spec.rate_per_s)
    assert isinstance(spec, spec_arrivals.Constant)
    return model.Constant(spec.rate_per_s)


def length_of(spec: Any) -> model.Lengths:
    """The lengths of a spec: a number, or one distribution."""
    if isinstance(spec, (int, float)):
        return lengths.lengths("fixed", tokens=spec)
    kind = type(spec).__name__.lower()
    given = getattr(spec, kind)
    if isinstance(spec, spec_lengths.Uniform):
        return lengths.lengths("uniform", low=given.min, high=given.max)
    if isinstance(spec, spec_lengths.Quantiles):
        return lengths.lengths("quantiles", **given)
    if isinstance(spec, spec_lengths.Stops):
        eos = tuple((e.from_token, e.chance) for e in given.eos)
        stops = model.Stops(eos, given.stop_chance or 0.0, given.max_tokens)
        lengths.check(stops)
        return stops
    if isinstance(spec, spec_lengths.Zipf):
        return lengths.lengths("zipf", exponent=given.exponent, largest=given.largest, step=given.step)
    if isinstance(spec, spec_lengths.Pareto):
        return lengths.lengths("pareto", alpha=given.alpha, scale=given.scale, min=given.min, max=given.max)
    named = {"mean": given.mean} if isinstance(spec, spec_lengths.Geometric) else given.given()
    return lengths.lengths(kind, **named, min=given.min, max=given.max)


def _class(spec: spec_workload.TrafficClass, folder: Path) -> model.Class:
    prefix, sessions, cache, retries = spec.shared_prefix, spec.sessions, spec.semantic_cache, spec.retries
    return model.Class(
        name=spec.name,
        arrivals=_arrivals(spec),
        share=spec.share,
        prompt_tokens=_optional(spec.prompt_tokens),
        output_tokens=_optional(spec.output_tokens),
        joint=None if spec.empirical is None else workloads.joint(workloads.table(spec.empirical, folder)),
        correlation=spec.correlation,
        reasoning_tokens=_optional(spec.reasoning_tokens),
        max_output_tokens=spec.max_output_tokens,
        priority=spec.priority,
        timeout_s=_or_never(spec.timeout_s),
        answers=spec.answers,
        shared_prefix=None
        if prefix is None
        else model.SharedPrefix(
            length_of(prefix.tokens), prefix.share, prefix.count, prefix.zipf, prefix.added
        ),
        sessions=None
        if sessions is None
        else model.Sessions(
            length_of(sessions.turns), sessions.gap_s, sessions.gap_cv, sessions.max_context_tokens
        ),
        semantic_cache=None if cache is None else model.SemanticCache(cache.hit_share, cache.stale_share),
        retries=None if retries is None else model.Retries(retries.chance, retries.delay_s, retries.most),
        adapters=_adapters(spec.adapters),
    )


def _arrivals(spec: spec_workload.TrafficClass) -> model.Arrivals | None:
    if spec.deadline is not None:
        return model.Constant(spec.deadline.rate_per_s)
    return None if spec.arrivals is None else arrivals_of(spec.arrivals)


def _adapters(spec: Adapters | None) -> model.Adapters | None:
    return None if spec is None else model.Adapters(spec.popularity(), tuple(spec.shares or ()))


def _optional(spec: Any) -> model.Lengths | None:
    return None if spec is None else length_of(spec)


def _or_never(timeout_s: float | None) -> float:
    return math.inf if timeout_s is None else timeout_s
