"""Money and power: owning, renting by commitment, an API and where it breaks even, energy and carbon."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing.counting import ceil_ratio
from fleetplan.spec.paying import Ownership, Tariff
from fleetplan.traffic.requests import Requests

Floats = NDArray[np.float64]

IDLE_SHARE, BUSY_SHARE = 0.43, 0.43
"""Of the thermal design power: what a GPU draws idle with a model loaded, and what full activity adds; a linear fit to the ML.ENERGY
measurements of inference, as public fleet simulators use it."""
OWNED_HOURS_PER_YEAR = 8760.0
"""Hours of the year in which amortisation is written."""


def power_w(tdp_w: float, on_gpus: float, busy_gpus: float, host_w: float, pue: float) -> float:
    """Mean power of a fleet [W]: PUE · (on · (TDP · 0.43 + host) + busy · TDP · 0.43).

    `on_gpus` are switched on, spares too; `busy_gpus` is activity times the GPUs that serve, the activity being the offered over the sustainable
    rate: P = TDP · (0.43 + 0.43 · activity) for each GPU that serves.

    >>> power_w(700.0, 8, 8 * 0.5, 100.0, 1.2)
    5294.4
    """
    return round(pue * (on_gpus * (tdp_w * IDLE_SHARE + host_w) + busy_gpus * tdp_w * BUSY_SHARE), 9)


def wh_per_million(watts: float, tokens_per_s: float) -> float:
    """Energy of 10^6 tokens [Wh]: W / (3600 · tokens/s) · 10^6.

    >>> wh_per_million(3600.0, 1000.0)
    1000.0
    """
    return watts / (3600 * tokens_per_s) * 1e6


def capital_usd_per_hour(given: Ownership, gpu_usd: float) -> float:
    """What one GPU's price costs an hour: the annuity of the price less what is left of it at the end.

    (price − residual / (1 + i)^n) · i / (1 − (1 + i)^−n) a year over n years at interest i; without interest (price − residual) / hours.

    >>> capital_usd_per_hour(Ownership(gpu="35040 USD", amortisation="4 year"), 35040.0)
    1.0
    """
    hours = given.amortisation_s / 3600
    left = gpu_usd * given.residual_share
    rate = given.interest_per_year
    if rate == 0:
        return (gpu_usd - left) / hours
    years = hours / OWNED_HOURS_PER_YEAR
    yearly = (gpu_usd - left * (1 + rate) ** -years) * rate / (1 - (1 + rate) ** -years)
    return float(yearly / OWNED_HOURS_PER_YEAR)


@dataclass(frozen=True)
class Owned:
    """GPUs of one kind that are bought."""

    gpus: int
    gpu_usd: float
    """Of one, with its share of server, network and storage."""
    tdp_w: float


def owned_usd_per_hour(
    given: Ownership, kinds: Sequence[Owned], host_w: float, watts: float, usd_per_kwh: float
) -> float:
    """USD/h of owning: capital, electricity at the mean power, the place by rated kW, and staff."""
    rent = given.colocation_per_kw_usd_per_hour or 0.0
    place = sum(rent * kind.gpus * (kind.tdp_w + host_w) / 1000 for kind in kinds)
    capital = sum(kind.gpus * capital_usd_per_hour(given, kind.gpu_usd) for kind in kinds)
    return capital + watts / 1000 * usd_per_kwh + place + (given.staff_usd_per_hour or 0.0)


def cached_share(given: Tariff, share: float | None, mix: Requests) -> float:
    """Share of input tokens at the price of cached ones: as given, else what lies in shared prefixes; 0 where no such price is given."""
    if given.cached_input_usd_per_token is None:
        return 0.0
    if share is not None:
        return share
    shared = np.where(mix.prefix_id >= 0, mix.prefix_tokens, 0).sum()
    return float(shared / mix.prompt_tokens.sum())


def api_usd_per_request(given: Tariff, prompt_tokens: float, output_tokens: float, cached: float) -> float:
    """USD of a mean request at the API; reasoning tokens are paid as output.

    >>> api = Tariff(input="1 USD/Mtoken", output="4 USD/Mtoken", cached_input="0.5 USD/Mtoken")
    >>> round(api_usd_per_request(api, 1000, 250, 0.5), 9)
    0.00175
    """
    cached_usd = given.cached_input_usd_per_token or 0.0
    input_usd = (1 - cached) * given.input_usd_per_token + cached * cached_usd
    return prompt_tokens * input_usd + output_tokens * given.output_usd_per_token


def break_even_per_s(usd_per_hour: float, usd_per_request: float) -> float:
    """Requests/s from which a fleet at this cost is cheaper than an API: USD/h / (3600 · USD/request).

    >>> break_even_per_s(7.2, 0.002)
    1.0
    """
    return usd_per_hour / (3600 * usd_per_request)


@dataclass(frozen=True)
class Mix:
    """Hours of a fleet by terms; GPU figures are means over the period."""

    reserved_gpus: int
    """Paid all the time."""
    flexible_gpus: float
    """GPUs above the base that are paid by the hour, spot or on demand, on average."""
    usd_per_hour: float


def cheapest_mix(
    block_gpus: Floats, paid_shares: Floats, reserved_usd: float | None, flexible_usd: float
) -> Mix:
    """The cheapest reserved base: a block of GPUs that is paid a share f of the time is reserved where reserved < f · flexible.

    Exact, since a fleet over time is a stack of blocks that are each paid for or not. Prices in USD/h a GPU.

    >>> cheapest_mix(np.array([8.0, 8.0]), np.array([1.0, 0.25]), 2.0, 3.0)
    Mix(reserved_gpus=8, flexible_gpus=2.0, usd_per_hour=22.0)
    """
    reserve = np.zeros(len(block_gpus), dtype=bool)
    if reserved_usd is not None:
        reserve = reserved_usd < paid_shares * flexible_usd * (1 - 1e-12)
    base = float(block_gpus[reserve].sum())
    above = float((block_gpus * paid_shares)[~reserve].sum())
    return Mix(round(base), above, base * (reserved_usd or 0.0) + above * flexible_usd)


@dataclass(frozen=True)
class Overflow:
    """Replicas of one's own, and the share of requests that goes to an API."""

    replicas: int
    api_share: float
    usd_per_hour: float


def cheapest_overflow(
    load_replicas: Floats,
    rate_per_s: Floats,
    max_utilisation: float,
    usd_per_hour_of: Floats,
    usd_per_request: float,
) -> Overflow:
    """The cheapest count of replicas that always run when an API takes, slot by slot, what is above max_utilisation of them.

    `usd_per_hour_of[n]` is the cost of n replicas, from 0 on; it is tried to the count that holds the fullest slot, at most to the last given.
    """
    fullest = ceil_ratio(float(load_replicas.max()), max_utilisation)
    best: Overflow | None = None
    for replicas in range(min(fullest, len(usd_per_hour_of) - 1) + 1):
        with np.errstate(divide="ignore", invalid="ignore"):
            over = np.maximum(load_replicas - replicas * max_utilisation, 0.0) / load_replicas
        over = np.where(load_replicas > 0, over, 0.0)
        away = float((over * rate_per_s).mean())
        usd = float(usd_per_hour_of[replicas]) + away * 3600 * usd_per_request
        if best is None or usd < best.usd_per_hour * (1 - 1e-12):
            best = Overflow(replicas, away / float(rate_per_s.mean()), usd)
    assert best is not None
    return best
