"""What a fleet is paid with and what it draws: commitments, power, ownership, and an API as the alternative."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from fleetplan.spec.base import (
    GramsPerKwh,
    Model,
    Name,
    NotNegative,
    Number,
    OpenShare,
    Seconds,
    Share,
    Text,
    TokenRate,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    UsdPerToken,
    fault,
    forms,
)
from fleetplan.spec.units import Quantity


class Terms(Model):
    """Prices of a commitment: a price list, or a discount on the one planned with."""

    prices: Text | None = None
    """A price list, as in `policy.prices`."""
    discount: OpenShare | None = None
    """Share off the price planned with."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.prices is None) == (self.discount is None):
            got = "neither" if self.prices is None else "both"
            raise fault(f"takes prices or discount (got {got}), give one, like {{discount: 0.4}}")
        return self


class Spot(Terms):
    """Prices of hours that the provider may take back, and how often that happens."""

    interruptions_per_day: Annotated[NotNegative, Field(le=1440)] = 0.0
    """How often what one replica runs on is taken back, a day."""
    restart_s: Seconds | None = None
    """Time until the replica serves again on other GPUs."""

    @model_validator(mode="after")
    def _restarts(self) -> Self:
        if (self.interruptions_per_day > 0) != (self.restart_s is not None):
            raise fault(
                "needs interruptions_per_day above 0 and a restart together, like {discount: 0.6, interruptions_per_day: 0.5, restart: 10 min}"
            )
        return self

    @property
    def away_share(self) -> float:
        """Share of the time that a spot replica is away: 1 − 1 / (1 + interruptions · restart)."""
        return 1 - 1 / (1 + self.interruptions_per_day / 86400 * (self.restart_s or 0.0))


class Commitments(Model):
    """How the hours of a fleet over time may be bought besides `policy.prices`: a reserved base, and spot on top."""

    reserved: Terms | None = None
    """Paid every hour, used or not."""
    spot: Spot | None = None
    """May be taken back by the provider."""
    spot_share: Share = 0.0
    """Most of what is above the reserved base that may be spot."""

    @model_validator(mode="after")
    def _used(self) -> Self:
        if self.reserved is None and self.spot is None:
            raise fault(
                "has no terms (got neither reserved nor spot), give one, like reserved: {discount: 0.4}"
            )
        if (self.spot is not None) != (self.spot_share > 0):
            raise fault(
                f"needs spot and a spot_share above 0 together (got a spot_share of {self.spot_share:g})",
                "spot" if self.spot is not None else "spot_share",
            )
        return self


class Power(Model):
    """Energy of the fleet."""

    pue: Annotated[Number, Field(ge=1, le=10)]
    """Power usage effectiveness: energy of the site over that of its computers."""
    host_w: Annotated[float, Quantity("power", zero=True)] = 0.0
    """Power of a GPU's share of the server around it (CPU, network, fans)."""
    electricity_usd_per_kwh: UsdPerKwh | None = None
    """Price of electricity, where it is owned."""
    carbon_g_per_kwh: GramsPerKwh | None = None
    """Carbon intensity of the grid."""


def _price(value: Any) -> str:
    return "kinds" if isinstance(value, dict) else "one"


GpuPrice: Any = forms(_price, one=Usd, kinds=dict[Text, Usd])


class Ownership(Model):
    """Buying the GPUs instead of renting them."""

    gpu_usd: GpuPrice
    """Price of one GPU with its share of server, network and storage; by GPU where kinds differ: {h100-sxm: 30000 USD, h200-sxm: 36000 USD}."""
    amortisation_s: Seconds
    """Time over which it is written off."""
    residual_share: Share = 0.0
    """Share of the price that is left at the end."""
    interest_per_year: Share = 0.0
    """Yearly interest on the capital: 0.08 is 8%."""
    colocation_per_kw_usd_per_hour: UsdPerHour | None = None
    """Rent of the place for each kW of the computers' rated power (TDP and host)."""
    staff_usd_per_hour: UsdPerHour | None = None
    """Staff for the whole fleet."""


class Tariff(Model):
    """Prices of an API, and how fast it says it is."""

    input_usd_per_token: UsdPerToken
    """Price of input tokens."""
    output_usd_per_token: UsdPerToken
    """Price of output tokens."""
    cached_input_usd_per_token: UsdPerToken | None = None
    """Price of input tokens that the provider has in its cache."""
    ttft_s: Seconds | None = None
    """Time to first token that it states; a promise below it is not kept."""
    speed_tokens_per_s: TokenRate | None = None
    """Output tokens a second of one request that it states; a promise of a shorter time per token is not kept."""


class Tier(Tariff):
    """A speed tier of the API with its own prices."""

    name: Name
    """Its name, like fast or flex."""


class Api(Tariff):
    """Prices of an API that serves the same model, as the alternative."""

    cached_share: Share | None = None
    """Share of input tokens that are cached; left out: the share of prompt tokens that lie in a shared prefix."""
    tiers: tuple[Tier, ...] = ()
    """Faster or slower tiers of the same API, each with prices of its own."""

    @model_validator(mode="after")
    def _cached(self) -> Self:
        tariffs: tuple[Tariff, ...] = (self, *self.tiers)
        if self.cached_share is not None and all(t.cached_input_usd_per_token is None for t in tariffs):
            raise fault(
                f"has no cached_input (got a cached_share of {self.cached_share:g}), add its price",
                "cached_share",
            )
        names = [tier.name for tier in self.tiers]
        for i, name in enumerate(names):
            if name in names[:i]:
                raise fault(
                    f"is the name of an earlier tier too (got {name}), names must differ", "tiers", i, "name"
                )
        return self
