"""The importer: counts against published ones, refusals, and that spoilt configs give clear errors only."""

import copy
import json

import pytest

from fleetplan import hf
from fleetplan.errors import InputError

COUNTS = {  # folder: (parameters, active or None, KV bytes a token, state bytes)
    "MiniMaxAI--MiniMax-M2.5": (228_689_764_864, None, 253_952, 0),
    "Qwen--Qwen3-0.6B": (596_049_920, None, 114_688, 0),
    "Qwen--Qwen3-235B-A22B": (235_093_634_560, 22_190_763_520, 192_512, 0),
    "Qwen--Qwen3-30B-A3B": (30_532_122_624, 3_353_032_704, 98_304, 0),
    "Qwen--Qwen3-32B-FP8": (32_762_123_264, None, 262_144, 0),
    "Qwen--Qwen3-VL-30B-A3B-Instruct": (30_532_122_624, None, 98_304, 0),
    "dbrx-ASSEMBLED": (131_596_523_520, None, 163_840, 0),
    "deepseek-ai--DeepSeek-V3": (671_026_419_200, 37_552_297_472, 70_272, 0),
    # Shapes of every tensor are those of the checkpoint's index; published as 284B, 13B active without the embedding.
    "deepseek-ai--DeepSeek-V4-Flash": (
        284_332_240_471,
        13_799_632_471,
        43 * 1024 + 21 * (1024 + 132) / 4 + 20 * 1024 / 128,
        21 * 2 * 4 * 8 * 2 * (512 + 128) + 20 * 2 * 4 * 128 * 512,
    ),
    "google--gemma-4-26B-A4B": (25_233_141_790, None, 225_280, 0),
    "isim-deepseek-v2-lite": (15_706_484_224, None, 31_104, 0),
    "isim-llama-2-7b-hf": (6_738_415_616, None, 524_288, 0),
    "isim-qwen2.5-7b-instruct": (7_615_616_512, None, 57_344, 0),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": (107_769_861_120, None, 196_608, 0),
    "meta-llama--Meta-Llama-3.1-405B": (405_853_388_800, None, 516_096, 0),
    "mistralai--Mixtral-8x7B-v0.1": (46_702_792_704, 12_879_925_248, 131_072, 0),
    "mlc-aya-23": (8_028_033_024, None, 131_072, 0),
    "mlc-baichuan": (7_505_973_248, None, 524_288, 0),
    "mlc-chatglm": (6_243_584_000, None, 28_672, 0),
    "mlc-gemma2_9b": (9_241_705_984, None, 344_064, 0),
    "mlc-gemma_2b": (2_506_172_416, None, 18_432, 0),
    "mlc-gpt2": (124_439_808, None, 36_864, 0),
    "mlc-gpt_j": (6_050_882_784, None, 458_752, 0),
    "mlc-minicpm_2b": (3_007_736_064, None, 368_640, 0),
    "mlc-phi-2": (2_779_683_840, None, 327_680, 0),
    "mlc-phi-3_5": (3_821_079_552, None, 393_216, 0),
    "mlc-qwen": (1_836_828_672, None, 196_608, 0),
    "mlc-qwen2moe": (14_315_784_192, None, 196_608, 0),
    "mlc-redpajama_3b_v1": (2_775_864_320, None, 327_680, 0),
    "moonshotai--Kimi-K2-Instruct": (1_026_408_232_448, None, 70_272, 0),
    "nvidia--Gemma-4-31B-IT-NVFP4": (30_697_345_340, None, 901_120, 0),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": (31_577_940_288, None, 6_144, 49_082_368),
    "openai--gpt-oss-120b": (116_829_156_672, None, 73_728, 0),
    "openai--gpt-oss-20b": (20_914_757_184, None, 49_152, 0),
    "qwen3-next-80b-a3b": (79_674_391_296, None, 24_576, 77_266_944),
    "zai-org--GLM-5": (743_911_218_432, None, 78 * (1152 + 132), 0),
}

REFUSED = {
    "mlc-llava": "text_config.hidden_size: missing",
    "mlc-rwkv5_3b": "rwkv5 is not supported",
}


@pytest.mark.shared
@pytest.mark.parametrize("folder", COUNTS)
def test_counts(shared, folder):
    a = hf.read_config(shared / "configs" / folder)
    total, active, kv, state = COUNTS[folder]
    assert (a.parameters_total, a.kv_bytes_per_token, a.state_bytes_per_sequence) == (total, kv, state)
    assert active is None or a.parameters_active == active


@pytest.mark.shared
@pytest.mark.parametrize("folder", REFUSED)
def test_refused_by_name(shared, folder):
    with pytest.raises(InputError, match=REFUSED[folder]):
        hf.read_config(shared / "configs" / folder)


@pytest.mark.shared
def test_every_config_is_answered_or_refused(shared):
    folders = sorted((shared / "configs").glob("*/config.json"))
    assert len(folders) > 50
    refused = set()
    for path in folders:
        try:
            assert hf.read_config(path).parameters_active <= hf.read_config(path).parameters_total
        except InputError:
            refused.add(path.parent.name)
    assert refused == set(REFUSED)


@pytest.mark.shared
def test_spoilt_configs_give_clear_errors_only(shared):
    """Each key dropped, null, or of another type, at every level: an architecture or an InputError that names the file."""
    tried, wrong = 0, []
    for path in sorted((shared / "configs").glob("*/config.json")):
        values = json.loads(path.read_text())
        for spoilt in _spoilt(values):
            tried += 1
            try:
                made = hf.architecture(spoilt, "spoilt.json")
            except InputError as error:
                wrong += [line for line in error.lines if not line.startswith("spoilt.json")]
            else:
                assert made.parameters_total > 0
                assert made.kv_bytes(4096) >= 0
    assert tried > 5000
    assert not wrong


@pytest.mark.shared
@pytest.mark.parametrize(
    ("folder", "key"),
    [
        ("meta-llama--Meta-Llama-3.1-8B", "hidden_size"),
        ("deepseek-ai--DeepSeek-V3", "kv_lora_rank"),
        ("deepseek-ai--DeepSeek-V3", "first_k_dense_replace"),
        ("openai--gpt-oss-20b", "layer_types"),
        ("mistralai--Mixtral-8x7B-v0.1", "num_key_value_heads"),
        ("mlc-chatglm", "multi_query_group_num"),
    ],
)
def test_missing_key_is_named_with_its_family(shared, folder, key):
    values = json.loads((shared / "configs" / folder / "config.json").read_text())
    family = values["model_type"]
    del values[key]
    with pytest.raises(InputError, match=f"{family}: {key}: missing"):
        hf.architecture(values, "config.json")


def test_unknown_family_lists_the_known():
    with pytest.raises(InputError, match=r"got 'lama'.*near: llama.*known families are baichuan"):
        hf.architecture({"model_type": "lama"}, "config.json")


LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 100,
}
QWEN2 = LLAMA | {"model_type": "qwen2", "num_key_value_heads": 2, "sliding_window": 8, "max_window_layers": 2}


@pytest.mark.parametrize(
    ("values", "kv_at_1", "kv_at_100"),
    [
        (LLAMA, 4 * 256, 4 * 25_600),
        (LLAMA | {"num_key_value_heads": None}, 4 * 256, 4 * 25_600),
        (LLAMA | {"num_key_value_heads": 1, "head_dim": 32}, 4 * 128, 4 * 12_800),
        (QWEN2, 4 * 128, 4 * 12_800),
        (QWEN2 | {"use_sliding_window": True}, 4 * 128, 2 * 12_800 + 2 * 1024),
        (LLAMA | {"model_type": "mistral", "num_key_value_heads": 2, "sliding_window": 8}, 4 * 128, 4 * 1024),
    ],
)
def test_heads_and_windows(values, kv_at_1, kv_at_100):
    a = hf.architecture(values, "config.json")
    assert (a.kv_bytes_per_token, a.kv_bytes(100)) == (kv_at_1, kv_at_100)


def test_a_shape_key_that_the_family_does_not_read_is_refused():
    with pytest.raises(InputError, match="llama: num_experts: got 8"):
        hf.architecture(LLAMA | {"num_experts": 8}, "config.json")


def test_no_op_attention_keeps_no_cache():
    attention = {"n_heads_in_group": 2, "no_op": False, "replace_with_linear": False}
    ffn = {"ffn_mult": 3.0, "no_op": False, "replace_with_linear": False}
    blocks = [
        {"attention": attention, "ffn": ffn},
        {"attention": {"no_op": True}, "ffn": ffn},
        {"attention": {"no_op": False, "replace_with_linear": True}, "ffn": {"no_op": True}},
        {"attention": attention, "ffn": ffn},
    ]
    a = hf.architecture(LLAMA | {"model_type": "nemotron-nas", "block_configs": blocks}, "config.json")
    assert (a.layer_count, a.attention_layers, a.kv_bytes_per_token) == (4, 2, 2 * 2 * 2 * 16 * 2)
    full = 64 * 64 * 2 + 2 * 64 * 32 + 64
    assert a.parameters_total == 2 * 6400 + 2 * full + 3 * (3 * 64 * 256 + 64) + (64 * 64 + 64) + 64


def test_checkpoint_quantisation_says_what_is_left_alone():
    config = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    a = hf.architecture(LLAMA | {"quantization_config": config}, "config.json")
    assert (a.stored_weights, a.unquantised) == ("fp8", ("attention",))
    with pytest.raises(InputError, match="quant_method: got 'magic'"):
        hf.architecture(LLAMA | {"quantization_config": {"quant_method": "magic"}}, "config.json")


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"model_type": 3}'])
def test_a_file_that_is_no_config(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        hf.read_config(path)


def _spoilt(values):
    for keys in _paths(values):
        for change in ("drop", "null", "text", "list", "minus"):
            copied = copy.deepcopy(values)
            at = copied
            for key in keys[:-1]:
                at = at[key]
            if change == "drop":
                del at[keys[-1]]
            else:
                at[keys[-1]] = {"null": None, "text": "x", "list": [True], "minus": -1.5}[change]
            yield copied


def _paths(values, before=()):
    for key, value in values.items():
        if key in ("vision_config", "id2label", "label2id", "rope_scaling", "rope_parameters", "auto_map"):
            continue
        yield (*before, key)
        if isinstance(value, dict):
            yield from _paths(value, (*before, key))
