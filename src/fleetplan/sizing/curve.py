"""The traffic by slot of the day or week, in requests/s and in replicas' worth of work."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing.decide import Plan
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered
from fleetplan.sizing.saturation import sustainable_rate_per_s
from fleetplan.traffic import generation, model

Floats = NDArray[np.float64]

DAY_S = 86400.0
HOUR_S = 3600.0
MIX_REQUESTS = 5000
"""Requests of one class that are drawn to measure its work."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One period of the traffic, which repeats; time 0 is that of the simulation."""

    slot_s: float
    rate_per_s: Floats
    """Mean requests/s of each slot; shape (slots,)."""
    load_replicas: Floats
    """Replicas that would be busy all the time with each slot's traffic; shape (slots,)."""

    @property
    def period_s(self) -> float:
        """Length of the period [s]."""
        return self.slot_s * len(self.rate_per_s)


def curve(subject: Plan, built: Machine, sustainable_per_s: float) -> Curve | None:
    """The profile of the traffic; None where no class follows day or week.

    A slot's load is Σ rate_c · w_c over classes, w_c the work of a request of class c: by the sustainable rate of the class alone, all scaled so
    that the mean load is that of the whole mix, rate / sustainable rate.
    """
    traffic = subject.traffic
    shapes = [_shape(c.arrivals or traffic.workload.arrivals) for c in traffic.workload.classes]
    known = [shape for shape in shapes if shape is not None]
    if not known:
        return None
    slot = min(shape[0] for shape in known)
    slots = max(math.ceil(shape[0] * len(shape[1]) / slot - 1e-9) for shape in known)
    rates = np.array([_rates(traffic, index, shape, slot, slots) for index, shape in enumerate(shapes)])
    works = _works(traffic, built)
    load = works @ rates
    load *= rates.sum() / sustainable_per_s / load.sum()
    return Curve(slot, rates.sum(axis=0), load)


def _shape(arrivals: model.Arrivals | None) -> tuple[float, Floats] | None:
    """(slot [s], factors of the mean rate of the process inside) of one period; None: it has no profile."""
    if isinstance(arrivals, model.Profile):
        factors = np.array(arrivals.factors)
        shift = arrivals.start_s / arrivals.slot_s
        at = (np.arange(len(factors)) + shift) % len(factors)
        low, part = at.astype(np.int64), at % 1
        return arrivals.slot_s, factors[low] * (1 - part) + factors[(low + 1) % len(factors)] * part
    if isinstance(arrivals, model.Recorded) and len(arrivals.counts) >= DAY_S:
        return HOUR_S, _relative(
            np.repeat(np.arange(len(arrivals.counts)), arrivals.counts), len(arrivals.counts)
        )
    if isinstance(arrivals, model.Replay) and math.isfinite(arrivals.period_s) and arrivals.period_s >= DAY_S:
        return HOUR_S, _relative(arrivals.arrival_s, arrivals.period_s)
    return None


def _relative(times_s: NDArray[np.generic], period_s: float) -> Floats:
    hours = int(period_s // HOUR_S)
    counts = np.histogram(times_s, bins=hours, range=(0.0, hours * HOUR_S))[0].astype(np.float64)
    return np.asarray(counts / counts.mean(), dtype=np.float64)


def _rates(
    traffic: Offered, index: int, shape: tuple[float, Floats] | None, slot: float, slots: int
) -> Floats:
    base = generation.mean_rate_per_s(_alone(traffic, index), traffic.rate_scale) or 0.0
    if shape is None:
        return np.full(slots, base)
    middle = (np.arange(slots) + 0.5) * slot
    return base * shape[1][(middle // shape[0]).astype(np.int64) % len(shape[1])]


def _alone(traffic: Offered, index: int) -> model.Workload:
    """One class of the workload, the process inside its profile in place of the profile."""
    whole = traffic.workload
    only = whole.classes[index]
    common = whole.arrivals
    if isinstance(only.arrivals, model.Profile):
        only = replace(only, arrivals=only.arrivals.inside)
    if isinstance(common, model.Profile):
        common = common.inside
    return replace(whole, classes=(only,), arrivals=None if only.arrivals is not None else common)


def _works(traffic: Offered, built: Machine) -> Floats:
    """Replica-seconds of a request of each class."""
    classes = traffic.workload.classes
    if len(classes) == 1:
        return np.ones(1)
    found = []
    for index in range(len(classes)):
        alone = _alone(traffic, index)
        rate = generation.mean_rate_per_s(alone, traffic.rate_scale) or 1.0
        if alone.arrivals is not None:  # its share of common arrivals, as arrivals of its own
            alone = replace(
                alone, classes=(replace(alone.classes[0], arrivals=alone.arrivals),), arrivals=None
            )
        mix = replace(
            traffic, workload=alone, rate_per_s=rate, duration_s=MIX_REQUESTS / rate, warmup_s=0.0, _cache={}
        )
        found.append(1 / sustainable_rate_per_s(built, mix))
    return np.array(found)
