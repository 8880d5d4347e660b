"""What a given fleet holds: the rate's bracket, agreement with the sized count, tightest promises, and answers that are no number."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fleetplan.cli.capacity import command, document, told
from fleetplan.errors import InputError
from fleetplan.sizing.capacity import Held, capacity
from fleetplan.sizing.decide import decide, plan
from fleetplan.spec import loads

SPEC = """
scenario: given-fleet
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {arrivals}
      prompt_tokens: 500
      output_tokens: {{uniform: {{min: 20, max: 60}}}}
      slo: {slo}
candidates: {{gpu: [h100-sxm, h200-sxm], tensor_parallel: [1, 2], scheduler: [{{max_num_seqs: 16}}]}}
step_time: {{affine: {{fixed: 5 ms, prefill: 40 us/token, decode: 0.5 ms/sequence}}}}
policy: {{prices: on-demand-2026-08, max_utilisation: {cap}, spare_replicas: {spares}}}
simulation: {{horizon: 60 s, replications: 2}}
seed: 3
"""


def given(
    rate: float = 60.0,
    slo: str = "{ttft: {p95: 250 ms}, tpot: {p95: 30 ms}}",
    cap: float = 1.0,
    spares: int = 0,
    process: str = "poisson",
) -> Any:
    arrivals = f"{{process: {process}, rate: {rate:.12g} req/s}}"
    return plan(loads(SPEC.format(arrivals=arrivals, slo=slo, cap=cap, spares=spares)))


def one(subject: Any, gpus: int, tensor_parallel: int = 1) -> Held:
    held = capacity(subject, {"h100": gpus}).held
    return next(h for h in held if h.machine.candidate.tensor_parallel == tensor_parallel)


def test_the_highest_rate_passes_and_a_hundredth_more_fails() -> None:
    held = one(given(), 4)
    assert held.factor is not None
    assert held.failing_factor is not None
    assert 1 < held.failing_factor / held.factor <= 1.01 * (1 + 1e-9)
    assert held.at is not None
    assert held.at.passes
    assert held.rate_per_s == pytest.approx(60 * held.factor)
    # The sized count of the traffic at either end says the same: four at the rate that holds, more at the one that fails.
    at, above = (
        decide(given(60 * factor), prune=False).options for factor in (held.factor, held.failing_factor)
    )
    counts = [
        next(o.found.replicas for o in options if o.found and o.machine.candidate == held.machine.candidate)
        for options in (at, above)
    ]
    assert counts[0] is not None
    assert counts[1] is not None
    assert counts[0] <= 4 < counts[1]


@pytest.mark.parametrize("process", ["constant", "poisson"])
def test_the_decided_count_holds_today_and_one_fewer_does_not(process: str) -> None:
    subject = given(process=process)
    chosen = decide(subject).chosen
    assert chosen is not None
    assert chosen.fleet is not None
    count, each = chosen.fleet.replicas, chosen.machine.candidate.gpus_per_replica
    kind = chosen.machine.candidate.gpu
    enough, short = (
        next(
            h for h in capacity(subject, {kind: gpus}).held if h.machine.candidate == chosen.machine.candidate
        )
        for gpus in (count * each, (count - 1) * each)
    )
    assert enough.factor is not None
    assert enough.factor >= 1
    assert enough.today is not None
    assert enough.today.passes
    assert short.factor is None or short.factor < 1


def test_a_tightest_promise_holds_and_a_tighter_one_does_not() -> None:
    held = one(given(), 5)
    for tight in held.tightest:
        assert tight.tightest_s is not None
        other = "tpot: {p95: 30 ms}" if tight.limit.metric == "ttft" else "ttft: {p95: 250 ms}"
        for factor, holds in ((1.0, True), (0.999, False)):
            slo = f"{{{tight.limit.metric}: {{p95: {tight.tightest_s * factor:.17g} s}}, {other}}}"
            today = one(given(slo=slo), 5).today
            assert (today is None and not holds) or (today is not None and today.passes is holds)


def test_the_cap_on_utilisation_is_said_to_bind() -> None:
    held = one(given(cap=0.1), 4)
    assert held.binding == "utilisation cap"
    assert held.failing_factor is None
    assert held.at is not None
    assert held.at.utilisation == pytest.approx(0.1)
    assert all(t.tightest_s is None and "cap" in (t.reason or "") for t in held.tightest)


def test_spares_do_not_serve() -> None:
    assert one(given(spares=1), 4).replicas == 3
    assert one(given(spares=1), 5, tensor_parallel=2).replicas == 1


def test_best_is_the_highest_rate_of_the_whole_fleet() -> None:
    found = capacity(given(), {"h100-sxm": 2, "h200-sxm": 3})
    rates = [h.rate_per_s for h in found.held if h.rate_per_s is not None]
    assert found.best is found.held[0]
    assert found.best.machine.candidate.gpu == "h200-sxm"
    assert rates == sorted(rates, reverse=True)
    assert found.best.rate_per_s == max(rates)


def test_context_is_what_the_pool_and_the_model_hold() -> None:
    held = one(given(), 4)
    assert held.longest_context_tokens == 131072
    # A lone prompt of S tokens in chunks of 8192: ceil(S/8192) · 5 ms + S · 40 µs ≤ 250 ms.
    want = max(s for s in range(1, 9000) if math.ceil(s / 8192) * 0.005 + s * 40e-6 <= 0.25)
    assert held.longest_prompt_tokens == pytest.approx(want, abs=1)


@pytest.mark.parametrize(
    ("gpus", "slo", "words"),
    [
        (4, "{ttft: {p95: 1 ms}}", "no number of replicas mends it"),
        (1, "{ttft: {p95: 250 ms}}", "a replica takes 2 GPUs"),
    ],
)
def test_what_cannot_be_held_is_a_reason_and_no_number(gpus: int, slo: str, words: str) -> None:
    held = one(given(slo=slo), gpus, tensor_parallel=2)
    assert held.factor is None
    assert held.rate_per_s is None
    assert held.reason is not None
    assert words in held.reason


def test_an_infeasible_fleet_is_told_and_strict_json() -> None:
    found = capacity(given(slo="{ttft: {p95: 1 ms}}"), {"h100-sxm": 8})
    assert found.best is None
    text = json.dumps(document(found), allow_nan=False)
    assert json.loads(text)["verdict"] == "infeasible"
    assert "infeasible: " in told(found)


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("h100=0", "at least 1"),
        ("h100=-4", "at least 1"),
        ("h100", "write it like"),
        ("h100=x", "write it like"),
        ("a100-80gb-sxm=8", "no candidate of given-fleet runs on it"),
        ("h1000=8", "h100"),
    ],
)
def test_a_wrong_fleet_is_a_fault(tmp_path: Path, written: str, words: str) -> None:
    path = tmp_path / "given.yaml"
    text = SPEC.format(
        arrivals="{process: poisson, rate: 60 req/s}", slo="{ttft: {p95: 250 ms}}", cap=1.0, spares=0
    )
    path.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(command, [str(path), "--gpus", written])
    assert isinstance(result.exception, InputError)
    assert words in "\n".join(result.exception.lines)


def test_the_verb_prints_the_best_and_strict_json(tmp_path: Path) -> None:
    path = tmp_path / "given.yaml"
    text = SPEC.format(
        arrivals="{process: poisson, rate: 60 req/s}", slo="{ttft: {p95: 250 ms}}", cap=1.0, spares=0
    )
    path.write_text(text, encoding="utf-8")
    plain = CliRunner().invoke(command, [str(path), "--gpus", "h100=4"], catch_exceptions=False)
    machine = CliRunner().invoke(command, [str(path), "--gpus", "h100=4", "--json"], catch_exceptions=False)
    body = json.loads(machine.output)
    best = body["candidates"][0]
    assert body["best"] == best["candidate_id"]
    assert f"holds {best['highest_requests_per_s']:.4g} requests/s" in plain.output
    # Left out, the fleet is one node of each kind.
    assert json.loads(CliRunner().invoke(command, [str(path), "--json"]).output)["fleet"] == {
        "h100-sxm": 8,
        "h200-sxm": 8,
    }


def test_the_fleet_of_a_spec_lands_in_the_store(tmp_path: Path) -> None:
    from fleetplan.store.parts import read_part

    text = SPEC.format(
        arrivals="{process: poisson, rate: 60 req/s}",
        slo="{ttft: {p95: 250 ms}, tpot: {p95: 30 ms}}",
        cap=1.0,
        spares=0,
    )
    path = tmp_path / "given.yaml"
    path.write_text(text + "capacity: {h100: 4, H200 SXM: 2}\n", encoding="utf-8")
    answer = CliRunner().invoke(
        command, [str(path), "--parts", str(tmp_path / "parts")], catch_exceptions=False
    )
    assert answer.exit_code == 0
    rows = read_part(tmp_path / "parts", "given-fleet", "capacity")
    assert {(row["gpu"], row["gpus"]) for row in rows} == {("h100-sxm", 4), ("h200-sxm", 2)}
    (best,) = [row for row in rows if row["best"]]
    assert best["highest_requests_per_s"] == max(row["highest_requests_per_s"] or 0 for row in rows)
    assert best["highest_requests_per_s"] == pytest.approx(60 * best["highest_factor"])
    held = one(given(), 4)
    assert held.factor in [row["highest_factor"] for row in rows]
    promises = read_part(tmp_path / "parts", "given-fleet", "capacity_promises")
    assert {(row["metric"], row["percentile"]) for row in promises} == {("ttft", 95.0), ("tpot", 95.0)}
    path.write_text(text, encoding="utf-8")
    CliRunner().invoke(command, [str(path), "--parts", str(tmp_path / "parts")], catch_exceptions=False)
    assert read_part(tmp_path / "parts", "given-fleet", "capacity") == []


@pytest.mark.parametrize(
    ("fleet", "says"),
    [
        ("{h1000: 8}", "capacity.h1000: unknown GPU"),
        ("{a100: 8}", "is a GPU that no candidate runs on"),
        ("{h100: 0}", "capacity.h100"),
        ("{h100: 4, h100-sxm: 4}", "is the same GPU as"),
    ],
)
def test_a_fleet_that_cannot_be_is_told(fleet: str, says: str) -> None:
    text = SPEC.format(
        arrivals="{process: poisson, rate: 60 req/s}", slo="{ttft: {p95: 250 ms}}", cap=1.0, spares=0
    )
    with pytest.raises(InputError) as caught:
        loads(text + f"capacity: {fleet}\n")
    assert says in "\n".join(caught.value.lines)


def test_a_fleet_beyond_what_can_be_simulated_is_refused_soon() -> None:
    subject = given()
    with pytest.raises(InputError, match="more than can be simulated soon"):
        capacity(subject, {"h100": 10**11})
