"""Workloads: shipped tables, replay and its scaling, structure, tallies, and the way from a spec."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.traffic import draw, empirical, facts_table, generate, mean_rate_per_s, replay
from fleetplan.traffic.facts import length_facts, peak_per_s
from fleetplan.traffic.lengths import lengths
from fleetplan.traffic.model import (
    Bounded,
    Class,
    ClosedLoop,
    Fixed,
    Geometric,
    Poisson,
    Replay,
    Retries,
    SemanticCache,
    Sessions,
    SharedPrefix,
    Stops,
    Workload,
)
from fleetplan.traffic.requests import Requests
from fleetplan.traffic.traces import Trace, read
from fleetplan.traffic.workloads import table


def _class(**given: object) -> Class:
    base: dict[str, object] = {
        "name": "a", "arrivals": Poisson(50.0), "prompt_tokens": Geometric(0.01), "output_tokens": Geometric(0.02),
    }  # fmt: skip
    return Class(**(base | given))  # type: ignore[arg-type]


def _same(a: Requests, b: Requests) -> bool:
    return all(
        np.array_equal(getattr(a, f), getattr(b, f), equal_nan=f.endswith("_s"))
        for f in ("arrival_s", "prompt_tokens", "output_tokens", "session_id", "prefix_id", "gap_s")
    )


@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output"),
    [
        (
            "azure-2023-conv",
            19366,
            (1154.70, 1020, 2734.5, 4083, 4142, 14050),
            (211.13, 129, 424, 451, 601, 1000),
        ),
        (
            "azure-2023-code",
            8819,
            (2047.85, 1469, 5187.6, 7303.3, 7436, 7437),
            (27.88, 13, 55, 90, 251.46, 1899),
        ),
    ],
)
def test_a_shipped_table_keeps_the_lengths_and_the_seconds(
    name: str, rows: int, prompt: tuple[float, ...], output: tuple[float, ...]
) -> None:
    found = table(name)
    assert found.about.licence == "CC-BY-4.0"
    assert found.pair_counts.sum() == found.counts_per_s.sum() == found.about.rows == rows
    for tokens, want in ((found.prompt_tokens, prompt), (found.output_tokens, output)):
        facts = length_facts(np.repeat(tokens, found.pair_counts))
        assert (facts.mean, facts.p50, facts.p90, facts.p95, facts.p99, facts.max) == pytest.approx(
            want, abs=0.05
        )


@pytest.mark.shared
@pytest.mark.parametrize("name", ["conv", "code"])
def test_a_shipped_table_is_what_its_trace_makes(
    shared: Path, project: Path, tmp_path: Path, name: str
) -> None:
    shipped = project / f"data/workloads/azure-2023-{name}.parquet"
    about = table(f"azure-2023-{name}").about
    trace = read(shared / f"traces/azure2023/AzureLLMInferenceTrace_{name}.csv")
    made = facts_table.facts_of(trace, about.name, about.title, about.source, about.licence)
    facts_table.write(made, tmp_path / "made.parquet")
    facts_table.write(made, tmp_path / "again.parquet")
    assert (tmp_path / "made.parquet").read_bytes() == (tmp_path / "again.parquet").read_bytes()
    written, ships = facts_table.read(tmp_path / "made.parquet"), facts_table.read(shipped)
    assert written.about == ships.about
    for column in ("prompt_tokens", "output_tokens", "pair_counts", "counts_per_s"):
        assert np.array_equal(getattr(written, column), getattr(ships, column))


def test_a_table_of_many_pairs_is_binned_and_keeps_its_quantiles() -> None:
    rng = np.random.default_rng(1)
    n = 200_000
    prompt = np.maximum(rng.lognormal(7, 1.2, n), 1).astype(np.int64)
    output = rng.geometric(0.004, n)
    trace = Trace("t", "csv", "", "s", (), np.arange(n) * 0.1, prompt, output, np.arange(n) + 2)
    made = facts_table.facts_of(trace, "t")
    assert made.about.bins != "exact"
    assert len(made.pair_counts) <= facts_table.MOST_PAIRS
    assert made.pair_counts.sum() == n
    again = np.repeat(made.prompt_tokens, made.pair_counts)
    for q in (0.5, 0.9, 0.99):
        assert np.quantile(again, q) == pytest.approx(np.quantile(prompt, q), rel=0.07)
    assert again.mean() == pytest.approx(prompt.mean(), rel=1e-3)


def test_an_empirical_workload_replays_its_seconds_and_repeats_its_seed() -> None:
    w = empirical("azure-2023-code")
    r = generate(w, duration_s=3436, seed=4)
    assert np.array_equal(
        np.bincount(r.arrival_s.astype(int), minlength=3436), table("azure-2023-code").counts_per_s
    )
    assert _same(r, generate(w, duration_s=3436, seed=4))
    assert not _same(r, generate(w, duration_s=3436, seed=5))


@pytest.mark.parametrize("scale", [0.3, 2.5, 10.0])
def test_a_recording_is_scaled_by_thinning_and_superposition(scale: float) -> None:
    w = empirical("azure-2023-conv")
    n = 19366
    r = generate(w, duration_s=3502, seed=1, rate_scale=scale)
    part = scale % 1
    error = math.sqrt(n * part * (1 - part)) + 0.02 * n * math.floor(scale)
    assert abs(len(r) - scale * n) <= 4 * error
    assert peak_per_s(r.arrival_s, 60) == pytest.approx(8.45 * scale, rel=0.15)
    smaller = generate(w, duration_s=3502, seed=1, rate_scale=scale * 0.9)
    assert np.isin(smaller.arrival_s, r.arrival_s).all()


def test_an_unknown_table_is_refused_with_near_names() -> None:
    with pytest.raises(InputError, match="azure-2023-conv"):
        empirical("azure-2023-con")


def _trace(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + text)
    return path


def test_a_replay_is_the_rows_and_starts_again(tmp_path: Path) -> None:
    w = replay(_trace(tmp_path, "5,10,1\n6,20,2\n8,30,3\n"))
    r = generate(w, n_requests=5)
    assert r.arrival_s.tolist() == [0, 1, 3, 4.5, 5.5]
    assert r.prompt_tokens.tolist() == [10, 20, 30, 10, 20]
    assert mean_rate_per_s(w) == pytest.approx(3 / 4.5)


def test_a_trace_without_a_rate_is_not_replayed(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no rate"):
        replay(_trace(tmp_path, "5,10,1\n5,20,2\n"))


@pytest.mark.shared
def test_copies_of_hashed_traffic_share_no_blocks(shared: Path) -> None:
    one = generate(replay(shared / "traces/mooncake/synthetic_trace.jsonl"), duration_s=1000)
    two = generate(replay(shared / "traces/mooncake/synthetic_trace.jsonl"), duration_s=1000, rate_scale=2)
    assert one.hash_block_tokens == two.hash_block_tokens == 512
    assert np.array_equal(np.diff(two.block_offsets), -(-two.prompt_tokens // 512))
    assert len(np.unique(two.block_hashes)) > 1.9 * len(np.unique(one.block_hashes))


def test_a_turn_that_the_cache_answers_is_part_of_the_conversation() -> None:
    """The turns that reach the model are those without a cache less the hits; gaps of what is left out add up."""
    kind = {"arrivals": Poisson(0.5), "sessions": Sessions(Fixed(5), 10.0)}
    whole = generate(Workload((_class(**kind),)), duration_s=2000, seed=3)
    drawn = draw(Workload((_class(**kind, semantic_cache=SemanticCache(0.4)),)), duration_s=2000, seed=3)
    some = drawn.requests
    assert len(some) == len(whole) - drawn.tallies["semantic_cache_hits"]
    at = {
        (s, p): i
        for i, (s, p) in enumerate(zip(whole.session_id.tolist(), whole.prompt_tokens.tolist(), strict=True))
    }
    for session in np.unique(some.session_id)[:50].tolist():
        mine = np.flatnonzero(some.session_id == session)
        full = np.flatnonzero(whole.session_id == session)
        rows = [at[session, p] for p in some.prompt_tokens[mine].tolist()]
        assert rows == sorted(rows)
        waited = np.cumsum(np.nan_to_num(whole.gap_s[full]))
        since = np.diff([waited[full.tolist().index(row)] for row in rows])
        assert np.isnan(some.gap_s[mine[0]])
        assert some.arrival_s[mine[0]] == whole.arrival_s[rows[0]]
        np.testing.assert_allclose(some.gap_s[mine[1:]], since)


def test_a_failed_turn_is_sent_again_before_the_next_one() -> None:
    w = Workload(
        (_class(arrivals=Poisson(0.5), sessions=Sessions(Fixed(4), 10.0), retries=Retries(0.3, 2.0, 2)),)
    )
    drawn = draw(w, duration_s=4000, seed=1)
    r = drawn.requests
    again = r.history_tokens >= 0
    assert again.sum() == drawn.tallies["retries"]
    assert again.mean() == pytest.approx(0.39 / 1.39, abs=4 * np.sqrt(0.28 * 0.72 / len(r)))
    assert r.gap_s[again].mean() == pytest.approx(2.0, abs=4 * 2.0 / np.sqrt(again.sum()))
    for session in np.unique(r.session_id)[:50].tolist():
        mine = np.flatnonzero(r.session_id == session)
        prompts, repeats = r.prompt_tokens[mine], again[mine]
        assert np.isnan(r.gap_s[mine[0]])
        assert not repeats[0]
        # a repetition is the turn before it, alike; what follows has grown
        assert (prompts[1:][repeats[1:]] == prompts[:-1][repeats[1:]]).all()
        assert (prompts[1:][~repeats[1:]] > prompts[:-1][~repeats[1:]]).all()
        assert (r.history_tokens[mine][repeats] == prompts[repeats] - 1).all()


def test_sessions_grow_by_whole_turns_and_end_at_the_context() -> None:
    w = Workload((_class(arrivals=Poisson(5.0), sessions=Sessions(Fixed(6), 10.0, 1.0, 700)),))
    d = draw(w, duration_s=300, seed=2)
    r = d.requests
    assert (r.prompt_tokens + r.output_tokens)[~np.isnan(r.gap_s)].max() <= 700
    assert d.tallies["session_turns_beyond_context"] > 0
    for session in range(20):
        rows = np.flatnonzero(r.session_id == session)
        assert np.isnan(r.gap_s[rows[0]])
        assert (r.prompt_tokens[rows[1:]] > (r.prompt_tokens + r.output_tokens)[rows[:-1]]).all()
    assert set(r.history_tokens) == {-1}


def test_a_closed_loop_is_users_who_share_nothing() -> None:
    r = generate(Workload((_class(arrivals=ClosedLoop(8, 2.0)),)), n_requests=80, rate_scale=2)
    assert len(np.unique(r.session_id)) == 16
    assert np.isnan(r.gap_s).sum() == 16
    assert set(r.history_tokens) == {0}
    assert mean_rate_per_s(Workload((_class(arrivals=ClosedLoop(8, 2.0)),))) is None


def test_structure_shares_and_rates_within_standard_errors() -> None:
    prefix = SharedPrefix(Fixed(80), 0.9, 3, 1.0)
    w = Workload(
        (_class(shared_prefix=prefix, semantic_cache=SemanticCache(0.3, 0.2), retries=Retries(0.1, 0.5, 2)),)
    )
    d = draw(w, duration_s=2000, seed=3)
    r, n = d.requests, 100_000
    assert abs(d.tallies["semantic_cache_hits"] - 0.24 * n) < 4 * math.sqrt(0.24 * n)
    assert abs(len(r) - (mean_rate_per_s(w) or 0) * 2000) < 4 * math.sqrt(1.5 * len(r))
    assert (r.prefix_tokens < r.prompt_tokens).all()
    long = r.prompt_tokens > 80
    assert abs((r.prefix_id[long] >= 0).mean() - 0.9) < 4 * math.sqrt(0.09 / long.sum())
    share = np.bincount(r.prefix_id[r.prefix_id >= 0]) / (r.prefix_id >= 0).sum()
    assert share == pytest.approx([6 / 11, 3 / 11, 2 / 11], abs=0.01)


def test_what_is_cut_is_counted() -> None:
    stops = Stops(((1, 0.01),), 0.005, 100)
    w = Workload(
        (_class(output_tokens=stops, reasoning_tokens=Bounded(Fixed(30)), max_output_tokens=120),),
        max_context_tokens=250,
    )
    d = draw(w, n_requests=5000, seed=1)
    r = d.requests
    assert (r.prompt_tokens + r.output_tokens).max() <= 250
    assert (r.hidden_tokens <= r.output_tokens).all()
    tallies = d.tallies
    for name in (
        "output_cut_by_max_tokens",
        "output_cut_by_stop_sequence",
        "prompt_clipped_to_context",
        "output_clipped_to_context",
    ):
        assert tallies[name] > 100


def test_classes_with_common_arrivals_take_their_shares() -> None:
    classes = (
        _class(name="a", arrivals=None, share=0.75),
        _class(name="b", arrivals=None, share=0.25, priority=2),
    )
    r = generate(Workload(classes, arrivals=Poisson(10.0)), n_requests=20_000, seed=1)
    assert r.classes == ("a", "b")
    assert abs((r.class_index == 0).mean() - 0.75) < 4 * math.sqrt(0.75 * 0.25 / 20_000)
    assert set(r.priority[r.class_index == 1]) == {2}


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        (Workload(()), "has no class"),
        (Workload((_class(arrivals=None),)), "has no arrivals"),
        (Workload((_class(prompt_tokens=None),)), "has no lengths"),
        (Workload((_class(correlation=1.0),)), "correlation"),
        (Workload((_class(arrivals=Poisson(0.0)),)), "rate must be > 0"),
        (
            Workload((_class(arrivals=ClosedLoop(3, 1.0), sessions=Sessions(Fixed(2), 1.0)),)),
            "users are its sessions already",
        ),
        (
            Workload(
                (
                    _class(
                        arrivals=Replay(np.array([0.0, 1.0]), np.array([5, 5]), np.array([5, 5]), 2.0),
                        sessions=Sessions(Fixed(2), 1.0),
                    ),
                )
            ),
            "whose rows are its turns already",
        ),
    ],
)
def test_a_workload_that_cannot_be_is_refused(workload: Workload, said: str) -> None:
    with pytest.raises(InputError, match=said):
        generate(workload, n_requests=10)


def test_the_shipped_scenarios_map_onto_workloads(project: Path) -> None:
    from fleetplan import spec
    from fleetplan.traffic.from_spec import workload_of

    scenario = spec.load(project / "data/scenarios/azure-conversation-x10.yaml")
    workload, scale = workload_of(scenario.workload)
    assert (workload.classes[0].joint is not None, scale) == (True, 10)
    assert mean_rate_per_s(workload, scale) == pytest.approx(55.3, abs=0.05)


def test_moments_of_a_spec_are_those_of_its_lengths() -> None:
    from fleetplan.spec.lengths import LogNormal
    from fleetplan.traffic.from_spec import length_of

    made = length_of(LogNormal.model_validate({"lognormal": {"mean": 1200, "p99": 6000, "max": 8192}}))
    assert made == lengths("lognormal", mean=1200, p99=6000, max=8192)
