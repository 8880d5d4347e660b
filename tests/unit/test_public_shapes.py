"""Families without a config file at hand: small configs of public sizes, their published counts and KV bytes."""

import pytest

from fleetplan import hf
from fleetplan.errors import InputError
from fleetplan.physics.kv import check_tensor_parallel, sequence_memory
from fleetplan.physics.precision import scheme
from fleetplan.physics.work import Layout, work


def _config(family, d, layers, heads, kv, d_ff, vocabulary, **more):
    return {
        "model_type": family,
        "hidden_size": d,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": d_ff,
        "vocab_size": vocabulary,
        **more,
    }


def _mla(family, **more):
    sizes = {
        "q_lora_rank": 1536,
        "kv_lora_rank": 512,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "first_k_dense_replace": 3,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
    }
    return _config(family, 7168, 61, 128, 128, 18432, 129280, **(sizes | more))


MAVERICK = _config(
    "llama4_text",
    5120,
    48,
    40,
    8,
    8192,
    202048,
    head_dim=128,
    num_local_experts=128,
    num_experts_per_tok=1,
    interleave_moe_layer_step=2,
    intermediate_size_mlp=16384,
    attention_chunk_size=8192,
)

SHAPES = {  # name: (config, published or exactly counted parameters, KV bytes a token)
    "falcon-7b": (
        {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32}
        | {"vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False, "bias": False},
        6_921_720_704,
        32 * 2 * 64 * 2,
    ),
    "falcon-40b": (
        {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_hidden_layers": 60}
        | {"vocab_size": 65024, "num_kv_heads": 8, "new_decoder_architecture": True, "bias": False},
        41_303_293_952,
        60 * 2 * 8 * 64 * 2,
    ),
    "bloom-7b1": (
        {"model_type": "bloom", "n_embed": 4096, "n_head": 32, "n_layer": 30, "vocab_size": 250880},
        7_069_016_064,
        30 * 2 * 4096 * 2,
    ),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432}
        | {"max_seq_len": 2048, "no_bias": True, "attn_config": {"alibi": True}},
        6_649_286_656,
        32 * 2 * 4096 * 2,
    ),
    "opt-6.7b": (
        _config("opt", 4096, 32, 32, None, None, 50272, ffn_dim=16384, max_position_embeddings=2048),
        6_658_473_984,
        32 * 2 * 4096 * 2,
    ),
    "starcoder": (
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576}
        | {"n_positions": 8192, "vocab_size": 49152, "multi_query": True},
        15_517_456_384,
        40 * 2 * 128 * 2,
    ),
    "starcoder2-7b": (
        _config("starcoder2", 4608, 32, 36, 4, 18432, 49152),
        7_173_923_840,
        32 * 2 * 4 * 128 * 2,
    ),
    "stablelm-3b-4e1t": (
        _config("stablelm", 2560, 32, 32, 32, 6912, 50304),
        2_795_443_200,
        32 * 2 * 2560 * 2,
    ),
    "internlm2-7b": (_config("internlm2", 4096, 32, 32, 8, 14336, 92544), 7_737_708_544, 32 * 2 * 1024 * 2),
    "c4ai-command-r7b": (
        _config("cohere2", 4096, 32, 32, 8, 14336, 256000, sliding_window=4096, sliding_window_pattern=4),
        8_028_033_024,
        131_072,
    ),
    "gemma-3-27b": (
        _config("gemma3_text", 5376, 62, 32, 16, 21504, 262208, head_dim=128, sliding_window=1024),
        27_009_346_304,
        62 * 2 * 16 * 128 * 2,
    ),
    "jamba-v0.1": (
        _config("jamba", 4096, 32, 32, 8, 14336, 65536, num_experts=16, num_experts_per_tok=2)
        | {"attn_layer_period": 8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}
        | {"mamba_expand": 2, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_dt_rank": 256},
        51_570_323_328,
        4 * 2 * 1024 * 2,
    ),
    "glm-4.5-air": (
        _config("glm4_moe", 4096, 46, 96, 8, 10944, 151552, head_dim=128, attention_bias=True)
        | {"n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 8}
        | {"moe_intermediate_size": 1408, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1},
        106.8e9,
        46 * 2 * 1024 * 2,
    ),
    "glm-4.5": (
        _config("glm4_moe", 5120, 92, 96, 8, 12288, 151552, head_dim=128, attention_bias=True)
        | {"use_qk_norm": True, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8}
        | {"moe_intermediate_size": 1536, "first_k_dense_replace": 3, "num_nextn_predict_layers": 1},
        352.8e9,
        92 * 2 * 1024 * 2,
    ),
    "glm-4.7-flash": (
        _config("glm4_moe_lite", 2048, 47, 20, 20, 10240, 154880, head_dim=64, n_routed_experts=64)
        | {"q_lora_rank": 768, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64}
        | {"v_head_dim": 256, "first_k_dense_replace": 1, "n_shared_experts": 1, "num_experts_per_tok": 4}
        | {"moe_intermediate_size": 1536},
        30e9,
        47 * 576 * 2,
    ),
    "nemotron-h-8b": (
        _config("nemotron_h", 4096, 52, 32, 8, 21504, 131072, head_dim=128, mamba_num_heads=128)
        | {"hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"}
        | {"mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4, "expand": 2}
        | {"use_bias": False, "use_conv_bias": True, "mlp_bias": False, "mamba_proj_bias": False},
        8.1e9,
        4 * 2 * 1024 * 2,
    ),
    "command-r-plus": (
        _config("cohere", 12288, 64, 96, 8, 33792, 256000, use_qk_norm=True),
        103_810_674_688,
        64 * 2 * 1024 * 2,
    ),
    "phi-4-mini": (
        _config("phi3", 3072, 32, 24, 8, 8192, 200064, tie_word_embeddings=True, sliding_window=262144),
        3_836_021_760,
        32 * 2 * 1024 * 2,
    ),
    "minicpm-2b-sft": (_config("minicpm", 2304, 40, 36, 36, 5760, 122753), 2_724_880_896, 40 * 2 * 2304 * 2),
    "olmo2-32b": (_config("olmo2", 5120, 64, 40, 8, 27648, 100352), 32_234_279_936, 64 * 2 * 1024 * 2),
    "gpt-neox-20b": (
        _config("gpt_neox", 6144, 44, 64, None, 24576, 50432, tie_word_embeddings=False),
        20_554_567_680,
        44 * 2 * 6144 * 2,
    ),
    "deepseek-v2": (
        _mla("deepseek_v2", hidden_size=5120, num_hidden_layers=60, intermediate_size=12288)
        | {"vocab_size": 102400, "first_k_dense_replace": 1, "n_routed_experts": 160, "n_shared_experts": 2}
        | {"num_experts_per_tok": 6, "moe_intermediate_size": 1536},
        235_741_434_880,
        60 * 576 * 2,
    ),
    "glm-4-9b": (
        {"model_type": "chatglm", "hidden_size": 4096, "num_layers": 40, "num_attention_heads": 32}
        | {"ffn_hidden_size": 13696, "padded_vocab_size": 151552, "kv_channels": 128, "add_qkv_bias": True}
        | {"multi_query_attention": True, "multi_query_group_num": 2},
        9_399_951_360,
        40 * 2 * 256 * 2,
    ),
    "nemotron-4-340b": (
        _config("nemotron", 18432, 96, 96, 8, 73728, 256000, head_dim=192),
        340e9,
        96 * 2 * 8 * 192 * 2,
    ),
    "deepseek-v3.2": (
        _mla("deepseek_v32", index_n_heads=64, index_head_dim=128, index_topk=2048),
        671.9e9,
        61 * (1152 + 132),
    ),
    "deepseek-v4-pro": (
        _config("deepseek_v4", 7168, 61, 128, 1, None, 129280, head_dim=512, q_lora_rank=1536, o_groups=16)
        | {"o_lora_rank": 1024, "sliding_window": 128, "index_n_heads": 64, "index_head_dim": 128}
        | {"index_topk": 1024, "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 6}
        | {"moe_intermediate_size": 3072, "num_hash_layers": 3, "hc_mult": 4, "num_nextn_predict_layers": 1}
        | {"compress_ratios": [128, *[128, 4] * 30, 0]},
        1_572_997_201_763,
        61 * 1024 + 30 * (1024 + 132) / 4 + 31 * 1024 / 128,
    ),
    "kimi-k2.5": (
        {"model_type": "kimi_k25"}
        | {
            "text_config": _mla(
                "kimi_k2",
                num_attention_heads=64,
                n_routed_experts=384,
                first_k_dense_replace=1,
                vocab_size=163840,
            )
        },
        1_026_408_232_448,
        70_272,
    ),
    "llama-4-maverick": ({"model_type": "llama4", "text_config": MAVERICK}, 400e9, 196_608),
    "step3": (
        _config("step3_text", 7168, 61, 64, None, 18432, 128815, head_dim=256, num_attention_groups=1)
        | {"share_q_dim": 2048, "moe_num_experts": 48, "moe_top_k": 3, "moe_intermediate_size": 5120}
        | {"share_expert_dim": 5120, "moe_layers_enum": ",".join(map(str, range(4, 60)))},
        316e9,
        61 * 2 * 256 * 2,
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_public_shape(name):
    config, published, kv = SHAPES[name]
    a = hf.architecture(config, name)
    if isinstance(published, int):
        assert a.parameters_total == published
    assert a.parameters_total == pytest.approx(published, rel=0.005)
    assert a.kv_bytes_per_token == kv


def test_windows_by_pattern():
    gemma = hf.architecture(SHAPES["gemma-3-27b"][0], "gemma")
    assert gemma.kv_bytes(32_768) == 8192 * (10 * 32_768 + 52 * 1024)
    maverick = hf.architecture(SHAPES["llama-4-maverick"][0], "maverick")
    assert maverick.kv_bytes(32_768) == 4096 * (12 * 32_768 + 36 * 8192)


@pytest.mark.parametrize("family", ["minimax_m3", "gemma3n", "phi4mm", "rwkv"])
def test_families_that_could_not_be_checked_are_refused(family):
    with pytest.raises(InputError, match=f"{family} is not supported"):
        hf.architecture({"model_type": family}, "config.json")


def test_compressed_attention_keeps_a_window_and_entries():
    a = hf.architecture(SHAPES["deepseek-v4-pro"][0], "pro")
    assert a.attention_layers == 61
    assert a.windows == (128,)
    long = 30 * (1024 + 132) / 4 + 31 * 1024 / 128
    assert a.kv_bytes(2**20) == 61 * 1024 * 128 + long * 2**20
    # The head count is dealt out over 8 ranks; the one KV head and the unfinished entries are on each.
    one, eight = sequence_memory(a, 2.0), sequence_memory(a, 2.0, 8)
    assert one == eight
    assert one.state_bytes == 30 * 2 * 4 * 8 * 2 * (512 + 128) + 31 * 2 * 4 * 128 * 512
    with pytest.raises(InputError, match="a divisor of the 16 output groups"):
        check_tensor_parallel(a, 32)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"compress_ratios": [4]}, "compress_ratios: got 1 entries, one a layer is needed, 61"),
        ({"compress_ratios": None}, "compress_ratios: got 0 entries"),
        ({"num_key_value_heads": 2}, "num_key_value_heads: got 2, 1 is needed"),
        ({"o_groups": 3}, "o_groups: got 3, a divisor of the 128 heads"),
        ({"quantization_config": {"quant_method": "fp8"}, "expert_dtype": "fp6"}, "expert_dtype: got 'fp6'"),
    ],
)
def test_compressed_attention_of_another_shape_is_refused(change, says):
    with pytest.raises(InputError, match=says):
        hf.architecture(SHAPES["deepseek-v4-pro"][0] | change, "pro")


@pytest.mark.parametrize(("experts", "bits"), [("fp4", 4.25), ("fp8", 8.0)])
def test_experts_may_be_stored_narrower_than_the_rest(experts, bits):
    stored = {"quantization_config": {"quant_method": "fp8"}, "expert_dtype": experts}
    a = hf.architecture(SHAPES["deepseek-v4-pro"][0] | stored, "pro")
    found = scheme("stored", a)
    assert (found.bits_of("expert"), found.bits_of("attention"), found.bits_of("indexer")) == (bits, 8, 16)


def test_a_step_of_compressed_attention_reads_window_choice_and_entries():
    a = hf.architecture(SHAPES["deepseek-v4-pro"][0], "pro")
    found = work(a, Layout(), lambda group: 2.0, lambda group: "bf16", 2.0)
    assert found.window_tokens == 1024 * 4
    assert found.kv_bytes_per_token == 30 * 132 / 4 + 31 * 1024 / 128
    assert found.window_kv_bytes_per_token == 30 * 1024 / 4
    unfinished = 30 * (2 * 4 * 8 * 2 * 640) / 4 + 31 * (2 * 4 * 128 * 512) / 128
    assert found.state_bytes_per_sequence == 61 * 128 * 1024 + unfinished
    assert found.flop_per_pair == 30 * 2 * 64 * 128 / 4 + 31 * 4 * 128 * 512 / 128
    assert found.window_flop_per_pair == 4 * 128 * 512 * (61 * 128 / 4096 + 30 / 4)


def test_a_tied_head_says_that_files_may_hold_it_twice():
    """Falcon 7B's files count 7.22B: the embedding and, once more, the head."""
    a = hf.architecture(SHAPES["falcon-7b"][0], "falcon")
    assert a.parameters_total + 65_024 * 4544 == pytest.approx(7.22e9, rel=0.001)
    assert "V·d higher" in a.notes[0]
