"""Closed forms at their edges: unstable without a number, special cases that must agree, strict inputs, endpoints, paging."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine
from fleetplan.queueing import (
    PriorityClass,
    erlang_b,
    ggc,
    loss_system,
    md1,
    mdc,
    mg1,
    mm1,
    mmc,
    mmc_abandon,
    mmck,
    priority_mg1,
)
from fleetplan.queueing.batching import batch_rates, continuous_batching
from fleetplan.queueing.capacity import (
    blocks,
    blocks_of_answers,
    blocks_with_prefix,
    concurrency,
    end_to_end_s,
    static_utilisation,
    static_utilisation_geometric,
)
from fleetplan.queueing.endpoint import size_endpoint
from fleetplan.queueing.result import strict

UNSTABLE = [
    mm1(50, 0.02),
    mm1(10, 0.1),
    mm1(60, 0.02),
    md1(50, 0.02),
    mg1(60, 0.02, 0.5),
    mmc(4, 1, 4),
    mdc(5, 1, 4),
    ggc(4, 1, 4, 2.0, 0.5),
    priority_mg1([PriorityClass(0.5, 1.0), PriorityClass(0.5, 1.0)])[1],
]


@pytest.mark.parametrize("result", UNSTABLE, ids=[f"{r.model} at {r.rho:g}" for r in UNSTABLE])
def test_unstable_is_a_word_never_a_number(result):
    assert not result.stable
    assert "unstable" in result.reason
    row = result.as_row()
    assert all(
        row[k] is None
        for k in row
        if k.endswith(("_mean_s", "_s", "_mean", "_share")) and k != "arrival_per_s"
    )
    assert result.sojourn_percentile_s(0.99) is None
    json.dumps(row, allow_nan=False)


@given(st.floats(0.01, 0.99), st.integers(1, 3000))
def test_many_servers_stay_finite_and_obey_little(rho, servers):
    result = mmc(rho * servers, 1.0, servers)
    assert 0 <= result.wait_probability <= 1
    assert result.in_system_mean == pytest.approx(rho * servers * result.sojourn_mean_s, rel=1e-9)
    p50, p99 = result.sojourn_percentile_s(0.5), result.sojourn_percentile_s(0.99)
    assert 0 < p50 < p99 < math.inf
    assert mmc(rho * servers, 1.0, servers + 1).wait_mean_s <= result.wait_mean_s


@given(st.floats(0.05, 4.0), st.integers(1, 40), st.integers(0, 200))
def test_finite_room_is_stable_at_any_load(load, servers, queue):
    result = mmck(load * servers, 1.0, servers, servers + queue)
    assert result.stable
    assert result.throughput_per_s == pytest.approx(load * servers * (1 - result.loss_share), rel=1e-9)
    assert result.sojourn_percentile_s(0.95) >= result.wait_percentile_s(0.95) - 1e-9


@pytest.mark.parametrize("rho", [0.3, 0.8, 0.95])
def test_special_cases_agree(rho):
    one = mm1(rho, 1.0)
    for other in (
        mmc(rho, 1.0, 1),
        mg1(rho, 1.0, 1.0),
        ggc(rho, 1.0, 1, 1.0, 1.0),
        mmck(rho, 1.0, 1, 3000),
        mmc_abandon(rho, 1.0, 1, 1e7),
    ):
        assert other.wait_mean_s == pytest.approx(one.wait_mean_s, rel=1e-4)
        assert other.wait_percentile_s(0.99) == pytest.approx(one.wait_percentile_s(0.99), rel=1e-3)
    assert mg1(rho, 1.0, 0.0).wait_mean_s == pytest.approx(md1(rho, 1.0).wait_mean_s)
    assert mdc(rho, 1.0, 1).wait_mean_s == pytest.approx(md1(rho, 1.0).wait_mean_s)
    (alone,) = priority_mg1([PriorityClass(rho, 1.0, 1.0)])
    assert alone.wait_mean_s == pytest.approx(one.wait_mean_s)


def test_erlang_b_far_over_load_and_with_thousands_of_servers():
    assert erlang_b(1e6, 10) == pytest.approx(1 - 10 / 1e6, rel=1e-4)
    assert erlang_b(10.0, 5000) == pytest.approx(0.0, abs=1e-300)
    assert loss_system(3.0, 1.0, 3).loss_share == pytest.approx(mmck(3.0, 1.0, 3, 3).loss_share)


def test_a_saturated_low_class_does_not_take_the_high_class_down():
    high, low = priority_mg1([PriorityClass(0.5, 1.0), PriorityClass(0.9, 1.0)])
    assert high.stable
    assert not low.stable
    assert high.wait_mean_s == pytest.approx((0.5 + 0.5) / 0.5)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: mm1(0, 1), "arrival_per_s: must be a finite number > 0"),
        (lambda: mm1(-5, 1), "got -5"),
        (lambda: mm1(math.nan, 1), "got nan"),
        (lambda: mm1(1, math.inf), "service_s"),
        (lambda: mmc(1, 1, 0), "servers: must be a whole number ≥ 1"),
        (lambda: mmc(1, 1, 2.5), "got 2.5"),
        (lambda: mmck(1, 1, 4, 3), "places: must be at least the number of servers"),
        (lambda: mg1(1, 0.1, -1), "service_cv"),
        (lambda: mm1(1, 0.1).wait_percentile_s(99), "strictly between 0 and 1"),
        (lambda: priority_mg1([]), "at least one class"),
        (lambda: continuous_batching(1, affine(0.01, 0, 0), 512, 256, kv_tokens=100), "one sequence"),
        (lambda: continuous_batching(1, affine(0.01, 0, 0), 512, 256, policy="static"), "policy"),
        (lambda: batch_rates(affine(0.01, 0, 0), 512, 0.5, 4), "at least 1 token"),
        (lambda: static_utilisation([], 4), "at least one length"),
        (lambda: blocks_with_prefix([10], 20), "at least as long"),
        (lambda: size_endpoint(10, 0.1, 1, percentile=100), "strictly between"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(InputError) as caught:
        call()
    assert says in str(caught.value)


def test_paging_and_sharing():
    assert blocks_of_answers(1000, 4, shared=False) == 252
    assert blocks_of_answers(1000, 4) == 63
    assert blocks_of_answers(1000, 4, 1) == 66
    assert blocks_of_answers(1008, 4, 1) == 67
    assert all(0 <= blocks(n) * 16 - n <= 15 for n in range(1, 200))


def test_static_batching_wastes():
    assert static_utilisation([10, 20, 50, 200], 4) == 0.35
    assert static_utilisation([7, 7, 7], 3) == 1
    assert static_utilisation_geometric(8) == pytest.approx(0.3679, abs=5e-5)
    assert static_utilisation_geometric(8, 1000) == pytest.approx(0.3679, rel=0.01)
    assert static_utilisation_geometric(1, 50) == pytest.approx(1)


def test_little_and_end_to_end():
    assert concurrency(10, 8.51) == pytest.approx(85.1)
    assert end_to_end_s(0.2, 1 / 50, 100) == pytest.approx(2.18)


def test_endpoints():
    size = size_endpoint(1000, 0.004, 0.02, service_cv=0, percentile=95)
    assert size.servers == 5
    tight = size_endpoint(1000, 0.004, 0.0045, service_cv=0, percentile=99, max_utilisation=1.0)
    assert tight.limit == "latency"
    assert tight.latency_s <= 0.0045
    assert tight.latency_one_less_s is None or tight.latency_one_less_s > 0.0045
    never = size_endpoint(1000, 0.004, 0.003, service_cv=0)
    assert never.servers is None
    assert never.limit.startswith("infeasible: the service alone")


def test_exponential_endpoint_agrees_with_the_exact_law():
    size = size_endpoint(30, 0.1, 0.5, service_cv=1.0, max_utilisation=1.0)
    exact = mmc(30, 0.1, size.servers).sojourn_percentile_s(0.95)
    assert size.latency_s == pytest.approx(exact, rel=0.01)


def test_strict_rows_hold_no_infinity():
    assert strict({"a": math.inf, "b": math.nan, "c": 1.0}) == {"a": None, "b": None, "c": 1.0}
