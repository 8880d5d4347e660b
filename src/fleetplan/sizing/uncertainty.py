"""How sure the count is: what is not known is drawn anew, and the least count is searched for each draw."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fleetplan import progress
from fleetplan.engine import Speculation
from fleetplan.physics.form import StepTime
from fleetplan.sizing import pricing
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.decide import Decision, Option, Plan, throughput_rate_per_s
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered
from fleetplan.sizing.saturation import rated, sustainable_rate_per_s
from fleetplan.sizing.search import least_count
from fleetplan.sizing.verdict import Looks, Verdict, judge
from fleetplan.traffic.requests import Requests

NORMAL_90 = 1.2815515655446004
"""The standard normal's 90th percentile: an 80% band is ±1.2816 standard deviations wide."""
FIRST_REPLICATION = 1000
"""Traffic of the draws is that of replications from here on, none of which a verdict looks at."""
FURTHEST = 4.0
"""Counts beyond this multiple of the decided one are not searched: the draw then needs more than it."""


@dataclass(frozen=True)
class Draw:
    """One draw of what is not known; the same for every candidate."""

    number: int
    rate: float
    """Factor on the rate."""
    length: float
    """Factor on output lengths."""
    prompt: float
    """Factor on prompt lengths."""
    luck: float
    """Factor on the acceptance of drafts at every position."""
    z: float
    """Standard normal, that places the step time within the band of the candidate's calibration."""


@dataclass(frozen=True)
class Trial:
    """What one candidate needs in one draw."""

    draw: Draw
    time: float
    """Factor on its step times."""
    replicas: int | None
    """Least count that keeps every promise; None: no count that was searched does."""


@dataclass(frozen=True)
class Interval:
    """What the draws say of the chosen candidate's count."""

    trials: tuple[Trial, ...]
    level: float

    @property
    def counts(self) -> tuple[int | None, ...]:
        """Least count of each draw."""
        return tuple(trial.replicas for trial in self.trials)

    @property
    def needed(self) -> dict[int, int]:
        """Least count → draws that need just it."""
        return dict(Counter(count for count in self.counts if count is not None))

    @property
    def beyond(self) -> int:
        """Draws that no count up to the furthest holds."""
        return sum(count is None for count in self.counts)

    @property
    def draws(self) -> int:
        """How many."""
        return len(self.trials)

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
    if given.prompt_length_cv:
        found.append(f"prompt lengths (CV {given.prompt_length_cv:g})")
    low, high = step_band(decision, decision.chosen.machine) if decision.chosen else (1.0, 1.0)
    if high > low:
        found.append(
            f"step time (80% of measured points lie within {low:.2f} to {high:.2f} of the prediction)"
        )
    found += pricing.words(decision.plan.scenario.policy)
    return tuple(found)


def step_band(decision: Decision, built: Machine) -> tuple[float, float]:
    """80% band of measured over predicted step time: the spec's CV, else that of the calibration; (1, 1): none is known."""
    given = decision.plan.scenario.policy.uncertainty.step_time_cv
    if given is not None:
        sigma = math.sqrt(math.log1p(given * given))
        return math.exp(-NORMAL_90 * sigma), math.exp(NORMAL_90 * sigma)
    made = built.made
    return (made.calibration.tpot.low, made.calibration.tpot.high) if made else (1.0, 1.0)


def interval(decision: Decision) -> Interval | None:
    """Monte Carlo over what is not known, through the engine, for the chosen candidate. None: nothing was decided, or no draws are wanted.

    Each draw has its own traffic seed, a lognormal factor on the rate, on lengths, on step times (the draft's too) and on the acceptance of
    drafts at every position, and is searched for its least count from the decided one on.
    """
    chosen = decision.chosen
    given = decision.plan.scenario.policy.uncertainty
    if chosen is None or chosen.found is None or chosen.found.replicas is None or not given.draws:
        return None
    return Interval(over(decision, chosen, drawn(decision)), given.level)


def over(decision: Decision, option: Option, draws: Sequence[Draw]) -> tuple[Trial, ...]:
    """What a sized option needs in each of the draws."""
    made = []
    for draw in progress.each(
        draws, "draw", lambda draw: f"{option.machine.candidate.label}, rate × {draw.rate:.2f}"
    ):
        made.append(needs(decision, option, draw))
        count = made[-1].replicas
        progress.say("more replicas than were searched" if count is None else f"{count} replicas")
    return tuple(made)


def drawn(decision: Decision) -> tuple[Draw, ...]:
    """The draws of a scenario."""
    scenario = decision.plan.scenario
    given = scenario.policy.uncertainty
    rng = np.random.default_rng(np.random.SeedSequence([scenario.seed, 0x5EED]))
    acceptance = np.random.default_rng(np.random.SeedSequence([scenario.seed, 0xACCE97]))
    prompts = np.random.default_rng(np.random.SeedSequence([scenario.seed, 0x9409]))
    return tuple(
        Draw(
            number,
            _lognormal(rng, given.rate_cv),
            _lognormal(rng, given.output_length_cv),
            _lognormal(prompts, given.prompt_length_cv),
            _lognormal(acceptance, given.acceptance_cv),
            float(rng.standard_normal()),
        )
        for number in range(given.draws)
    )


def needs(decision: Decision, option: Option, draw: Draw) -> Trial:
    """The least count of a sized option in one draw, searched from about where its count and the draw's factors point."""
    assert option.found is not None
    assert option.found.replicas is not None
    built, start = option.machine, option.found.replicas
    low, high = step_band(decision, built)
    time = math.exp(
        (math.log(low) + math.log(high)) / 2 + draw.z * (math.log(high) - math.log(low)) / (2 * NORMAL_90)
    )
    slower = _otherwise(built, time, draw.luck)
    guess = max(round(start * draw.rate * time), 1)
    found = _least(slower, decision.plan, draw, guess, start)
    return Trial(draw, time, found)


def _otherwise(built: Machine, time: float, luck: float) -> Machine:
    """The machine with its step times, those of both pools, and the acceptance of its drafts multiplied by these factors."""
    assert built.step is not None
    assert built.config is not None
    config, drafts = built.config, built.config.speculation
    if drafts is not None:
        own = None if drafts.draft_step is None else scaled(drafts.draft_step, time)
        config = replace(config, speculation=replace(accepting(drafts, luck), draft_step=own))
    prefill = None if built.prefill is None else _otherwise(built.prefill, time, luck)
    made = replace(built, step=scaled(built.step, time), config=config, prefill=prefill)
    return replace(made, rates=None) if isinstance(made, Apart) else made


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
    """The step time with every term multiplied by a factor, a pipeline's stage with it."""
    return replace(
        step,
        stage=None if step.stage is None else scaled(step.stage, factor),
        **{
            name: getattr(step, name) * factor
            for name in (
                "overhead_s", "compute_s", "memory_s", "sequence_s", "decode_s", "pair_s", "window_pair_s", "kv_token_s",
                "window_kv_token_s", "state_s", "overhead_slope_s", "compute_slope_s", "memory_slope_s",
            )
        },
    )  # fmt: skip


def _least(built: Machine, subject: Plan, draw: Draw, guess: int, decided: int) -> int | None:
    traffic, replication = subject.traffic, FIRST_REPLICATION + draw.number
    requests = traffic.requests(0 if traffic.exact else replication, draw.rate)
    if subject.model is not None:
        most = subject.model.architecture.max_context_tokens
        requests = longer(requests, draw.length, draw.prompt, most)
    mix: Offered = replace(traffic, _cache={(0, 1.0): requests})
    built = rated(built, mix)
    sustainable = sustainable_rate_per_s(built, mix)
    if sustainable <= 0:
        return None
    most = max(int(decided * FURTHEST), decided + 2)

    promised = throughput_rate_per_s(subject, requests)

    def verdict(replicas: int) -> Verdict:
        sustained = built.sustains(sustainable, replicas)

        def run(_: int):  # type: ignore[no-untyped-def]
            return traffic.judged(built.run(requests, replicas * built.engines_per_replica, replication))

        return judge(
            replicas,
            traffic.limits,
            built.client_s,
            run,
            utilisation=traffic.rate_per_s * draw.rate / sustained,
            max_utilisation=subject.scenario.policy.max_utilisation,
            looks=Looks.fixed(1, subject.scenario.policy.confidence),
            exact=True,
            shortfalls=("throughput",) if sustained < promised * (1 - 1e-9) else (),
        )

    return least_count(verdict, guess, most, built.candidate.least_replicas).replicas


def longer(requests: Requests, output: float, prompt: float = 1.0, most: int | None = None) -> Requests:
    """The requests with their lengths multiplied; none grows beyond `most` tokens in all, or loses its shared prefix.

    >>> made = longer(Requests.of([0.0, 1.0], [100, 400], [10, 100]), 2.0, 1.1, most=600)
    >>> made.output_tokens.tolist(), made.prompt_tokens.tolist()
    ([20, 160], [110, 440])
    """
    if output == prompt == 1.0:
        return requests
    most = max(most or 2**31 - 1, int((requests.prompt_tokens + requests.output_tokens).max()))
    prompts = np.maximum(np.rint(requests.prompt_tokens * prompt), 1).astype(np.int64)
    prompts = np.clip(prompts, np.maximum(requests.prefix_tokens, 1), most - 1)
    outputs = np.maximum(np.rint(requests.output_tokens * output), 1).astype(np.int64)
    outputs = np.minimum(outputs, most - prompts)
    hidden = np.minimum(np.rint(requests.hidden_tokens * output).astype(np.int64), outputs)
    return replace(
        requests,
        prompt_tokens=prompts.astype(requests.prompt_tokens.dtype),
        output_tokens=outputs.astype(requests.output_tokens.dtype),
        hidden_tokens=hidden,
    )


def _lognormal(rng: np.random.Generator, cv: float) -> float:
    """A factor of mean 1 and this coefficient of variation; one draw is taken at cv 0 too, so that draws stay paired."""
    z = rng.standard_normal()
    sigma = math.sqrt(math.log1p(cv * cv))
    return math.exp(sigma * z - sigma * sigma / 2)
