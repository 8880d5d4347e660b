"""What a simulation gives: one flat record a request, gaps between tokens, steps; and its summary by class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.handoff import Handoff
from fleetplan.engine.histogram import Histogram
from fleetplan.engine.outcome import FINISHED, OUTCOMES, REJECTED, TIMED_OUT, UNFINISHED
from fleetplan.errors import InputError
from fleetplan.traffic.requests import Requests

Floats = NDArray[np.float64]
_BY_REQUEST = (
    "arrival_s", "first_scheduled_s", "first_token_s", "finish_s", "preemptions", "replica", "outcome", "reason",
    "visible_s", "restarts", "prefix_hit_tokens", "attempts", "refusals",
)  # fmt: skip
"""Arrays of a result with an entry a request."""
METRICS = ("ttft", "ttfvt", "tpot", "itl", "e2e")


@dataclass(frozen=True)
class Promise:
    """`percentile` percent of a class's requests have `metric` at most `at_most_s`."""

    metric: str
    """One of METRICS."""
    percentile: float
    """In (0, 100]."""
    at_most_s: float

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise InputError(f"promise: unknown metric (got {self.metric!r}), known: {', '.join(METRICS)}")
        if not 0 < self.percentile <= 100 or not self.at_most_s > 0:
            raise InputError(
                f"promise: percentile must be in (0, 100] and at_most_s above 0 (got {self.percentile}, {self.at_most_s})"
            )


@dataclass(frozen=True, eq=False)
class Stability:
    """Whether the backlog was still growing when arrivals ended."""

    stable: bool
    """True too where it cannot be judged; see `judged`."""
    backlog_slope_per_s: float
    """Slope of the number waiting over the last three quarters of the arrivals' span [requests/s]."""
    standard_error_per_s: float
    arrival_rate_per_s: float
    verdict: str
    """One sentence."""
    judged: bool = True
    """Whether there were arrivals enough to judge by."""


@dataclass(frozen=True, eq=False)
class Series:
    """State of the fleet at the times 0, resolution, 2·resolution …; every array has one entry a time."""

    time_s: Floats
    running: NDArray[np.int64]
    """Sequences that hold a slot of a step under way."""
    waiting: NDArray[np.int64]
    """Requests that have arrived, are not over and do not run."""
    kv_blocks: NDArray[np.int64]
    """Blocks held; 0 where no pool was given."""
    output_tokens: NDArray[np.int64]
    """Tokens emitted since the time before."""


@dataclass(frozen=True, eq=False)
class Result:
    """One simulation; arrays are in the order of `requests` and NaN where the thing did not happen."""

    requests: Requests
    arrival_s: Floats
    """When each request first arrived [s]: `requests.arrival_s`, but for later turns and closed loops. Every latency counts from here,
    whatever attempt was answered."""
    first_scheduled_s: Floats
    """Of the last attempt."""
    first_token_s: Floats
    finish_s: Floats
    """Last token; of a timed-out request, when it gave up [s]."""
    preemptions: NDArray[np.int32]
    replica: NDArray[np.int32]
    """Replica that served it last; −1: none."""
    outcome: NDArray[np.int8]
    """Code of OUTCOMES."""
    reason: NDArray[np.int8]
    """Code of REASONS, for rejected requests."""
    steps: int
    """Steps of all replicas together."""
    busy_s: Floats
    """Time that each replica spent in steps [s]; shape (replicas,)."""
    itl: tuple[Histogram, ...]
    """Gaps between a request's tokens, one histogram a class."""
    series: Series | None = None
    """None where no resolution was given."""
    visible_s: Floats | None = None
    """First visible token [s], NaN where a request hides all of its tokens; None where no request hides any."""
    restarts: NDArray[np.int32] | None = None
    """How often each request was lost with its replica and began anew; None where no outage was given."""
    handoff: Handoff | None = None
    """Replica and time of each stage where prefill and decode are pools of their own; None elsewhere."""
    prefix_hit_tokens: NDArray[np.int32] | None = None
    """Prompt tokens that each request found cached when it was first admitted; None without a prefix cache."""
    attempts: NDArray[np.int32] | None = None
    """How often each request was sent: 0 where it never arrived; None without retries. One that waits to be sent again is unfinished."""
    refusals: NDArray[np.int32] | None = None
    """How many of its attempts were refused on arrival; None without retries."""

    @property
    def ttft_s(self) -> Floats:
        """Arrival to first token [s]; inf for a request that was rejected or gave up, NaN for an unfinished one."""
        return self._missed(self.first_token_s - self.arrival_s)

    @property
    def first_visible_s(self) -> Floats:
        """When the first visible token came out [s]: the first token where a request hides none."""
        if self.visible_s is None:
            return self.first_token_s
        return np.where(self.requests.hidden_tokens == 0, self.first_token_s, self.visible_s)

    @property
    def all_hidden(self) -> NDArray[np.bool_]:
        """Requests whose every token is hidden: they have no first visible one."""
        return self.requests.hidden_tokens >= self.requests.output_tokens

    @property
    def ttfvt_s(self) -> Floats:
        """Arrival to first visible token [s]; NaN where all are hidden and it finished; else inf and NaN as in `ttft_s`."""
        return self._missed(self.first_visible_s - self.arrival_s)

    @property
    def tpot_s(self) -> Floats:
        """(finish − first)/(G − 1) [s]; NaN for G = 1; inf and NaN as in `ttft_s`."""
        gaps = self.requests.output_tokens - 1
        value = (self.finish_s - self.first_token_s) / np.where(gaps > 0, gaps, np.nan)
        return np.where(gaps > 0, self._missed(value), np.nan)

    @property
    def e2e_s(self) -> Floats:
        """Arrival to last token [s]; inf and NaN as in `ttft_s`."""
        return self._missed(self.finish_s - self.arrival_s)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> Result:
        """The result of these requests alone; what is not kept by request (gaps, steps, series) stays that of all."""
        found = {name: getattr(self, name) for name in _BY_REQUEST}
        kept = {name: value[rows] for name, value in found.items() if value is not None}
        return replace(self, requests=self.requests.take(rows), handoff=None, **kept)

    def gaps(self, index: int, unfinished: bool = False) -> Histogram:
        """Gaps between tokens of a class, with an infinite one for each that a rejected or timed-out request should have had, and at least one.

        `unfinished`: unfinished requests are missed too.
        """
        lost = (
            (self.outcome == REJECTED)
            | (self.outcome == TIMED_OUT)
            | (unfinished & (self.outcome == UNFINISHED))
        )
        lost &= self.requests.class_index == index
        owed = np.maximum(self.requests.output_tokens[lost] - 1, 1) * self.requests.answers[lost]
        served = self.itl[index]
        if not lost.any():
            return served
        return Histogram(np.append(served.value_s, np.inf), np.append(served.weight, float(owed.sum())))

    @property
    def makespan_s(self) -> float | None:
        """From time 0 to the last finish [s]; None when nothing finished."""
        done = self.finish_s[self.outcome == FINISHED]
        return float(done.max()) if len(done) else None

    def summary(
        self,
        promises: Mapping[str, Sequence[Promise]] | None = None,
        warmup_s: float = 0.0,
        until_s: float = np.inf,
        percentiles: Sequence[float] = (50, 90, 95, 99),
    ) -> dict[str, Any]:
        """Counts, latencies, throughput, attainment and stability of requests that arrive in [warmup_s, until_s).

        Percentiles are nearest rank over finished requests with rejected and timed-out ones as inf (told as None with
        a reason: "unbounded"); means are over finished ones. Attainment is the share of requests of classes that have
        promises which meet all of theirs; goodput is their rate over the span of arrivals. Raises InputError for
        promises of an unknown class.
        """
        from fleetplan.engine.summary import summarise

        return summarise(self, promises or {}, warmup_s, until_s, tuple(percentiles))

    def stability(self, warmup_s: float = 0.0) -> Stability:
        """Whether the queue still grew at the end of the arrivals; see `fleetplan.engine.summary.stability`."""
        from fleetplan.engine.summary import stability

        return stability(self, warmup_s)

    def counts(self, rows: NDArray[np.bool_] | slice = slice(None)) -> dict[str, int]:
        """Requests, and how many of them ended in each way."""
        outcome = self.outcome[rows]
        return {
            "requests": len(outcome),
            **{OUTCOMES[k]: int((outcome == k).sum()) for k in (FINISHED, REJECTED, TIMED_OUT, UNFINISHED)},
        }

    def _missed(self, value: Floats) -> Floats:
        missed = (self.outcome == REJECTED) | (self.outcome == TIMED_OUT)
        return np.where(missed, np.inf, np.where(self.outcome == FINISHED, value, np.nan))
