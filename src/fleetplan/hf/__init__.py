"""Reads a Hugging Face config.json of the known families into an architecture; what it does not know it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError, near_names
from fleetplan.hf.families import llama_like, mixture
from fleetplan.hf.reader import Config
from fleetplan.physics.architecture import Architecture

FAMILIES: dict[str, Callable[[Config, str], Architecture]] = {
    "llama": llama_like.llama,
    "mistral": llama_like.mistral,
    "mixtral": mixture.mixtral,
    "qwen2": llama_like.qwen2,
    "qwen3": llama_like.qwen3,
}


def read_config(path: Path) -> Architecture:
    """The architecture of a config.json (or of the folder that holds one). Raises InputError."""
    return architecture(load_json(path), str(path))


def load_json(path: Path) -> dict[str, Any]:
    """The object in a config.json; InputError where there is no file, no JSON or no object."""
    file = path / "config.json" if path.is_dir() else path
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}), a config.json is needed") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{file}: not JSON ({error}), a config.json is needed") from None
    if not isinstance(values, dict):
        raise InputError(f"{file}: a JSON object is needed (got {type(values).__name__})")
    return values


def architecture(values: Mapping[str, Any], where: str, name: str | None = None) -> Architecture:
    """The architecture that a config's values describe. Raises InputError, with `where` in front."""
    return imported(values, where, name)[0]


def imported(
    values: Mapping[str, Any], where: str, name: str | None = None
) -> tuple[Architecture, dict[str, Any]]:
    """The architecture, and the keys of the config that it was made from."""
    family = values.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        what = "missing" if "model_type" not in values else f"got {family!r}"
        near = near_names(family, FAMILIES) if isinstance(family, str) else []
        hint = f"near: {', '.join(near)}; " if near else ""
        raise InputError(
            f"{where}: model_type: {what}, {hint}known families are {', '.join(sorted(FAMILIES))}"
        )
    config = Config(values, family, where)
    made = FAMILIES[family](config, name or where)
    config.check_unread()
    return made, {"model_type": family} | config.kept()
