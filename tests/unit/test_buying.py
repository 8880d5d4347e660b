"""What is bought: nodes, instances, spares and stock, against numbers worked by hand."""

import math
from dataclasses import replace

import pytest

from fleetplan import prices
from fleetplan.sizing import buying
from fleetplan.sizing.candidates import Candidate, expand
from fleetplan.spec import loads
from fleetplan.spec.policy import Policy

SPEC = """
scenario: small
model: llama-3.1-8b
workload:
  classes: [{name: chat, arrivals: {process: poisson, rate: 5 req/s}, prompt_tokens: 100, output_tokens: 20, slo: {ttft: {p95: 1 s}}}]
candidates: {gpu: [h100-sxm]}
policy: {prices: on-demand-2026-08}
"""
A = 1 / (1 + 0.0065 / 24 * 48)
AVAILABILITY = {"target": 0.999, "failures_per_node_day": 0.0065, "repair": "48 h"}


def candidate(tensor: int = 1, pipeline: int = 1, data: int = 1, gpu: str = "h100-sxm") -> Candidate:
    (plain,) = expand(loads(SPEC))
    return replace(plain, gpu=gpu, tensor_parallel=tensor, pipeline_parallel=pipeline, data_parallel=data)


def policy(**given: object) -> Policy:
    return Policy.model_validate({"prices": "on-demand-2026-08", **given})


def binomial_at_least(k: int, n: int, p: float) -> float:
    return sum(math.comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))


@pytest.mark.parametrize(
    ("unit", "tensor", "pipeline", "data", "replicas", "gpus"),
    [
        (1, 2, 1, 1, 5, 10),
        (8, 2, 1, 1, 5, 16),
        (8, 8, 1, 1, 3, 24),
        (8, 3, 1, 1, 3, 16),  # two groups of 3 a node, 2 GPUs idle
        (8, 6, 1, 1, 3, 24),
        (8, 8, 2, 1, 3, 48),  # a replica of two nodes
        (8, 2, 1, 3, 3, 24),  # 6 GPUs, and a replica that fits in a node lies in one
        (8, 4, 1, 3, 2, 32),  # 12 GPUs are two nodes
        ("node", 4, 1, 1, 1, 8),
    ],
)
def test_gpus_to_buy(unit: object, tensor: int, pipeline: int, data: int, replicas: int, gpus: int) -> None:
    packed = buying.packing(policy(buy_unit=unit), candidate(tensor, pipeline, data))
    assert packed.gpus(replicas) == gpus


def test_an_instance_sets_unit_and_price() -> None:
    rules = policy(buy_unit=2, instances=[{"gpu": "H100 SXM", "gpus": 8, "price": "40 USD/h"}])
    sheet = prices.price_list("on-demand-2026-08")
    assert buying.unit_gpus(rules, "h100-sxm") == 8
    assert buying.unit_gpus(rules, "h200-sxm") == 2
    assert buying.usd_per_gpu_hour(rules, "h100-sxm", sheet) == 5.0
    assert buying.usd_per_gpu_hour(rules, "h200-sxm", sheet) == sheet.usd_per_gpu_hour["h200-sxm"].median
    fleet = buying.fleet_of(rules, candidate(4), 3, {"h100-sxm": 5.0})
    assert (fleet.gpus, fleet.usd_per_hour) == (16, 80.0)


@pytest.mark.parametrize(
    ("unit", "gpu", "tensor", "says"),
    [
        (1, "h100-sxm", 8, None),
        (1, "h100-sxm", 16, "TP 16 does not fit within one node of 8 GPUs"),
        (4, "h100-sxm", 8, "TP 8 does not fit within one node of 4 GPUs"),
        (16, "h100-sxm", 16, None),  # larger nodes, as stated
        (4, "gb200", 8, None),  # bought by trays of four, joined by NVLink in the rack
    ],
)
def test_a_tensor_parallel_group_stays_in_its_node(
    unit: int, gpu: str, tensor: int, says: str | None
) -> None:
    found = buying.refused(policy(buy_unit=unit), candidate(tensor, gpu=gpu))
    assert (found is None) if says is None else (found or "").startswith(says)


def test_spares_of_gpus_bought_singly() -> None:
    (spares,) = buying.spares(policy(availability=AVAILABILITY), candidate(2), 10)
    assert binomial_at_least(10, 10 + spares, A) >= 0.999 > binomial_at_least(10, 9 + spares, A)
    assert spares == 2


def test_spares_are_whole_nodes_where_nodes_are_bought() -> None:
    rules = policy(availability=AVAILABILITY, buy_unit=8)
    # Four replicas of four GPUs lie on two nodes: P(Bin(2, A) = 2) = 0.9745, P(Bin(3, A) ≥ 2) = 0.9995.
    assert binomial_at_least(2, 2, A) < 0.999 <= binomial_at_least(2, 3, A)
    assert buying.spares(rules, candidate(4), 4) == (2,)
    assert buying.gpus_of(rules, candidate(4), 4) == {"h100-sxm": 24}
    # Three replicas leave half a node over; with the spare node that is three spares.
    assert buying.spares(rules, candidate(4), 3) == (3,)


def test_a_replica_over_two_nodes_needs_both() -> None:
    rules = policy(availability=AVAILABILITY, buy_unit=8)
    (spares,) = buying.spares(rules, candidate(8, pipeline=2), 6)
    assert binomial_at_least(6, 6 + spares, A**2) >= 0.999 > binomial_at_least(6, 5 + spares, A**2)


def test_the_policy_may_ask_for_more_spares() -> None:
    assert buying.spares(policy(availability=AVAILABILITY, spare_replicas=5), candidate(2), 10) == (5,)


def test_stock_bounds_the_count_and_says_what_is_missing() -> None:
    rules = policy(stock={"H100 SXM": 20}, buy_unit=8, spare_replicas=1)
    assert buying.limit(rules, candidate(4)) == 3  # 16 GPUs, of which one replica is the spare
    assert buying.limit(rules, candidate(4, gpu="h200-sxm")) == rules.max_replicas
    assert buying.beyond(rules, candidate(4), 4) == (
        "needs at least 24 GPUs and the stock of h100-sxm is 20: short by 4"
    )
    assert buying.limit(policy(stock={"h100-sxm": 0}), candidate(1)) == 0


def stock(rules: Policy, candidate: Candidate) -> int:
    return buying.stock_of(rules, candidate)["h100-sxm"]


def test_stock_by_region_counts_in_what_lies_together() -> None:
    regions = {"h100-sxm": {"east": 12, "west": 20}}
    assert stock(policy(stock=regions), candidate(1)) == 32
    assert stock(policy(stock=regions), candidate(8)) == 24
    assert stock(policy(stock=regions, buy_unit=8), candidate(4)) == 24
    assert stock(policy(stock=regions, buy_unit=8), candidate(8, pipeline=2)) == 16
    assert buying.limit(policy(stock=regions, buy_unit=8), candidate(4)) == 6
    assert buying.beyond(policy(stock=regions, buy_unit=8), candidate(4), 7) == (
        "needs at least 32 GPUs and the stock of h100-sxm is 24 in whole units by region: short by 8"
    )
