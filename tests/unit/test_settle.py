"""The last word on a count: further replications until it is clear, and spares that ride out what may fail."""

from __future__ import annotations

import dataclasses
import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fleetplan.sizing import settle as settling
from fleetplan.sizing.certificate import certificate_of
from fleetplan.sizing.decide import Decision, Option, decide, plan
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.resilience import resilience
from fleetplan.sizing.search import Found
from fleetplan.sizing.settle import certified, settle
from fleetplan.sizing.stages.fleet import fleet_rows
from fleetplan.sizing.verdict import Limit, Outcome, Sample, Verdict, pool
from fleetplan.spec import loads

# A step takes 10 ms with up to eight sequences, and each answer 20 steps: a replica sustains about 40 requests/s.
SPEC = """
scenario: small
model: llama-3.1-8b
workload:
  classes:
    - name: chat
      arrivals: {{process: poisson, rate: 100 req/s}}
      prompt_tokens: 100
      output_tokens: 20
      slo: {{ttft: {{p95: 150 ms}}}}
candidates: {{gpu: [h100-sxm], scheduler: [{{max_num_seqs: 8}}]}}
step_time: {{affine: {{fixed: 10 ms, prefill: 0 us/token, decode: 0 us/sequence}}}}
policy: {{prices: on-demand-2026-08, uncertainty: {{draws: 0}}, {policy}}}
simulation: {{horizon: 100 s, replications: 1}}
"""
LIMIT = Limit("chat", "ttft", "p95", 0.95, (("ttft", 1.0, 0.0),))


def settled(policy: str) -> Decision:
    subject = plan(loads(SPEC.format(policy=policy)))
    return decide(subject, settle=functools.partial(settle, subject))


def verdict(replicas: int, met: float, half: float, replications: int = 4) -> Verdict:
    outcome = Outcome(LIMIT, 1000, met, met - half, met + half, 0.9)
    return Verdict(replicas, (outcome,), 0.5, 0.8, True, replications, False, 0.0, 100.0, {})


def certify(
    monkeypatch: pytest.MonkeyPatch,
    search: dict[int, Verdict],
    count: int,
    further: dict[int, Verdict],
    **simulation: Any,
) -> tuple[Found, list[int]]:
    """The certificate of a search, with what more replications would say of each count."""
    asked: list[int] = []

    def fake(built: Any, subject: Any, rate: float, replicas: int, **_: Any) -> Verdict:
        asked.append(replicas)
        return further[replicas]

    monkeypatch.setattr(settling, "verdict_at", fake)
    monkeypatch.setattr(settling.buying, "limit", lambda policy, candidate: 6)
    subject = SimpleNamespace(
        scenario=SimpleNamespace(policy=None, simulation=SimpleNamespace(replications=None, **simulation)),
        traffic=SimpleNamespace(exact=False),
    )
    option = Option(SimpleNamespace(candidate=None), "dearer", "", Found(count, search))  # type: ignore[arg-type]
    found = certified(subject, option).found  # type: ignore[arg-type]
    assert found is not None
    return found, asked


def test_what_is_clear_is_not_simulated_again(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {3: verdict(3, 0.9, 0.01), 4: verdict(4, 0.98, 0.01)}
    found, asked = certify(monkeypatch, search, 4, {})
    assert (found.replicas, asked) == (4, [])
    assert certificate_of(found, 0.95).decided


def test_noise_at_n_minus_1_is_simulated_away(monkeypatch: pytest.MonkeyPatch) -> None:
    search = {3: verdict(3, 0.93, 0.05), 4: verdict(4, 0.98, 0.01)}
    found, asked = certify(monkeypatch, search, 4, {3: verdict(3, 0.935, 0.01, 8)})
    assert (found.replicas, asked) == (4, [3])
    words = certificate_of(found, 0.95)
    assert words.decided
    assert "3 replicas fail at 95%: TTFT p95 of chat met by 93.50% (92.50% to 94.50%)" in words.words
    assert "8 replications" in words.words


@pytest.mark.parametrize(
    ("further", "count"),
    [
        ({3: verdict(3, 0.97, 0.01), 2: verdict(2, 0.8, 0.01)}, 3),
        ({4: verdict(4, 0.94, 0.005), 5: verdict(5, 0.99, 0.005)}, 5),
        ({4: verdict(4, 0.94, 0.005), 5: verdict(5, 0.94, 0.005), 6: verdict(6, 0.94, 0.005)}, None),
    ],
)
def test_more_replications_may_move_the_count(
    monkeypatch: pytest.MonkeyPatch, further: dict[int, Verdict], count: int | None
) -> None:
    unsure = min(further) if 4 in further else 3
    search = {3: verdict(3, 0.9, 0.01), 4: verdict(4, 0.98, 0.01)}
    search[unsure] = verdict(unsure, 0.951 if unsure == 4 else 0.949, 0.05)
    found, _ = certify(monkeypatch, search, 4, further)
    assert found.replicas == count


def test_what_stays_within_noise_is_said() -> None:
    words = certificate_of(Found(4, {3: verdict(3, 0.949, 0.01, 16), 4: verdict(4, 0.98, 0.01)}), 0.95)
    assert not words.decided
    assert "noise is not excluded at 95% after 16 replications" in words.words


def test_a_course_that_all_replications_follow_is_no_noise() -> None:
    """Shares fall from 100% to 60% through each run: the interval covers the truth as often as it says, and is as narrow as noise."""
    rng = np.random.default_rng(7)
    course = np.linspace(1.0, 0.6, 16)
    covered, widths = 0, []
    for _ in range(300):
        samples = []
        for _ in range(3):
            shares = rng.binomial(200, course) / 200
            samples.append(Sample(3200, float(shares.sum() * 200), shares, np.zeros(0), np.zeros(0)))
        got = pool(dataclasses.replace(LIMIT, share=0.8), samples, 0.9)
        covered += got.low_share <= 0.8 <= got.high_share
        widths.append(got.high_share - got.low_share)
    assert covered / 300 > 0.9 - 3 * np.sqrt(0.9 * 0.1 / 300)
    assert np.median(widths) < 0.03


def test_spares_that_ride_out_a_fault_are_bought_where_asked() -> None:
    faults = "max_utilisation: 0.95, outages: {replicas: 1, recovery: 30 s, zones: 2%s}"
    without, bought = (settled(faults % more).chosen for more in ("", ", buy_spares: true"))
    assert without is not None
    assert bought is not None
    assert without.fleet is not None
    assert bought.fleet is not None
    assert without.fleet.spare_replicas == 0
    assert without.fleet.replicas == bought.fleet.replicas
    decision = settled(faults % ", buy_spares: true")
    found = {each.faced.event.name: each for each in resilience(decision)}
    assert all(each.faced.passes for each in found.values())
    needed = max(each.needed_replicas or 0 for each in found.values())
    assert bought.fleet.replicas + bought.fleet.spare_replicas == needed
    assert bought.spares_reason == (
        f"N + {needed - bought.fleet.replicas} by simulation, so that promises hold while: 1 of 2 zones is lost"
    )
    rows = fleet_rows(decision)["resilience"]
    assert {row["event"]: row["needed_spare_replicas"] for row in rows}["1 of 2 zones is lost"] == (
        needed - bought.fleet.replicas
    )


def test_spares_beyond_the_stock_are_said() -> None:
    decision = settled(
        "max_utilisation: 0.95, stock: {h100-sxm: 4}, outages: {recovery: 30 s, zones: 2, buy_spares: true}"
    )
    assert decision.chosen is None
    reason, change = nearest_change(decision)
    assert "the stock of h100-sxm is 4" in reason
    assert change.startswith("raise policy.stock of h100-sxm to at least")
