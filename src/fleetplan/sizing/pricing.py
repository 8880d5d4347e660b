"""Prices that are not known: drawn about those that are planned with, for each kind of GPU apart."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.prices import PriceList
from fleetplan.spec.policy import Policy

Floats = NDArray[np.float64]

PRICE_DRAWS = 1000
"""Draws of each price."""
NORMAL_95 = 1.6448536269514722
"""The standard normal's 95th percentile."""


@dataclass(frozen=True)
class Spread:
    """A price's factor exp(z · s) about its median, z standard normal, with a log standard deviation on either side."""

    below: float
    above: float

    def factors(self, normal: Floats) -> Floats:
        """Factors on the price, one for each z.

        >>> Spread(0.1, 0.2).factors(np.array([-1.0, 0.0, 1.0])).round(4).tolist()
        [0.9048, 1.0, 1.2214]
        """
        return np.exp(normal * np.where(normal < 0, self.below, self.above))


def asked(policy: Policy) -> bool:
    """Whether any price is said not to be known."""
    given = policy.uncertainty
    return any((given.price_cv, given.price_range, given.spot_price_cv, given.electricity_cv))


def of_cv(cv: float | None) -> Spread:
    """The lognormal of this coefficient of variation, its median at the price: s² = ln(1 + CV²)."""
    sigma = math.sqrt(math.log1p((cv or 0.0) ** 2))
    return Spread(sigma, sigma)


def of_gpu(policy: Policy, gpu: str, sheet: PriceList) -> Spread:
    """Of a kind of GPU: by price_cv, by factors, or by the low and high that its price list has (none there: no spread)."""
    given = policy.uncertainty
    if given.price_range is None:
        return of_cv(given.price_cv)
    if given.price_range == "observed":
        price = sheet.of(gpu)
        if price is None:
            return Spread(0.0, 0.0)
        low, high = (price.low or price.median) / price.median, (price.high or price.median) / price.median
    else:
        low, high = given.price_range.low, given.price_range.high
    return Spread(max(-math.log(low), 0.0) / NORMAL_95, max(math.log(high), 0.0) / NORMAL_95)


def drawn(seed: int, what: str, spread: Spread) -> Floats:
    """PRICE_DRAWS factors of one price; the same for the same seed and name, whatever else is drawn."""
    rng = np.random.default_rng(np.random.SeedSequence([seed, 0x9A1CE, zlib.crc32(what.encode())]))
    return spread.factors(rng.standard_normal(PRICE_DRAWS))


def words(policy: Policy) -> tuple[str, ...]:
    """What is drawn, as a report says it."""
    given, found = policy.uncertainty, []
    if given.price_range is not None:
        span = given.price_range
        found.append(
            "GPU prices (low and high of the price list as 5th and 95th percentile)"
            if span == "observed"
            else f"GPU prices ({span.low:g} to {span.high:g} of those planned with, 90%)"
        )
    for cv, what in (
        (given.price_cv, "GPU prices"),
        (given.spot_price_cv, "spot prices"),
        (given.electricity_cv, "price of electricity"),
    ):
        if cv:
            found.append(f"{what} (CV {cv:g})")
    return tuple(found)
