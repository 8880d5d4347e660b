"""What a checkpoint's own quantisation config says: the scheme it is stored in, and the tensor groups that it leaves alone."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from typing import Any

from fleetplan.errors import InputError

MODULES = {
    "attention": ("self_attn.q_proj", "self_attn.o_proj"),
    "mixer": ("mixer.in_proj", "linear_attn.out_proj"),
    "ffn": ("mlp.up_proj", "feed_forward.up_proj"),
    "expert": ("mlp.experts.0.up_proj", "block_sparse_moe.experts.0.w1", "feed_forward.experts.0.up_proj"),
    "shared_expert": ("mlp.shared_expert.up_proj", "mlp.shared_experts.up_proj"),
}
"""Module names that stand for a group; a group is left alone where the config's patterns match one of them in every layer."""


def stored(values: Mapping[str, Any], where: str, layers: int) -> tuple[str | None, tuple[str, ...]]:
    """(scheme name or None for bf16, groups left in bf16). Raises InputError for a method that is not known."""
    config = values.get("quantization_config")
    if config is None:
        return None, ()
    if not isinstance(config, dict):
        raise InputError(f"{where}: quantization_config: got {config!r}, an object is needed")
    name = _scheme(config, where)
    patterns: list[str] = []
    for key in ("modules_to_not_convert", "ignore", "exclude_modules", "ignored_layers"):
        found = config.get(key) or []
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            raise InputError(f"{where}: quantization_config.{key}: got {found!r}, a list of names is needed")
        patterns += found
    kept = [
        group for group, modules in MODULES.items() if any(_all_layers(patterns, m, layers) for m in modules)
    ]
    if values.get("model_type") == "deepseek_v4" and name == "fp8":
        # Engines take fp4 where the key is absent: the first checkpoints came without it.
        experts = values.get("expert_dtype", "fp4")
        if experts not in ("fp4", "fp8"):
            raise InputError(f"{where}: expert_dtype: got {experts!r}, fp4 or fp8 is needed")
        name = "fp8-mxfp4-experts" if experts == "fp4" else name
    if name == "mxfp4":
        # gpt-oss stores its experts in it, nothing else.
        kept = [group for group in MODULES if group != "expert"]
    return name, tuple(kept)


def _scheme(config: Mapping[str, Any], where: str) -> str | None:
    method = config.get("quant_method", config.get("quant_algo"))
    word = str(method).lower().replace("_", "-")
    if word == "modelopt":
        word = str(config.get("quant_algo")).lower().replace("_", "-")
    simple = {"fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4", "fbgemm-fp8": "fp8", "awq": "awq"}
    if word in ("awq", "gptq"):
        bits, group = config.get("bits", config.get("w_bit")), config.get("group_size", 128)
        if bits == 8:
            return "int8"
        if bits != 4 or isinstance(group, bool) or not isinstance(group, int):
            raise InputError(
                f"{where}: quantization_config.bits: got {bits!r}, 4 or 8 with a whole group_size"
            )
        return word if group == 128 else f"{word}-g{group}" if group > 0 else "int4"
    if word in simple:
        return simple[word]
    if word == "compressed-tensors":
        return _compressed(config, where)
    raise InputError(
        f"{where}: quantization_config.quant_method: got {method!r}, known are fp8, mxfp4, nvfp4, modelopt, awq, gptq,"
        " compressed-tensors"
    )


def _compressed(config: Mapping[str, Any], where: str) -> str:
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        raise InputError(
            f"{where}: quantization_config.config_groups: no weights described, one group is needed"
        )
    assert isinstance(first, dict)
    active = first.get("input_activations") is not None
    kind, bits = weights.get("type"), weights.get("num_bits")
    found = {
        ("float", 8): "fp8" if active else "fp8-weight-only",
        ("int", 8): "w8a8" if active else "int8",
        ("int", 4): "int4",
        ("float", 4): "nvfp4",
    }.get((kind, bits) if isinstance(kind, str) and isinstance(bits, int) else ("", 0))
    if found is None:
        raise InputError(
            f"{where}: quantization_config.config_groups: got {bits!r} bits of type {kind!r}, known are 4 and 8 of int, float"
        )
    return found


def _all_layers(patterns: list[str], module: str, layers: int) -> bool:
    """Whether the patterns match the module in the first, a middle and the last layer."""
    return all(
        any(_matches(pattern, f"model.layers.{layer}.{module}") for pattern in patterns)
        for layer in {0, layers // 2, layers - 1}
    )


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return (
                re.match(pattern[3:], name) is not None
                or re.match(pattern[3:], f"language_{name}") is not None
            )
        except re.error:
            return False
    tail = pattern.split("layers.", 1)[-1] if "layers." in pattern else pattern
    short = name.split("layers.", 1)[1]
    return fnmatch.fnmatchcase(short, tail) or fnmatch.fnmatchcase(short, f"{tail}.*")
