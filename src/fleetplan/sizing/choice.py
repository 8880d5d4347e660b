"""Which candidate stays the cheapest when prices and needs turn out otherwise, and what the fleet may cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing import buying, pricing
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.decide import Decision, Option
from fleetplan.sizing.uncertainty import Interval, over

RIVALS = 2
"""Besides the chosen candidate, so many of the next cheapest are searched anew in every draw."""


@dataclass(frozen=True)
class Choice:
    """One candidate over the draws."""

    candidate_id: str
    basis: str
    """Where its GPUs come from: counted anew in each draw, as decided, or its lower bound (too kind to it)."""
    low_usd_per_hour: float | None
    """Ends and middle of the interval of its cost at the level of `policy.uncertainty`; None: beyond what was searched."""
    median_usd_per_hour: float | None
    high_usd_per_hour: float | None
    probability_cheapest: float
    """Share of all pairs of a draw and a price in which it is the cheapest."""


def choices(decision: Decision, found: Interval | None) -> tuple[Choice, ...]:
    """Every candidate that has a price and a count or a bound of it, in the order of the decision; none where all prices are known.

    Each draw of what is needed is paired with each draw of the prices, those of one kind of GPU being the same for all its candidates.
    """
    policy, seed = decision.plan.scenario.policy, decision.plan.scenario.seed
    if decision.chosen is None or not pricing.asked(policy):
        return ()
    tail = (1 - policy.uncertainty.level) / 2
    rows: list[tuple[str, str]] = []
    costs: list[NDArray[np.float64]] = []
    rivals = [o for o in decision.options if o.status == "dearer"][:RIVALS]
    for option in decision.options:
        if option.fleet is None or option.status not in ("chosen", "dearer", "pruned"):
            continue
        candidate, fleet = option.machine.candidate, option.fleet
        if found is not None and (option is decision.chosen or option in rivals):
            counts = found.counts if option is decision.chosen else _counts(decision, option, found)
            gpus, basis = _gpus(option, counts, decision), "counted anew"
        else:
            basis = "lower bound" if option.status == "pruned" else "as decided"
            gpus = np.array([float(fleet.gpus)])
        factors = _factors(decision, candidate, seed)
        cost = np.multiply.outer(gpus * fleet.usd_per_gpu_hour, factors)
        rows.append((candidate.candidate_id, basis))
        costs.append(cost)
    pairs = max(len(cost) for cost in costs)
    whole = np.array([np.broadcast_to(cost, (pairs, pricing.PRICE_DRAWS)).ravel() for cost in costs])
    first = whole.argmin(axis=0)
    made = []
    for index, (identity, basis) in enumerate(rows):
        low, median, high = (_quantile(whole[index], share) for share in (tail, 0.5, 1 - tail))
        made.append(Choice(identity, basis, low, median, high, float((first == index).mean())))
    return tuple(made)


def _factors(decision: Decision, candidate: Candidate, seed: int) -> NDArray[np.float64]:
    """What the draws of the prices multiply a fleet's cost by; of pools on two kinds of GPU each by its share of the cost."""
    policy, sheet = decision.plan.scenario.policy, decision.prices

    def of(gpu: str) -> NDArray[np.float64]:
        return pricing.drawn(seed, gpu, pricing.of_gpu(policy, gpu, sheet))

    if not candidate.mixed:
        return of(candidate.gpu)
    usd = [
        (buying.usd_per_gpu_hour(policy, part.gpu, sheet) or 0.0) * count * part.gpus_per_replica
        for part, count in candidate.parts
    ]
    drawn = [of(part.gpu) for part, _ in candidate.parts]
    return np.average(drawn, axis=0, weights=usd)


def _counts(decision: Decision, option: Option, found: Interval) -> tuple[int | None, ...]:
    return tuple(trial.replicas for trial in over(decision, option, [trial.draw for trial in found.trials]))


def _gpus(option: Option, counts: tuple[int | None, ...], decision: Decision) -> NDArray[np.float64]:
    """GPUs of each count, with at least the spares of the decided fleet; infinite where no count that was searched holds."""
    assert option.fleet is not None
    policy, candidate, spare = (
        decision.plan.scenario.policy,
        option.machine.candidate,
        option.fleet.spare_replicas,
    )
    return np.array(
        [
            np.inf if n is None else float(buying.fleet_of(policy, candidate, n, 1.0, spare).gpus)
            for n in counts
        ]
    )


def _quantile(costs: NDArray[np.float64], share: float) -> float | None:
    value = float(np.quantile(costs, share, method="inverted_cdf"))
    return value if np.isfinite(value) else None
