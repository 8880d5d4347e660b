"""The promises of a class: percentiles of latency, and the share of requests that meets all of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, model_validator

from fleetplan.spec.base import Model, PositiveShare, Seconds, SecondsOrZero, fault, forms
from fleetplan.spec.percentiles import OpenPercentile, fraction
from fleetplan.spec.units import Quantity, shown

METRICS = ("ttft", "ttfvt", "tpot", "itl", "e2e")


@dataclass(frozen=True)
class Promise:
    """One promise: at least `fraction` of the requests have `metric` ≤ limit_s + per_prompt_token_s · prompt tokens."""

    metric: str
    """ttft, ttfvt, tpot, itl or e2e."""
    percentile: str
    """As written: p99, p99.9."""
    fraction: float
    """0.99 for p99."""
    limit_s: float
    """Limit [s], or its constant part."""
    per_prompt_token_s: float = 0.0
    """Growth of the limit with the prompt [s/token]."""

    @property
    def name(self) -> str:
        """`ttft_p99`."""
        return f"{self.metric}_{self.percentile}"


class GrowingLimit(Model):
    """A limit that grows with the prompt's length."""

    base_s: SecondsOrZero
    """Limit of an empty prompt."""
    per_prompt_token_s: Annotated[float, Quantity("time per token")]
    """What each prompt token adds, like '0.2 ms/token'."""


def _limit(value: Any) -> str:
    if isinstance(value, dict):
        return "growing"
    return "growing" if isinstance(value, GrowingLimit) else "constant"


if TYPE_CHECKING:
    Limit = float | GrowingLimit
else:
    Limit = forms(_limit, constant=Seconds, growing=GrowingLimit)


def _rising(limits: dict[str, Any]) -> dict[str, Any]:
    if not limits:
        raise fault("is empty (got no percentile), write it like {p99: 1 s}")
    ordered = dict(sorted(limits.items(), key=lambda item: fraction(item[0])))
    constants = [(key, value) for key, value in ordered.items() if isinstance(value, float)]
    for (low, a), (high, b) in pairwise(constants):
        if a > b:
            raise fault(
                f"promises less time at {high} than at {low} (got {b:g} s and {a:g} s), give {high} ≥ {low}",
                high,
            )
    return ordered


def _mapping(value: Any) -> str:
    if not isinstance(value, dict):
        raise fault(f"must be a mapping of percentiles (got {shown(value)}), write it like {{p99: 1 s}}")
    return "limits"


if TYPE_CHECKING:
    GrowingLimits = dict[str, Limit]
    Limits = dict[str, float]
else:
    GrowingLimits = forms(_mapping, limits=Annotated[dict[OpenPercentile, Limit], AfterValidator(_rising)])
    Limits = forms(_mapping, limits=Annotated[dict[OpenPercentile, Seconds], AfterValidator(_rising)])


class Attainment(Model):
    """The share of the class's requests that meet all of these limits at once."""

    share: PositiveShare
    """Share of the requests, like 0.95."""
    ttft_s: Seconds | None = None
    """Limit of a request's time to first token."""
    ttfvt_s: Seconds | None = None
    """Limit of a request's time to first visible token."""
    tpot_s: Seconds | None = None
    """Limit of a request's time per output token."""
    e2e_s: Seconds | None = None
    """Limit of a request's time from arrival to last token."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.ttft_s is None and self.ttfvt_s is None and self.tpot_s is None and self.e2e_s is None:
            raise fault("has no limit (got only share), give one or more of ttft, ttfvt, tpot, e2e")
        return self


class Slo(Model):
    """Latency promises; every one must hold, rejected and timed-out requests counted as misses."""

    ttft_s: GrowingLimits | None = None
    """Time to first token, by percentile of the requests; a limit may grow with the prompt: {base: 300 ms, per_prompt_token: 0.2 ms/token}."""
    ttfvt_s: GrowingLimits | None = None
    """Time to first visible token, after those that `reasoning_tokens` hides, by percentile of the requests that show one."""
    tpot_s: Limits | None = None
    """Time per output token, (finish − first token)/(output − 1), by percentile of the requests."""
    itl_s: Limits | None = None
    """Gaps between tokens, pooled over the requests, by percentile of the gaps."""
    e2e_s: Limits | None = None
    """Arrival to last token, by percentile of the requests."""
    attainment: Attainment | None = None
    """Share of the requests that meet several limits at once."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.promises() and self.attainment is None:
            raise fault(
                "promises nothing (got an empty mapping), give one of ttft, ttfvt, tpot, itl, e2e, attainment"
            )
        return self

    def promises(self) -> tuple[Promise, ...]:
        """All percentile promises, in the order ttft, ttfvt, tpot, itl, e2e and by rising percentile."""
        found = []
        for metric in METRICS:
            for key, limit in (getattr(self, f"{metric}_s") or {}).items():
                if isinstance(limit, GrowingLimit):
                    found.append(Promise(metric, key, fraction(key), limit.base_s, limit.per_prompt_token_s))
                else:
                    found.append(Promise(metric, key, fraction(key), limit))
        return tuple(found)
