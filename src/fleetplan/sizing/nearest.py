"""Why nothing will do, and the nearest change that would: said in words, never as a number of GPUs."""

from __future__ import annotations

import numpy as np

from fleetplan.sizing import bounds, buying
from fleetplan.sizing.decide import Decision, Option


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
    mix = traffic.requests()
    best: tuple[float, str, str] | None = None
    for option in hopeless:
        built = option.machine
        assert built.step is not None
        assert built.config is not None
        alone = built.lone(mix)
        values = alone.by_metric
        worst, needs = 1.0, []
        for limit in traffic.limits:
            bound = limit.limit_s
            if bound is None or limit.metric not in values:
                continue
            rows = mix.class_index == mix.classes.index(limit.class_name)
            rows &= bounds.judged(limit.metric, mix)
            if not rows.any():
                continue
            value = float(np.quantile(values[limit.metric][rows], limit.share, method="inverted_cdf"))
            if value > bound:
                worst = max(worst, value / bound)
                needs.append(
                    f"{limit.name} of at least {bounds.spoken_s(value)} (promised {bounds.spoken_s(bound)})"
                )
        if best is None or worst < best[0]:
            best = (worst, option.machine.candidate.label, " and ".join(needs) or option.reason)
    assert best is not None
    return (
        f"no number of replicas of any candidate keeps every promise, since a request alone on a replica breaks one; "
        f"{hopeless[0].machine.candidate.label}: {hopeless[0].reason}",
        f"nearest is {best[1]}: it needs {best[2]} even without load",
    )
