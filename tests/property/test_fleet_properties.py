"""What must hold for every fleet: more spares, stricter targets and larger units never take fewer GPUs; what serves is paid."""

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fleetplan.sizing import buying, money
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.curve import Curve
from fleetplan.sizing.schedule import away_s, least_serving, paid_s
from fleetplan.spec.policy import Autoscaling, Policy

ONE = Candidate(
    "h100-sxm", 1, 1, 1, 1, "bf16", "bf16", "vllm", 0.9, 16, "chunked", 256, 8192, None, None, "none"
)  # fmt: skip
candidates = st.builds(
    lambda t, p, d: replace(ONE, tensor_parallel=t, pipeline_parallel=p, data_parallel=d),
    st.sampled_from([1, 2, 3, 4, 6, 8]),
    st.integers(1, 2),
    st.integers(1, 3),
)
counts = st.integers(1, 60)
units = st.sampled_from([1, 8, 16])


def policy(**settings: Any) -> Policy:
    return Policy.model_validate({"prices": "on-demand-2026-08", **settings})


def availability(target: float, failures: float) -> dict[str, Any]:
    return {"target": target, "failures_per_node_day": failures, "repair": "24 h"}


def gpus(rules: Policy, candidate: Candidate, replicas: int) -> int:
    return sum(buying.gpus_of(rules, candidate, replicas).values())


@given(candidates, counts, units, st.integers(0, 5))
def test_more_replicas_or_spares_never_take_fewer_gpus(
    candidate: Candidate, replicas: int, unit: int, spares: int
) -> None:
    few, more = policy(buy_unit=unit, spare_replicas=spares), policy(buy_unit=unit, spare_replicas=spares + 1)
    least = (replicas + spares) * candidate.gpus_per_replica
    assert least <= gpus(few, candidate, replicas) <= gpus(more, candidate, replicas)
    assert gpus(few, candidate, replicas) <= gpus(few, candidate, replicas + 1)
    assert gpus(few, candidate, replicas) % unit == 0


@given(candidates, counts, units, st.floats(0.9, 0.9999), st.floats(1e-4, 0.05))
def test_a_stricter_target_or_more_failures_never_take_fewer_gpus(
    candidate: Candidate, replicas: int, unit: int, target: float, failures: float
) -> None:
    def needs(target: float, failures: float, replicas: int) -> int:
        return gpus(policy(buy_unit=unit, availability=availability(target, failures)), candidate, replicas)

    usual = needs(target, failures, replicas)
    assert gpus(policy(buy_unit=unit), candidate, replicas) <= usual
    assert usual <= needs(target + (1 - target) / 2, failures, replicas)
    assert usual <= needs(target, failures * 2, replicas)
    assert usual <= needs(target, failures, replicas + 1)


@given(candidates, units, st.integers(0, 500), st.booleans())
def test_the_stock_holds_what_is_said_and_no_more(
    candidate: Candidate, unit: int, stock: int, spared: bool
) -> None:
    extra = {"availability": availability(0.99, 0.01)} if spared else {}
    rules = policy(buy_unit=unit, stock={"h100-sxm": stock}, **extra)
    most = buying.limit(rules, candidate)
    assert most == 0 or gpus(rules, candidate, most) <= stock
    assert gpus(rules, candidate, most + 1) > stock


loads = st.lists(st.floats(0, 20), min_size=2, max_size=24)
times_s = st.integers(0, 9000).map(float)


@given(loads, times_s, times_s, times_s, st.integers(1, 4))
def test_what_serves_is_paid_and_waiting_longer_never_pays_less(
    load: list[float], start_up_s: float, hold_s: float, more_s: float, minimum: int
) -> None:
    shape = Curve(3600.0, np.ones(len(load)), np.array(load))
    serving = least_serving(shape, 0.8, minimum, 40)

    def paid(start_up_s: float, hold_s: float) -> Any:
        terms = Autoscaling.model_validate({"start_up": f"{start_up_s} s", "hold": f"{hold_s} s"})
        for _, off, asked, back in away_s(shape, serving, terms):
            assert off < asked <= back
        return paid_s(shape, serving, terms)

    usual = paid(start_up_s, hold_s)
    wanted = 3600.0 * (np.arange(serving.max())[:, None] < serving)
    assert (usual >= wanted - 1e-6).all()
    assert (usual <= 3600.0 + 1e-6).all()
    assert (paid(start_up_s + more_s, hold_s) >= usual - 1e-6).all()
    assert (paid(start_up_s, hold_s + more_s) >= usual - 1e-6).all()
    assert np.isclose(paid(0, 0).sum(), 3600.0 * serving.sum())


@given(loads.filter(lambda values: max(values) > 0.01), st.floats(1e-6, 1.0), st.floats(1.0, 10.0))
def test_a_dearer_api_never_serves_more(load: list[float], usd: float, dearer: float) -> None:
    loads_, sizes = np.array(load), np.arange(40, dtype=np.float64)
    cheap = money.cheapest_overflow(loads_, loads_ * 5, 0.8, 3.0 * sizes, usd)
    dear = money.cheapest_overflow(loads_, loads_ * 5, 0.8, 3.0 * sizes, usd * dearer)
    assert dear.api_share <= cheap.api_share + 1e-9
    assert dear.usd_per_hour >= cheap.usd_per_hour * (1 - 1e-9)
    assert cheap.usd_per_hour <= float((loads_ * 5).mean()) * 3600 * usd * (1 + 1e-9)
