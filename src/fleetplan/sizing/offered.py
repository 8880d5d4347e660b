"""The planned traffic: the same requests for every candidate and count, one set a replication."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fleetplan.engine.result import Result
from fleetplan.errors import InputError
from fleetplan.sizing import users
from fleetplan.sizing.verdict import Limit
from fleetplan.spec.endpoint import EndpointScenario
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.traffic import generation, model
from fleetplan.traffic.from_spec import workload_of
from fleetplan.traffic.lengths import mean_tokens
from fleetplan.traffic.requests import Requests

REQUESTS_PER_MISS = 400
"""Requests that a replication has for each one that a promise lets miss: 40 000 for a p99."""
FEWEST, MOST = 10_000, 200_000
"""Bounds of the number of requests of one replication of a stationary process."""
MOST_DRAWN = 10_000_000
"""Requests of one replication: what drawing and simulating them takes of memory stays under some GB."""
SHORTEST_S = 300.0
"""A replication of a stationary process is at least this long, many times the life of a request."""
WARM_UP_SHARE = 0.1
TURNS, FEWEST_TURNS = 10, 5
"""Times that a user who waits comes again in one replication: at least, and the fewest that a horizon of the spec may leave."""


@dataclass(frozen=True, eq=False)
class Offered:
    """The traffic of a scenario, ready to draw from."""

    workload: model.Workload
    rate_scale: float
    rate_per_s: float
    """Mean rate of requests that reach the model; of users who wait, that of the slowest answers that keep the promises."""
    duration_s: float
    """Length of one replication."""
    warmup_s: float
    exact: bool
    """The traffic is one recording, replayed: every replication would be the same."""
    seed: int
    limits: tuple[Limit, ...]
    notes: tuple[str, ...] = ()
    """What of the spec's traffic the simulation takes a cautious view of, in words."""
    timed: bool = False
    """The length of a replication is that of a recording or the spec's horizon: it does not shrink when the rate grows."""
    _cache: dict[tuple[int, float], Requests] = field(default_factory=dict, repr=False)

    def requests_at(self, factor: float) -> float:
        """About how many requests one replication of this traffic planned at a multiple of its rate has."""
        if self.timed:
            return self.rate_per_s * self.duration_s * factor
        return max(self.rate_per_s * self.duration_s, self.rate_per_s * factor * SHORTEST_S)

    def requests(self, replication: int = 0, factor: float = 1.0) -> Requests:
        """The requests of a replication, with every rate multiplied by `factor`; drawn once."""
        key = (replication, factor)
        if key not in self._cache:
            seed = int(np.random.SeedSequence([self.seed, replication]).generate_state(1)[0])
            self._cache[key] = generation.generate(
                self.workload, duration_s=self.duration_s, seed=seed, rate_scale=self.rate_scale * factor
            )
        return self._cache[key]

    def steady(self, lasts_s: float) -> Offered:
        """The same without the course of the day, about so long: profiles and growth at their mean, so that any stretch has that load."""
        arrivals = [c.arrivals or self.workload.arrivals for c in self.workload.classes]
        if not any(isinstance(each, model.Profile) for each in arrivals):
            return self
        flat = replace(
            self.workload,
            classes=tuple(replace(c, arrivals=_flat(c.arrivals)) for c in self.workload.classes),
            arrivals=_flat(self.workload.arrivals),
        )
        return replace(
            self, workload=flat, duration_s=min(self.duration_s, max(lasts_s, SHORTEST_S)), _cache={}
        )

    @property
    def closed(self) -> tuple[int, ...]:
        """Classes whose users wait for their answers."""
        return users.closed(self.workload)

    def judged(self, result: Result) -> tuple[Result, float]:
        """(what of a run is judged, from when on [s]); of users who wait, the time while all of them still send, less a tenth."""
        if not self.closed:
            return result, self.warmup_s
        kept = users.while_all_send(result, self.closed)
        return kept, WARM_UP_SHARE * float(kept.arrival_s.max())

    @property
    def repeats(self) -> bool:
        """Whether prompts begin as earlier ones did: a prefix cache would find something."""
        mix = self.requests()
        history = (mix.session_id >= 0) & (mix.history_tokens != 0)
        return bool((mix.prefix_tokens > 0).any() or len(mix.block_hashes) or history.any())

    def burst(self, count: int) -> Requests:
        """`count` requests of the same mix that are all there at time 0: what saturates a replica."""
        mix = self.requests()
        rows = np.resize(np.arange(len(mix)), count)
        return Requests.of(
            np.zeros(count),
            mix.prompt_tokens[rows],
            mix.output_tokens[rows],
            classes=mix.classes,
            class_index=mix.class_index[rows],
            prefix_id=mix.prefix_id[rows],
            prefix_tokens=mix.prefix_tokens[rows],
            priority=mix.priority[rows],
            answers=mix.answers[rows],
            hidden_tokens=mix.hidden_tokens[rows],
            adapter_id=mix.adapter_id[rows],
        )


def offered(scenario: Asked, max_context_tokens: int | None = None) -> Offered:
    """The planned traffic of a scenario. Raises InputError where it has no rate or yields no request."""
    workload, scale = workload_of(scenario.drawn, scenario.folder, max_context_tokens)
    limits = limits_of(scenario)
    workload = users.planned(workload, limits, scenario.seed)
    rate = generation.mean_rate_per_s(workload, scale)
    if rate is None:  # specs are refused before; here for what is made in code
        raise InputError(
            f"{scenario.scenario}: workload: the promises do not bound how long users wait, give e2e, or ttft and tpot"
        )
    if not rate > 0:
        raise InputError(
            scenario.line(
                ("workload",), f"has a rate that must be > 0 (got {rate:g} req/s), give one above 0"
            )
        )
    period = _recording_s(workload)
    if scenario.simulation.horizon_s is not None:
        duration = scenario.simulation.horizon_s
    elif period is not None:
        duration = period
    else:
        # Without a percentile (a deadline, an attainment of all) the longest run is not needed.
        slack = min((1 - limit.share for limit in limits if limit.share < 1), default=1.0)
        count = min(max(REQUESTS_PER_MISS / slack, FEWEST), MOST)
        # Answers of an endpoint take milliseconds: thousands of requests a second need not go on for minutes.
        short = MOST / rate if isinstance(scenario, EndpointScenario) else SHORTEST_S
        turns_s = (TURNS * each for each in users.turns_s(workload).values())
        duration = max(count / rate, min(short, SHORTEST_S), *turns_s)
    if rate * duration > MOST_DRAWN:
        raise InputError(
            scenario.line(
                ("workload",),
                f"has {rate * duration:.3g} requests in the {duration:g} s of one simulation (got {rate:g} req/s), at most {MOST_DRAWN:,} are "
                "simulated; give a shorter simulation.horizon",
            )
        )
    warmup = scenario.simulation.warm_up_s
    made = Offered(
        workload,
        scale,
        rate,
        duration,
        WARM_UP_SHARE * duration if warmup is None else warmup,
        _is_replay(workload) and scale == 1.0,
        scenario.seed,
        limits,
        _notes(scenario, workload),
        scenario.simulation.horizon_s is not None or period is not None,
    )
    if not len(made.requests()):
        raise InputError(
            scenario.line(
                ("workload",),
                f"has no request within the {duration:g} s of a simulation (got {rate:g} req/s), give a longer simulation.horizon",
            )
        )
    _check_sessions(scenario, made)
    _check_turns(scenario, made)
    if made.warmup_s >= duration:
        raise InputError(
            scenario.line(
                ("simulation", "warm_up"),
                f"must be shorter than the horizon (got {made.warmup_s:g} s of {duration:g} s), give less",
            )
        )
    _check_judged(scenario, made)
    return made


def _check_sessions(scenario: Asked, made: Offered) -> None:
    """Raise InputError where sessions last so long that most of their later turns lie behind the end of a simulation."""
    for i, c in enumerate(made.workload.classes):
        if c.sessions is None:
            continue
        lasting = max(mean_tokens(c.sessions.turns) - 1, 0.0) * c.sessions.gap_s
        if lasting > made.duration_s / 2:
            raise InputError(
                scenario.line(
                    ("workload", "classes", i, "sessions", "gap"),
                    f"makes sessions last {lasting:.3g} s on average, and a simulation {made.duration_s:.3g} s, so that their later turns would not "
                    f"be in it; give a simulation.horizon of {5 * lasting:.2g} s or more",
                )
            )


def _check_turns(scenario: Asked, made: Offered) -> None:
    """Raise InputError where users who wait come so seldom that a simulation has only the filling of an empty system."""
    for index, turn_s in users.turns_s(made.workload).items():
        if made.duration_s < FEWEST_TURNS * turn_s * (1 - 1e-9):
            own = made.workload.classes[index].arrivals is not None
            raise InputError(
                scenario.line(
                    ("workload", "classes", index, "arrivals") if own else ("workload", "arrivals"),
                    f"are users who come again every {turn_s:.3g} s, think time and the slowest answer that keeps the promises (got a simulation of "
                    f"{made.duration_s:g} s); give a simulation.horizon of {math.ceil(FEWEST_TURNS * turn_s)} s or more",
                )
            )


def _check_judged(scenario: Asked, made: Offered) -> None:
    """Raise InputError where a class with promises has no request that they could be judged by."""
    mix = made.requests()
    # when users who wait come again is known by simulation alone
    judged = {
        *np.unique(mix.class_index[mix.arrival_s >= made.warmup_s]).tolist(),
        *users.closed(made.workload),
    }
    for name in dict.fromkeys(limit.class_name for limit in made.limits):
        if (index := mix.classes.index(name)) not in judged:
            several = len(mix.classes) > 1
            raise InputError(
                scenario.line(
                    ("workload", "classes", index) if several else ("workload",),
                    f"has promises and no request to judge them by (got none of {name} from {made.warmup_s:g} to {made.duration_s:g} s); give a "
                    "longer simulation.horizon",
                )
            )


def _flat(arrivals: model.Arrivals | None) -> model.Arrivals | None:
    if not isinstance(arrivals, model.Profile):
        return arrivals
    return model.Profile(arrivals.inside, (float(np.mean(arrivals.factors)),), arrivals.slot_s)


def _notes(scenario: Asked, workload: model.Workload) -> tuple[str, ...]:
    """What the simulated engine does not do for this traffic."""
    found = []
    for index in users.closed(workload):
        each = workload.classes[index]
        loop = each.arrivals or workload.arrivals
        assert isinstance(loop, model.ClosedLoop)
        found.append(
            f"users of {each.name} wait for their answers: rates and utilisation are those of answers in {loop.mean_service_s:.3g} s, the "
            "slowest that keep the promises; faster ones make users send more, which the simulation has"
        )
    if any(c.shared_prefix is not None or c.sessions is not None for c in workload.classes):
        engines = scenario.candidates.engine if isinstance(scenario, Scenario) else ()
        if any(engine.caching is not None for engine in engines):
            found.append(
                "what a replica sustains is found without its sessions' histories, which all requests at once cannot have (cautious)"
                if any(c.sessions is not None for c in workload.classes)
                else "common beginnings of prompts are shared where a candidate caches prefixes, and computed each time elsewhere"
            )
        else:
            found.append(
                "common beginnings of prompts are computed each time: no candidate caches prefixes (cautious; engine.prefix_caching)"
            )
    if any(c.reasoning_tokens is not None for c in workload.classes):
        found.append(
            "TTFT is that of the first generated token, a reasoning token included; TTFVT is that of the first visible one"
        )
    clients = getattr(scenario.drawn, "clients", None)
    if clients is not None:
        found.append(
            f"who is refused or times out is sent again, up to {clients.retries} times: promises count each request once, by its last attempt, "
            "latency from the first"
        )
    return tuple(found)


def limits_of(scenario: Asked) -> tuple[Limit, ...]:
    """Every promise of every class, in the order of the spec."""
    found: list[Limit] = []
    for name, slo in scenario.slos().items():
        if slo is None:
            continue
        for promise in slo.promises():
            bound = (promise.metric, promise.limit_s, promise.per_prompt_token_s)
            found.append(Limit(name, promise.metric, promise.percentile, promise.fraction, (bound,)))
        if slo.attainment is not None:
            given = slo.attainment
            bounds = tuple(
                (metric, limit, 0.0)
                for metric, limit in (
                    ("ttft", given.ttft_s),
                    ("ttfvt", given.ttfvt_s),
                    ("tpot", given.tpot_s),
                    ("e2e", given.e2e_s),
                )
                if limit is not None
            )
            found.append(Limit(name, "attainment", f"{given.share:.2%}", given.share, bounds))
    return tuple(found)


@functools.singledispatch
def _period_s(arrivals: Any) -> float | None:
    return None


@_period_s.register
def _(arrivals: model.Recorded) -> float | None:
    return float(len(arrivals.counts))


@_period_s.register
def _(arrivals: model.Replay) -> float | None:
    return arrivals.period_s


@_period_s.register
def _(arrivals: model.Profile) -> float | None:
    return arrivals.slot_s * len(arrivals.factors)


def _recording_s(workload: model.Workload) -> float | None:
    periods = [_period_s(c.arrivals or workload.arrivals) for c in workload.classes]
    known = [p for p in periods if p is not None and math.isfinite(p)]
    return max(known) if known else None


def _is_replay(workload: model.Workload) -> bool:
    return all(isinstance(c.arrivals or workload.arrivals, model.Replay) for c in workload.classes)
