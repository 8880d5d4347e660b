"""Whether promises hold at a count: pooled over replications, with a stated level, decided as soon as it is clear."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fleetplan.engine.outcome import FINISHED, UNFINISHED
from fleetplan.engine.result import Result
from fleetplan.engine.summary import nearest_rank
from fleetplan.sizing.client import NO_CLIENT, ClientTime, in_flight

Floats = NDArray[np.float64]

GROWING_SHARE = 0.01
"""Of the requests of a run: a queue at its end is a growing one only where it holds more."""
PERCENTILES = {"ttft": (50, 95, 99), "ttfvt": (99,), "tpot": (50, 95, 99), "e2e": (50, 99)}
"""Percentiles of each latency that a verdict keeps, over all classes; of TTFVT where tokens are hidden."""
BATCHES = 16
"""Contiguous batches that one replication is cut into; their means give the standard error of a share."""


@dataclass(frozen=True)
class Limit:
    """One promise of one class: at least `share` of its requests (gaps, for ITL) meet every bound of `bounds`."""

    class_name: str
    metric: str
    """ttft, ttfvt, tpot, itl, e2e, or attainment."""
    percentile: str
    """As the spec has it, p99; for attainment the share in percent."""
    share: float
    bounds: tuple[tuple[str, float, float], ...]
    """(metric, limit [s], growth of the limit [s a prompt token])."""

    @property
    def name(self) -> str:
        """As reports show it.

        >>> Limit("chat", "ttft", "p99", 0.99, (("ttft", 1.0, 0.0),)).name
        'TTFT p99 of chat'
        """
        metric = self.metric.upper() if self.metric != "attainment" else "attainment"
        return f"{metric} {self.percentile} of {self.class_name}"

    @property
    def limit_s(self) -> float | None:
        """The one bound [s]; None where there are several or it grows with the prompt."""
        return self.bounds[0][1] if len(self.bounds) == 1 and self.bounds[0][2] == 0 else None


@dataclass(frozen=True)
class Looks:
    """When a sequential test looks at its replications, and how sure each look is."""

    at: tuple[int, ...]
    """Replications after which it looks; it ends with the last."""
    fewest: int
    """A pass is taken from this many replications on; a clear failure at any look."""
    level: float
    """Of one look: all looks that there may be share what the test may err (Bonferroni)."""

    @classmethod
    def fixed(cls, replications: int, level: float) -> Looks:
        """Just so many replications, fewer only where a failure is clear before.

        >>> Looks.fixed(2, 0.95)
        Looks(at=(1, 2), fewest=2, level=0.975)
        """
        return cls(tuple(range(1, replications + 1)), replications, round(1 - (1 - level) / replications, 12))


@dataclass(frozen=True, eq=False)
class Sample:
    """What one replication says of one limit."""

    count: int
    """Requests (gaps) that were judged."""
    met: float
    """How many met it."""
    batch_shares: Floats
    """Shares met of the batches, in order of arrival."""
    values_s: Floats
    """The values [s] of the limit's one metric, inf for misses; empty where there is no single value."""
    weights: Floats
    """Weight of each value."""


@dataclass(frozen=True)
class Outcome:
    """One limit over all replications."""

    limit: Limit
    requests: int
    met_share: float
    low_share: float
    """Lower end of the two-sided interval of the share, at the verdict's level."""
    high_share: float
    value_s: float | None
    """Nearest-rank percentile, pooled; None: unbounded, or no single value."""

    @property
    def holds(self) -> bool:
        """Whether the promised share is met, by the pooled share (so figure and verdict agree)."""
        return self.met_share >= self.limit.share * (1 - 1e-12)

    @property
    def decided(self) -> bool:
        """Whether the interval excludes the promised share, so that more replications would not change the verdict."""
        return self.low_share > self.limit.share or self.high_share < self.limit.share


@dataclass(frozen=True)
class Verdict:
    """All limits of all classes at one count."""

    replicas: int
    outcomes: tuple[Outcome, ...]
    utilisation: float
    """Offered rate over sustainable rate."""
    max_utilisation: float
    stable: bool
    replications: int
    exact: bool
    """The traffic is one recording, so that the verdict has no sampling noise."""
    preemptions_per_request: float
    output_tokens_per_s: float
    latencies_s: dict[str, float | None]
    """Nearest-rank percentiles over all classes, by name (`ttft_p99_s`), pooled over replications; None: unbounded."""

    shortfalls: tuple[str, ...] = ()
    """Promises about rates, not about latencies, that this count breaks: a throughput, a deadline."""
    attempts_per_request: float | None = None
    """Times that a request was sent, on average; None: clients send nothing again."""
    pools: tuple[int, ...] = ()
    """Replicas of each pool, where there are two."""

    @property
    def counted(self) -> str:
        """What was simulated, in words."""
        return counted(self.replicas, self.pools)

    @property
    def within_cap(self) -> bool:
        """Whether utilisation is at most its cap."""
        return self.utilisation <= self.max_utilisation * (1 + 1e-9)

    @property
    def passes(self) -> bool:
        """Whether every promise holds, the queue is stable and utilisation within its cap."""
        rates = self.within_cap and self.stable and not self.shortfalls
        return rates and all(outcome.holds for outcome in self.outcomes)

    @property
    def decided(self) -> bool:
        """Whether sampling noise cannot have made the verdict, at its level."""
        if self.exact or not self.within_cap or self.shortfalls:
            return True
        if not self.stable and all(outcome.holds for outcome in self.outcomes):
            return False  # every promise holds so far: whether the queue grows is for the other replications to say
        failed = [outcome for outcome in self.outcomes if not outcome.holds]
        if failed:
            return any(outcome.decided for outcome in failed)
        return all(outcome.decided for outcome in self.outcomes)

    @property
    def failures(self) -> tuple[str, ...]:
        """What fails, worst first, in words."""
        found = list(self.shortfalls)
        if not self.within_cap:
            found.append("utilisation cap" if self.utilisation < 1 else "saturated")
        elif not self.stable:
            found.append("queue grows")
        missed = sorted(
            (o for o in self.outcomes if not o.holds),
            key=lambda o: (1 - o.met_share) / (1 - o.limit.share + 1e-12),
        )
        found.extend(outcome.limit.name for outcome in reversed(missed))
        return tuple(found)


def counted(replicas: int, pools: tuple[int, ...] = ()) -> str:
    """So many replicas in words.

    >>> counted(1), counted(5, (3, 2))
    ('1 replica', '3 prefill and 2 decode replicas')
    """
    if pools:
        return f"{pools[0]} prefill and {pools[1]} decode replicas"
    return f"{replicas} replica{'' if replicas == 1 else 's'}"


def sample(result: Result, limit: Limit, warmup_s: float, client_s: ClientTime = NO_CLIENT) -> Sample:
    """Judge the requests of the limit's class that arrive from `warmup_s` on; rejected and timed-out ones are misses.

    `client_s` is the network's and the API's part of TTFT, TTFVT and E2E.
    """
    index = result.requests.classes.index(limit.class_name)
    if limit.metric == "itl":
        return _gaps(result, index, limit.bounds[0][1])
    rows = (result.requests.class_index == index) & (result.arrival_s >= warmup_s)
    finished = result.outcome[rows] == FINISHED
    # A one-token answer has no TPOT to break, one that hides every token no TTFVT.
    without = {"tpot": result.requests.output_tokens[rows] == 1, "ttfvt": result.all_hidden[rows]}
    judged = (
        ~(without[limit.metric] & finished) if limit.metric in without else np.ones(len(finished), dtype=bool)
    )
    ok = np.ones(int(rows.sum()), dtype=bool)
    value = np.full(int(rows.sum()), np.inf)
    for metric, bound_s, per_token_s in limit.bounds:
        value = getattr(result, f"{metric}_s")[rows]
        if metric != "tpot":
            value = value + client_s.of(result.requests.prompt_tokens[rows], in_flight(result))
        # An unfinished request has not kept its promise.
        free = without[metric] & finished if metric in without else np.zeros(len(finished), dtype=bool)
        value = np.where(np.isnan(value), np.where(free, 0.0, np.inf), value)
        ok &= value <= bound_s + per_token_s * result.requests.prompt_tokens[rows]
    ok = ok[judged]
    batches = np.array([part.mean() for part in np.array_split(ok, BATCHES) if len(part)])
    values = value[judged] if len(limit.bounds) == 1 else np.zeros(0)
    return Sample(len(ok), float(ok.sum()), batches, values, np.ones(len(values)))


def _gaps(result: Result, index: int, at_most_s: float) -> Sample:
    """The gaps between tokens of a class, with those that requests that were not finished should have had."""
    gaps = result.gaps(index, unfinished=True)
    met = float(gaps.weight[gaps.value_s <= at_most_s].sum())
    share = met / gaps.count if gaps.count else 1.0
    return Sample(int(gaps.count), met, np.array([share]), gaps.value_s, gaps.weight)


def pool(limit: Limit, samples: Sequence[Sample], level: float) -> Outcome:
    """One limit over replications: pooled share and its two-sided t-interval by batch means.

    From two replications on the variance is that of the same batch among replications, so that a course of the day that all of them
    follow is no noise; its error is √(Σ_b s_b² / r) / B with r replications of B batches, at B·(r − 1) degrees of freedom. The standard
    error is never taken below the binomial one at the promised share, so that a few batches without a miss do not look certain.
    """
    count = sum(s.count for s in samples)
    if not count:
        return Outcome(limit, 0, 1.0, 1.0, 1.0, None)
    share = sum(s.met for s in samples) / count
    error, freedom = _error(samples)
    if not freedom:
        low, high = 0.0, 1.0
    else:
        binomial = math.sqrt(limit.share * (1 - limit.share) / count)
        half = float(special.stdtrit(freedom, 0.5 + level / 2)) * max(error, binomial)
        low, high = share - half, share + half
    value = _percentile(samples, limit.share)
    return Outcome(
        limit, count, share, low, high, value if value is not None and math.isfinite(value) else None
    )


def _error(samples: Sequence[Sample]) -> tuple[float, int]:
    """(standard error of the pooled share, degrees of freedom); 0 of these: one batch tells nothing of its spread."""
    runs, sizes = len(samples), {len(s.batch_shares) for s in samples}
    if runs > 1 and len(sizes) == 1:
        shares = np.array([s.batch_shares for s in samples])
        spread = float(shares.var(axis=0, ddof=1).sum()) / runs
        return math.sqrt(spread) / shares.shape[1], shares.shape[1] * (runs - 1)
    shares = np.concatenate([s.batch_shares for s in samples])
    if len(shares) < 2:
        return 0.0, 0
    return float(shares.std(ddof=1)) / math.sqrt(len(shares)), len(shares) - 1


def judge(
    replicas: int,
    limits: Sequence[Limit],
    client_s: ClientTime,
    run: Callable[[int], tuple[Result, float]],
    *,
    utilisation: float,
    max_utilisation: float,
    looks: Looks,
    exact: bool,
    shortfalls: tuple[str, ...] = (),
) -> Verdict:
    """Run replications 0, 1, … until a look finds the verdict clear, or it was the last.

    `run` gives a replication's result and warm-up [s].
    """
    samples: list[list[Sample]] = [[] for _ in limits]
    stable: list[bool] = []
    preemptions, requests, rates, attempts = 0, 0, [], 0
    verdict = None
    values: dict[str, list[Floats]] = {metric: [] for metric in PERCENTILES}
    for replication in range(1 if exact else looks.at[-1]):
        result, warmup_s = run(replication)
        for kept, limit in zip(samples, limits, strict=True):
            kept.append(sample(result, limit, warmup_s, client_s))
        if not (result.requests.hidden_tokens > 0).any():
            values.pop("ttfvt", None)
        for metric, kept_values in values.items():
            kept_values.append(_values(result, metric, warmup_s, client_s))
        stable.append(not _queue_grows(result, warmup_s))
        preemptions += int(result.preemptions.sum())
        requests += len(result.requests)
        attempts += 0 if result.attempts is None else int(result.attempts.sum())
        finished = result.outcome == FINISHED
        rates.append(
            float(result.requests.generated_tokens[finished].sum()) / (result.makespan_s or math.inf)
        )
        if not exact and replication + 1 not in looks.at:
            continue
        verdict = Verdict(
            replicas,
            tuple(pool(limit, kept, looks.level) for limit, kept in zip(limits, samples, strict=True)),
            utilisation,
            max_utilisation,
            sum(stable) * 2 > len(stable),
            replication + 1,
            exact,
            preemptions / max(requests, 1),
            float(np.mean(rates)),
            {},
            shortfalls,
            attempts / max(requests, 1) if attempts else None,
        )
        if verdict.decided and (replication + 1 >= looks.fewest or not verdict.passes):
            break
    assert verdict is not None
    return replace(verdict, latencies_s=_latencies(values))


def _queue_grows(result: Result, warmup_s: float) -> bool:
    """Whether the backlog grew through the run and, at the end of the arrivals, at least 1% of the requests wait.

    The number in the system climbs in a burst or towards the peak of a day too; that is load, and no queue, as long as all are taken on.
    """
    if result.stability(warmup_s).stable:
        return False
    arrival = result.arrival_s
    known = np.isfinite(arrival)
    taken = np.where(
        np.isfinite(result.first_scheduled_s),
        result.first_scheduled_s,
        np.where(result.outcome == UNFINISHED, np.inf, arrival),
    )
    end = float(arrival[known].max())
    at = np.linspace(end - (end - warmup_s) / 16, end, 16)
    waiting = np.searchsorted(np.sort(arrival[known]), at, side="right") - np.searchsorted(
        np.sort(taken[known]), at, side="right"
    )
    return bool(waiting.mean() > GROWING_SHARE * (arrival[known] >= warmup_s).sum())


def _values(result: Result, metric: str, warmup_s: float, client_s: ClientTime) -> Floats:
    counted = result.arrival_s >= warmup_s
    values: Floats = getattr(result, f"{metric}_s")[counted]
    if metric != "tpot":
        values = values + client_s.of(result.requests.prompt_tokens[counted], in_flight(result))
    return values[~np.isnan(values)]


def _latencies(values: dict[str, list[Floats]]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for metric, parts in values.items():
        pooled = np.concatenate(parts)
        for percent in PERCENTILES[metric]:
            value = nearest_rank(pooled, percent)
            found[f"{metric}_p{percent}_s"] = value if value is not None and math.isfinite(value) else None
    return found


def _percentile(samples: Sequence[Sample], share: float) -> float | None:
    values = np.concatenate([s.values_s for s in samples])
    if not len(values):
        return None
    weights = np.concatenate([s.weights for s in samples])
    if (weights == 1).all():
        return nearest_rank(values, share * 100)
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(weights[order])
    rank = int(np.searchsorted(cumulative, share * cumulative[-1] * (1 - 1e-12)))
    return float(values[order][min(rank, len(values) - 1)])
