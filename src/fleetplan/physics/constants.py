"""The fitted constants that ship: read from data/calibration, and chosen for a model on a GPU by an engine, with how sure they are."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetplan import catalog
from fleetplan.catalog import Gpu, squashed
from fleetplan.errors import InputError, read_yaml, unknown_name
from fleetplan.physics.architecture import Architecture, MoeFfn
from fleetplan.physics.terms import CLASSES, IDEAL, OVERHEAD_UNITS, PRIOR, floor_constants, prior

LAYERS = tuple(name for name in OVERHEAD_UNITS if name.startswith("layer_"))
GROUPS: dict[str, tuple[str, ...]] = {
    "hardware": tuple(IDEAL),
    "weights": tuple(name for name in IDEAL if "weights" in name),
    "flops": tuple(name for name in IDEAL if "matmul" in name or name == "attention"),
    "experts": tuple(name for name in IDEAL if name.startswith("expert_")),
    "context": ("kv", "mla"),
    "overhead": (*LAYERS, "moe_layer", "step"),
    "layers": LAYERS,
    "sequences": ("decoding_sequence",),
    "prompts": ("prompt_sequence",),
    "client": ("client", "client_token", "client_concurrent"),
    "all": tuple(name for name in CLASSES if not name.startswith("client")),
}
"""Constants that one factor moves together."""

LEVELS = ("engine", "release", "gpu", "model", "runtime", "deployment", "build")
"""Below the base: engine, release of the engine, GPU, model, model on engine, a deployment (model, GPU, engine, precision), and that one's release."""

DEFAULT = "public.yaml"
ENGINES = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True)
class Band:
    """Share of measured to predicted between which 80% of left-out points lie."""

    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"low": self.low, "high": self.high}


@dataclass(frozen=True)
class Calibration:
    """Constants of one deployment, and where they come from."""

    constants: Mapping[str, float]
    basis: str
    """deployment: fitted to this very one; pair: to this GPU and engine with other models; nearest: neither was measured."""
    named: str
    """One sentence that says which calibration this is."""
    tpot: Band
    ttft: Band
    throughput: Band


def model_key(architecture: Architecture) -> str:
    """The shape that constants are kept by: fine-tunes and renamed checkpoints share it.

    >>> from fleetplan.physics.architecture import decoder
    >>> model_key(decoder("llama-3-8b", 32, 4096, 32, 8, 14336, 128256))
    'L32-d4096'
    """
    experts = max((g.ffn.experts for g in architecture.layers if isinstance(g.ffn, MoeFfn)), default=0)
    return f"L{architecture.layer_count}-d{architecture.d}" + (f"-e{experts}" if experts else "")


def gpu_key(gpu: Gpu) -> str:
    """The GPU's name without form factor: h100, b200, gb200, mi300x."""
    return squashed(gpu.name).removesuffix("sxm")


def keys(
    model: str, gpu: str, engine: str, precision: str, release: str = "", fp4_units: bool = False
) -> dict[str, str]:
    """The key of a deployment at each level; without a release no release's own effects are taken."""
    return {
        "base": "",
        "kernels": f"{engine}|{'fp4' if fp4_units else ''}",
        "engine": engine,
        "release": f"{engine}|{release}",
        "gpu": gpu,
        "model": model,
        "runtime": f"{model}|{engine}",
        "deployment": f"{model}|{gpu}|{engine}|{precision}",
        "build": f"{model}|{gpu}|{engine}|{precision}|{release}",
    }


def precision_key(weights: str, architecture: Architecture) -> str:
    """bf16, fp8, fp4 or int4: what deployments are told apart by."""
    name = (architecture.stored_weights or "bf16") if weights == "stored" else weights
    for family in ("fp4", "fp8", "int4", "int8"):
        if family in name.lower():
            return family
    return {"awq": "int4", "gptq": "int4", "w4a8": "int4", "w8a8": "int8"}.get(name.lower(), "bf16")


def calibration(
    architecture: Architecture,
    gpu: Gpu,
    engine: str,
    weights: str,
    path: str | Path | None = None,
    release: str = "",
) -> Calibration:
    """Constants for a model on a GPU by an engine; `path` is a user's own calibration file. Raises InputError for an unknown engine.

    `release` names a measured release of the engine, whose own factors are then taken; without it the constants are those of no release.
    """
    if engine not in ENGINES:
        raise InputError(f"engine: {unknown_name('engine', engine, ENGINES)}")
    document = load(path)
    effects: dict[str, dict[str, dict[str, float]]] = document["effects"]
    if "steptime" in document:
        band = Band(**document["bands"]["deployment"]["tpot"])
        named = f"a request log of one deployment ({document['name']})"
        return Calibration(
            dict(PRIOR), "deployment", named, band, Band(**document["bands"]["deployment"]["ttft"]), band
        )
    fp4_units = "fp4" in gpu.flop_per_s
    wanted = keys(
        model_key(architecture),
        gpu_key(gpu),
        engine,
        precision_key(weights, architecture),
        release,
        fp4_units,
    )
    pairs = {(k.split("|")[1], k.split("|")[2]) for k in effects.get("deployment", {})}
    pair = (wanted["gpu"], engine)
    if wanted["deployment"] in effects.get("deployment", {}):
        basis, named = "deployment", f"fitted to this model on {gpu.name} with {engine} ({document['name']})"
    elif pair in pairs:
        basis, named = (
            "pair",
            f"fitted to other models or precisions on {gpu.name} with {engine} ({document['name']})",
        )
    else:
        near_gpu = wanted["gpu"]
        if near_gpu not in effects.get("gpu", {}):
            near_gpu = nearest_gpu(gpu, tuple(effects.get("gpu", {})))
            wanted["gpu"] = near_gpu
        basis = "nearest"
        named = f"nearest: {gpu.name} with {engine} was not measured; GPU constants of {near_gpu}, engine constants of {engine} ({document['name']})"
    value = prior(engine, fp4_units)
    for level in ("base", *LEVELS):
        for target, factor in effects.get(level, {}).get(wanted[level], {}).items():
            for name in GROUPS.get(target, (target,)):
                value[name] *= factor
    bands = document["bands"][basis]
    return Calibration(
        floor_constants(value),
        basis,
        named,
        Band(**bands["tpot"]),
        Band(**bands["ttft"]),
        Band(**bands["output_tokens_per_s"]),
    )


def nearest_gpu(gpu: Gpu, known: tuple[str, ...]) -> str:
    """The measured GPU whose bandwidth and bf16 FLOP/s are nearest, as ratios; the same vendor and fp8 units before others."""
    best, least = "", math.inf
    for candidate in catalog.gpus():
        key = gpu_key(candidate)
        if key not in known:
            continue
        distance = abs(math.log(candidate.bandwidth_bytes_per_s / gpu.bandwidth_bytes_per_s))
        distance += abs(math.log(candidate.flop_per_s["bf16"] / gpu.flop_per_s["bf16"]))
        distance += 0.5 * (candidate.vendor != gpu.vendor) + 0.5 * (
            ("fp4" in candidate.flop_per_s) != ("fp4" in gpu.flop_per_s)
        )
        if distance < least:
            best, least = key, distance
    return best or (known[0] if known else "")


def load(path: str | Path | None = None) -> dict[str, Any]:
    """The calibration file, the shipped one by default. Raises InputError where it is not one."""
    target = Path(path) if path else catalog.data_dir() / "calibration" / DEFAULT
    return _load(target)


def engine_of(path: str | Path) -> str:
    """The engine that a calibration file was fitted for. Raises InputError where it is no such file, or one of several engines."""
    document = load(path)
    name = document.get("engine")
    if name not in ENGINES:
        raise InputError(
            f"{path}: names no engine that it was fitted for (got {name!r}), `fleetplan calibrate` on the runs of one engine writes it: {', '.join(ENGINES)}"
        )
    return str(name)


@functools.cache
def _load(path: Path) -> dict[str, Any]:
    document = read_yaml(path, "a calibration file")
    known = document if isinstance(document, dict) else {}
    missing = [key for key in ("schema", "name", "effects", "bands") if key not in known]
    if missing:
        raise InputError(
            f"{path}: keys missing: {', '.join(missing)}; `fleetplan calibrate` writes such a file"
        )
    return dict(document)
