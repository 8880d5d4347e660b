"""Why nothing will do, and the nearest change that would: said in words, never as a number of GPUs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing import bounds, buying
from fleetplan.sizing.decide import MOST_REPLICATIONS, Decision, Option
from fleetplan.sizing.verdict import Limit
from fleetplan.traffic.requests import Requests


def nearest_change(decision: Decision) -> tuple[str, str]:
    """(reason, nearest change) of a decision without a chosen option."""
    options = decision.options
    ceiling = decision.plan.scenario.policy.max_cost_usd_per_hour
    dear = [
        o for o in options if o.found is not None and o.found.replicas is not None and o.fleet is not None
    ]
    if dear and ceiling is not None:
        least_dear = min(dear, key=lambda o: o.fleet.usd_per_hour if o.fleet else 0.0)
        assert least_dear.fleet is not None
        return (
            f"the cheapest fleet that keeps every promise, {least_dear.fleet.gpus} GPUs of {least_dear.machine.candidate.label}, "
            f"{least_dear.reason}",
            f"raise policy.max_cost to at least {least_dear.fleet.usd_per_hour:.2f} USD/h, or promise less",
        )
    settled = next((o for o in options if o.remedy is not None), None)
    if settled is not None:
        return f"{settled.machine.candidate.label}: {settled.reason}", settled.remedy or ""
    hopeless = [
        o
        for o in options
        if o.status == "infeasible" and o.machine.step is not None and o.lower_bound is None
    ]
    capped = [o for o in options if o.status == "infeasible" and o.lower_bound is not None]
    if capped:
        least = min(capped, key=lambda o: (_missing_gpus(decision, o), o.lower_bound or 0))
        return (
            f"no candidate keeps every promise within what may be bought; {least.machine.candidate.label}: {least.reason}",
            _raised(decision, least),
        )
    if hopeless:
        return _relaxed(decision, hopeless)
    reasons = dict.fromkeys(o.reason for o in options)
    why = next(iter(reasons), "the grid is empty")
    unfit = [o for o in options if o.machine.memory is not None and not o.machine.memory.fits]
    if unfit:
        least_short = min(unfit, key=lambda o: o.machine.memory.shortfall_bytes if o.machine.memory else 0.0)
        memory = least_short.machine.memory
        assert memory is not None
        helps = " or ".join(memory.remedies) or "a GPU with more memory"
        return (
            f"no candidate can run; nearest is {least_short.machine.candidate.label}: {memory.verdict}",
            f"allow {helps} in the candidates",
        )
    return (
        f"no candidate can run: {why}",
        "add candidates that can run; each one's reason is in the table plans",
    )


def _missing_gpus(decision: Decision, option: Option) -> int:
    policy, candidate = decision.plan.scenario.policy, option.machine.candidate
    gpus = buying.gpus_of(policy, candidate, option.lower_bound or 1)
    short = buying.shortest(policy, candidate, gpus)
    if short is None:
        return sum(gpus.values()) - sum(buying.gpus_of(policy, candidate, policy.max_replicas).values())
    return short[1] - short[2]


def _raised(decision: Decision, option: Option) -> str:
    policy, candidate = decision.plan.scenario.policy, option.machine.candidate
    needed = option.lower_bound or 1
    short = buying.shortest(policy, candidate, buying.gpus_of(policy, candidate, needed))
    if short is None or needed > policy.max_replicas:
        return f"raise policy.max_replicas to at least {needed}, or lower the rate"
    return f"raise policy.stock of {short[0]} to at least {short[1]} GPUs, or lower the rate"


def _relaxed(decision: Decision, hopeless: list[Option]) -> tuple[str, str]:
    """The candidate whose lone request is nearest to every promise, and the promises that it could hold at best."""
    traffic = decision.plan.traffic
    given = decision.plan.scenario.simulation.replications
    mixes = [traffic.requests(r) for r in range(1 if traffic.exact else given or MOST_REPLICATIONS)]
    best: tuple[float, str, str] | None = None
    for option in hopeless:
        draws = [(mix, option.machine.at_best(mix)) for mix in mixes]
        needed = [need for limit in traffic.limits if (need := _needed(limit, draws)) is not None]
        worst = max((ratio for ratio, _ in needed), default=1.0)
        if best is None or worst < best[0]:
            needs = " and ".join(words for _, words in needed) or option.reason
            best = (worst, option.machine.candidate.label, needs)
    assert best is not None
    return (
        f"no number of replicas of any candidate keeps every promise, since a request alone on a replica breaks one; "
        f"{hopeless[0].machine.candidate.label}: {hopeless[0].reason}",
        f"promise what {best[1]} can keep: it needs {best[2]} even without load",
    )


def _needed(limit: Limit, draws: list[tuple[Requests, bounds.Lone]]) -> tuple[float, str] | None:
    """(how many times the promised, what to promise instead), so that lone requests keep the promise; None: they keep it.

    Of several bounds at once the requests are taken that miss theirs by the least factor, and each bound is what these need.
    """
    parts = [_times(limit, mix, alone) for mix, alone in draws]
    weights = np.concatenate([weight for _, weight in parts])
    times = np.concatenate([time for time, _ in parts], axis=1)
    if not len(weights):
        return None
    ratios = np.max(
        [time / at_most for time, (_, at_most, _) in zip(times, limit.bounds, strict=True)], axis=0
    )
    ratio = bounds.nearest_value(ratios, weights, limit.share)
    if ratio <= 1:
        return None
    if not np.isfinite(ratio):
        return (
            ratio,
            f"limits of the queue and timeouts with which an idle replica serves at least {limit.share * 100:.6g}% of what {limit.name} judges",
        )
    taken = ratios <= ratio
    words = []
    for (metric, at_most, growth), time in zip(limit.bounds, times, strict=True):
        least = float(time[taken].max())
        if least > at_most:
            what = limit.name if len(limit.bounds) == 1 else f"{metric.upper()} in {limit.name}"
            base = " with a base" if growth else ""
            words.append(f"{what}{base} of at least {_upward_s(least)} (promised {bounds.spoken_s(at_most)})")
    return ratio, " and ".join(words)


def _times(
    limit: Limit, mix: Requests, alone: bounds.Lone
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What each bound must be for each request that the limit judges, less what grows with its prompt; and how much each counts."""
    rows = mix.class_index == mix.classes.index(limit.class_name)
    has = [bounds.judged("tpot" if metric == "itl" else metric, mix) for metric, _, _ in limit.bounds]
    rows &= np.logical_or.reduce(has)
    times = []
    for (metric, _, growth), judged in zip(limit.bounds, has, strict=True):
        alone_s = alone.last_gap_s if metric == "itl" else alone.by_metric[metric]
        times.append(np.where(judged, alone_s - growth * mix.prompt_tokens, 0.0)[rows])
    weights = np.ones(int(rows.sum()))
    if limit.metric == "itl":
        weights *= (mix.output_tokens[rows] - 1) * mix.answers[rows]
    return np.array(times), weights


def _upward_s(value: float) -> str:
    """A time [s] as people say it, never less than it is: who promises what is said can keep it.

    >>> _upward_s(0.13612), _upward_s(0.136), _upward_s(1.3201)
    ('137 ms', '136 ms', '1.33 s')
    """
    step = 10.0 ** (math.floor(math.log10(value)) - 2)
    return bounds.spoken_s(math.ceil(value / step * (1 - 1e-9)) * step)
