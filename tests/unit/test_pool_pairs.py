"""Two pools whose counts are searched: the pair against brute force, what proves it, and what follows its way."""

import itertools
import json
import random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.sizing import buying
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.capacity import capacity
from fleetplan.sizing.certificate import certificate_of
from fleetplan.sizing.choice import choices
from fleetplan.sizing.counting import complete
from fleetplan.sizing.decide import Plan, decide, hopeless, plan, verdict_at
from fleetplan.sizing.growth import months
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.pairs import cheapest_pair
from fleetplan.sizing.saturation import rated, sustainable_rate_per_s
from fleetplan.sizing.settle import settle
from fleetplan.sizing.stages import batching, queueing, sizing
from fleetplan.sizing.uncertainty import interval
from fleetplan.sizing.ways import Bill, watts, ways
from fleetplan.spec import loads
from fleetplan.store import meaning

SEARCH = {"link": "50 GB/s", "link_latency": "1 ms"}


def spec(*disaggregated: Any, **changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = {"rate": "30 req/s", "policy": {}, "tpot": "16 ms", "simulation": {}} | changes
    return {
        "scenario": "pairs",
        "model": "llama-3.1-8b",
        "workload": {
            "classes": [
                {
                    "name": "chat",
                    "arrivals": {"process": "poisson", "rate": settings["rate"]},
                    "prompt_tokens": {"uniform": {"min": 50, "max": 2500}},
                    "output_tokens": {"geometric": {"mean": 60, "max": 300}},
                    "slo": {"ttft": {"p95": "300 ms"}, "tpot": {"p95": settings["tpot"]}},
                }
            ]
        },
        "candidates": {"gpu": ["h100-sxm"], "disaggregated": list(disaggregated)},
        "step_time": {"roofline": {"efficiency": 0.5, "overhead": "2 ms"}},
        "policy": {"prices": "on-demand-2026-08", "max_replicas": 12, **settings["policy"]},
        "simulation": settings["simulation"] or {"horizon": "40 s", "replications": 1},
        "seed": 3,
    }


def planned(*disaggregated: Any, **changes: Any) -> Plan:
    return plan(loads(json.dumps(spec(*disaggregated, **changes))))


def test_the_pair_is_the_cheapest_of_all() -> None:
    """Random monotone truths, costs in units, and caps: the search never misses the cheapest pair, and proves it by both neighbours."""
    rng = random.Random(1)
    simulated = 0
    for _ in range(400):
        least = rng.randint(1, 9), rng.randint(1, 9)
        lines = [(rng.randint(1, 4), rng.randint(1, 4), rng.randint(2, 40)) for _ in range(rng.randint(0, 3))]
        prices, unit = rng.choice([(1, 1), (1, 2), (2.5, 3.1)]), rng.choice([1, 4, 8])
        most, start = rng.choice([10, 20, 60]), (rng.randint(1, least[0]), rng.randint(1, least[1]))

        def holds(pair: tuple[int, int]) -> bool:
            enough = pair[0] >= least[0] and pair[1] >= least[1]  # noqa: B023
            return enough and all(a * pair[0] + b * pair[1] >= c for a, b, c in lines)  # noqa: B023

        def cost(pair: tuple[int, int]) -> float:
            return sum(-(-n // unit) * unit * usd for n, usd in zip(pair, prices, strict=True))  # noqa: B023

        def verdict(pair: tuple[int, int]) -> Any:
            nonlocal simulated
            simulated += 1
            missed = SimpleNamespace(
                holds=False, limit=SimpleNamespace(metric=rng.choice(["ttft", "tpot", "e2e"]))
            )
            return SimpleNamespace(passes=holds(pair), outcomes=() if holds(pair) else (missed,))

        found = cheapest_pair(verdict, cost, lambda pair: sum(pair) <= most, start)  # noqa: B023
        pairs = [(p, d) for p in range(start[0], most) for d in range(start[1], most + 1 - p)]
        wanted = min((cost(pair) for pair in pairs if holds(pair)), default=None)
        assert (None if found.pair is None else cost(found.pair)) == wanted
        if found.pair is not None:
            p, d = found.pair
            for fewer in ((p - 1, d), (p, d - 1)):
                assert min(fewer) < 1 or not found.verdicts[fewer].passes
    assert simulated / 400 < 12


@pytest.mark.parametrize(
    ("choice", "changes"),
    [
        (SEARCH, {"rate": "50 req/s"}),
        (SEARCH, {"rate": "60 req/s", "tpot": "30 ms"}),
        ({**SEARCH, "decode": {"gpu": "h200-sxm", "policy": "continuous"}}, {"tpot": "11 ms"}),
        ({**SEARCH, "prefill": {"tensor_parallel": 2}, "bypass_tokens": 400}, {"policy": {"buy_unit": 4}}),
        (SEARCH, {"policy": {"stock": {"h100-sxm": 8}, "spare_replicas": 1}}),
    ],
    ids=["tight", "loose", "two kinds", "units", "stock"],
)
def test_the_decision_is_that_of_brute_force(choice: dict[str, Any], changes: dict[str, Any]) -> None:
    subject = planned(choice, **changes)
    (built,) = (rated(each, subject.traffic) for each in subject.machines.values())
    assert isinstance(built, Apart)
    policy, decision = subject.scenario.policy, decide(subject)
    usd: Any = buying.prices_of(policy, built.candidate, decision.prices)
    costs = {}
    for p in range(1, 9):
        for d in range(1, 13 - p):
            pair = built.paired(p, d)
            fits = buying.within(buying.stock_of(policy, pair.candidate))
            if not fits(buying.gpus_of(policy, pair.candidate, p + d)):
                continue
            if verdict_at(pair, subject, 0.0, p + d).passes:
                costs[p, d] = buying.fleet_of(policy, pair.candidate, p + d, usd).usd_per_hour
    assert hopeless(built, subject) is None
    chosen = decision.chosen
    assert (chosen is None) == (not costs)
    if chosen is None:
        return
    assert chosen.fleet is not None
    assert chosen.found is not None
    assert chosen.fleet.usd_per_hour == pytest.approx(min(costs.values()))
    assert chosen.found.at.passes
    assert costs[chosen.found.at.pools] == pytest.approx(min(costs.values()))  # type: ignore[index]
    assert not any(verdict.passes for verdict in chosen.found.fewer)


def test_the_rates_of_the_pools_are_bounds_of_every_pair() -> None:
    subject = planned({**SEARCH, "bypass_tokens": 400})
    (built,) = (rated(each, subject.traffic) for each in subject.machines.values())
    assert isinstance(built, Apart)
    assert built.rates is not None
    before, after = built.works_s(subject.traffic.requests())
    assert 0 < built.rates.prefill <= 1 / before
    assert 0 < built.rates.decode <= 1 / after
    rate = sustainable_rate_per_s(built, subject.traffic)
    for p, d in ((1, 1), (3, 1), (2, 5)):
        assert built.paired(p, d).sustains(rate, p + d) <= rate * (p + d) * (1 + 1e-9)


def test_fleets_on_the_way_through_a_pair_grow_by_one_replica() -> None:
    (built,) = planned(SEARCH).machines.values()
    for pair in ((1, 1), (5, 2), (1, 7), (13, 13)):
        way = [built.candidate.paired(*pair).pools(n) for n in range(2, 60)]
        assert way[sum(pair) - 2] == pair
        assert [sum(each) for each in way] == list(range(2, 60))
        assert all(b[0] >= a[0] and b[1] >= a[1] for a, b in itertools.pairwise(way))
        assert min(min(each) for each in way) >= 1


def test_the_tables_show_both_neighbours() -> None:
    subject = planned(SEARCH, simulation={"horizon": "40 s", "replications": 2})
    saturated = {row["candidate_id"]: row for row in batching.rows(subject)["saturation"]}
    made = sizing.rows(subject, lambda key: saturated[key]["sustainable_requests_per_s"])
    (decision,) = made["decisions"]
    pair = decision["prefill_replicas"], decision["decode_replicas"]
    assert decision["replicas"] == sum(pair)
    assert decision["gpus"] == sum(pair)
    rows = {(row["prefill_replicas"], row["decode_replicas"]) for row in made["evidence"]}
    p, d = pair
    assert {(p, d), (p + 1, d), (p, d + 1)} <= rows
    fewer = {(p - 1, d), (p, d - 1)} & rows
    assert fewer == {each for each in ((p - 1, d), (p, d - 1)) if min(each) >= 1}
    for each in fewer:
        assert f"{each[0]} prefill and {each[1]} decode replicas fail" in decision["certificate"]
    keys = [
        tuple(row[k] for k in ("replicas", "prefill_replicas", "class", "metric", "percentile"))
        for row in made["evidence"]
    ]
    assert len(set(keys)) == len(keys)


def test_noise_at_a_neighbour_is_simulated_away() -> None:
    subject = planned(SEARCH, simulation={"horizon": "60 s"})
    option = decide(subject, settle=lambda found: settle(subject, found)).chosen
    assert option is not None
    assert option.found is not None
    certificate = certificate_of(option.found, 0.95)
    assert option.found.at.passes
    assert not any(verdict.passes for verdict in option.found.fewer)
    assert certificate.decided or "16 replications" in certificate.words


def test_what_follows_the_decision_goes_the_way_of_its_pair() -> None:
    unsure = {
        "uncertainty": {"draws": 3, "rate_cv": 0.1, "price_range": "observed"},
        "growth": {"per_month": 0.3, "months": 2},
    }
    decision = decide(planned({**SEARCH, "decode": {"gpu": "h200-sxm"}}, policy=unsure))
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    found = interval(decision)
    assert found is not None
    assert all(count is None or count >= 2 for count in found.counts)
    made = choices(decision, found)
    assert made[0].low_usd_per_hour is not None
    counts = [month.fleet.replicas for month in months(decision) if month.fleet]
    assert counts[0] == chosen.fleet.replicas
    assert counts == sorted(counts)
    assert counts[-1] > counts[0]


def test_a_given_fleet_is_shared_out_at_its_best() -> None:
    subject = planned(SEARCH, tpot="30 ms")
    (held,) = capacity(subject, {"h100-sxm": 6}).held
    p, d = held.machine.candidate.pools(held.replicas)
    assert p + d == 6
    assert held.rate_per_s is not None
    (built,) = (rated(each, subject.traffic) for each in subject.machines.values())
    assert isinstance(built, Apart)
    assert built.rates is not None
    best = max(built.rates.of(n, 6 - n) for n in range(1, 6))
    assert held.rate_per_s <= best * 0.8 * (1 + 1e-9)
    (none,) = capacity(subject, {"h100-sxm": 1}).held
    assert none.reason == "one replica of each pool takes 2 GPUs (got 1)"


def test_nothing_that_may_be_had_is_told() -> None:
    decision = decide(planned(SEARCH, policy={"max_replicas": 3}))
    assert decision.chosen is None
    reason, change = nearest_change(decision)
    assert "max_replicas 3" in reason or "fail" in reason
    assert change.startswith("raise policy.max_replicas to at least")


def test_a_throughput_beyond_the_link_is_told_with_the_link_that_would_do() -> None:
    subject = planned(SEARCH, policy={"throughput": "30000 tokens/s"})
    (built,) = subject.machines.values()
    why = hopeless(built, subject)
    assert why is not None
    assert why.startswith("its link of 50 GB/s takes the KV of prompts for")
    assert "the throughput asked for is 30,000" in why
    enough = float(why.split("mends it, ")[1].split(" GB/s")[0]) * 1.01
    wider = planned({**SEARCH, "link": f"{enough} GB/s"}, policy={"throughput": "30000 tokens/s"})
    assert hopeless(next(iter(wider.machines.values())), wider) is None


def test_spares_of_two_pools_are_complete_together() -> None:
    """The fewest GPUs with which P(prefill is complete) · P(decode is complete) reaches the target, by all pairs."""
    rules = {"target": 0.999, "failures_per_node_day": 0.02, "repair": "48 h"}
    subject = planned({**SEARCH, "prefill": {"tensor_parallel": 4}}, policy={"availability": rules})
    (built,) = subject.machines.values()
    up = 1 / (1 + 0.02 * 2)
    for pair in ((1, 1), (3, 2), (6, 9)):
        found = buying.spares(subject.scenario.policy, built.candidate.paired(*pair), sum(pair))

        def both(spare: tuple[int, ...]) -> float:
            return float(np.prod([complete(n, s, up) for n, s in zip(pair, spare, strict=True)]))  # noqa: B023

        enough = [(4 * s + r, (s, r)) for s in range(8) for r in range(8) if both((s, r)) >= 0.999]
        assert both(found) >= 0.999
        assert 4 * found[0] + found[1] == min(enough)[0]


def test_money_of_two_kinds_is_that_of_each() -> None:
    money = {
        "power": {"pue": 1.2, "host": "100 W", "electricity": "0.1 USD/kWh"},
        "ownership": {"gpu": {"H100 SXM": "30000 USD", "h200-sxm": "36000 USD"}, "amortisation": "4 year"},
        "api": {"input": "1 USD/Mtoken", "output": "4 USD/Mtoken"},
        "buy_unit": 2,
        "uncertainty": {"draws": 0},
    }
    decision = decide(planned({**SEARCH, "decode": {"gpu": "h200-sxm"}}, policy=money))
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    assert chosen.found is not None
    prefill, decode = chosen.found.at.pools
    before, after = (lot.gpus for lot in chosen.fleet.lots)
    assert (before, after) == (prefill + prefill % 2, decode + decode % 2)
    rented, owned, *_, overflow = ways(Bill(decision, chosen, chosen.fleet, None, None))
    assert rented.usd_per_hour == pytest.approx(before * 3.595 + after * 3.22)
    assert owned.capital_usd == before * 30000 + after * 36000
    assert overflow.usd_per_hour > 0
    assert isinstance(chosen.machine, Apart)
    rates = chosen.machine.rates
    assert rates is not None
    rate = decision.plan.traffic.rate_per_s
    busy = rate / rates.prefill + rate / rates.decode
    watts_ = watts(decision, rented.kinds, 1.0)
    assert watts_ == pytest.approx(1.2 * (0.43 * 700 * (before + after + busy) + 100 * (before + after)))
    money["ownership"] = {"gpu": {"h100-sxm": "30000 USD"}, "amortisation": "4 year"}
    with pytest.raises(InputError, match=r"policy\.ownership\.gpu: has no price of h200-sxm, on which"):
        planned({**SEARCH, "decode": {"gpu": "h200-sxm"}}, policy=money)


def test_goodput_is_that_of_the_chosen_pools_and_closed_forms_say_whose_they_are() -> None:
    subject = planned("none", SEARCH)
    together, apart = subject.machines
    made = queueing.rows(subject, apart, 4)
    assert {row["candidate_id"] for row in made["goodput"]} == {apart}
    caps = [row["batch_cap"] for row in made["goodput"]]
    assert caps[0] == 1
    assert made["goodput"][-1]["attainment"] > made["goodput"][0]["attainment"]
    assert {row["candidate_id"] for row in made["chain_errors"] + made["room"]} == {together}


def test_a_gpu_of_a_pool_alone_is_one_that_the_scenario_runs_on() -> None:
    """It may be in the fleet that there is, and what it is and costs decides what is made anew."""
    text = json.dumps(spec({**SEARCH, "decode": {"gpu": "h200"}}) | {"capacity": {"h100": 4, "h200-sxm": 2}})
    scenario = loads(text)
    data = meaning.stage_meaning(scenario, "sizing")["data"]
    assert {"h100-sxm", "h200"} <= set(data["gpus"])
    # Levers plan every GPU of the price list.
    assert {"h100-sxm", "h200-sxm", "l40s"} <= set(data["prices"][0]["gpu_usd_per_hour"])
    before = meaning.stage_meaning(scenario, "candidates")["data"]
    assert set(before["gpus"]) == {"h100-sxm", "h200"}
    with pytest.raises(InputError) as caught:
        loads(text.replace('"h200-sxm": 2', '"l40s": 2'))
    assert "is a GPU that no candidate runs on" in caught.value.lines[0]
