"""Scenarios of users who wait for their answers: what they are planned at, what is judged, what is refused."""

import itertools

import numpy as np
import pytest

from fleetplan import spec
from fleetplan.errors import InputError
from fleetplan.sizing import decide, offered, users
from fleetplan.sizing.decide import Plan
from fleetplan.sizing.stages import batching
from fleetplan.sizing.stages.traffic import traffic_rows
from fleetplan.traffic.model import ClosedLoop

SPEC = """
scenario: assistants
model: llama-3.1-8b
workload:
  classes:
    - name: code
      arrivals: {process: closed_loop, concurrency: %(users)d, think_time: %(think)s}
      prompt_tokens: {uniform: {min: 100, max: 1900}}
      output_tokens: {geometric: {mean: 101, max: 1000}}
      slo: %(slo)s
candidates:
  gpu: [h100-sxm]
  scheduler: [{policy: chunked, max_num_seqs: 64}]
step_time: {affine: {fixed: 8 ms, prefill: 40 us/token, decode: 0.3 ms/sequence}}
policy: {prices: on-demand-2026-08, max_utilisation: 1.0}
simulation: {horizon: 300 s, replications: 2}
seed: 4
"""
BOTH = "{ttft: {p50: 400 ms, p95: 1 s}, tpot: {p95: 30 ms}}"


def planned(users: int = 200, think: str = "10 s", slo: str = BOTH) -> Plan:
    return decide.plan(spec.loads(SPEC % {"users": users, "think": think, "slo": slo}, "assistants.yaml"))


@pytest.mark.parametrize(
    ("slo", "within_s"),
    [
        (BOTH, 0.4 + 100 * 0.03),
        ("{e2e: {p95: 3 s}}", 3.0),
        ("{e2e: {p95: 9 s}, ttft: {p95: 1 s}, tpot: {p95: 30 ms}}", 1 + 100 * 0.03),
        ("{attainment: {share: 0.9, ttft: 1 s, tpot: 40 ms}}", 1 + 100 * 0.04),
        (
            "{ttft: {p95: {base: 300 ms, per_prompt_token: 0.2 ms/token}}, tpot: {p95: 30 ms}}",
            0.3 + 1000 * 0.2e-3 + 100 * 0.03,
        ),
    ],
)
def test_users_are_planned_at_the_slowest_answers_that_keep_the_promises(slo: str, within_s: float) -> None:
    traffic = planned(slo=slo).traffic
    loop = traffic.workload.classes[0].arrivals
    assert isinstance(loop, ClosedLoop)
    # Mean lengths are of a sample; those of a geometric one of 4,000 have a standard error of 1.6%.
    assert loop.mean_service_s == pytest.approx(within_s, rel=0.06)
    assert traffic.rate_per_s == pytest.approx(200 / (10 + loop.mean_service_s), rel=1e-12)
    assert "users of code wait for their answers" in traffic.notes[0]


def test_what_is_judged_keeps_littles_law() -> None:
    """N = X · (Z + R): while all users send, throughput times think and answer time is the number of users."""
    plan = planned()
    (built,) = plan.machines.values()
    whole = built.run(plan.traffic.requests(), 2)
    result, start_s = plan.traffic.judged(whole)
    assert 0 < len(result.requests) < len(whole.requests)
    end_s = float(result.arrival_s.max())
    assert start_s == pytest.approx(0.1 * end_s)
    seen = result.arrival_s >= start_s
    # Batch means: ten stretches of the run, each with its own count and answers.
    edges = np.linspace(start_s, end_s, 11)
    found = []
    for low, high in itertools.pairwise(edges):
        rows = seen & (result.arrival_s >= low) & (result.arrival_s < high)
        found.append(rows.sum() / (high - low) * (10 + result.e2e_s[rows].mean()))
    error = np.std(found, ddof=1) / np.sqrt(len(found))
    assert abs(np.mean(found) - 200) < 4 * error
    assert error < 10
    # Later on users have had their last turn: fewer are left, and they send less.
    late = whole.arrival_s > end_s
    assert late.sum() / (whole.arrival_s.max() - end_s) < seen.sum() / (end_s - start_s)


def test_a_count_that_holds_and_one_fewer_that_does_not() -> None:
    plan = planned(users=500)
    decision = decide.decide(plan)
    assert decision.chosen is not None
    assert decision.chosen.found is not None
    count = decision.chosen.found.replicas
    assert count is not None
    assert count > 1
    (built,) = plan.machines.values()
    rate = decide.sustainable_rate_per_s(built, plan.traffic)
    assert decide.verdict_at(built, plan, rate, count).passes
    assert not decide.verdict_at(built, plan, rate, count - 1).passes
    fewer = decide.decide(planned(users=250)).chosen
    assert fewer is not None
    assert fewer.found is not None
    assert (fewer.found.replicas or 0) < count


def test_open_classes_are_not_cut_by_the_turns_of_users() -> None:
    """Only users who wait say when the run ends to be as planned."""
    plan = planned()
    (built,) = plan.machines.values()
    whole = built.run(plan.traffic.requests(), 2)
    assert len(users.while_all_send(whole, ()).requests) == len(whole.requests)


def test_a_horizon_leaves_every_user_some_turns() -> None:
    """One of a turn or two would have only the filling of an empty system, judged as if it were the traffic."""
    with pytest.raises(InputError) as caught:
        planned(think="1 min")
    (line,) = caught.value.lines
    assert line.startswith(
        "assistants.yaml:7:17: workload.classes[0].arrivals: are users who come again every"
    )
    least_s = float(line.split("simulation.horizon of ")[1].split(" s")[0])
    text = SPEC % {"users": 200, "think": "1 min", "slo": BOTH}
    longer = decide.plan(spec.loads(text.replace("horizon: 300 s", f"horizon: {least_s} s")))
    (turn_s,) = users.turns_s(longer.traffic.workload).values()
    assert least_s - 1 < offered.FEWEST_TURNS * turn_s <= least_s
    # 200,000 users make enough requests within minutes; the run still is some turns of theirs long.
    many = SPEC % {"users": 200_000, "think": "10 min", "slo": BOTH}
    own = decide.plan(spec.loads(many.replace("horizon: 300 s, ", ""))).traffic
    (turn_s,) = users.turns_s(own.workload).values()
    assert own.duration_s == pytest.approx(offered.TURNS * turn_s)


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            BOTH,
            "{ttft: {p95: 1 s}}",
            "assistants.yaml:7:17: workload.classes[0].arrivals: are users who wait for answers that no promise bounds (class code, got ttft), "
            "give e2e, or ttft and tpot: n users who think z and are answered within T send n/(z + T) requests/s",
        ),
        (
            "  classes:",
            "  arrivals: {process: closed_loop, concurrency: 3}\n  classes:\n"
            "    - {name: chat, share: 0.5, prompt_tokens: 9, output_tokens: 9, slo: {e2e: {p95: 1 s}}}",
            "give each class users of its own",
        ),
        (
            "      prompt_tokens:",
            "      sessions: {turns: 3, gap: 1 s}\n      semantic_cache: {hit_share: 0.5}\n      retries: {chance: 0.1, delay: 1 s}\n      prompt_tokens:",
            "assistants.yaml:8:17: workload.classes[0].sessions: has turns of sessions (got users who wait, each of whom is a session), drop it\n"
            "assistants.yaml:9:23: workload.classes[0].semantic_cache: answers before the model (got users who wait, who then ask again at once, "
            "which is not simulated), drop it; concurrency and think_time may be those of what reaches the model\n"
            "assistants.yaml:10:16: workload.classes[0].retries: sends again as extra arrivals (got users who wait, who send one request at a time), "
            "drop it, or take workload.clients",
        ),
    ],
)
def test_refused_where_it_stands(old: str, new: str, line: str) -> None:
    text = SPEC % {"users": 9, "think": "1 s", "slo": BOTH}
    with pytest.raises(InputError) as caught:
        spec.loads(text.replace(old, new), "assistants.yaml")
    assert line in "\n".join(caught.value.lines)


def test_facts_and_loads_of_users_are_of_the_time_while_all_of_them_send() -> None:
    decision = decide.decide(planned())
    (facts,) = traffic_rows(decision)["workloads"]
    assert facts["mean_requests_per_s"] == pytest.approx(decision.plan.traffic.rate_per_s, rel=0.05)
    assert facts["peak_minute_over_mean"] >= 1
    assert facts["interarrival_cv"] == pytest.approx(1, abs=0.2)
    kept = [row for row in batching.rows(decision.plan)["simulations"] if row["attainment"] > 0.9]
    assert kept
    for row in kept:  # answers are faster than the promises, so that users send more than the nominal rate
        assert row["goodput_requests_per_s"] >= row["offered_requests_per_s"] * row["attainment"] * 0.97


def test_loads_of_a_profile_are_steady_ones() -> None:
    """Quiet hours come first; a replica at 70% of its rate is at 70% all the same."""
    text = SPEC % {"users": 9, "think": "1 s", "slo": "{e2e: {p95: 60 s}}"}
    arrivals = (
        "{process: profile, inside: {process: poisson, rate: 10 req/s}, factors: [0.2, 1.8], slot: 6 h}"
    )
    text = text.replace("{process: closed_loop, concurrency: 9, think_time: 1 s}", arrivals)
    plan = decide.plan(spec.loads(text.replace("  horizon: 300 s,", ""), "day.yaml"))
    rows = batching.rows(plan)["simulations"]
    assert [row["load_share"] for row in rows] == list(batching.LOAD_SHARES)
    for row in rows[:3]:
        assert row["goodput_requests_per_s"] == pytest.approx(row["offered_requests_per_s"], rel=0.05)
