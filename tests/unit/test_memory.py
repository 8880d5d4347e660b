"""Memory arithmetic: faults that people met, worked numbers of the textbook, and what every account must obey."""

import dataclasses
import json
import math

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from fleetplan import catalog
from fleetplan.cli.memory import command
from fleetplan.errors import InputError
from fleetplan.physics.architecture import decoder
from fleetplan.physics.kv import SequenceMemory, sequence_memory
from fleetplan.physics.memory import NO_OVERHEADS, Adapters, Overheads, memory
from fleetplan.physics.precision import compute_dtype, scheme, weight_bytes
from fleetplan.physics.quantisation import bits_per_weight, error, quantise

GIB = 2**30


def model(name):
    return catalog.model(name).architecture


def bare(name, gpu="h100-sxm", **how):
    return memory(model(name), catalog.gpu(gpu), **({"overheads": NO_OVERHEADS} | how))


def kv(name, tokens=1, dtype_bytes=2.0):
    return model(name).kv_bytes(tokens, dtype_bytes)


A = GIB * 80
FIELD = [  # row of the field's list of faults, what is computed, the right value
    (1, lambda: kv("qwen2.5-7b"), 57_344),
    (1, lambda: kv("qwen2.5-7b", 3072), 176_160_768),
    (3, lambda: kv("gemma-2-9b"), 344_064),
    (3, lambda: kv("qwen3-32b"), 262_144),
    (4, lambda: kv("deepseek-v3"), 70_272),
    (
        6,
        lambda: (
            bare("deepseek-v3", "h200", tensor_parallel=8, weights="fp8-all", usable_bytes=141e9).kv_tokens
        ),
        612_216,
    ),
    (6, lambda: bare("deepseek-v3", "h200", tensor_parallel=8).kv_bytes_per_token, 70_272),
    (8, lambda: bare("qwen3-235b-a22b", "h200", tensor_parallel=8).kv_bytes_per_token, 48_128),
    (8, lambda: bare("qwen3-235b-a22b", "h200", tensor_parallel=4).kv_bytes_per_token, 48_128),
    (9, lambda: bare("llama-3.1-70b", tensor_parallel=4, usable_bytes=A).kv_tokens, 513_092),
    (11, lambda: kv("gpt-oss-120b"), 73_728),
    (12, lambda: 32 * kv("gpt-oss-20b", 8192) / GIB, 6.09375),
    (
        12,
        lambda: (
            32 * sequence_memory(model("gpt-oss-20b"), 2).engine_bytes(8192, 16, frees_window=False) / GIB
        ),
        12.0,
    ),
    (
        12,
        lambda: (
            bare(
                "gpt-oss-20b", engine="vllm-no-hybrid", weights="stored", context_tokens=8192
            ).sequence_bytes_engine
            * 32
            / GIB
        ),
        12.0,
    ),
    (14, lambda: kv("gemma-4-31b"), 901_120),
    (14, lambda: kv("gemma-4-31b", 1025) - kv("gemma-4-31b", 1024), 81_920),
    (14, lambda: round(kv("gemma-4-31b", 32_768) / GIB, 3), 3.281),
    (14, lambda: round(74.95 * GIB / kv("gemma-4-31b")), 89_308),
    (16, lambda: kv("nemotron-3-nano-30b-a3b"), 6_144),
    (16, lambda: round(model("nemotron-3-nano-30b-a3b").state_bytes_per_sequence / 2**20, 1), 46.8),
    (19, lambda: kv("qwen2-7b", 8192), 448 * 2**20),
    (20, lambda: kv("gpt-oss-20b"), 49_152),
    (21, lambda: 3.8125 * GIB / kv("llama-3.1-8b"), 31_232),
    (21, lambda: card_of(1_952, 20_000), (31_232, True, 1)),
    (21, lambda: card_of(1_478, 29_000), (23_648, False, 0)),
    (23, lambda: math.floor(77_088 * kv("qwen2.5-7b") / (1_070 * kv("qwen2.5-7b"))), 72),
    (27, lambda: kv("glm-5", 1, 2.0) - kv("glm-5", 1, 1.0), 78 * 576),
    (27, lambda: bare("llama-3.1-8b", weights="fp8").kv_bytes_per_token, 131_072),
    (27, lambda: bare("llama-3.1-8b", kv_cache="fp8").kv_bytes_per_token, 65_536),
    (28, lambda: 16 * bare("llama-3.1-8b", usable_bytes=A).kv_blocks, 467_280),
    (
        28,
        lambda: (
            bare("llama-3.1-8b", usable_bytes=A, gpu_memory_utilization=0.95).kv_tokens
            - bare("llama-3.1-8b", usable_bytes=A).kv_tokens
        ),
        32_768,
    ),
    (28, lambda: bare("llama-3.1-8b", usable_bytes=A, block_size=64).kv_blocks, 467_280 // 64),
    (29, lambda: weight_bytes(model("mixtral-8x7b"), scheme("bf16")), 2 * 46_702_792_704),
    (29, lambda: model("mixtral-8x7b").parameters_active, 12_879_925_248),
    (29, lambda: model("deepseek-v3").parameters_active, 37_552_297_472),
    (31, lambda: model("deepseek-v3").parameters_total, 671_026_419_200),
    (33, lambda: model("gpt2").parameters_total, 124_439_808),
    (33, lambda: model("qwen3-0.6b").parameters_total, 596_049_920),
    (33, lambda: [x.flop_per_token for x in model("gpt2").tensors() if x.name == "head"], [2 * 768 * 50_257]),
    (35, lambda: kv("llama-4-scout"), 196_608),
    (37, lambda: left_of_80("vllm"), 52.0),
    (37, lambda: left_of_80("trtllm"), 54.0),
    (38, lambda: bare("llama-3.1-70b", tensor_parallel=2, usable_bytes=A).kv_tokens, 41_233),
    (38, lambda: bare("llama-3.1-70b", tensor_parallel=2).kv_tokens, 39_154),
    (38, lambda: bare("llama-3.1-70b", tensor_parallel=2, usable_bytes=80e9).kv_tokens, 8_827),
    (38, lambda: round(weight_bytes(model("llama-3.1-70b"), scheme("bf16")) / 1e9, 3), 141.107),
    (
        40,
        lambda: bare("llama-3.1-70b", tensor_parallel=4, data_parallel=2).kv_bytes_per_token,
        327_680 / 4,
    ),
]


def card_of(blocks, context):
    """Llama 3.1 8B on a card that has this many blocks of 16 left: (KV tokens, fits, sequences)."""
    usable = weight_bytes(model("llama-3.1-8b"), scheme("bf16")) + blocks * 16 * 131_072
    found = bare(
        "llama-3.1-8b",
        usable_bytes=usable,
        gpu_memory_utilization=1.0,
        context_tokens=context,
        remedies=False,
    )
    return found.kv_tokens, found.fits, found.sequences_at_context


def left_of_80(engine):
    """GiB left of 80 where 20 are used by other things, at utilisation 0.9."""
    tiny = decoder("tiny", 1, 64, 1, 1, 64, 64)
    other = Overheads(0.0, 20 * GIB - weight_bytes(tiny, scheme("bf16")), 0.0, replicated=False)
    found = memory(tiny, catalog.gpu("h100-sxm"), engine=engine, usable_bytes=A, overheads=other)
    return found.left_bytes / GIB


@pytest.mark.parametrize(
    ("row", "compute", "right"), FIELD, ids=[f"{row[0]}-{i}" for i, row in enumerate(FIELD)]
)
def test_faults_that_people_met(row, compute, right):
    assert compute() == right, f"row {row}"


def test_data_parallel_adds_pools():
    one = bare("llama-3.1-70b", tensor_parallel=4, context_tokens=4096)
    two = bare("llama-3.1-70b", tensor_parallel=4, data_parallel=2, context_tokens=4096)
    assert two.sequences_at_context == 2 * one.sequences_at_context
    assert two.gpus_per_replica == 8


NAMES = {"llama-3-8b": "llama-3.1-8b", "llama-3-70b": "llama-3.1-70b"}


@pytest.mark.shared
def test_textbook_parameters_kv_and_fit(shared):
    book = YAML(typ="safe").load(shared / "cases" / "textbook.yaml")
    for name, count in book["parameters"].items():
        a = model(NAMES.get(name, name))
        if isinstance(count, dict):
            assert (a.parameters_total, a.parameters_active) == (count["total"], count["active"])
        else:
            assert a.parameters_total == count
    for name, size in book["kv_bytes_per_token"].items():
        assert kv(NAMES.get(name, name)) == size
    pool, sessions, handed = book["fit"]
    # 4 GPUs of 80e9 B, 35e9 B of weights and 5e9 B of other use on each.
    assert math.floor((80e9 - 35e9 - 5e9) / (kv("llama-3.1-70b") / 4)) == pool["kv_tokens"]
    assert 200 * kv("llama-3.1-70b", 8192) == sessions["kv_bytes"]
    assert kv("llama-3.1-70b", 10_000) == handed["bytes"]
    assert handed["bytes"] / 50e9 == pytest.approx(handed["seconds"])


@pytest.mark.shared
def test_textbook_quantisation(shared):
    book = YAML(typ="safe").load(shared / "cases" / "textbook.yaml")["quantisation"]
    weights = np.random.default_rng(0).normal(size=(256, 512))
    weights[3] *= 50
    assert round(error(weights, per="tensor")[4:].mean(), 3) == book["per_tensor_mean_error_rows_4_on"]
    assert round(error(weights, per="channel")[4:].mean(), 4) == book["per_channel_mean_error_rows_4_on"]
    bits = book["bits_per_weight"]
    assert bits_per_weight(4, 128) == bits["int4_group_128"] == scheme("int4").bits
    assert bits_per_weight(4, 16, 8) == bits["nvfp4"] == scheme("nvfp4").bits
    assert bits_per_weight(4, 32, 8) == bits["mxfp4"] == scheme("mxfp4").bits


@given(st.integers(0, 2**32), st.sampled_from(["tensor", "channel", "group"]), st.sampled_from([4, 8]))
def test_quantisation_is_within_half_a_scale(seed, per, bits):
    weights = np.random.default_rng(seed).normal(size=(6, 32)) * 10.0 ** (seed % 7 - 3)
    weights[0] = 0
    scale = quantise(weights, bits, per, 16).scale
    assert (error(weights, bits, per, 16) <= scale / 2 * (1 + 1e-9)).all()


SMALL = [
    "llama-3.1-8b",
    "gpt-oss-20b",
    "gemma-2-9b",
    "nemotron-3-nano-30b-a3b",
    "qwen3-next-80b-a3b",
    "deepseek-v2-lite",
    "mistral-7b-v0.1",
    "gemma-4-31b",
]


@given(
    st.sampled_from(SMALL),
    st.sampled_from([1, 2, 4, 8]),
    st.integers(1, 200_000),
    st.sampled_from(["vllm", "vllm-no-hybrid", "trtllm", "sglang"]),
    st.sampled_from([1, 16, 64]),
    st.sampled_from(["bf16", "fp8", "int4"]),
)
def test_sequences_said_to_fit_do_and_one_more_does_not(name, t, context, engine, block, weights):
    how = {
        "tensor_parallel": t,
        "engine": engine,
        "block_size": block,
        "weights": weights,
        "context_tokens": context,
    }
    found = memory(model(name), catalog.gpu("h200"), **how, remedies=False)
    each = max(found.sequence_bytes_theory, found.sequence_bytes_engine)
    count, pool = found.sequences_at_context, max(0.0, found.left_bytes)
    assert count * each <= pool < (count + 1) * each
    assert found.fits == (count >= 1)
    more = memory(
        model(name), catalog.gpu("h200"), **how, usable_bytes=found.usable_bytes * 1.1, remedies=False
    )
    assert more.sequences_at_context >= count
    half = sequence_memory(model(name), 2.0, t)
    assert all(
        half.bytes_per_token >= sequence_memory(model(name), 2.0, u).bytes_per_token
        for u in (8, 16)
        if u >= t
    )


@given(
    st.lists(st.tuples(st.one_of(st.none(), st.integers(1, 5000)), st.integers(1, 10**6)), min_size=1),
    st.integers(0, 10**6),
    st.integers(0, 10**12),
)
def test_length_is_the_inverse_of_memory(pieces, state, budget):
    rates = {}
    for window, rate in pieces:
        rates[window] = rates.get(window, 0.0) + rate
    sequence = SequenceMemory(tuple(rates.items()), float(state))
    tokens = sequence.tokens(budget)
    if math.isinf(tokens):
        assert sequence.theory_bytes(10**12) <= budget
    else:
        assert tokens == 0 or sequence.theory_bytes(tokens) <= budget * (1 + 1e-9)
        assert sequence.theory_bytes(tokens + 1) > budget * (1 - 1e-9)


def test_does_not_fit_is_an_answer_with_its_shortfall_and_ways():
    found = memory(model("llama-3.3-70b"), catalog.gpu("h100"), context_tokens=8192)
    assert not found.fits
    assert found.shortfall_bytes == pytest.approx(found.sequence_bytes_theory - found.left_bytes)
    assert "tensor parallel 2" in found.remedies
    assert f"{found.shortfall_bytes / GIB:.2f} GiB short" in found.verdict
    ways = memory(model("llama-3.3-70b"), catalog.gpu("h100"), tensor_parallel=2, context_tokens=8192)
    assert ways.fits


def test_expert_parallel_splits_experts_only():
    how = {"overheads": NO_OVERHEADS, "remedies": False, "weights": "fp8-all"}
    a, gpu = model("deepseek-v3"), catalog.gpu("h200")
    found = memory(a, gpu, data_parallel=8, expert_parallel=8, **how)
    experts = sum(x.parameters for x in a.tensors() if x.shard == "expert")
    assert found.weights_bytes == pytest.approx(experts / 8 + a.parameters_total - experts)


def test_pipeline_divides_layers_and_keeps_the_total():
    a, gpu = model("llama-3.1-70b"), catalog.gpu("h100")
    stages = a.stages(3)
    assert [stage.layer_count for stage in stages] == [27, 27, 26]
    assert sum(stage.parameters_total for stage in stages) == a.parameters_total
    found = memory(a, gpu, pipeline_parallel=4, overheads=NO_OVERHEADS)
    assert found.kv_bytes_per_token == a.kv_bytes_per_token / 4


def test_draft_adapters_and_mtp_take_their_part():
    a, gpu = model("llama-3.3-70b"), catalog.gpu("h200")
    plain = memory(a, gpu, tensor_parallel=2)
    drafted = memory(a, gpu, tensor_parallel=2, draft=model("llama-3.2-1b"))
    assert drafted.draft_bytes > 1_235_814_400
    assert drafted.kv_bytes_per_token == plain.kv_bytes_per_token + 16 * 2 * 4 * 64 * 2
    lora = memory(model("llama-3.1-8b"), gpu, adapters=Adapters(16, 10))
    assert lora.adapters_bytes == 10 * 2 * 16 * 32 * (8192 + 5120 + 5120 + 8192)
    with pytest.raises(InputError, match="multi-token-prediction"):
        memory(a, gpu, mtp=True)
    assert memory(model("deepseek-v3"), gpu, tensor_parallel=8, weights="fp8", mtp=True).draft_bytes > 1e9


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"tensor_parallel": 3}, "a divisor of the 32 query heads"),
        ({"pipeline_parallel": 33}, "at most the 32 layers"),
        ({"expert_parallel": 2}, "has no experts"),
        ({"gpu_memory_utilization": 1.5}, "at most 1"),
        ({"weights": "int3"}, "unknown precision scheme"),
        ({"kv_cache": "fp7"}, "unknown KV cache dtype"),
        ({"engine": "vlm"}, "near names: vllm"),
    ],
)
def test_layouts_that_cannot_run_are_refused(how, message):
    with pytest.raises(InputError, match=message):
        memory(model("llama-3.1-8b"), catalog.gpu("h100"), **how)


def test_a_gpu_without_the_dtype_multiplies_in_bf16():
    assert compute_dtype(scheme("fp8"), catalog.gpu("h100")) == ("fp8", None)
    dtype, note = compute_dtype(scheme("fp8"), catalog.gpu("a100"))
    assert (dtype, "no fp8" in note) == ("bf16", True)


def test_stored_keeps_what_the_checkpoint_keeps():
    stored = scheme("stored", model("gpt-oss-20b"))
    assert (stored.bits_of("expert"), stored.bits_of("attention")) == (4.25, 16)
    assert weight_bytes(model("gpt-oss-20b"), stored) == pytest.approx(13.76e9, rel=0.01)


@pytest.mark.parametrize("as_json", [False, True])
def test_verb(as_json):
    args = ["--model", "llama-3.3-70b", "--gpu", "H100 SXM", "--tensor-parallel", "4", "--context", "8192"]
    result = CliRunner().invoke(command, [*args, *(["--json"] if as_json else [])], catch_exceptions=False)
    assert result.exit_code == 0
    if as_json:
        read = json.loads(result.output)
        assert read["weights_bytes"] == 70_553_706_496 * 2 / 4
        assert read["fits"]
        assert {field.name for field in dataclasses.fields(memory(model("gpt2"), catalog.gpu("l4")))} < set(
            read
        )
    else:
        assert "35,276,853,248" in result.output


@pytest.mark.parametrize(
    "name", ["gemma-4-31b", "nemotron-3-nano-30b-a3b", "deepseek-v4-flash", "gpt-oss-20b"]
)
@pytest.mark.parametrize(("mean", "spread"), [(600, 2), (8_000, 3), (40_000, 3)])
def test_blocks_that_a_simulation_gives_out_are_never_more_than_memory_holds(name, mean, spread):
    """Sequences on the way to their lengths that fill the planned blocks fill at most the memory that is left."""
    found = memory(
        model(name),
        catalog.gpu("h200"),
        tensor_parallel=4,
        weights="stored",
        mean_tokens=mean,
        context_tokens=4 * mean,
    )
    sequence = sequence_memory(model(name), 2.0, 4)
    rng = np.random.default_rng(4)
    lengths = np.maximum(16, rng.gamma(spread, mean / spread, 4_000) * rng.uniform(0.5, 1.0, 4_000)).astype(
        int
    )
    blocks = -(-lengths // 16)
    running = np.searchsorted(np.cumsum(blocks), found.planned_blocks)
    assert sum(sequence.engine_bytes(int(n), 16) for n in lengths[:running]) <= found.left_bytes
    # A short sequence's price for every token would have held back most of a windowed model's memory.
    if sequence.windowed_bytes_per_token > 10 * sequence.long_bytes_per_token and mean >= 8_000:
        assert found.planned_blocks > 2 * found.kv_blocks
    if name.startswith("nemotron"):
        assert found.planned_blocks < found.kv_blocks


def test_blocks_of_plain_models_are_what_memory_has():
    found = memory(model("llama-3.1-8b"), catalog.gpu("h100"), mean_tokens=1000, context_tokens=4000)
    assert found.planned_blocks == found.kv_blocks


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"data_parallel": 10**30}, "data_parallel: got 10*, at most 1,048,576"),
        ({"block_size": 10**9}, "block_size: got 10*, at most"),
        ({"context_tokens": 1000, "mean_tokens": 1001}, "mean: got 1001 tokens, at most the 1000"),
    ],
)
def test_what_is_a_slip_is_refused(given, says):
    with pytest.raises(InputError, match=says):
        memory(catalog.model("llama-3.1-8b").architecture, catalog.gpu("h100-sxm"), **given)
