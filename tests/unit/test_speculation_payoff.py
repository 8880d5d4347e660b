"""Where drafting pays: measured acceptance, the sweep through step times, adaptive verification; nothing assumed."""

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.physics.steptime import linear
from fleetplan.speculation import expected_tokens, speedup_textbook, survival, survival_from_lengths
from fleetplan.speculation.measured import measured, measured_table, method, methods
from fleetplan.speculation.payoff import Draft, adaptive_verification, payoff, verify_step_s

STEP = linear(0.0, 2 * 8e9 / 7e14, 16e9 / 2.5e12, 0.0, 131072 / 2.5e12, 0.0)


def test_textbook_is_the_limit_of_free_verification():
    free = linear(0.01, 0.0, 0.0, 0.0, 0.0, 0.0)
    sweep = payoff(free, Draft("each", cost=0.1), [0.8], [1, 64], 1000, drafts=5)
    for k in range(6):
        assert sweep.speedup[k] == pytest.approx([speedup_textbook(0.8, k, 0.1)] * 2)


def test_speedup_falls_below_one_at_a_large_batch_and_the_best_length_shrinks():
    sweep = payoff(STEP, Draft("each", cost=0.05), [0.7] * 6, np.arange(1, 1025), 100)
    assert sweep.speedup[3, 0] > 1.5
    assert sweep.speedup[5, -1] < 1
    assert sweep.speedup[0] == pytest.approx(np.ones(1024))
    assert sweep.best_drafts[0] >= sweep.best_drafts[-1]
    off = sweep.switch_off_batch(5)
    assert sweep.speedup[5, off - 2] > 1
    assert (sweep.speedup[5, off - 1 :] <= 1).all()


def test_a_draft_with_its_own_step_times():
    small = linear(0.0, 2 * 1e9 / 7e14, 2e9 / 2.5e12, 0.0, 16384 / 2.5e12, 0.0)
    sweep = payoff(STEP, Draft("each", steptime=small), [0.8, 0.7], [4], 500)
    assert sweep.draft_s[2, 0] == pytest.approx(2 * float(verify_step_s(small, 4, 0, 500)))
    once = payoff(STEP, Draft("one", steptime=small), [0.8, 0.7], [4], 500)
    assert once.draft_s[2, 0] == pytest.approx(once.draft_s[1, 0])
    assert payoff(STEP, Draft("none"), [0.8], [4], 500).draft_s[1, 0] == 0


def test_energy_falls_as_the_rate_rises():
    sweep = payoff(STEP, Draft("none"), [0.8, 0.8], [1], 500)
    energy = sweep.energy_wh_per_million_tokens(700.0)
    assert energy[2, 0] < energy[0, 0]
    assert energy[0, 0] == pytest.approx(700 * float(sweep.target_s[0]) * 1e6 / 3600)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: payoff(STEP, Draft("none"), None, [1], 10), "never assumed"),
        (lambda: payoff(STEP, Draft("none"), [1.2], [1], 10), "0..1"),
        (lambda: payoff(STEP, Draft("none"), [0.9, 0.8], [1], 10, drafts=3), "2 positions given for 3"),
        (lambda: payoff(STEP, Draft("none"), [0.9], [0], 10), "at least one"),
        (lambda: Draft("each"), "its cost"),
        (lambda: Draft("each", cost=-1.0), "≥ 0"),
        (lambda: measured("mtp-glm-5.2-coding-thinkin"), "near names: mtp-glm-5.2-coding-thinking"),
        (lambda: measured("mtp-glm-5.2-coding-thinking").by_position(9), "not extrapolated"),
        (lambda: method("eagel3"), "near names"),
        (lambda: survival_from_lengths([1], [2.5]), "1..2"),
        (lambda: survival_from_lengths([2, 1], [1.5, 1.5]), "ascending"),
        (lambda: expected_tokens(0.5, -1), "≥ 0"),
        (lambda: expected_tokens(float("nan"), 2), "0..1"),
    ],
)
def test_refusals(call, says):
    with pytest.raises(InputError, match=says.replace(".", r"\.")):
        call()


def test_measured_survival_never_rises_and_the_geometric_law_overstates_it():
    table = measured_table()
    assert len(table) == 20
    for curve in table.values():
        s = curve.survival
        assert (np.diff(s) <= 1e-12).all()
        assert ((s >= 0) & (s <= 1)).all()
        assert survival(curve.by_position(len(s))) == pytest.approx(s)
    full = [c for c in table.values() if c.drafts == tuple(range(1, 9))]
    over = sorted(c.geometric_overstatement for c in full)
    assert over[0] == pytest.approx(0.09, abs=0.01)
    assert over[-1] == pytest.approx(1.1, abs=0.03)


def test_mean_lengths_come_back_where_they_never_rise():
    e = [1.84, 2.50, 2.99, 3.33, 3.61]
    assert 1 + np.cumsum(survival_from_lengths([1, 2, 3, 4, 5], e)) == pytest.approx(e)
    skipped = survival_from_lengths([3, 7], [3.02, 3.94])
    assert 1 + skipped[:3].sum() == pytest.approx(3.02)
    assert 1 + skipped.sum() == pytest.approx(3.94)
    assert (np.diff(skipped) <= 0).all()


@pytest.mark.shared
def test_the_shipped_table_holds_the_handed_figures(shared):
    import csv

    with (shared / "measurements" / "spec_decode.csv").open(newline="") as file:
        handed = {
            (row["source"], int(row["draft_len"]), float(row["mean_accepted_length"]))
            for row in csv.DictReader(file)
            if row["draft_len"] and row["mean_accepted_length"]
        }
    for curve in measured_table().values():
        for k, e in zip(curve.drafts, curve.mean_accepted_tokens, strict=True):
            assert (curve.source, k, e) in handed


def test_adaptive_verification_takes_the_likeliest_slots():
    rng = np.random.default_rng(3)
    survived = np.cumprod(rng.uniform(0.3, 1.0, (256, 4)), axis=1)
    chosen = adaptive_verification(STEP, survived, 0.0, 1000)
    assert 0 < chosen.slots < survived.size
    assert sum(chosen.drafts_by_sequence) == chosen.slots
    assert chosen.tokens_per_s >= chosen.fixed_tokens_per_s
    bound = np.sort(survived.ravel())[::-1][chosen.slots - 1]
    for row, k in zip(survived, chosen.drafts_by_sequence, strict=True):
        assert (row[:k] >= bound).all()
        assert (row[k:] <= bound).all()
    few = adaptive_verification(STEP, survived[:2], 0.0, 1000)
    assert few.slots == 8


def test_every_method_names_its_source():
    assert {"draft_model", "eagle3", "mtp", "ngram", "suffix"} <= methods().keys()
    for entry in methods().values():
        assert entry.source
        assert entry.passes in ("each", "one", "none")
    assert method("mtp").draft_passes(4) == 4
    assert method("p_eagle").draft_passes(4) == 1
    assert method("ngram").draft_passes(4) == 0
