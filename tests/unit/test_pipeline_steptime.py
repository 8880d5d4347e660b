"""A pipeline's step time: its latency, its longest stage, and files that state both."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fleetplan.errors import InputError
from fleetplan.physics.steptime import affine, from_document, from_json, linear, table, to_document, to_json
from fleetplan.sizing.uncertainty import scaled

WHOLE = linear(0.002, 4e-6, 0.020, 1e-9, 3e-8, 2e-5)
STAGE = linear(0.001, 2e-6, 0.012, 5e-10, 1.5e-8, 1e-5)
STEP = {"tokens": 300, "sequences": 5, "decoding": 4, "kv_tokens": 9000, "pairs": 60000}


def test_a_step_without_a_pipeline_is_its_own_beat():
    assert WHOLE.stages == 1
    assert WHOLE.beat is WHOLE
    assert "stage" not in to_document(WHOLE)


def test_a_pipeline_beats_with_its_longest_stage():
    step = replace(WHOLE, stages=2, stage=STAGE)
    assert step.beat is STAGE
    assert float(step.step_s(**STEP)) == float(WHOLE.step_s(**STEP))


@pytest.mark.parametrize(
    ("stages", "stage", "said"),
    [
        (2, None, "2 stages need the longest one's step time"),
        (1, STAGE, "one stage is the step itself"),
        (0, None, "a whole number from 1 up"),
        (2, replace(STAGE, window_tokens=128), "its window is 128 tokens, the step's 0"),
        (2, replace(STAGE, stages=2, stage=scaled(STAGE, 0.5)), "a stage has no stages of its own"),
        (2, scaled(WHOLE, 1.001), r"its O \+ C is 0.002006 s, the whole step's 0.002004 s"),
        (2, replace(STAGE, kv_token_s=4e-8), "its m is 4e-08 s, the whole step's 3e-08 s"),
        (2, replace(STAGE, decode_s=2e-5), r"its σ \+ δ is 3e-05 s"),
        (2, replace(STAGE, compute_slope_s=9e-6), r"its slope of O \+ C"),
    ],
)
def test_a_stage_that_is_no_part_of_its_step_is_refused(stages, stage, said):
    with pytest.raises(ValueError, match=said):
        replace(WHOLE, stages=stages, stage=stage)


def test_what_one_roof_has_less_a_stage_may_hide_nowhere():
    """A stage whose overhead is longer is a part all the same, where both of its roofs are lower by more."""
    longer = np.array([0.0, 0.0015])
    moved = replace(
        STAGE, overhead_s=STAGE.overhead_s + longer, compute_s=np.zeros(2), memory_s=np.array([0, 0.001])
    )
    with pytest.raises(ValueError, match=r"O \+ C"):
        replace(WHOLE, stages=2, stage=moved)
    heavy = replace(WHOLE, compute_s=WHOLE.compute_s + 10 * longer)
    assert replace(heavy, stages=2, stage=moved).stages == 2


@pytest.mark.parametrize(
    "step",
    [
        replace(WHOLE, stages=2, stage=STAGE),
        replace(table([1, 64], [0.02, 0.05]), stages=4, stage=table([1, 64], [0.006, 0.014])),
        replace(affine(0.01, 2e-5, 5e-4), stages=2, stage=affine(0.006, 1e-5, 2.5e-4)),
    ],
)
def test_a_file_states_a_pipeline_and_gives_it_back(tmp_path, step):
    to_json(step, tmp_path / "step.json")
    again = from_json(tmp_path / "step.json")
    assert again.stages == step.stages
    held = dict.fromkeys(STEP, 1)
    assert float(again.step_s(**held)) == float(step.step_s(**held))
    assert float(again.beat.step_s(**held)) == float(step.beat.step_s(**held))
    assert to_document(again) == to_document(step)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stages": 2}, "stage: 2 stages need the longest one's step time"),
        ({"stage": {"model": "affine"}, "stages": 2}, "stage: t_fixed_s is missing"),
        ({"stage": {"model": "table", "tokens": [1], "step_s": [9]}, "stages": 2}, "a stage is part of a step|longer than"),
        ({"stages": True}, r"stages: a whole number from 1 up is needed \(got True\)"),
        ({"stages": 0}, "stages: a whole number from 1 up"),
        ({"stages": 2.5}, "stages: a whole number from 1 up"),
        ({"stage": 3, "stages": 2}, "stage: a JSON object is needed"),
        ({"stagess": 2}, "near names: stages"),
    ],
)  # fmt: skip
def test_a_wrong_pipeline_in_a_file_is_refused(change, said):
    with pytest.raises(InputError, match=said):
        from_document({"model": "affine", "t_fixed_s": 0.01, "prefill_s_per_token": 1e-5, "decode_s_per_sequence": 1e-4} | change)  # fmt: skip


def test_a_file_of_one_stage_is_the_step_alone(tmp_path):
    document = {"model": "table", "tokens": [1, 8], "step_s": [0.01, 0.02], "stages": 1}
    (tmp_path / "step.json").write_text(json.dumps(document))
    assert from_json(tmp_path / "step.json").stage is None


def test_a_pipeline_is_scaled_with_its_stage():
    step = scaled(replace(WHOLE, stages=2, stage=STAGE), 1.25)
    assert float(step.step_s(**STEP)) == pytest.approx(1.25 * float(WHOLE.step_s(**STEP)), rel=1e-15)
    assert float(step.beat.step_s(**STEP)) == pytest.approx(1.25 * float(STAGE.step_s(**STEP)), rel=1e-15)
