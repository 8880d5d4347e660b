"""Speculative sampling keeps the target's law: a million rounds on toy bigram pairs, chi-square at level 1e-3, rows within 0.02."""

import math

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.speculation import acceptance, expected_tokens
from fleetplan.speculation.experiment import Sampling, bigram_logits, exactness, settings_table

PLAIN = Sampling()
GREEDY = Sampling(temperature=0)


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (PLAIN, PLAIN),
        (Sampling(0.7), PLAIN),
        (Sampling(top_k=3), Sampling(top_k=5)),
        (Sampling(top_p=0.8), PLAIN),
        (Sampling(repetition_penalty=1.5), Sampling(repetition_penalty=1.5)),
        (Sampling(0.8, top_k=6, top_p=0.9, repetition_penalty=1.2), Sampling(1.3)),
        (GREEDY, PLAIN),
        (PLAIN, GREEDY),
        (GREEDY, GREEDY),
    ],
    ids=[
        "plain",
        "temperature",
        "top-k",
        "top-p",
        "penalty",
        "all",
        "greedy target",
        "greedy draft",
        "both greedy",
    ],
)
def test_a_million_rounds_follow_the_target(target, draft):
    logits = bigram_logits(8, 0.75, seed=4)
    run = exactness(*logits, target, draft, rounds=1_000_000, seed=5)
    assert run.exact, run
    assert run.first_tv <= 0.02
    assert any(tv is not None for tv in run.second_tv)
    for theory, measured, error in zip(
        run.alpha_theory, run.alpha_measured, run.alpha_standard_error, strict=True
    ):
        assert abs(measured - theory) <= 3.5 * error + 1e-12


def test_the_test_finds_a_wrong_rule():
    run = exactness(*bigram_logits(8, 0.75, seed=4), PLAIN, PLAIN, rounds=200_000, rule="naive")
    assert not run.exact
    assert run.first_p_value < 1e-6


def test_acceptance_is_one_less_total_variation():
    p, q = np.random.default_rng(1).dirichlet(np.ones(6), size=(2, 50))
    assert acceptance(p, q) == pytest.approx(1 - np.abs(p - q).sum(axis=1) / 2)
    assert acceptance(p, p) == pytest.approx(1)


def test_expected_tokens_by_drawing():
    rng = np.random.default_rng(2)
    rejected = rng.random((200_000, 4)) >= 0.7
    kept = np.where(rejected.any(axis=1), rejected.argmax(axis=1), 4) + 1
    error = kept.std(ddof=1) / math.sqrt(len(kept))
    assert abs(kept.mean() - expected_tokens(0.7, 4)) <= 3 * error


def test_settings_change_acceptance_as_theory_says():
    rows = {row["setting"]: row for row in settings_table(rounds=400_000, seed=1)}
    for row in rows.values():
        assert (
            abs(row["acceptance_measured"] - row["acceptance"])
            <= 4 * row["acceptance_standard_error"] + 1e-12
        )
        assert row["impossible_tokens"] == 0
    assert rows["both at temperature 1.5"]["acceptance"] > rows["both at temperature 1"]["acceptance"]
    assert (
        rows["target greedy, draft at temperature 1"]["acceptance"]
        < rows["both at temperature 1"]["acceptance"]
    )


@pytest.mark.parametrize(
    "settings", [{"temperature": -1}, {"top_k": 0}, {"top_p": 0}, {"top_p": 1.1}, {"repetition_penalty": 0}]
)
def test_bad_settings(settings):
    with pytest.raises(InputError, match=next(iter(settings))):
        Sampling(**settings)


def test_laws_by_hand():
    logits = np.log([0.5, 0.3, 0.15, 0.05])
    assert Sampling(top_k=2).law(logits) == pytest.approx([0.625, 0.375, 0, 0])
    assert Sampling(top_p=0.8).law(logits) == pytest.approx([0.625, 0.375, 0, 0])
    assert Sampling(top_p=0.81).law(logits) == pytest.approx(np.array([0.5, 0.3, 0.15, 0]) / 0.95)
    assert Sampling(temperature=0.5).law(logits) == pytest.approx(
        np.array([0.25, 0.09, 0.0225, 0.0025]) / 0.365
    )
    penalised = Sampling(repetition_penalty=2.0).law([1.0, -1.0, 0.5], [True, True, False])
    assert penalised == pytest.approx(np.exp([0.5, -2.0, 0.5]) / np.exp([0.5, -2.0, 0.5]).sum())
