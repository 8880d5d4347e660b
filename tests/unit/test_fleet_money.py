"""Owning, commitments, API and energy, against numbers worked by hand."""

import itertools

import numpy as np
import pytest

from fleetplan.sizing import money
from fleetplan.spec.paying import Api, Ownership
from fleetplan.traffic.requests import Requests

OWNED = {"gpu": "33000 USD", "amortisation": "4 year"}


def test_capital_with_interest_and_residual() -> None:
    # 1.07^-4 = 0.7628952; (33000 − 3300 · 0.7628952) / 3.3872113 = 8999.27 a year of 8760 h.
    given = Ownership.model_validate(OWNED | {"residual_share": 0.1, "interest_per_year": 0.07})
    assert money.capital_usd_per_hour(given, 33000.0) == pytest.approx(1.0273145, abs=1e-6)


def test_capital_without_interest_is_the_limit_of_little() -> None:
    plain = money.capital_usd_per_hour(Ownership.model_validate(OWNED | {"residual_share": 0.2}), 33000.0)
    little = money.capital_usd_per_hour(
        Ownership.model_validate(OWNED | {"residual_share": 0.2, "interest_per_year": 1e-9}), 33000.0
    )
    assert plain == pytest.approx(33000 * 0.8 / 35040)
    assert little == pytest.approx(plain, rel=1e-6)


def test_owning() -> None:
    given = Ownership.model_validate(
        {
            "gpu": "35040 USD",
            "amortisation": "4 year",
            "colocation_per_kw": "146 USD/month",
            "staff": "7 USD/h",
        }
    )
    # Capital 8 · 1, power 5 kW · 0.1, place 0.2 USD/kWh · 8 · 0.9 kW, staff 7.
    usd = money.owned_usd_per_hour(given, [money.Owned(8, 35040.0, 700.0)], 200.0, 5000.0, 0.1)
    assert usd == pytest.approx(8 + 0.5 + 1.44 + 7)


def test_power_of_idle_and_busy_gpus() -> None:
    assert money.power_w(700, on_gpus=1, busy_gpus=0, host_w=0, pue=1.0) == pytest.approx(301)
    assert money.power_w(700, on_gpus=1, busy_gpus=1, host_w=0, pue=1.0) == pytest.approx(602)
    assert money.power_w(1000, on_gpus=10, busy_gpus=4, host_w=100, pue=1.5) == pytest.approx(
        1.5 * (4300 + 1000 + 1720)
    )


def test_the_cached_share_of_the_traffic() -> None:
    mix = Requests.of([0.0, 1.0], [100, 300], 10, prefix_id=[0, -1], prefix_tokens=[80, 0])
    api = {"input": "1 USD/Mtoken", "output": "2 USD/Mtoken"}
    cached = api | {"cached_input": "0.1 USD/Mtoken"}
    assert money.cached_share(Api.model_validate(api), None, mix) == 0
    assert money.cached_share(Api.model_validate(cached), None, mix) == pytest.approx(0.2)
    assert money.cached_share(Api.model_validate(cached), 0.5, mix) == 0.5


def test_the_break_even_is_where_both_cost_the_same() -> None:
    per_request = money.api_usd_per_request(
        Api.model_validate({"input": "3 USD/Mtoken", "output": "6 USD/Mtoken"}), 1000, 500, 0.0
    )
    assert per_request == pytest.approx(0.006)
    rate = money.break_even_per_s(21.6, per_request)
    assert rate == pytest.approx(1.0)
    assert rate * 3600 * per_request == pytest.approx(21.6)


def test_the_cheapest_mix_against_every_subset() -> None:
    rng = np.random.default_rng(7)
    for _ in range(30):
        sizes = rng.integers(1, 9, 6).astype(float)
        shares = np.sort(rng.random(6))[::-1]
        reserved, flexible = rng.uniform(0.5, 2), 2.0
        found = money.cheapest_mix(sizes, shares, reserved, flexible)
        costs = [
            sum(s * (reserved if r else f * flexible) for s, f, r in zip(sizes, shares, chosen, strict=True))
            for chosen in itertools.product([True, False], repeat=6)
        ]
        assert found.usd_per_hour == pytest.approx(min(costs))


def test_overflow_to_an_api() -> None:
    loads, rates = np.array([0.4, 2.0]), np.array([10.0, 50.0])
    sizes = np.array([0.0, 1.0, 2.0, 3.0])
    # One replica carries 0.8: of the second slot 1.2/2 of 50 req/s overflows, 15 req/s on average.
    one = money.cheapest_overflow(loads, rates, 0.8, 10 * sizes[:2], 1e-3)
    assert (one.replicas, one.api_share) == (1, pytest.approx(0.5))
    assert one.usd_per_hour == pytest.approx(10 + 15 * 3.6)
    dear = money.cheapest_overflow(loads, rates, 0.8, 10 * sizes, 1.0)
    assert (dear.replicas, dear.api_share) == (3, 0.0)
    cheap = money.cheapest_overflow(loads, rates, 0.8, 10 * sizes, 1e-6)
    assert (cheap.replicas, cheap.api_share) == (0, 1.0)
