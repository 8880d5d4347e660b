"""How careful a decision is, what it is paid with, what may fail, and how the fleet lives over time."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from fleetplan.spec.base import (
    Count,
    Degree,
    Many,
    ManyOrNone,
    Model,
    Number,
    OpenShare,
    Positive,
    PositiveShare,
    Seconds,
    SecondsOrZero,
    Text,
    TokenRate,
    Unknown,
    UsdPerHour,
    Whole,
    fault,
    forms,
)
from fleetplan.spec.paying import Api, Commitments, Ownership, Power
from fleetplan.spec.units import shown


def _low(value: float) -> float:
    if not 0 < value <= 1:
        raise fault(
            f"must be a factor above 0 and at most 1 (got {value:g}), like 0.8 for a fifth less than planned"
        )
    return value


def _high(value: float) -> float:
    if not 1 <= value <= 100:
        raise fault(
            f"must be a factor from 1 to 100 (got {value:g}), like 1.3 for three tenths more than planned"
        )
    return value


class Factors(Model):
    """Factors on a price between which it lies with 90%."""

    low: Annotated[
        Number, AfterValidator(_low), Field(json_schema_extra={"exclusiveMinimum": 0, "maximum": 1})
    ]
    """The 5th percentile over the price planned with."""
    high: Annotated[Number, AfterValidator(_high), Field(json_schema_extra={"minimum": 1, "maximum": 100})]
    """The 95th percentile over it."""


def _price_range(value: Any) -> str:
    if isinstance(value, str):
        if value != "observed":
            raise fault(f"is observed or a mapping (got {shown(value)}), like {{low: 0.8, high: 1.3}}")
        return "observed"
    return "factors"


PriceRange: Any = forms(_price_range, observed=Literal["observed"], factors=Factors)


class Uncertainty(Model):
    """What is not known when the count is decided; each is drawn anew, and the count searched for each draw."""

    rate_cv: Unknown = 0.0
    """Coefficient of variation of the rate forecast (lognormal)."""
    output_length_cv: Unknown = 0.0
    """Coefficient of variation of the mean output length (lognormal)."""
    prompt_length_cv: Unknown = 0.0
    """The same of the mean prompt length."""
    price_cv: Unknown | None = None
    """The same of the price of an hour of a GPU, about the planned one as its median, for each kind of GPU apart."""
    price_range: PriceRange | None = None
    """Instead: `observed`, the low and high of the price list, or {low: 0.8, high: 1.3}, factors on the price; the 5th and 95th percentiles."""
    spot_price_cv: Unknown | None = None
    """The same of the price of spot hours."""
    electricity_cv: Unknown | None = None
    """The same of the price of electricity."""
    step_time_cv: Unknown | None = None
    """The same of the step time; left out: the error band of the calibration, none where the spec gives the step time."""
    acceptance_cv: Unknown = 0.0
    """Coefficient of variation of the acceptance of drafts (lognormal, at most 1), where the chosen candidate speculates."""
    draws: Annotated[Whole, Field(le=10_000)] = 20
    """Monte Carlo draws; 0: no interval is computed."""
    level: OpenShare = 0.9
    """Level of the intervals on count and cost."""

    @model_validator(mode="after")
    def _one_price(self) -> Self:
        if self.price_cv is not None and self.price_range is not None:
            raise fault("takes price_cv or price_range (got both), give one", "price_range")
        return self


class Instance(Model):
    """What one kind of GPU is bought in."""

    gpu: Text
    """A GPU of the catalogue."""
    gpus: Degree
    """GPUs of one instance; all of them are paid, and a tensor-parallel group stays inside one."""
    price_usd_per_hour: UsdPerHour | None = None
    """Price of the whole instance; left out: its GPUs at the price list."""


class Availability(Model):
    """Spares by how often nodes fail: the least number with P(enough replicas are up) at the target."""

    target: OpenShare
    """Share of time that all replicas that must serve do."""
    failures_per_node_day: Annotated[Positive, Field(le=1440)]
    """Failures of one node a day."""
    repair_s: Seconds
    """Mean time until a failed node serves again."""


class Outages(Model):
    """Faults at the busiest time of the traffic that the decided fleet, spares included, is simulated through."""

    replicas: Many | None = None
    """This many replicas fail at once."""
    recovery_s: Seconds | None = None
    """Time until what failed serves again."""
    zones: Annotated[int, Field(ge=2, le=64)] | None = None
    """Replicas are spread evenly over this many zones; the largest one is lost."""
    rolling_restart_s: Seconds | None = None
    """One replica after the other is drained and away for this long."""
    buy_spares: bool = Field(False, strict=True)
    """Whether the fleet is bought with as many spares as keep every promise through all of these, N + k by simulation."""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        failing = self.replicas is not None or self.zones is not None
        if failing and self.recovery_s is None:
            raise fault("has no recovery (got replicas or zones that fail), add it, like recovery: 10 min")
        if not failing and self.recovery_s is not None:
            raise fault(
                "has a recovery of nothing (got neither replicas nor zones), say what fails", "recovery"
            )
        if not failing and self.rolling_restart_s is None:
            raise fault("says nothing that happens (got none of replicas, zones, rolling_restart), give one")
        return self


class Autoscaling(Model):
    """The fleet follows the profile of the traffic, slot by slot."""

    start_up_s: SecondsOrZero
    """Time from asking for a replica until it serves; it is asked for, and paid, that long ahead."""
    hold_s: SecondsOrZero = 0.0
    """Time that a replica is kept when it is not needed any more."""
    minimum: Many = 1
    """Replicas that always serve."""


class Growth(Model):
    """Growth of all traffic, month by month from the planned one."""

    per_month: Annotated[Number, Field(gt=0, le=10)]
    """0.1: a tenth more every month."""
    months: Annotated[Count, Field(le=120)] = 12
    """Months to look ahead."""


def _unit(value: Any) -> str:
    if isinstance(value, str):
        if value != "node":
            raise fault(f"is a whole number of GPUs or `node` (got {shown(value)}), write it like 8")
        return "node"
    return "number"


BuyUnit: Any = forms(_unit, number=Degree, node=Literal["node"])


def _stock(value: Any) -> str:
    return "regions" if isinstance(value, dict) else "number"


Stock: Any = forms(_stock, number=ManyOrNone, regions=dict[Text, ManyOrNone])


class Policy(Model):
    """How careful the decision is, and what it is paid with."""

    prices: Text
    """A price list of data/prices.yaml by name, or `file.yaml#name` for a list of your own, from the spec's folder."""
    max_utilisation: PositiveShare = 0.8
    """Cap on offered rate over sustainable rate."""
    spare_replicas: ManyOrNone = 0
    """Replicas bought on top of those that serve; `availability` may ask for more."""
    confidence: OpenShare = 0.95
    """Level at which a simulated promise counts as met."""
    max_replicas: Many = 4096
    """No fleet above this is tried."""
    uncertainty: Uncertainty = Uncertainty()
    """What is not known, for the interval on the count."""
    buy_unit: BuyUnit = 1
    """GPUs bought at a time; `node`: those of the GPU's usual node. Above 1 a replica does not straddle two of them."""
    instances: tuple[Instance, ...] = ()
    """By GPU, what it is bought in and what that costs; goes before `buy_unit`."""
    max_cost_usd_per_hour: UsdPerHour | None = None
    """Most that the fleet may cost; if the cheapest one that keeps every promise is dearer, the answer is infeasible, and by how much."""
    throughput_tokens_per_s: TokenRate | None = None
    """Output tokens per second that the serving replicas must be able to make when they always have work."""
    stock: dict[Text, Stock] | None = None
    """Most GPUs that can be had, by GPU, or by GPU and region: a replica lies within one. Of those not named as many as wanted."""
    availability: Availability | None = None
    """How often nodes fail, for the number of spares."""
    outages: Outages | None = None
    """Faults that the decided fleet is simulated through."""
    autoscaling: Autoscaling | None = None
    """A fleet that follows the profile of day or week, against one that stays."""
    commitments: Commitments | None = None
    """Reserved, on-demand and spot hours of the fleet over time."""
    growth: Growth | None = None
    """How the traffic grows, and when the next GPU is needed."""
    power: Power | None = None
    """Energy and carbon."""
    ownership: Ownership | None = None
    """Owning against renting."""
    api: Api | None = None
    """An API against the fleet."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        if self.ownership is not None and (self.power is None or self.power.electricity_usd_per_kwh is None):
            raise fault(
                "has an ownership without a price of electricity, add power: {pue: …, electricity: …}",
                "ownership",
            )
        if self.commitments is not None and self.autoscaling is None:
            raise fault(
                "has commitments without autoscaling, whose hours they buy; add autoscaling, or drop them",
                "commitments",
            )
        return self

    def price_lists(self) -> dict[tuple[str, ...], str]:
        """Every price list that is named, by its path in the scenario."""
        found: dict[tuple[str, ...], str] = {("policy", "prices"): self.prices}
        for kind in ("reserved", "spot"):
            terms = getattr(self.commitments, kind, None)
            if terms is not None and terms.prices is not None:
                found["policy", "commitments", kind, "prices"] = terms.prices
        return found
