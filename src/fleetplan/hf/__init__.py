"""Reads a Hugging Face config.json of the known families into an architecture; what it does not know it refuses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError, near_names, read_text
from fleetplan.hf.families import compressed, gemma4, gpt_like, hybrid, latent, llama_like, mixture
from fleetplan.hf.quantised import stored
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture

Reader = Callable[[Config, str], Architecture]

FAMILIES: dict[str, Reader] = {
    "baichuan": llama_like.baichuan,
    "bloom": gpt_like.bloom,
    "chatglm": gpt_like.chatglm,
    "cohere": llama_like.cohere,
    "cohere2": llama_like.cohere2,
    "dbrx": mixture.dbrx,
    "deepseek_v2": latent.deepseek_v2,
    "deepseek_v3": latent.deepseek_v3,
    "deepseek_v32": latent.deepseek_v32,
    "deepseek_v4": compressed.deepseek_v4,
    "falcon": gpt_like.falcon,
    "gemma": llama_like.gemma,
    "gemma2": llama_like.gemma2,
    "gemma3_text": llama_like.gemma3,
    "gemma4_text": gemma4.gemma4,
    "glm": llama_like.glm,
    "glm4": llama_like.glm4,
    "glm4_moe": mixture.glm4_moe,
    "glm4_moe_lite": latent.deepseek_v3,
    "glm_moe_dsa": latent.deepseek_v32,
    "gpt2": gpt_like.gpt2,
    "gpt_bigcode": gpt_like.gpt_bigcode,
    "gpt_neox": gpt_like.gpt_neox,
    "gpt_oss": mixture.gpt_oss,
    "gptj": gpt_like.gptj,
    "internlm": llama_like.internlm,
    "internlm2": llama_like.internlm2,
    "jamba": hybrid.jamba,
    "kimi_k2": latent.deepseek_v3,
    "llama": llama_like.llama,
    "llama4_text": mixture.llama4,
    "minicpm": llama_like.minicpm,
    "minimax_m2": mixture.minimax_m2,
    "ministral3": llama_like.mistral,
    "mistral": llama_like.mistral,
    "mixtral": mixture.mixtral,
    "mpt": gpt_like.mpt,
    "nemotron": llama_like.nemotron,
    "nemotron-nas": hybrid.nemotron_nas,
    "nemotron_h": hybrid.nemotron_h,
    "olmo2": llama_like.olmo2,
    "olmo3": llama_like.olmo2,
    "opt": gpt_like.opt,
    "orion": llama_like.orion,
    "phi": gpt_like.phi,
    "phi-msft": gpt_like.phi,
    "phi3": llama_like.phi3,
    "phi3_v": llama_like.phi3,
    "qwen": gpt_like.qwen,
    "qwen2": llama_like.qwen2,
    "qwen2_moe": mixture.qwen2_moe,
    "qwen3": llama_like.qwen3,
    "qwen3_5_moe_text": hybrid.qwen3_next,
    "qwen3_5_text": hybrid.qwen3_next,
    "qwen3_moe": mixture.qwen3_moe,
    "qwen3_next": hybrid.qwen3_next,
    "qwen3_vl_moe_text": mixture.qwen3_moe,
    "qwen3_vl_text": llama_like.qwen3,
    "stablelm": llama_like.stablelm,
    "starcoder2": llama_like.starcoder2,
    "step3_text": mixture.step3,
}
"""How each model_type is read."""

NESTED = {
    "gemma3": "gemma3_text",
    "gemma4": "gemma4_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "llava": None,
    "mistral3": None,
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "step3_vl": "step3_text",
}
"""Families whose language model is the text_config; its model_type where it says none."""

REFUSED = {
    "gemma3n_text": "per-layer embeddings and shared KV layers are not modelled",
    "gemma3n": "per-layer embeddings and shared KV layers are not modelled",
    "minimax_m3": "sparse attention with an index cache whose shape could not be checked",
    "minimax_m3_vl": "sparse attention with an index cache whose shape could not be checked",
    "phi4mm": "its layers carry vision and speech adapters of their own, which are not modelled",
    "rwkv": "recurrent without attention; not modelled",
    "rwkv5": "recurrent without attention; not modelled",
}
"""Families that are known and not supported, with the reason."""

QUANTISED_OTHERS = ("hf_quant_config.json",)


def read_config(path: Path) -> Architecture:
    """The architecture of a config.json (or of the folder that holds one). Raises InputError."""
    return architecture(load_json(path), str(path))


def load_json(path: Path) -> dict[str, Any]:
    """The object in a config.json; InputError where there is no file, no JSON or no object."""
    file = path / "config.json" if path.is_dir() else path
    text = read_text(file, "a config.json")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file}: not JSON ({error}), a config.json is needed") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: a JSON object is needed (got {type(values).__name__})")
    beside = file.parent / QUANTISED_OTHERS[0]
    if "quantization_config" not in values and beside.is_file():
        try:
            more = json.loads(read_text(beside, "a JSON object"))["quantization"]
            values["quantization_config"] = {"quant_method": "modelopt", **more}
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError(f"{beside}: an object with `quantization` is needed") from None
    return values


def architecture(values: Mapping[str, Any], where: str, name: str | None = None) -> Architecture:
    """The architecture that a config's values describe. Raises InputError, with `where` in front."""
    return imported(values, where, name)[0]


def imported(
    values: Mapping[str, Any], where: str, name: str | None = None
) -> tuple[Architecture, dict[str, Any]]:
    """The architecture, and the keys of the config that it was made from."""
    family = _family(values, where)
    outer = Config(values, family, where)
    level = outer
    if family in NESTED or isinstance(values.get("text_config"), dict):
        level = outer.part("text_config")
        inner = level.values.get("model_type") or NESTED.get(family)
        level.family = _family({"model_type": inner} if inner else {}, f"{where}: text_config")
        level.read.add("model_type")
        outer.read.add("model_type")
        if outer.has("vision_config"):
            level.note("the vision encoder is kept apart and not counted")
        outer.read.discard("vision_config")
    made = FAMILIES[level.family](level, name or where)
    level.check_unread()
    config = values if values.get("quantization_config") is not None else level.values
    scheme, kept = stored(config, where, made.layer_count)
    if scheme:
        level.note(f"the checkpoint is stored in {scheme}" + (f", but for {', '.join(kept)}" if kept else ""))
    made = dataclasses.replace(
        made, family=family, stored_weights=scheme, unquantised=kept, notes=tuple(level.notes)
    )
    used = {"model_type": family} | outer.kept()
    if scheme:
        used["quantization_config"] = config["quantization_config"]
    return made, used


def _family(values: Mapping[str, Any], where: str) -> str:
    family = values.get("model_type")
    if isinstance(family, str) and family in REFUSED:
        raise InputError(f"{where}: model_type: {family} is not supported: {REFUSED[family]}")
    known = {*FAMILIES, *NESTED}
    if not isinstance(family, str) or family not in known:
        what = f"got {family!r}" if "model_type" in values else "missing"
        near = near_names(family, known) if isinstance(family, str) else []
        hint = f"near: {', '.join(near)}; " if near else ""
        raise InputError(f"{where}: model_type: {what}, {hint}known families are {', '.join(sorted(known))}")
    return family
