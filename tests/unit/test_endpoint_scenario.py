"""An endpoint that is no LLM, from its spec through every stage: the simulated count against the closed form, and every fault."""

import textwrap
from pathlib import Path

import pytest
from click.testing import CliRunner

from fleetplan.cli import group
from fleetplan.errors import InputError
from fleetplan.queueing.endpoint import size_endpoint
from fleetplan.queueing.multi import mmc
from fleetplan.sizing.endpoint import moments, service_s
from fleetplan.spec import loads
from fleetplan.spec.endpoint import EndpointScenario
from fleetplan.store.parts import read_part

SPEC = """\
scenario: search
endpoint:
  - gpu: l40s
    service_time: {mean: 4 ms, cv: 0}
    servers_per_gpu: 1
workload:
  classes:
    - name: query
      arrivals: {process: poisson, rate: 1000 req/s}
      slo: {e2e: {p95: 20 ms}}
policy: {prices: on-demand-2026-08, max_utilisation: 0.8, uncertainty: {draws: 2}}
simulation: {horizon: 30 s}
seed: 1
"""


def planned(folder: Path, text: str) -> dict[str, list[dict[str, object]]]:
    path = folder / "search.yaml"
    path.write_text(text, encoding="utf-8")
    for verb in ("candidates", "roofline", "batching", "speculation", "sizing", "queueing"):
        done = CliRunner().invoke(group, [verb, str(path), "--parts", str(folder)], catch_exceptions=False)
        assert done.exit_code == 0, done.output
    names = ("candidates", "decisions", "evidence", "plans", "endpoints", "queueing", "simulations", "workloads", "rooflines", "speculation")  # fmt: skip
    return {name: read_part(folder, "search", name) for name in names}


@pytest.mark.parametrize(
    ("mean_ms", "cv", "servers", "limit_ms"),
    [(4, 0.0, 1, 20), (4, 1.0, 2, 20), (10, 0.5, 4, 30), (4, 1.0, 1, 14)],
)
def test_the_simulated_count_is_that_of_the_closed_form(
    tmp_path: Path, mean_ms: float, cv: float, servers: int, limit_ms: float
) -> None:
    text = SPEC.replace("mean: 4 ms, cv: 0", f"mean: {mean_ms} ms, cv: {cv}")
    text = text.replace("servers_per_gpu: 1", f"servers_per_gpu: {servers}").replace(
        "20 ms", f"{limit_ms} ms"
    )
    made = planned(tmp_path, text)
    size = size_endpoint(1000, mean_ms / 1e3, limit_ms / 1e3, service_cv=cv, max_utilisation=0.8)
    assert size.servers is not None
    decision, closed = made["decisions"][0], made["endpoints"][0]
    assert closed["servers"] == size.servers
    assert decision["replicas"] == closed["replicas"] == -(-size.servers // servers)
    count = decision["replicas"]
    assert isinstance(count, int)
    verdicts = {row["replicas"]: row for row in made["evidence"] if row["metric"] == "e2e"}
    caps = {row["replicas"]: row["holds"] for row in made["evidence"] if row["metric"] == "utilisation"}
    assert verdicts[count]["holds"]
    assert caps[count]
    assert not (verdicts[count - 1]["holds"] and caps[count - 1])
    assert {row["replicas"] for row in made["queueing"]} >= {count - 1, count, count + 1}
    if cv == 1.0:  # M/M/c is exact
        exact = mmc(1000, mean_ms / 1e3, count * servers).sojourn_percentile_s(0.95)
        assert verdicts[count]["simulated_s"] == pytest.approx(exact, rel=0.05)


def test_nothing_about_tokens_is_told_of_an_endpoint(tmp_path: Path) -> None:
    made = planned(tmp_path, SPEC)
    assert not made["rooflines"]
    assert not made["speculation"]
    facts, plan, candidate = made["workloads"][0], made["plans"][0], made["candidates"][0]
    assert {facts[key] for key in facts if key.endswith("_tokens")} == {None}
    assert {plan[key] for key in ("cost_usd_per_million_tokens", "ttft_p99_s", "tpot_p95_s")} == {None}
    assert plan["cost_usd_per_request"] == pytest.approx(plan["cost_usd_per_hour"] / 3600 / 1000)  # type: ignore[operator]
    assert (candidate["fits"], candidate["weights"], candidate["kv_blocks"]) == (True, "none", None)
    for row in made["simulations"]:
        assert (row["ttft_p99_s"], row["throughput_tokens_per_s"]) == (None, None)
        assert row["e2e_p95_s"] is not None


@pytest.mark.parametrize(
    ("given", "mean_ms", "cv"),
    [
        ("{mean: 4 ms}", 4, 1.0),
        ("{mean: 4 ms, cv: 0}", 4, 0.0),
        ("{mean: 4 ms, cv: 1.5, law: lognormal}", 4, 1.5),
        ("{quantiles: {p0: 2 ms, p100: 4 ms}}", 3, 1 / 3 / 3**0.5),
        ("{quantiles: {p100: 9 ms, p0: 1 ms, p50: 1 ms}}", 3, None),
    ],
)
def test_service_times_have_the_stated_mean_and_spread(given: str, mean_ms: float, cv: float | None) -> None:
    scenario = loads(SPEC.replace("{mean: 4 ms, cv: 0}", given))
    assert isinstance(scenario, EndpointScenario)
    law = scenario.endpoint[0].service_time
    times, (mean, spread) = service_s(law), moments(law)
    assert mean == pytest.approx(mean_ms / 1e3, rel=1e-3)
    assert float(times.mean()) == pytest.approx(mean, rel=1e-9)
    assert float(times.std() / times.mean()) == pytest.approx(spread, rel=0.02)
    if cv is not None:
        assert spread == pytest.approx(cv, rel=1e-3)


def test_a_promise_that_the_service_alone_breaks_is_infeasible(tmp_path: Path) -> None:
    made = planned(tmp_path, SPEC.replace("20 ms", "3 ms"))
    decision = made["decisions"][0]
    assert decision["verdict"] == "infeasible"
    assert "4 ms" in str(decision["reason"])
    assert made["endpoints"][0]["servers"] is None
    assert "service alone" in str(made["endpoints"][0]["binding_limit"])


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("{mean: 4 ms, cv: 0}", "4 ms", 4, "must be a mapping"),
        ("{mean: 4 ms, cv: 0}", "{mean: 4}", 4, "needs a unit"),
        ("{mean: 4 ms, cv: 0}", "{quantiles: {p50: 4 ms}}", 4, "needs p0 and p100"),
        ("l40s", "l40x", 3, "near names"),
        ("servers_per_gpu: 1", "servers_per_gpu: 0", 5, "at least 1"),
        ("{e2e: {p95: 20 ms}}", "{ttft: {p95: 20 ms}}", 10, "is no key here"),
        ("scenario: search\n", "scenario: search\nmodel: llama-3.1-8b\n", 2, "is no key here"),
        ("seed: 1", "policy: {}", 13, "twice"),
        ("max_utilisation: 0.8", "throughput: 10 tokens/s", 11, "promises tokens"),
        ("draws: 2", "output_length_cv: 0.2", 11, "about output tokens"),
        ("      slo: {e2e: {p95: 20 ms}}\n", "", 7, "no promise in any class"),
    ],
)  # fmt: skip
def test_faults_are_told_with_their_line(old: str, new: str, line: int, says: str) -> None:
    assert old in SPEC
    with pytest.raises(InputError) as raised:
        loads(SPEC.replace(old, new, 1), "search.yaml")
    assert any(said.startswith(f"search.yaml:{line}:") and says in said for said in raised.value.lines), (
        raised.value.lines
    )


def test_capacity_says_that_it_is_not_for_endpoints(tmp_path: Path) -> None:
    path = tmp_path / "search.yaml"
    path.write_text(textwrap.dedent(SPEC))
    with pytest.raises(InputError, match="got an endpoint"):
        CliRunner().invoke(group, ["capacity", str(path)], catch_exceptions=False)


def test_the_shipped_example_is_right(project: Path) -> None:
    from fleetplan.spec import load

    scenario = load(project / "data/scenarios/examples/embeddings.yaml")
    assert isinstance(scenario, EndpointScenario)
    assert len(scenario.endpoint) == 2
