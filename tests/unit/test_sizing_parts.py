"""The pieces of the decision: counts, costs, prices, bounds, verdicts and the search, each by numbers worked by hand."""

import dataclasses

import numpy as np
import pytest

from fleetplan import prices, spec
from fleetplan.errors import InputError
from fleetplan.physics.form import affine, linear
from fleetplan.sizing import bounds, decide, levers, uncertainty
from fleetplan.sizing.candidates import expand
from fleetplan.sizing.cost import Fleet, Lot
from fleetplan.sizing.counting import ceil_ratio, spares_for_availability
from fleetplan.sizing.search import least_count
from fleetplan.sizing.verdict import Limit, Sample, pool
from fleetplan.traffic.requests import Requests

SPEC = """
scenario: small
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {process: poisson, rate: 40 req/s}
      prompt_tokens: 512
      output_tokens: 64
      slo: {ttft: {p95: %(ttft)s}, tpot: {p95: 40 ms}}
candidates:
  gpu: [h100-sxm]
  tensor_parallel: [1, 2]
step_time: {roofline: {efficiency: 0.5}}
policy: {prices: on-demand-2026-08, spare_replicas: %(spares)d, uncertainty: {draws: 6, step_time_cv: 0.3}}
simulation: {horizon: 60 s, replications: 2}
seed: 5
"""


def scenario(ttft: str = "400 ms", spares: int = 0) -> spec.scenario.Scenario:
    return spec.loads(SPEC % {"ttft": ttft, "spares": spares}, "small.yaml")


@pytest.fixture(scope="module")
def decision() -> decide.Decision:
    return decide.decide(decide.plan(scenario()))


@pytest.mark.parametrize(
    ("numerator", "denominator", "whole"),
    [
        (0.1 + 0.2, 0.1, 3),
        (5.5304, 1.7, 4),
        (8.45, 1.7, 5),
        (3.0, 1.0, 3),
        (3.0 + 1e-6, 1.0, 4),
        (0.0, 2.0, 0),
    ],
)
def test_a_ceiling_forgives_rounding_and_nothing_else(numerator, denominator, whole):
    assert ceil_ratio(numerator, denominator) == whole


@pytest.mark.parametrize(
    ("numerator", "denominator"), [(-5.0, 1.0), (1.0, 0.0), (float("inf"), 1.0), (1.0, float("nan"))]
)
def test_no_ceiling_of_what_is_no_quantity(numerator, denominator):
    with pytest.raises(ValueError, match="a count needs"):
        ceil_ratio(numerator, denominator)


def test_spares_reach_the_target_and_one_fewer_does_not():
    from scipy.stats import binom

    spares = spares_for_availability(20, 0.98, 0.999)
    assert binom.sf(19, 20 + spares, 0.98) >= 0.999 > binom.sf(19, 20 + spares - 1, 0.98)


def test_a_fleet_costs_what_it_says():
    bought = Fleet(replicas=3, spares=(1,), lots=(Lot("h100-sxm", 8, 2.5),))
    assert bought.usd_per_hour == 20.0
    assert bought.usd_per_year == pytest.approx(20.0 * 8766)
    assert bought.usd_per_million(1000.0) == pytest.approx(20.0 / 3.6)


def test_a_price_list_is_found_by_name_and_a_wrong_one_says_which_there_are():
    assert prices.price_list("on-demand-2026-08").usd_per_gpu_hour["h100-sxm"].median == 3.595
    with pytest.raises(InputError, match="on-demand-2026-08"):
        prices.price_list("on-demand-2026-09")


def test_the_lone_request_takes_its_chunks_and_then_the_mean_step():
    step = linear(1e-3, 1e-5, 2e-3, 0.0, 1e-6, 0.0)
    got = bounds.lone(Requests.of([0.0], 250, 11), step, 100)
    # Chunks of 100, 100, 50 tokens: max(compute, weights + KV read) + 1 ms each.
    chunks = [1e-3 + max(1e-5 * n, 2e-3 + 1e-6 * read) for n, read in ((100, 100), (100, 200), (50, 250))]
    assert got.ttft_s[0] == pytest.approx(sum(chunks))
    assert got.tpot_s[0] == pytest.approx(1e-3 + 2e-3 + 1e-6 * (250 + 11 / 2))


def test_the_least_work_is_below_what_a_simulation_takes():
    step = linear(1e-4, 1e-5, 2e-3, 1e-9, 1e-7, 2e-5)
    rng = np.random.default_rng(3)
    requests = Requests.of(np.zeros(400), rng.integers(10, 900, 400), rng.integers(1, 80, 400))
    from fleetplan.engine import EngineConfig, simulate

    run = simulate(requests, step, EngineConfig(max_num_seqs=64, max_num_batched_tokens=1024))
    least = bounds.least_work_s(requests, step, 1024) * len(requests)
    assert 0.3 * run.makespan_s < least <= run.makespan_s


@pytest.mark.parametrize(("least", "start"), [(1, 1), (1, 9), (2, 1), (7, 3), (7, 20), (64, 1), (100, 100)])
def test_the_search_ends_with_a_pass_and_a_failure_below(least, start):
    found = least_count(lambda n: dataclasses.make_dataclass("V", ["passes"])(n >= least), start, 100)
    assert found.replicas == least
    assert found.verdicts[least].passes
    assert least == 1 or not found.verdicts[least - 1].passes


def test_the_search_says_when_nothing_passes():
    found = least_count(lambda n: dataclasses.make_dataclass("V", ["passes"])(False), 3, 10)
    assert found.replicas is None
    assert not found.verdicts[10].passes


def test_misses_of_the_refused_make_a_percentile_unbounded():
    limit = Limit("chat", "ttft", "p99", 0.99, (("ttft", 1.0, 0.0),))
    values = np.r_[np.full(98, 0.1), np.inf, np.inf]
    got = pool(limit, [Sample(100, 98.0, np.full(16, 0.98), values, np.ones(100))], 0.95)
    assert (got.holds, got.value_s, got.met_share) == (False, None, 0.98)
    assert (
        pool(
            dataclasses.replace(limit, share=0.98),
            [Sample(100, 98.0, np.full(16, 0.98), values, np.ones(100))],
            0.95,
        ).value_s
        == 0.1
    )


def test_the_interval_of_a_share_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(11)
    limit = Limit("chat", "ttft", "p95", 0.95, (("ttft", 1.0, 0.0),))
    covered = 0
    for _ in range(400):
        ok = rng.random(3200) < 0.95
        batches = np.array([part.mean() for part in np.array_split(ok, 16)])
        got = pool(limit, [Sample(3200, float(ok.sum()), batches, np.zeros(0), np.zeros(0))], 0.9)
        covered += got.low_share <= 0.95 <= got.high_share
    # 90% nominal; the floor at the binomial error makes it cautious. Three standard errors of 400 trials are 4.5 points.
    assert covered / 400 > 0.9 - 0.045


def test_ids_depend_on_a_candidate_alone():
    first, again = expand(scenario()), expand(scenario("900 ms", 3))
    assert [c.candidate_id for c in first] == [c.candidate_id for c in again]
    assert len({c.candidate_id for c in first}) == 2


def test_the_decision_passes_at_n_and_fails_at_n_minus_1(decision):
    chosen = decision.chosen
    count = chosen.found.replicas
    assert chosen.found.verdicts[count].passes
    assert count > 1
    assert not chosen.found.verdicts[count - 1].passes
    assert chosen.fleet.gpus == count * chosen.machine.candidate.gpus_per_replica
    costs = [o.fleet.usd_per_hour for o in decision.options if o.status == "dearer"]
    assert all(chosen.fleet.usd_per_hour <= cost for cost in costs)


def test_a_promise_that_a_lone_request_breaks_is_infeasible_and_says_what_would_do():
    from fleetplan.sizing.nearest import nearest_change

    made = decide.decide(decide.plan(scenario("2 ms")))
    assert made.chosen is None
    assert {o.status for o in made.options} == {"infeasible"}
    reason, change = nearest_change(made)
    assert "no number of replicas" in reason
    assert "TTFT p95 of chat of at least" in change


def test_levers_are_plans_and_a_looser_promise_never_costs_more(decision):
    today = decision.chosen.fleet.usd_per_hour
    found = {lever.change: lever for lever in levers.levers(decision)}
    looser = [lever for lever in found.values() if lever.kind == "promise"]
    assert len(looser) == 4
    assert all(lever.decision.chosen.fleet.usd_per_hour <= today for lever in looser)
    assert found["fp8 weights"].decision.chosen.fleet.usd_per_hour <= today


def test_the_interval_widens_with_what_is_not_known(decision):
    got = uncertainty.interval(decision)
    assert got.draws == 6 == sum(got.needed.values()) + got.beyond
    assert got.low <= decision.chosen.found.replicas <= (got.high or 99)
    assert got.probability_holds(max(got.needed)) == (6 - got.beyond) / 6
    assert any("step time" in source for source in uncertainty.sources(decision))


def test_scaled_step_times_take_that_much_longer():
    step = affine(0.005, 2e-5, 5e-4)
    args = {"tokens": 103, "sequences": 4, "decoding": 3, "kv_tokens": 7, "pairs": 9}
    assert uncertainty.scaled(step, 1.7).step_s(**args) == pytest.approx(1.7 * step.step_s(**args))


def test_what_the_engine_leaves_out_is_said_or_refused():
    from fleetplan.sizing.offered import offered

    cautious = SPEC.replace(
        "output_tokens: 64", "output_tokens: 64\n      shared_prefix: {tokens: 100, share: 0.5}"
    )
    given = {"ttft": "400 ms", "spares": 0}
    assert "no candidate caches prefixes" in offered(spec.loads(cautious % given, "small.yaml")).notes[0]
