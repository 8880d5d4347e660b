"""Step-time models: the form, JSON files of other people's models, tables of measured steps, and MODEL's roofline."""

import json

import numpy as np
import pytest

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.physics.architecture import MoeFfn, decoder
from fleetplan.physics.steptime import affine, from_json, linear, roofline, table, to_json

STEP = {"tokens": 300, "sequences": 5, "decoding": 4, "kv_tokens": 9000, "pairs": 60000}


@pytest.mark.parametrize(
    ("document", "seconds"),
    [
        (
            {
                "model": "affine",
                "t_fixed_s": 0.005,
                "prefill_s_per_token": 2e-5,
                "decode_s_per_sequence": 5e-4,
            },
            0.005 + 296 * 2e-5 + 4 * 5e-4,
        ),
        (
            {
                "model": "linear",
                "overhead_s": 0.001,
                "compute_s_per_token": 3e-5,
                "weights_s": 0.004,
                "compute_s_per_query_key_pair": 1e-9,
                "kv_s_per_token": 2e-8,
                "sequence_s": 1e-5,
            },
            0.001 + 5e-5 + max(300 * 3e-5 + 60000e-9, 0.004 + 9000 * 2e-8),
        ),
        (
            {
                "model": "vectors",
                "O": [0.001] * 300,
                "C": [1e-5 * n for n in range(1, 301)],
                "M": [0.005] * 300,
                "c": 0,
                "m": 1e-8,
                "sigma": 1e-5,
                "delta": -2e-6,
            },
            0.001 + 5e-5 - 8e-6 + max(0.003, 0.005 + 9e-5),
        ),
        ({"model": "table", "tokens": [1, 400], "step_s": [0.01, 0.05]}, 0.01 + 299 / 399 * 0.04),
    ],
)
def test_a_model_file_gives_the_step_time_of_its_formula(tmp_path, document, seconds):
    path = tmp_path / "step.json"
    path.write_text(json.dumps(document))
    step = from_json(path)
    assert float(step.step_s(**STEP)) == pytest.approx(seconds, rel=1e-12)
    to_json(step, tmp_path / "again.json")
    if document["model"] != "affine" and document["model"] != "linear":
        assert float(from_json(tmp_path / "again.json").step_s(**STEP)) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not a JSON document"),
        ('{"model": "affin"}', "near names: affine"),
        ('{"model": "affine", "t_fixed_s": 1, "t_fixed_s": 2}', "given twice"),
        ('{"model": "affine", "t_fixed_s": 1}', "prefill_s_per_token is missing"),
        (
            '{"model": "affine", "t_fixed_s": NaN, "prefill_s_per_token": 0, "decode_s_per_sequence": 0}',
            "NaN is no JSON number",
        ),
        (
            '{"model": "affine", "t_fixed_s": -1, "prefill_s_per_token": 0, "decode_s_per_sequence": 0}',
            "0 or above",
        ),
        (
            '{"model": "affine", "t_fixed_s": "5 ms", "prefill_s_per_token": 0, "decode_s_per_sequence": 0}',
            "finite number of seconds",
        ),
        (
            '{"model": "affine", "t_fixed_s": 1, "prefill_s_per_token": 0, "decode_s_per_sequence": 0, "x": 1}',
            "unknown key",
        ),
        (
            '{"model": "vectors", "O": [1], "C": [1, 2], "M": [1], "c": 0, "m": 0, "sigma": 0, "delta": 0}',
            "of one length",
        ),
        (
            '{"model": "vectors", "O": [], "C": [1], "M": [1], "c": 0, "m": 0, "sigma": 0, "delta": 0}',
            "at least one number",
        ),
        ('{"model": "table", "tokens": [2, 3], "step_s": [1, 2]}', "starts at 2 tokens"),
        ("[]", "a JSON object is needed"),
        ("[" * 100_000, "not a JSON document"),
        (
            f'{{"model": "affine", "t_fixed_s": 1{"0" * 400}, "prefill_s_per_token": 0, "decode_s_per_sequence": 0}}',
            "t_fixed_s: a finite number of seconds, at most 1e12, is needed (got 1000",
        ),
        (
            '{"model": "vectors", "O": [1e300], "C": [1], "M": [1], "c": 0, "m": 0, "sigma": 0, "delta": 0}',
            "O[0]: a finite number from 0 to 1e12 is needed (got 1e+300)",
        ),
    ],
)
def test_a_wrong_model_file_is_refused_with_its_name_and_the_fault(tmp_path, text, said):
    path = tmp_path / "step.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"step\.json") as error:
        from_json(path)
    assert said in str(error.value)


@pytest.mark.parametrize("data", [b"\xff\xfe{", b'{"model": "\xe9"}'])
def test_a_model_file_that_is_no_utf8_is_refused(tmp_path, data):
    path = tmp_path / "step.json"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"step\.json: cannot be read \(byte \d+ is no UTF-8\)"):
        from_json(path)


def test_a_step_longer_than_the_vectors_is_refused_not_clamped(tmp_path):
    path = tmp_path / "step.json"
    path.write_text(json.dumps({"model": "table", "tokens": [1, 8], "step_s": [0.01, 0.02]}))
    with pytest.raises(ValueError, match="longer than the step-time table"):
        from_json(path).step_s(tokens=9, sequences=1, decoding=1, kv_tokens=1, pairs=1)


def test_a_table_with_contexts_recovers_level_and_slope():
    made = table([1, 1, 8, 8], [0.010, 0.012, 0.015, 0.017], kv_tokens=[0, 1000, 0, 1000])
    assert made.kv_token_s == pytest.approx(2e-6)
    assert float(made.step_s(1, 1, 1, 500, 0)) == pytest.approx(0.011)


def test_roofline_is_model_section_four_to_the_letter():
    gpu = catalog.gpu("h100-sxm")
    dense = decoder("d", 4, 512, 8, 2, 1024, 1000)
    step = roofline(dense, gpu, weights="fp8-all", kv_cache="bf16", tensor_parallel=4, efficiency=0.5)
    n, context = 7, 100
    compute = 2 * dense.parameters_active * n / (0.5 * gpu.flop_per_s["fp8"] * 4)
    memory = dense.parameters_total / (0.5 * gpu.bandwidth_bytes_per_s * 4)
    kv = 2 * 4 * 64 * 2 * 1 / (0.5 * gpu.bandwidth_bytes_per_s)  # two KV heads over four GPUs: one head each
    got = float(step.step_s(n, n, n, n * context, n * context))
    assert got == pytest.approx(max(compute, memory + kv * n * context), rel=1e-12)


def test_roofline_reads_the_experts_that_tokens_touch():
    gpu = catalog.gpu("h100-sxm")
    moe = decoder("m", 2, 512, 8, 8, 0, 1000, ffn=MoeFfn(64, 4, 256))
    step = roofline(moe, gpu, weights="bf16", kv_cache="bf16")
    experts = 2 * 64 * 3 * 512 * 256 * 2
    rest = moe.parameters_total * 2 - experts
    for n in (1, 10, 1000):
        touched = 1 - (1 - 4 / 64) ** n
        assert float(step.at(step.memory_s, step.memory_slope_s, np.array(n))) == pytest.approx(
            (rest + experts * touched) / gpu.bandwidth_bytes_per_s, rel=1e-9
        )


@pytest.mark.parametrize(("efficiency", "degree"), [(0.0, 1), (1.5, 1), (0.5, 0)])
def test_roofline_refuses_what_is_no_efficiency_or_degree(efficiency, degree):
    with pytest.raises(InputError):
        roofline(
            decoder("d", 2, 64, 2, 2, 64, 10),
            catalog.gpu("h100"),
            weights="bf16",
            kv_cache="bf16",
            efficiency=efficiency,
            tensor_parallel=degree,
        )


def test_affine_and_linear_hold_at_every_length():
    assert float(affine(0.01, 1e-5, 1e-4).step_s(10**6, 1, 0, 0, 0)) == pytest.approx(0.01 + 10)
    assert float(linear(0, 1e-6, 0.5, 0, 0, 0).step_s(10**6, 1, 0, 0, 0)) == pytest.approx(1.0)
