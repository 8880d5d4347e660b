"""Which candidate stays the cheapest when prices and needs turn out otherwise, and what the fleet may cost."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing import buying, pricing
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
            gpus = {lot.gpu: np.array([float(lot.gpus)]) for lot in fleet.lots}
        each = [
            np.multiply.outer(gpus[lot.gpu] * lot.usd_per_gpu_hour, factors(decision, lot.gpu, seed))
            for lot in fleet.lots
        ]
        cost = np.sum(each, axis=0)
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


def factors(decision: Decision, gpu: str, seed: int) -> NDArray[np.float64]:
    """What the draws of the prices multiply the cost of GPUs of this kind by."""
    return pricing.drawn(seed, gpu, pricing.of_gpu(decision.plan.scenario.policy, gpu, decision.prices))


def _counts(decision: Decision, option: Option, found: Interval) -> tuple[int | None, ...]:
    return tuple(trial.replicas for trial in over(decision, option, [trial.draw for trial in found.trials]))


def _gpus(
    option: Option, counts: tuple[int | None, ...], decision: Decision
) -> dict[str, NDArray[np.float64]]:
    """GPUs of each count by kind, with at least the spares of the decided fleet; infinite where no count that was searched holds."""
    assert option.fleet is not None
    policy, candidate, fleet = decision.plan.scenario.policy, option.machine.candidate, option.fleet
    needed = [
        None if n is None else buying.fleet_of(policy, candidate, n, fleet.prices, fleet.spares)
        for n in counts
    ]
    return {
        lot.gpu: np.array([np.inf if each is None else float(each.lots[k].gpus) for each in needed])
        for k, lot in enumerate(fleet.lots)
    }


def _quantile(costs: NDArray[np.float64], share: float) -> float | None:
    value = float(np.quantile(costs, share, method="inverted_cdf"))
    return value if np.isfinite(value) else None
