"""How sure the count is: what is not known is drawn anew, and the least count is searched for each draw."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from fleetplan.engine import Speculation
from fleetplan.physics.form import StepTime
from fleetplan.sizing.decide import Decision, Plan, sustainable_rate_per_s
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered
from fleetplan.sizing.search import least_count
from fleetplan.sizing.verdict import Looks, Verdict, judge
from fleetplan.traffic.requests import Requests

NORMAL_90 = 1.2815515655446004
"""The standard normal's 90th percentile: an 80% band is ±1.2816 standard deviations wide."""
FURTHEST = 4.0
"""Counts beyond this multiple of the decided one are not searched: the draw then needs more than it."""


@dataclass(frozen=True)
class Interval:
    """What the draws say of the count."""

    needed: dict[int, int]
    """Least count → draws that need just it."""
    beyond: int
    """Draws that no count up to the furthest holds."""
    draws: int
    level: float

    @property
    def low(self) -> int | None:
        """Lower end of the central interval."""
        return self._quantile((1 - self.level) / 2)

    @property
    def high(self) -> int | None:
        """Upper end; None: too many draws are beyond what was searched."""
        return self._quantile((1 + self.level) / 2)

    def probability_holds(self, replicas: int) -> float:
        """Share of the draws whose least count is at most this."""
        return sum(n for count, n in self.needed.items() if count <= replicas) / self.draws

    def count_for(self, probability: float) -> int | None:
        """Least count that keeps every promise with this probability; None: beyond what was searched."""
        return self._quantile(probability)

    def _quantile(self, share: float) -> int | None:
        total = 0
        for count in sorted(self.needed):
            total += self.needed[count]
            if total >= share * self.draws - 1e-9:
                return count
        return None


def sources(decision: Decision) -> tuple[str, ...]:
    """What is drawn, in words; empty: nothing but the traffic's own randomness is uncertain."""
    given = decision.plan.scenario.policy.uncertainty
    found = ["the traffic's own randomness"] if not decision.plan.traffic.exact else []
    if given.rate_cv:
        found.append(f"rate forecast (CV {given.rate_cv:g})")
    if given.output_length_cv:
        found.append(f"output lengths (CV {given.output_length_cv:g})")
    if given.acceptance_cv and decision.chosen and decision.chosen.machine.candidate.speculation != "none":
        found.append(f"acceptance of drafts (CV {given.acceptance_cv:g})")
    low, high = step_band(decision)
    if high > low:
        found.append(
            f"step time (80% of measured points lie within {low:.2f} to {high:.2f} of the prediction)"
        )
    return tuple(found)


def step_band(decision: Decision) -> tuple[float, float]:
    """80% band of measured over predicted step time: the spec's CV, else that of the calibration; (1, 1): none is known."""
    given = decision.plan.scenario.policy.uncertainty.step_time_cv
    if given is not None:
        sigma = math.sqrt(math.log1p(given * given))
        return math.exp(-NORMAL_90 * sigma), math.exp(NORMAL_90 * sigma)
    made = decision.chosen.machine.made if decision.chosen else None
    return (made.calibration.tpot.low, made.calibration.tpot.high) if made else (1.0, 1.0)


def interval(decision: Decision) -> Interval | None:
    """Monte Carlo over what is not known, through the engine, for the chosen candidate. None: nothing was decided, or no draws are wanted.

    Each draw has its own traffic seed, a lognormal factor on the rate, on output lengths, on step times (the draft's too) and on the
    acceptance of drafts at every position, and is searched for its least count from the decided one on.
    """
    chosen = decision.chosen
    given = decision.plan.scenario.policy.uncertainty
    if chosen is None or chosen.found is None or chosen.found.replicas is None or not given.draws:
        return None
    low, high = step_band(decision)
    rng = np.random.default_rng(np.random.SeedSequence([decision.plan.scenario.seed, 0x5EED]))
    acceptance = np.random.default_rng(np.random.SeedSequence([decision.plan.scenario.seed, 0xACCE97]))
    needed: Counter[int] = Counter()
    beyond = 0
    start = chosen.found.replicas
    for draw in range(given.draws):
        rate = _lognormal(rng, given.rate_cv)
        length = _lognormal(rng, given.output_length_cv)
        time = math.exp(
            (math.log(low) + math.log(high)) / 2
            + rng.standard_normal() * (math.log(high) - math.log(low)) / (2 * NORMAL_90)
        )
        luck = _lognormal(acceptance, given.acceptance_cv)
        slower = _otherwise(chosen.machine, time, luck)
        guess = max(round(start * rate * time), 1)
        found = _least(slower, decision.plan, 1000 + draw, rate, length, guess, start)
        if found is None:
            beyond += 1
        else:
            needed[found] += 1
    return Interval(dict(needed), beyond, given.draws, given.level)


def _otherwise(built: Machine, time: float, luck: float) -> Machine:
    """The machine with its step times, and the acceptance of its drafts, multiplied by these factors."""
    assert built.step is not None
    assert built.config is not None
    config, drafts = built.config, built.config.speculation
    if drafts is not None:
        own = None if drafts.draft_step is None else scaled(drafts.draft_step, time)
        config = replace(config, speculation=replace(accepting(drafts, luck), draft_step=own))
    return replace(built, step=scaled(built.step, time), config=config)


def accepting(drafts: Speculation, factor: float) -> Speculation:
    """Drafts whose acceptance at every position is multiplied by a factor, and at most 1.

    >>> accepting(Speculation((0.8, 0.4), draft_cost=0.1), 1.5).survival
    (1.0, 0.75)
    """
    found, before, alive = [], 1.0, 1.0
    for survival in drafts.survival:
        given = survival / before if before > 0 else 0.0
        alive *= min(given * factor, 1.0)
        found.append(alive)
        before = survival
    return replace(drafts, survival=tuple(found))


def scaled(step: StepTime, factor: float) -> StepTime:
    """The step time with every term multiplied by a factor."""
    return replace(
        step,
        **{
            name: getattr(step, name) * factor
            for name in (
                "overhead_s", "compute_s", "memory_s", "sequence_s", "decode_s", "pair_s", "window_pair_s", "kv_token_s",
                "window_kv_token_s", "state_s", "overhead_slope_s", "compute_slope_s", "memory_slope_s",
            )
        },
    )  # fmt: skip


def _least(
    built: Machine, subject: Plan, replication: int, rate: float, length: float, guess: int, decided: int
) -> int | None:
    traffic = subject.traffic
    requests = _longer(traffic.requests(0 if traffic.exact else replication, rate), length)
    mix: Offered = replace(traffic, _cache={(0, 1.0): requests})
    sustainable = sustainable_rate_per_s(built, mix)
    if sustainable <= 0:
        return None
    most = max(int(decided * FURTHEST), decided + 2)

    def verdict(replicas: int) -> Verdict:
        def run(_: int):  # type: ignore[no-untyped-def]
            return built.run(requests, replicas * built.engines_per_replica, replication), traffic.warmup_s

        return judge(
            replicas,
            traffic.limits,
            built.client_s,
            run,
            utilisation=traffic.rate_per_s * rate / (replicas * sustainable),
            max_utilisation=subject.scenario.policy.max_utilisation,
            looks=Looks.fixed(1, subject.scenario.policy.confidence),
            exact=True,
        )

    return least_count(verdict, guess, most).replicas


def _longer(requests: Requests, factor: float) -> Requests:
    if factor == 1.0:
        return requests
    lengths = np.maximum(np.rint(requests.output_tokens * factor), 1).astype(np.int64)
    return replace(requests, output_tokens=lengths)


def _lognormal(rng: np.random.Generator, cv: float) -> float:
    """A factor of mean 1 and this coefficient of variation; one draw is taken at cv 0 too, so that draws stay paired."""
    z = rng.standard_normal()
    sigma = math.sqrt(math.log1p(cv * cv))
    return math.exp(sigma * z - sigma * sigma / 2)
