"""A fleet that follows the traffic: how many replicas serve in each slot, what is paid, and whether promises hold."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan import progress
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.curve import Curve
from fleetplan.sizing.decide import Decision
from fleetplan.sizing.spot import Absence, held
from fleetplan.sizing.verdict import Verdict
from fleetplan.spec.policy import Autoscaling

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Replicas over one period."""

    curve: Curve
    serving: Ints
    """Replicas that serve in each slot; shape (slots,)."""
    paid_s: Floats
    """Seconds that each replica is paid in each slot; shape (levels, slots), level 0 the replica that serves longest."""
    added_replicas: int
    """What every slot was given on top of its load for the promises to hold."""
    verdict: Verdict | None = None
    """Of the simulation of the fleet as it comes and goes."""

    @property
    def paid_shares(self) -> Floats:
        """Share of the period that each replica is paid; shape (levels,), falling."""
        return np.asarray(self.paid_s.sum(axis=1) / self.curve.period_s)


def schedule(decision: Decision, curve: Curve, given: Autoscaling) -> Schedule:
    """The least replicas by slot whose simulation keeps every promise.

    A slot needs ⌈load / max_utilisation⌉ replicas, at least the minimum and at most the decided count, with which the promises hold all the time.
    Where the simulation of the fleet as it comes and goes fails, every slot is given one more, up to the decided count.
    """
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    count, cap = chosen.fleet.replicas, decision.plan.scenario.policy.max_utilisation
    for added in range(count + 1):
        serving = least_serving(curve, cap, given.minimum, count, added)
        progress.say(f"the fleet as it follows the traffic, {serving.min()} to {serving.max()} replicas")
        made = Schedule(curve, serving, paid_s(curve, serving, given), added)
        if (serving == count).all():
            return made
        gone = list(absences(made, given, decision.plan.traffic.duration_s))
        busy = float(curve.load_replicas.mean() / serving.mean())
        verdict = held(decision, None, int(serving.max()), (), gone, busy)
        if verdict.stable and all(outcome.holds for outcome in verdict.outcomes):
            return Schedule(curve, serving, made.paid_s, added, verdict)
    raise AssertionError("unreachable: the decided count in every slot ends the loop")


def least_serving(curve: Curve, max_utilisation: float, minimum: int, most: int, added: int = 0) -> Ints:
    """Replicas of each slot: ⌈load / max_utilisation⌉ + added, within [minimum, most].

    >>> least_serving(Curve(3600.0, np.array([1.0, 4.0]), np.array([0.5, 2.0])), 0.8, 1, 10).tolist()
    [1, 3]
    """
    needed = [ceil_ratio(float(load), max_utilisation) + added for load in curve.load_replicas]
    return np.clip(np.array(needed, dtype=np.int64), min(max(minimum, 1), most), most)


def away_s(curve: Curve, serving: Ints, given: Autoscaling) -> Iterator[tuple[int, float, float, float]]:
    """(replica, from, until paid again, until it serves again) [s] for each time that a replica is switched off in a period.

    It goes `hold` after it is not needed any more and is asked for, and paid, `start_up` before it is needed again; it is kept where
    that leaves no time between. Times may run beyond the period, which repeats.
    """
    slots = len(serving)
    for replica in range(int(serving.min()), int(serving.max())):
        on = serving > replica
        ends = [i for i in range(slots) if on[i] and not on[(i + 1) % slots]]
        for end in ends:
            idle = next(k for k in range(1, slots + 1) if on[(end + k) % slots]) - 1
            off = (end + 1) * curve.slot_s
            back = off + idle * curve.slot_s
            if off + given.hold_s < back - given.start_up_s:
                yield replica, off + given.hold_s, back - given.start_up_s, back


def paid_s(curve: Curve, serving: Ints, given: Autoscaling) -> Floats:
    """Seconds that each replica is paid in each slot; shape (replicas, slots)."""
    slots = len(serving)
    paid = np.full((int(serving.max()), slots), curve.slot_s)
    for replica, off, asked, _ in away_s(curve, serving, given):
        for slot in range(int(off // curve.slot_s), math.ceil(asked / curve.slot_s)):
            begin, end = slot * curve.slot_s, (slot + 1) * curve.slot_s
            paid[replica, slot % slots] -= max(min(asked, end) - max(off, begin), 0.0)
    return paid


def absences(made: Schedule, given: Autoscaling, duration_s: float) -> Iterator[Absence]:
    """When replicas are away within the run; what reaches over its beginning is cut there."""
    period = made.curve.period_s
    found: list[Absence] = []
    for replica, off, _, back in away_s(made.curve, made.serving, given):
        for copy in range(-2, math.ceil(duration_s / period) + 1):
            begin, end = off + copy * period, back + copy * period
            if end > 0 and begin < duration_s:
                found.append((replica, max(begin, 0.0), end))
    yield from sorted(found)
