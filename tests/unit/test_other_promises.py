"""Promises that are no percentile: deadlines, throughput, a cost ceiling; and a TTFT that grows with the prompt."""

import json
from typing import Any

import pytest

from fleetplan.errors import InputError
from fleetplan.sizing.decide import Decision, decide, plan
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.saturation import sustainable_rate_per_s
from fleetplan.sizing.stages import sizing
from fleetplan.sizing.uncertainty import interval
from fleetplan.spec import loads

JOB = {
    "name": "documents",
    "deadline": {"requests": 10_000_000, "within": "8 h"},
    "prompt_tokens": 600,
    "output_tokens": {"uniform": {"min": 10, "max": 50}},
}
CHAT = {
    "name": "chat",
    "arrivals": {"process": "poisson", "rate": "40 req/s"},
    "prompt_tokens": {"uniform": {"min": 100, "max": 3000}},
    "output_tokens": 30,
    "slo": {"ttft": {"p95": "400 ms"}},
}


def spec(*classes: dict[str, Any], **policy: Any) -> str:
    return json.dumps(
        {
            "scenario": "other-promises",
            "model": "llama-3.1-8b",
            "workload": {"classes": list(classes)},
            "candidates": {"gpu": ["h100-sxm"], "tensor_parallel": [1, 2]},
            "step_time": {"affine": {"fixed": "5 ms", "prefill": "20 us/token", "decode": "0.2 ms/sequence"}},
            "policy": {"prices": "on-demand-2026-08", "max_utilisation": 1.0, **policy},
            "simulation": {"horizon": "40 s", "replications": 2},
        }
    )


def decided(*classes: dict[str, Any], **policy: Any) -> Decision:
    return decide(plan(loads(spec(*classes, **policy))))


def evidence(decision: Decision, metric: str) -> dict[int, dict[str, Any]]:
    subject = decision.plan
    rows = sizing.rows(
        subject, lambda identity: sustainable_rate_per_s(subject.machines[identity], subject.traffic)
    )["evidence"]
    return {row["replicas"]: row for row in rows if row["metric"] == metric}


@pytest.mark.parametrize("cap", [1.0, 0.8])
def test_a_deadline_takes_the_least_count_that_makes_it(cap: float) -> None:
    decision = decided(JOB, max_utilisation=cap)
    chosen = decision.chosen
    assert chosen is not None
    assert chosen.fleet is not None
    assert chosen.sustainable_per_s is not None
    count, done_in_time = chosen.fleet.replicas, chosen.sustainable_per_s * 8 * 3600 * cap
    assert (count - 1) * done_in_time < 10_000_000 <= count * done_in_time
    rows = evidence(decision, "deadline")
    assert rows[count]["holds"]
    assert not rows[count - 1]["holds"]
    assert rows[count]["simulated_s"] == pytest.approx(
        10_000_000 / (count * chosen.sustainable_per_s), rel=1e-9
    )
    assert rows[count]["simulated_s"] <= 8 * 3600 * cap
    assert rows[count - 1]["met_share"] < 1
    assert chosen.found is not None
    assert chosen.found.verdicts[count - 1].failures[0] == "deadline of documents"


def test_the_saturated_rate_of_a_job_is_that_of_the_whole_job() -> None:
    """One replica that has a twentieth of a second's worth of the job from the start takes what the rate says, but for its drain."""
    subject = plan(loads(spec(JOB)))
    built = next(iter(subject.machines.values()))
    rate = sustainable_rate_per_s(built, subject.traffic)
    n = 40_000
    makespan = built.run(subject.traffic.burst(n), 1).makespan_s
    assert makespan == pytest.approx(n / rate, rel=0.02)


def test_a_job_beside_chat_takes_more_and_chat_keeps_its_promise() -> None:
    alone, both = decided(CHAT), decided(CHAT, JOB)
    job = decided(JOB)
    counts = []
    for decision in (alone, job, both):
        assert decision.chosen is not None
        assert decision.chosen.fleet is not None
        counts.append(decision.chosen.fleet.replicas)
    assert counts[2] > max(counts[:2])
    assert both.verdict is not None
    assert [outcome.limit.name for outcome in both.verdict.outcomes] == ["TTFT p95 of chat"]
    assert both.verdict.passes


def test_a_throughput_is_what_the_saturated_fleet_makes() -> None:
    plain = decided(CHAT)
    assert plain.chosen is not None
    assert plain.chosen.fleet is not None
    assert plain.chosen.sustainable_per_s is not None
    each = plain.chosen.sustainable_per_s * 30
    count = plain.chosen.fleet.replicas + 3
    decision = decided(CHAT, throughput=f"{(count - 0.5) * each:.12g} tokens/s")
    assert decision.chosen is not None
    assert decision.chosen.fleet is not None
    assert decision.chosen.fleet.replicas == count
    rows = evidence(decision, "throughput")
    assert rows[count]["holds"]
    assert rows[count]["met_share"] == 1.0
    assert not rows[count - 1]["holds"]
    assert rows[count - 1]["met_share"] == pytest.approx((count - 1) / (count - 0.5), rel=1e-6)
    assert decision.chosen.found is not None
    assert decision.chosen.found.verdicts[count - 1].failures == ("throughput",)
    # One that the fleet makes anyway changes nothing.
    same = decided(CHAT, throughput=f"{each / 2:.12g} tokens/s")
    assert same.chosen is not None
    assert same.chosen.fleet == plain.chosen.fleet


def test_a_throughput_is_promised_in_every_draw_of_what_is_not_known() -> None:
    plain = decided(CHAT)
    assert plain.chosen is not None
    assert plain.chosen.fleet is not None
    assert plain.chosen.sustainable_per_s is not None
    count = plain.chosen.fleet.replicas + 3
    promised = f"{(count - 0.5) * plain.chosen.sustainable_per_s * 30:.12g} tokens/s"
    decision = decided(CHAT, throughput=promised, uncertainty={"draws": 4, "rate_cv": 0.01})
    found = interval(decision)
    assert found is not None
    assert found.counts == (count,) * 4


def test_all_answers_of_a_prompt_are_output() -> None:
    several = {**CHAT, "answers": 4}
    api = {"input": "1 USD/Mtoken", "output": "10 USD/Mtoken"}
    decision = decided(several, api=api)
    assert decision.chosen is not None
    assert decision.chosen.found is not None
    assert decision.chosen.sustainable_per_s is not None
    mix = decision.plan.traffic.requests()
    usd = (float(mix.prompt_tokens.mean()) * 1 + 4 * 30 * 10) / 1e6
    rates = {
        b.candidate.candidate_id: sustainable_rate_per_s(b, decision.plan.traffic)
        for b in decision.plan.machines.values()
    }
    made_rows = sizing.rows(decision.plan, rates.__getitem__)
    (api_row,) = [row for row in made_rows["costs"] if row["option"] == "api"]
    assert api_row["cost_usd_per_request"] == pytest.approx(usd, rel=1e-9)
    (decided_row,) = made_rows["decisions"]
    per_output = decided_row["cost_usd_per_request"] / (4 * 30) * 1e6
    assert decided_row["cost_usd_per_million_output_tokens"] == pytest.approx(per_output, rel=1e-9)
    # A replica that makes 4 answers of 30 tokens makes 120 tokens a request.
    made = decision.chosen.sustainable_per_s * 120
    count = decision.chosen.found.at.replicas
    same = decided(several, throughput=f"{0.99 * count * made:.12g} tokens/s")
    assert same.chosen is not None
    assert same.chosen.fleet == decision.chosen.fleet


def test_a_cost_ceiling_is_kept_or_the_shortfall_said() -> None:
    free = decided(CHAT)
    assert free.chosen is not None
    assert free.chosen.fleet is not None
    usd = free.chosen.fleet.usd_per_hour
    enough = decided(CHAT, max_cost=f"{usd:.17g} USD/h")
    assert enough.chosen is not None
    assert enough.chosen.fleet == free.chosen.fleet
    dear = decided(CHAT, max_cost=f"{usd - 1:.17g} USD/h")
    assert dear.chosen is None
    reason, change = nearest_change(dear)
    assert f"{usd:.2f} USD/h, above policy.max_cost of {usd - 1:.2f} by 1.00" in reason
    assert change.startswith(f"raise policy.max_cost to at least {usd:.2f} USD/h")
    rows = sizing.rows(
        dear.plan, lambda identity: sustainable_rate_per_s(dear.plan.machines[identity], dear.plan.traffic)
    )
    assert rows["decisions"][0]["verdict"] == "infeasible"
    assert rows["decisions"][0]["cost_usd_per_hour"] is None
    assert not [row for row in rows["plans"] if row["status"] == "chosen"]


def test_a_ttft_that_grows_with_the_prompt_is_judged_for_each_prompt() -> None:
    """A limit of base + growth · prompt costs at least what its largest limit does."""

    def count(limit: Any) -> int:
        decision = decided({**CHAT, "slo": {"ttft": {"p95": limit}}})
        assert decision.chosen is not None
        assert decision.chosen.fleet is not None
        return decision.chosen.fleet.replicas

    growing = {"base": "20 ms", "per_prompt_token": "60 us/token"}
    tight, loose = count("80 ms"), count("200 ms")
    assert tight > loose
    assert loose <= count(growing)
    # Hardly any growth is the constant; a limit below a prompt's own time is hopeless and said so.
    assert count({"base": "100 ms", "per_prompt_token": "1 ns/token"}) == count("100 ms")
    hopeless = decided(
        {**CHAT, "slo": {"ttft": {"p95": {"base": "5 ms", "per_prompt_token": "10 us/token"}}}}
    )
    assert hopeless.chosen is None
    assert "no number of replicas mends it" in hopeless.options[0].reason
    subject = plan(loads(spec({**CHAT, "slo": {"ttft": {"p95": growing}}})))
    built = next(iter(subject.machines.values()))
    run = built.run(subject.traffic.requests(), 2)
    from fleetplan.sizing.verdict import sample

    (limit,) = subject.traffic.limits
    kept = run.ttft_s <= 0.02 + 60e-6 * run.requests.prompt_tokens
    assert sample(run, limit, 0.0).met == kept.sum()


def test_all_requests_may_be_promised() -> None:
    """An attainment of every request has no percentile and no miss: it is planned all the same."""
    every = {"attainment": {"share": 1.0, "ttft": "2 s"}}
    assert decide(plan(loads(spec({**CHAT, "slo": every}).replace('"40 s"', '"20 s"')))).chosen is not None
    free = json.loads(spec({**CHAT, "slo": every}))
    del free["simulation"]["horizon"]
    assert plan(loads(json.dumps(free))).traffic.duration_s >= 250


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"arrivals": {"process": "poisson", "rate": "1 req/s"}}, "has a deadline and arrivals"),
        ({"slo": {"ttft": {"p99": "1 s"}}}, "has a deadline and slo"),
        ({"deadline": {"requests": 0, "within": "8 h"}}, "deadline.requests"),
        ({"deadline": {"requests": 10, "within": "0 h"}}, "deadline.within"),
        ({"deadline": {"requests": 10}}, "within"),
    ],
)
def test_a_wrong_deadline_is_a_fault(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        loads(spec({**JOB, **change}))
    assert words in "\n".join(caught.value.lines)
