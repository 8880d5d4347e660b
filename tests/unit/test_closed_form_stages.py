"""The verbs `queueing` and `speculation` on a small scenario: parts by the data dictionary, the same bytes again."""

import textwrap

import pytest
from click.testing import CliRunner

from fleetplan.cli import group
from fleetplan.errors import InputError
from fleetplan.store.parts import part_path, read_part

SPEC = """
    scenario: small
    model: llama-3.1-8b
    workload:
      classes:
        - name: chat
          arrivals: {process: poisson, rate: 12 req/s}
          prompt_tokens: {lognormal: {mean: 600, p99: 2000}}
          output_tokens: {geometric: {mean: 150, max: 1024}}
          slo: {ttft: {p99: 1 s}, tpot: {p95: 40 ms}}
    candidates:
      gpu: [h100-sxm, l40s, h200-sxm]
      speculation: [SPECULATION]
    step_time: {roofline: {efficiency: 0.7}}
    policy: {prices: on-demand-2026-08}
    simulation: {horizon: 300 s}
    """


def run(tmp_path, verbs, speculated="none"):
    spec = tmp_path / "small.yaml"
    spec.write_text(textwrap.dedent(SPEC.replace("SPECULATION", speculated)), encoding="utf-8")
    for verb in verbs.split():
        done = CliRunner().invoke(
            group, [verb, str(spec), "--parts", str(tmp_path / "parts")], catch_exceptions=False
        )
        assert done.exit_code == 0, done.output
    return tmp_path / "parts"


def test_queueing(tmp_path):
    parts = run(tmp_path, "batching sizing queueing")
    rows = read_part(parts, "small", "queueing")
    assert {row["formula"] for row in rows} == {"continuous_batching", "mmc", "ggc", "mg1"}
    for row in rows:
        assert row["stable"] or row["wait_mean_s"] is None
        assert row["stable"] == (row["utilisation"] < 1)
    assert any(row["stable"] for row in rows)
    errors = read_part(parts, "small", "chain_errors")
    assert [row["utilisation"] for row in errors] == [0.3, 0.5, 0.7, 0.8, 0.9]
    assert abs(errors[0]["ttft_error"]) < 0.2
    assert abs(errors[0]["tpot_error"]) < 0.05
    curve = read_part(parts, "small", "goodput")
    decision = read_part(parts, "small", "decisions")[0]
    assert decision["gpu"] == "l40s"  # not the first of the grid
    assert {row["candidate_id"] for row in curve + errors} == {decision["candidate_id"]}
    near = {row["replicas"] for row in rows if row["candidate_id"] == decision["candidate_id"]}
    assert near >= {n for n in range(decision["replicas"] - 1, decision["replicas"] + 2) if n > 0}
    assert [row["batch_cap"] for row in curve] == sorted(row["batch_cap"] for row in curve)
    assert any(row["pareto"] for row in curve)
    (room,) = read_part(parts, "small", "room")
    assert room["candidate_id"] == decision["candidate_id"]
    assert room["concurrent_requests"] == pytest.approx(12 / room["engines"] * room["residence_mean_s"])
    assert room["sequences_paged"] > room["sequences_reserved"] > 0
    assert room["static_utilisation"] == pytest.approx(room["static_utilisation_geometric"], rel=0.1)
    path = part_path(parts, "small", "goodput")
    before = path.read_bytes()
    run(tmp_path, "queueing")
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("given", "basis", "drafts"),
    [
        ("{draft: eagle3, tokens: 3, acceptance: [0.75, 0.70, 0.66]}", "stated", 3),
        ("{draft: eagle3, tokens: 2, acceptance_from: eagle3-kimi-k2.5-coding-direct}", "measured: eagle3-kimi-k2.5-coding-direct", 2),
        ("{draft: ngram, tokens: 4, acceptance: [0.4]}", "stated", 4),
        ("{draft: draft_model, tokens: 2, acceptance: [0.7], draft_cost: 0.1}", "stated", 2),
        ("none", "what if", 5),
    ],
)  # fmt: skip
def test_speculation(tmp_path, given, basis, drafts):
    parts = run(tmp_path, "speculation", given)
    rows = read_part(parts, "small", "speculation")
    assert {row["basis"] for row in rows} == {basis}
    assert max(row["drafts"] for row in rows) == drafts
    for row in rows:
        assert row["pays"] == (row["speedup"] > 1)
        assert row["speedup"] <= row["speedup_textbook"] * (1 + 1e-9)
        assert (row["draft_cost"] == 0) == (row["draft"] == "ngram")
    assert read_part(parts, "small", "speculation_choices")
    assert len(read_part(parts, "small", "sampling_acceptance")) == 11
    assert {row["position"] for row in read_part(parts, "small", "measured_acceptance")} == set(range(1, 9))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("{draft: eagle3, tokens: 3, acceptance_from: no-such-row}", "row of measured acceptance"),
        ("{draft: eagle3, tokens: 9, acceptance_from: eagle3-kimi-k2.5-coding-direct}", "not extrapolated"),
        ("{draft: mtp, tokens: 2, acceptance: [0.7]}", "has no such layers"),
        ("{draft: eagel, tokens: 3, acceptance: [0.7]}", "near names: eagle3"),
    ],
)
def test_speculation_refuses(tmp_path, given, says):
    with pytest.raises(InputError, match=says):
        run(tmp_path, "speculation", given)


def test_drafts_whose_cost_nobody_knows_are_kept_with_that_reason(tmp_path):
    parts = run(tmp_path, "candidates speculation", "{draft: draft_model, tokens: 3, acceptance: [0.7]}")
    assert all("give draft_cost" in row["reason"] for row in read_part(parts, "small", "candidates"))
    assert not read_part(parts, "small", "speculation")
