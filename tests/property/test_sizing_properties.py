"""The decision against brute force on small grids, and what must never happen: tighter, slower or more for less money."""

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetplan import prices
from fleetplan.errors import InputError
from fleetplan.sizing import bounds, buying
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.decide import Decision, Plan, decide, plan, verdict_at
from fleetplan.sizing.saturation import sustainable_rate_per_s
from fleetplan.spec import loads

MOST = 40
SLOWER_FIRST = ("a100-80gb-sxm", "h100-sxm", "h200-sxm")
"""Each has at least the bandwidth, compute and memory of the one before."""


def spec(**changes: Any) -> dict[str, Any]:
    """A small scenario; what is changed is given by name."""
    settings: dict[str, Any] = {
        "arrivals": {"process": "poisson", "rate": "30 req/s"},
        "prompt_tokens": {"uniform": {"min": 50, "max": 700}},
        "output_tokens": {"geometric": {"mean": 20, "max": 100}},
        "slo": {"ttft": {"p95": "200 ms"}, "tpot": {"p95": "30 ms"}},
        "candidates": {"gpu": ["h100-sxm"], "scheduler": [{"max_num_seqs": 16}]},
        "step_time": {"affine": {"fixed": "5 ms", "prefill": "40 us/token", "decode": "0.5 ms/sequence"}},
        "policy": {},
        "simulation": {},
        "seed": 0,
    } | changes
    chat = {key: settings.pop(key) for key in ("arrivals", "prompt_tokens", "output_tokens", "slo")}
    policy = {"prices": "on-demand-2026-08", "max_replicas": MOST, **settings.pop("policy")}
    simulation = {"horizon": "40 s", "replications": 2, **settings.pop("simulation")}
    return {
        "scenario": "small",
        "model": "llama-3.1-8b",
        "workload": {"classes": [{"name": "chat", **chat}]},
        "policy": policy,
        "simulation": simulation,
        **settings,
    }


def planned(**changes: Any) -> Plan:
    return plan(loads(json.dumps(spec(**changes))))


def decided(**changes: Any) -> Decision:
    return decide(planned(**changes))


def cost(decision: Decision) -> float:
    """USD/h of the chosen fleet; infinity where nothing will do."""
    return (
        np.inf
        if decision.chosen is None or decision.chosen.fleet is None
        else decision.chosen.fleet.usd_per_hour
    )


def random_changes(seed: int) -> dict[str, Any]:
    """A random small scenario: process, lengths, promises, grid, step time and policy."""
    rng = np.random.default_rng([65, seed])
    rate = f"{np.exp(rng.uniform(np.log(5), np.log(150))):.3g} req/s"
    process = rng.choice(["constant", "poisson", "gamma", "gamma"])
    arrivals = {"process": str(process), "rate": rate}
    if process == "gamma":
        arrivals["cv"] = round(float(rng.uniform(0.5, 3)), 2)
    lengths = [
        {"uniform": {"min": 50, "max": int(rng.integers(100, 1500))}},
        int(rng.integers(20, 1000)),
        {"lognormal": {"mean": int(rng.integers(100, 600)), "cv": 1.0, "max": 3000}},
    ]
    slo: dict[str, Any] = {}
    if rng.random() < 0.8:
        slo["ttft"] = {str(rng.choice(["p90", "p95", "p99"])): f"{rng.uniform(30, 400):.3g} ms"}
    if rng.random() < 0.6 or not slo:
        slo["tpot"] = {str(rng.choice(["p50", "p95"])): f"{rng.uniform(8, 40):.3g} ms"}
    if rng.random() < 0.3:
        slo["e2e"] = {"p90": f"{rng.uniform(0.3, 2):.3g} s"}
    schedulers = [
        {"policy": "chunked", "max_num_seqs": int(rng.choice([4, 16, 64])), "max_num_batched_tokens": 512},
        {"policy": "prefill_first", "max_num_seqs": 16},
        {"policy": "continuous", "max_num_seqs": 8},
        {"policy": "chunked", "max_num_seqs": 32, "max_queued_requests": 20},
    ]
    picked = rng.choice(len(schedulers), size=int(rng.integers(1, 3)), replace=False)
    step: Any = {"roofline": {"efficiency": round(float(rng.uniform(0.3, 0.9)), 2), "overhead": "2 ms"}}
    if rng.random() < 0.5:
        step = {
            "affine": {
                "fixed": f"{rng.uniform(2, 15):.3g} ms",
                "prefill": f"{rng.uniform(5, 60):.3g} us/token",
                "decode": f"{rng.uniform(0.1, 1):.3g} ms/sequence",
            }
        }
    gpus = rng.choice(SLOWER_FIRST, size=int(rng.integers(1, 3)), replace=False)
    return {
        "arrivals": arrivals,
        "prompt_tokens": lengths[int(rng.integers(len(lengths)))],
        "output_tokens": {"geometric": {"mean": int(rng.integers(5, 60)), "max": 200}},
        "slo": slo,
        "candidates": {
            "gpu": gpus.tolist(),
            "tensor_parallel": [1, 2][: int(rng.integers(1, 3))],
            "scheduler": [schedulers[i] for i in picked],
        },
        "step_time": step,
        "policy": {
            "max_utilisation": round(float(rng.uniform(0.6, 1.0)), 2),
            "spare_replicas": int(rng.integers(0, 3)),
            **({"buy_unit": "node"} if rng.random() < 0.2 else {}),
        },
        "simulation": {"horizon": "20 s"},
        "seed": seed,
    }


def brute_force(subject: Plan) -> dict[str, tuple[int, float]]:
    """Candidate id → (least count that passes, USD/h), by simulating every count from 1 up; no bound prunes anything."""
    policy = subject.scenario.policy
    sheet = prices.price_list(policy.prices)
    found = {}
    for identity, built in subject.machines.items():
        if built.reason is not None or buying.refused(policy, built.candidate) is not None:
            continue
        usd = {built.candidate.gpu: buying.usd_per_gpu_hour(policy, built.candidate.gpu, sheet) or 0.0}
        rate = sustainable_rate_per_s(built, subject.traffic)
        for count in range(1, MOST + 1):
            if verdict_at(built, subject, rate, count).passes:
                found[identity] = (count, buying.fleet_of(policy, built.candidate, count, usd).usd_per_hour)
                break
    return found


@pytest.mark.parametrize("seed", range(50))
def test_brute_force_agrees_with_the_search(seed: int) -> None:
    check_against_brute_force(planned(**random_changes(seed)))


@pytest.mark.parametrize("seed", range(200, 206))
def test_brute_force_agrees_where_there_are_pipelines(seed: int) -> None:
    changes = random_changes(seed)
    grid = changes["candidates"] | {"pipeline_parallel": [1, 2, 4], "tensor_parallel": [1, 2]}
    efficiency = float(np.random.default_rng([66, seed]).uniform(0.2, 0.8))
    step = {"roofline": {"efficiency": round(efficiency, 2), "overhead": "1 ms", "attention_flops": True}}
    subject = planned(**changes | {"candidates": grid, "step_time": step})
    assert any(
        m.reason is None and m.step is not None and m.step.stages > 1 for m in subject.machines.values()
    )
    check_against_brute_force(subject)


def check_against_brute_force(subject: Plan) -> None:
    decision = decide(subject)
    brute = brute_force(subject)
    if decision.chosen is None:
        assert brute == {}
        return
    assert decision.chosen.fleet is not None
    cheapest = min(usd for _, usd in brute.values())
    assert decision.chosen.fleet.usd_per_hour == pytest.approx(cheapest, rel=1e-12)
    for option in decision.options:
        identity = option.machine.candidate.candidate_id
        if option.found is not None and option.found.replicas is not None:
            assert brute[identity][0] == option.found.replicas
        elif option.status == "pruned":
            assert identity not in brute or brute[identity][1] > cheapest
        else:
            assert identity not in brute


random_spec = st.integers(1000, 100_000).map(random_changes)
few = settings(max_examples=300 if settings.get_current_profile_name() == "thorough" else 12)


def replicas(decision: Decision) -> float:
    """Chosen count; infinity where nothing will do."""
    return (
        np.inf if decision.chosen is None or decision.chosen.fleet is None else decision.chosen.fleet.replicas
    )


def noisy(*decisions: Decision) -> bool:
    """Whether a verdict beside a decision is one that sampling noise may have made, at the level of its test."""
    return any(
        not verdict.decided
        for decision in decisions
        for option in decision.options
        if option.found is not None
        for verdict in option.found.verdicts.values()
    )


@few
@given(random_spec, st.floats(0.3, 0.98), st.sampled_from(["ttft", "tpot", "e2e"]))
def test_a_tighter_promise_never_costs_less(changes: dict[str, Any], factor: float, metric: str) -> None:
    """On the same draws a request that meets the tighter limit meets the looser one: no level is needed."""
    slo = changes["slo"]
    metric = metric if metric in slo else next(iter(slo))
    ((percentile, limit),) = slo[metric].items()
    number, unit = limit.split()
    tighter = slo | {metric: {percentile: f"{float(number) * factor:.12g} {unit}"}}
    assert cost(decided(**changes | {"slo": tighter})) >= cost(decided(**changes))


@few
@given(random_spec, st.floats(1.02, 3.0))
def test_slower_steps_never_cost_less(changes: dict[str, Any], factor: float) -> None:
    numbers = {"fixed": 6.0, "prefill": 30.0, "decode": 0.4}
    units = {"fixed": "ms", "prefill": "us/token", "decode": "ms/sequence"}

    def steps(times: float) -> dict[str, Any]:
        return {"affine": {key: f"{value * times:.12g} {units[key]}" for key, value in numbers.items()}}

    slower, as_it_is = (decided(**changes | {"step_time": steps(f)}) for f in (factor, 1.0))
    assert cost(slower) >= cost(as_it_is) or noisy(slower, as_it_is)


@few
@given(random_spec)
def test_a_slower_gpu_never_takes_fewer_replicas(changes: dict[str, Any]) -> None:
    """Beyond the level of the test: a faster step may batch others together, and at the edge of a promise a request is lost."""
    roofline = {"roofline": {"efficiency": 0.6, "overhead": "2 ms"}}
    made = []
    for gpu in SLOWER_FIRST:
        grid = changes["candidates"] | {"gpu": [gpu], "tensor_parallel": [1]}
        made.append(decided(**changes | {"candidates": grid, "step_time": roofline}))
    for slower, faster in itertools.pairwise(made):
        assert replicas(slower) >= replicas(faster) or noisy(slower, faster)


@few
@given(random_spec, st.integers(0, 3), st.integers(1, 3))
def test_more_spares_never_take_fewer_gpus(changes: dict[str, Any], spares: int, more: int) -> None:
    few_spares, many = (
        decided(**changes | {"policy": changes["policy"] | {"spare_replicas": count}})
        for count in (spares, spares + more)
    )
    assert cost(many) >= cost(few_spares)
    if (
        many.chosen is not None
        and few_spares.chosen is not None
        and many.chosen.machine.candidate == few_spares.chosen.machine.candidate
    ):
        assert many.chosen.fleet is not None
        assert few_spares.chosen.fleet is not None
        assert many.chosen.fleet.gpus >= few_spares.chosen.fleet.gpus
        assert many.chosen.fleet.replicas == few_spares.chosen.fleet.replicas


@few
@given(random_spec, st.floats(0.05, 1.0))
def test_more_traffic_never_costs_less(changes: dict[str, Any], share: float) -> None:
    """Nested arrivals: every request of the smaller traffic is in the larger one, among more of the same kind."""
    small = spec(**changes)
    large = json.loads(json.dumps(small))
    arrivals = large["workload"]["classes"][0]["arrivals"]
    more = {**large["workload"]["classes"][0], "name": "more"}
    more["arrivals"] = arrivals | {"rate": f"{float(arrivals['rate'].split()[0]) * share:.12g} req/s"}
    large["workload"]["classes"].append(more)
    less, all_of_it = (plan(loads(json.dumps(body))) for body in (small, large))
    few_requests, requests = less.traffic.requests(), all_of_it.traffic.requests()
    assert np.isin(few_requests.arrival_s, requests.arrival_s).all()
    larger, smaller = decide(all_of_it), decide(less)
    assert cost(larger) >= cost(smaller) or noisy(larger, smaller)


@few
@given(random_spec)
def test_no_replica_sustains_more_than_its_least_work_allows(changes: dict[str, Any]) -> None:
    """What makes the pruning by bounds provable; a cap on the queue is no reason for a higher rate either."""
    subject = planned(**changes)
    mix = subject.traffic.requests()
    for built in subject.machines.values():
        assert built.step is not None
        assert built.config is not None
        most = built.config.max_num_batched_tokens if built.candidate.scheduler == "chunked" else 0
        most = most or built.config.max_num_seqs * int(mix.prompt_tokens.max())
        least = bounds.least_work_s(mix, built.step, most)
        rate = sustainable_rate_per_s(built, subject.traffic)
        assert 0 < rate * least <= 1 + 1e-12


@few
@given(random_spec, st.sampled_from(["ttft", "tpot", "e2e"]))
def test_an_impossible_promise_never_yields_a_plan(changes: dict[str, Any], metric: str) -> None:
    changes["slo"][metric] = {"p99": "1 us"}
    decision = decided(**changes)
    assert decision.chosen is None
    assert all(option.status in ("infeasible", "cannot run") and option.reason for option in decision.options)


def test_the_same_spec_and_seed_give_the_same_bytes(tmp_path: Path) -> None:
    from fleetplan.sizing.stages import sizing
    from fleetplan.store.meaning import part_meta
    from fleetplan.store.parts import write_part

    written = []
    for run in ("first", "second"):
        subject = planned(**random_changes(7))
        for table, rows in sizing.rows(
            subject,
            lambda identity, subject=subject: sustainable_rate_per_s(
                subject.machines[identity], subject.traffic
            ),
        ).items():
            write_part(tmp_path / run, "small", table, rows, part_meta(subject.scenario, "sizing"))
        files = sorted(path for path in (tmp_path / run).rglob("*") if path.is_file())
        written.append({str(path.relative_to(tmp_path / run)): path.read_bytes() for path in files})
    assert len(written[0]) >= 9
    assert written[0] == written[1]


@pytest.mark.parametrize("rate", ["-5 req/s", "0 req/s", -5])
def test_a_rate_that_is_none_is_an_error(rate: Any) -> None:
    with pytest.raises(InputError, match=r"arrivals\.rate"):
        planned(arrivals={"process": "poisson", "rate": rate})


def test_ceilings_are_exact() -> None:
    """Rounding of a quotient buys no GPU, and what is truly above does."""
    assert ceil_ratio(0.1 + 0.2, 0.1) == 3
    assert ceil_ratio(5.5304, 1.7) == 4
    assert ceil_ratio(8.45, 1.7) == 5
    assert ceil_ratio(3.0 + 1e-6, 1.0) == 4


@few
@given(st.integers(1, 10**6), st.integers(1, 10**4), st.integers(-8, 8))
def test_ceilings_forgive_only_rounding(numerator: int, denominator: int, power: int) -> None:
    scale = 10.0**power
    assert ceil_ratio(numerator * scale, denominator * scale) == -(-numerator // denominator)


def test_the_peak_is_planned_for_and_a_shortfall_is_said() -> None:
    """Traffic that peaks at 1.5 of its mean: the count for the peak, more than for the mean; with too small a stock none."""
    profile = {
        "process": "profile", "inside": {"process": "poisson", "rate": "40 req/s"}, "factors": [0.5, 1.5], "slot": "30 s",
    }  # fmt: skip
    common = {"simulation": {"horizon": "60 s"}, "slo": {"ttft": {"p99": "300 ms"}}}
    peak = decided(arrivals=profile, **common).chosen
    mean = decided(arrivals={"process": "poisson", "rate": "40 req/s"}, **common).chosen
    assert peak is not None
    assert mean is not None
    assert peak.fleet is not None
    assert mean.fleet is not None
    assert peak.fleet.replicas > mean.fleet.replicas
    stock = {"stock": {"h100-sxm": peak.fleet.gpus - 1}}
    short = decided(arrivals=profile, policy=stock, **common)
    assert short.chosen is None
    assert "short by 1" in short.options[0].reason
