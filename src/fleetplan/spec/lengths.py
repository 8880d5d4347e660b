"""Prompt and output lengths as a user writes them: a number, or one distribution by its parameters or percentiles."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from fleetplan.spec.base import (
    Count,
    Exponent,
    MeanTokens,
    Model,
    NotEmpty,
    OpenShare,
    Positive,
    PositiveCv,
    PositiveShare,
    Tokens,
    fault,
    forms,
    one_key,
)
from fleetplan.spec.percentiles import Percentile, fraction
from fleetplan.spec.units import shown


class Bounds(Model):
    """Bounds that any distribution may have: what falls beyond is counted at the bound, as `max_tokens` does."""

    min: Tokens = 1
    """Smallest length [tokens]; draws below it become it."""
    max: Tokens | None = None
    """Largest length [tokens]; draws above it become it."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max is not None and self.max < self.min:
            raise fault(f"has max below min (got min {self.min}, max {self.max}), give max ≥ min", "max")
        return self


class UniformParameters(Model):
    """Every whole number from `min` to `max`, equally likely."""

    min: Tokens
    """Smallest length [tokens]."""
    max: Tokens
    """Largest length [tokens]."""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.max < self.min:
            raise fault(f"has max below min (got min {self.min}, max {self.max}), give max ≥ min", "max")
        return self


class Moments(Bounds):
    """Exactly two of these fix the distribution: a centre and a spread, or two percentiles."""

    mean: MeanTokens | None = None
    """Mean [tokens], before `min` and `max` cut."""
    sd: MeanTokens | None = None
    """Standard deviation [tokens]."""
    cv: PositiveCv | None = None
    """Coefficient of variation, sd/mean."""
    p50: MeanTokens | None = None
    """Median [tokens]."""
    p75: MeanTokens | None = None
    """75th percentile [tokens]."""
    p90: MeanTokens | None = None
    """90th percentile [tokens]."""
    p95: MeanTokens | None = None
    """95th percentile [tokens]."""
    p99: MeanTokens | None = None
    """99th percentile [tokens]."""
    p999: MeanTokens | None = Field(None, alias="p99.9")
    """99.9th percentile [tokens], written p99.9."""

    def given(self) -> dict[str, float]:
        """The two that were written, by name."""
        named = self.model_dump(exclude={"min", "max"}, exclude_none=True, by_alias=True)
        return {str(key): float(value) for key, value in named.items()}

    @model_validator(mode="after")
    def _two(self) -> Self:
        given = self.given()
        example = "like {mean: 1200, p99: 6000} or {mean: 1200, cv: 1.1}"
        if len(given) != 2:
            raise fault(
                f"takes exactly two of mean, sd, cv and the percentiles (got {', '.join(given) or 'none'}), {example}"
            )
        if not set(given) & {"mean", "p50", "p75", "p90", "p95", "p99", "p99.9"} or set(given) == {
            "sd",
            "cv",
        }:
            raise fault(f"has two spreads and no centre (got {', '.join(given)}), {example}")
        points = sorted((fraction(k), v, k) for k, v in given.items() if k.startswith("p"))
        if len(points) == 2 and points[0][1] >= points[1][1]:
            low, high = points
            raise fault(
                f"has percentiles that do not rise (got {low[2]} {low[1]:g}, {high[2]} {high[1]:g}), "
                f"give {high[2]} > {low[2]}",
                high[2],
            )
        if "mean" in given:
            for _, value, key in points:
                if key in ("p90", "p95", "p99", "p99.9") and value <= given["mean"]:
                    raise fault(
                        f"has {key} {value:g} at or below the mean {given['mean']:g}, give {key} > mean",
                        key,
                    )
        return self


class GeometricParameters(Bounds):
    """1, 2, 3, … with a constant chance of ending."""

    mean: Annotated[MeanTokens, Field(ge=1)]
    """Mean [tokens], before `max` cuts."""


class ParetoParameters(Bounds):
    """P(X > x) = (scale/x)^alpha for x ≥ scale: a heavy tail, so `max` is needed."""

    alpha: Annotated[Positive, Field(ge=0.1, le=1000)]
    """Tail exponent."""
    scale: MeanTokens
    """Least value of the uncut law [tokens]."""
    max: Tokens
    """Largest length [tokens]."""

    @model_validator(mode="after")
    def _above(self) -> Self:
        if self.scale > self.max:
            raise fault(
                f"has a scale above max (got scale {self.scale:g}, max {self.max}), so that all are max; give scale < max",
                "scale",
            )
        return self


class ZipfParameters(Model):
    """k = 1 … largest with chance ∝ k^−exponent, times `step` tokens."""

    exponent: Exponent
    """Exponent of the popularity."""
    largest: Annotated[Count, Field(le=10**7)]
    """Largest k."""
    step: Tokens = 1
    """Tokens a unit of k."""


class EosHazard(Model):
    """From this token on, each token ends the answer with this chance."""

    from_token: Tokens
    """First token that the chance holds for."""
    chance: PositiveShare
    """Chance that a token is the last."""


class StopsParameters(Model):
    """Output length from what ends an answer: end of sequence, a stop sequence or `max_tokens`, whichever is first."""

    eos: Annotated[tuple[EosHazard, ...], *NotEmpty]
    """End-of-sequence hazard by token; the first entry has from_token 1."""
    stop_chance: OpenShare | None = None
    """Chance per token that a stop sequence cuts the answer."""
    max_tokens: Tokens | None = None
    """Cap on the answer [tokens]."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        starts = [entry.from_token for entry in self.eos]
        if starts[0] != 1 or any(a >= b for a, b in pairwise(starts)):
            raise fault(f"needs eos entries that start at token 1 and rise (got from_token {starts})", "eos")
        return self


class Uniform(Model):
    """Uniform lengths."""

    uniform: UniformParameters
    """Smallest and largest."""


class Normal(Model):
    """Gaussian lengths, rounded and cut."""

    normal: Moments
    """Two of mean, sd, cv and percentiles."""


class LogNormal(Model):
    """Lognormal lengths, rounded."""

    lognormal: Moments
    """Two of mean, sd, cv and percentiles."""


class Gamma(Model):
    """Gamma lengths, rounded."""

    gamma: Moments
    """Two of mean, sd, cv and percentiles."""


class Geometric(Model):
    """Geometric lengths: a constant chance of ending at each token."""

    geometric: GeometricParameters
    """Its mean."""


class Pareto(Model):
    """Pareto lengths with a cap."""

    pareto: ParetoParameters
    """Exponent, scale and cap."""


class Zipf(Model):
    """Zipf lengths."""

    zipf: ZipfParameters
    """Exponent, range and step."""


def _rising_points(points: dict[str, float]) -> dict[str, float]:
    ordered = dict(sorted(points.items(), key=lambda item: fraction(item[0])))
    values = list(ordered.values())
    if "p0" not in ordered or "p100" not in ordered:
        raise fault(
            f"needs p0 and p100, the ends (got {', '.join(ordered) or 'none'}), like {{p0: 1, p50: 900, p100: 8000}}"
        )
    if any(a > b for a, b in pairwise(values)):
        raise fault(f"has lengths that fall while the percentile rises (got {ordered})")
    return ordered


class Quantiles(Model):
    """Lengths by their percentiles, straight in between."""

    quantiles: Annotated[dict[Percentile, MeanTokens], AfterValidator(_rising_points)]
    """Percentile to length [tokens], p0 and p100 among them."""


class Stops(Model):
    """Output lengths from stop conditions."""

    stops: StopsParameters
    """What ends an answer."""


_KINDS = {
    "uniform": Uniform,
    "normal": Normal,
    "lognormal": LogNormal,
    "gamma": Gamma,
    "geometric": Geometric,
    "pareto": Pareto,
    "zipf": Zipf,
    "quantiles": Quantiles,
    "stops": Stops,
}


def _which(value: Any) -> str:
    if isinstance(value, dict):
        return one_key("a length", tuple(_KINDS), ", or a number")(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "fixed"
    if isinstance(value, _LENGTHS):
        return type(value).__name__.lower()
    raise fault(
        f"must be a length in tokens (got {shown(value)}), a whole number like 512 or one of: {', '.join(_KINDS)}, "
        "like {lognormal: {mean: 1200, p99: 6000}}"
    )


_LENGTHS = tuple(_KINDS.values())
if TYPE_CHECKING:
    Length = int | Uniform | Normal | LogNormal | Gamma | Geometric | Pareto | Zipf | Quantiles | Stops
else:
    Length = forms(_which, fixed=Count, **_KINDS)
