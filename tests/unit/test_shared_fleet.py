"""Many models on one fleet: the exact assignment against brute force, what is short, and the fleet file's faults."""

import itertools
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from fleetplan.cli.fleet import command
from fleetplan.errors import InputError
from fleetplan.sizing.pool import Choice, assign, size
from fleetplan.spec.fleet import load_fleet

KINDS = ("h100-sxm", "a100-80gb-sxm", "l40s")
SCENARIO = """
scenario: {name}
model: {model}
workload:
  classes:
    - name: chat
      arrivals: {{process: poisson, rate: {rate} req/s}}
      prompt_tokens: 400
      output_tokens: 30
      slo: {{ttft: {{p95: 250 ms}}, tpot: {{p95: 40 ms}}}}
candidates: {{gpu: [h100-sxm, a100-80gb-sxm], tensor_parallel: [1, 2]}}
step_time: {{roofline: {{efficiency: 0.6, overhead: 3 ms}}}}
policy: {{prices: on-demand-2026-08}}
simulation: {{horizon: 30 s, replications: 1}}
"""


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, list[Choice]], dict[str, int], float | None]:
    """Scenarios with a choice on some kinds (or none), a stock of some kinds, and perhaps a budget."""
    options = {}
    for index in range(draw(st.integers(1, 4))):
        name = f"s{index}"
        kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True))
        options[name] = [
            Choice(name, f"{name}{kind}", "", kind, 1, draw(st.integers(1, 12)), draw(st.integers(1, 80)) / 4)
            for kind in kinds
        ]
    stock = draw(st.dictionaries(st.sampled_from(KINDS), st.integers(0, 20), max_size=3))
    return options, stock, draw(st.none() | st.integers(1, 200).map(lambda quarters: quarters / 4))


@given(pools())
def test_the_assignment_is_that_of_brute_force(
    pool: tuple[dict[str, list[Choice]], dict[str, int], float | None],
) -> None:
    options, stock, budget = pool
    found = assign(options, stock, budget)
    all_ways = [
        (
            sum(c.usd_per_hour for c in way),
            {kind: sum(c.gpus for c in way if c.gpu == kind) for kind in KINDS},
        )
        for way in itertools.product(*options.values())
    ]
    short = [sum(max(taken[kind] - most, 0) for kind, most in stock.items()) for _, taken in all_ways]
    fit = [usd for (usd, _), missing in zip(all_ways, short, strict=True) if missing == 0]
    if fit and (budget is None or min(fit) <= budget):
        assert found.feasible
        assert found.usd_per_hour == min(fit)
        assert [choice.scenario for choice in found.chosen] == list(options)
        assert all(found.gpus.get(kind, 0) <= most for kind, most in stock.items())
        return
    assert not found.feasible
    assert found.chosen == ()
    assert found.usd_per_hour is None
    if fit:
        assert budget is not None
        assert found.short_usd_per_hour == pytest.approx(min(fit) - budget)
        assert "short by" in (found.reason or "")
    else:
        assert sum((found.short_gpus or {}).values()) == min(short)
        cheapest = min(usd for usd, _ in all_ways)
        over = budget is not None and cheapest > budget
        assert (found.short_usd_per_hour is not None) is over


def test_of_equal_cost_the_fewest_gpus() -> None:
    many, few = (Choice("a", str(n), "", "l40s", n, n, 8.0) for n in (8, 2))
    assert assign({"a": [many, few]}, {"h100-sxm": 0}).chosen == (few,)


def test_a_scenario_without_a_plan_is_named() -> None:
    found = assign({"a": [Choice("a", "1", "", "l40s", 1, 1, 1.0)], "b": []}, {"l40s": 4})
    assert not found.feasible
    assert "no plan of b" in (found.reason or "")


def folder_of(tmp_path: Path, fleet: str) -> Path:
    for name, model, rate in (("eight", "llama-3.1-8b", 60), ("other", "qwen3-14b", 40)):
        text = SCENARIO.format(name=name, model=model, rate=rate)
        (tmp_path / f"{name}.yaml").write_text(text, encoding="utf-8")
    path = tmp_path / "pool.yaml"
    path.write_text(fleet, encoding="utf-8")
    return path


def test_end_to_end_a_small_stock_moves_one_model_and_a_smaller_one_is_short(tmp_path: Path) -> None:
    def answer(stock: str) -> dict[str, object]:
        path = folder_of(tmp_path, f"fleet: pool\nscenarios: [eight.yaml, other.yaml]\nstock: {stock}\n")
        result = CliRunner().invoke(command, [str(path), "--json"], catch_exceptions=False)
        return dict(json.loads(result.output))

    ample = answer("{h100: 100, a100-80gb-sxm: 100}")
    assert ample["verdict"] == "feasible"
    plans = {(p["scenario"], p["gpu"]): p for p in ample["plans"]}  # type: ignore[index, attr-defined]
    cheapest = {
        name: min((p for (s, _), p in plans.items() if s == name), key=lambda p: p["usd_per_hour"])
        for name in ("eight", "other")
    }
    assert ample["assigned"] == [cheapest["eight"], cheapest["other"]]
    # One GPU fewer of the kind that both like best, and one model moves to the other kind.
    kind = cheapest["eight"]["gpu"]
    assert cheapest["other"]["gpu"] == kind
    taken = ample["taken_gpus"][kind]  # type: ignore[index]
    tight = answer(f"{{{kind}: {taken - 1}}}")
    assert tight["verdict"] == "feasible"
    assert len(tight["taken_gpus"]) == 2  # type: ignore[arg-type]
    assert tight["cost_usd_per_hour"] > ample["cost_usd_per_hour"]  # type: ignore[operator]
    none = answer("{h100: 0, a100-80gb-sxm: 0}")
    assert none["verdict"] == "infeasible"
    assert none["cost_usd_per_hour"] is None
    least = sum(min(p["gpus"] for (s, _), p in plans.items() if s == name) for name in ("eight", "other"))
    assert sum(none["short_gpus"].values()) == least  # type: ignore[attr-defined]


def test_the_cheapest_plan_on_each_kind_is_enough(tmp_path: Path) -> None:
    """No plan of a kind takes fewer GPUs than the cheapest one, so nothing better can be assigned."""
    from fleetplan.sizing.decide import decide, plan

    path = folder_of(tmp_path, "fleet: pool\nscenarios: [eight.yaml]\nstock: {h100: 9}\n")
    (scenario,) = load_fleet(path).loaded
    every = decide(plan(scenario), prune=False)
    for choice in size(scenario).choices:
        on_it = [
            o.fleet.gpus
            for o in every.options
            if o.fleet and o.found and o.machine.candidate.gpu == choice.gpu
        ]
        assert choice.gpus == min(on_it)


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("fleet: p\nscenarios: [eight.yaml]\n", "pool.yaml:1:1", "shares nothing"),
        ("fleet: p\nscenarios: [none.yaml]\nstock: {h100: 8}\n", "pool.yaml:2:13", "not there"),
        ("fleet: p\nscenarios: [eight.yaml]\nstock: {h1000: 8}\n", "pool.yaml:3:", "h100"),
        ("fleet: p\nscenarios: [eight.yaml]\nstock: {h100: -8}\n", "pool.yaml:3:", "-8"),
        ("fleet: p\nscenarios: [eight.yaml]\nstock: {h100: 8, h100-sxm: 9}\n", "pool.yaml:3:", "same GPU"),
        ("fleet: p\nscenarios: [eight.yaml]\nbudget: 20\n", "pool.yaml:3:", "USD/h"),
        ("fleet: p\nscenarios: [eight.yaml]\nbuget: 20 USD/h\n", "pool.yaml:3:1", "budget"),
        ("fleet: p\nscenarios: [eight.yaml, ./eight.yaml]\nstock: {h100: 8}\n", "pool.yaml:2:25", "differ"),
    ],
)
def test_a_wrong_file_is_told_with_its_place(tmp_path: Path, text: str, place: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_fleet(folder_of(tmp_path, text))
    said = "\n".join(caught.value.lines)
    assert place in said
    assert words in said


def test_validate_takes_fleet_files_too(tmp_path: Path) -> None:
    from fleetplan.spec import validate

    right = folder_of(tmp_path, "fleet: p\nscenarios: [eight.yaml]\nstock: {h100: 8}\n")
    assert validate([right]) == []
    wrong = folder_of(tmp_path, "fleet: p\nscenarios: [eight.yaml]\nstock: {h1000: 8}\n")
    assert "pool.yaml:3:" in validate([wrong])[0]


def test_shipped_fleets_are_right(project: Path) -> None:
    files = sorted((project / "data/fleets").rglob("*.yaml"))
    assert files
    for path in files:
        assert load_fleet(path).loaded


def test_an_assignment_lands_in_the_store(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from fleetplan.cli.fleet import command
    from fleetplan.store.load import load
    from fleetplan.store.parts import read_part
    from fleetplan.store.query import ask

    spec = folder_of(tmp_path, "fleet: both\nscenarios: [eight.yaml]\nstock: {h100: 8}\n")
    parts = tmp_path / "parts"
    answer = CliRunner().invoke(command, [str(spec), "--parts", str(parts), "--json"], catch_exceptions=False)
    told = json.loads(answer.output)
    plans = read_part(parts, "both", "fleet_plans")
    assert {(row["gpu"], row["taken"]) for row in plans} >= {
        (choice["gpu"], True) for choice in told["assigned"]
    }
    assert load(parts, tmp_path / "store.duckdb", ["both"], ["both"]).scenarios == ("both",)
    found = ask("SELECT fleet, verdict, cost_usd_per_hour FROM fleets", tmp_path / "store.duckdb").rows
    assert found == [("both", told["verdict"], told["cost_usd_per_hour"])]
    taken = ask("SELECT gpu, stock_gpus, taken_gpus FROM fleet_stock", tmp_path / "store.duckdb").rows
    assert taken == [("h100-sxm", 8, told["taken_gpus"].get("h100-sxm", 0))]
    (part,) = ask("SELECT DISTINCT stage FROM parts", tmp_path / "store.duckdb").rows
    assert part == ("fleet",)
