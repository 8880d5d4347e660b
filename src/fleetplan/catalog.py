"""The GPUs and models that come with the planner, by name or alias."""

from __future__ import annotations

import functools
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetplan import hf
from fleetplan.errors import InputError, near_names, read_yaml, unknown_name
from fleetplan.physics.architecture import Architecture

Compute = Literal["bf16", "fp8", "int8", "fp4"]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Link(_Strict):
    """How the GPUs of one node reach each other."""

    kind: str
    """What the vendor calls it: NVLink 4, PCIe 5 x16, Infinity Fabric."""
    bytes_per_s_per_direction: float = Field(gt=0)
    """Bandwidth of one GPU to all its peers together, one way [B/s]."""
    switched: bool = True
    """Whether all GPUs of the node are on it; False: pairs only, or no direct link (PCIe)."""


class Gpu(_Strict):
    """One accelerator as its datasheet and its driver describe it."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    vendor: str
    memory_bytes: int = Field(gt=0)
    """The datasheet's memory [bytes]; a datasheet's GB of HBM is 2^30 bytes where the driver shows that it is."""
    memory_usable_bytes: int = Field(gt=0)
    """What the driver reports in total [bytes]: the planner uses this one."""
    usable_measured: bool
    """Whether the usable figure is a reported one; False: taken as the datasheet's."""
    bandwidth_bytes_per_s: float = Field(gt=0)
    flop_per_s: dict[Compute, float]
    """Peak dense FLOP/s by compute dtype (integer operations for int8)."""
    link: Link
    gpus_per_node: int = Field(gt=0)
    network_bytes_per_s: float | None = Field(default=None, gt=0)
    """Bandwidth of one GPU to GPUs of other nodes in the vendor's usual node, one direction [B/s]; None: not known."""
    tdp_w: float | None = Field(gt=0)
    source: str
    notes: str | None = None


@dataclass(frozen=True)
class Model:
    """A model of the catalogue, or one read from a config.json."""

    name: str
    title: str
    aliases: tuple[str, ...]
    source: str
    architecture: Architecture
    published_parameters: float | None = None
    """What its makers say it has, where they do [parameters]."""


def data_dir() -> Path:
    """The folder of data files: $FLEETPLAN_DATA, else `data` of the project, else `data` of the working folder."""
    given = os.environ.get("FLEETPLAN_DATA")
    if given:
        return Path(given)
    beside = Path(__file__).resolve().parents[2] / "data"
    return beside if beside.is_dir() else Path("data").resolve()


def gpu(name: str) -> Gpu:
    """The GPU of that name or alias, whatever its case and punctuation. Raises InputError with near names."""
    return _found("GPU", name, {gpu.name: (gpu, gpu.aliases) for gpu in gpus()})


def gpus() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in its order."""
    return _gpus(data_dir() / "gpus.yaml")


def model(name_or_path: str) -> Model:
    """The model of a catalogue name or alias, or of a path to a config.json or its folder. Raises InputError."""
    path = Path(name_or_path)
    if path.suffix == ".json" or (path / "config.json").is_file():
        made = hf.read_config(path)
        return Model(made.name, made.name, (), str(path), made)
    files = {entry.stem: entry for entry in _model_files(data_dir())}
    if name_or_path in files:  # without reading every other file for its aliases
        return _model(files[name_or_path])
    if path.is_absolute() or name_or_path.startswith((".", "~")):
        raise InputError(
            f"{name_or_path}: no config.json there, give a config.json, its folder, or a name of the catalogue (`fleetplan models`)"
        )
    names = {stem: (entry, _entry(entry).get("aliases", ())) for stem, entry in files.items()}
    return _model(_found("model", name_or_path, names))


def models() -> tuple[Model, ...]:
    """Every model of the catalogue, by name."""
    return tuple(_model(path) for path in _model_files(data_dir()))


def squashed(name: str) -> str:
    """A name without what people write differently: case, spaces, dashes, underscores.

    >>> squashed("H100 SXM") == squashed("h100_sxm") == squashed("h100-sxm")
    True
    """
    return re.sub(r"[\s_\-]+", "", name.lower())


def _found(kind: str, name: str, entries: dict[str, tuple[Any, Any]]) -> Any:
    wanted = squashed(name)
    for known, (entry, aliases) in entries.items():
        if wanted in {squashed(known), *(squashed(str(alias)) for alias in aliases)}:
            return entry
    called = [*entries, *(str(alias) for _, aliases in entries.values() for alias in aliases)]
    near = unknown_name(kind, name, called) if near_names(name, called) else unknown_name(kind, name, entries)
    raise InputError(near)


@functools.cache
def _gpus(path: Path) -> tuple[Gpu, ...]:
    try:
        return tuple(Gpu.model_validate(entry) for entry in _yaml(path)["gpus"])
    except ValidationError as error:
        raise InputError(*(f"{path}: {fault['loc']}: {fault['msg']}" for fault in error.errors())) from None


@functools.cache
def _model_files(root: Path) -> tuple[Path, ...]:
    return tuple(sorted((root / "models").glob("*.yaml")))


@functools.cache
def _entry(path: Path) -> dict[str, Any]:
    return _yaml(path)


@functools.cache
def _model(path: Path) -> Model:
    entry = _entry(path)
    made = hf.architecture(entry["config"], str(path), name=entry["name"])
    return Model(
        entry["name"],
        entry["title"],
        tuple(entry.get("aliases", ())),
        entry["source"],
        made,
        entry.get("published_parameters"),
    )


def _yaml(path: Path) -> dict[str, Any]:
    # A round trip through JSON leaves plain types.
    return dict(json.loads(json.dumps(read_yaml(path, "a file of the catalogue"))))
