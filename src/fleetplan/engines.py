"""The serving engines of data/engines.yaml: scheduler defaults, what their memory factor multiplies, and their calibration, by version."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetplan.catalog import data_dir, squashed
from fleetplan.errors import InputError, read_yaml, unknown_name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)


class Scheduler(_Strict):
    """What the engine does unless told otherwise."""

    policy: Literal["static", "continuous", "chunked", "prefill_first"]
    max_num_batched_tokens: int = Field(gt=0)
    max_num_batched_tokens_small_gpu: int | None = None
    """The default on GPUs below 70 GiB and on any A100, where it differs."""
    max_num_seqs: int = Field(gt=0)
    max_num_seqs_small_gpu: int | None = None
    block_size: int = Field(gt=0)
    """Tokens of one KV block."""
    preemption: Literal["recompute", "swap", "none"]
    prefix_caching: bool


class MemoryPolicy(_Strict):
    """How much memory goes to the KV cache."""

    knob: str
    """The engine's own name of the factor."""
    default: float = Field(gt=0, le=1)
    utilisation_of: Literal["total", "free"]
    """total: the factor times the GPU's memory holds everything; free: the factor times what is left beside weights and workspace is KV."""


class EngineVersion(_Strict):
    """One range of versions."""

    range: str
    """Comma-separated comparisons: ">=0.8,<0.22"."""
    scheduler: Scheduler
    memory: MemoryPolicy
    kv_cache_default: str
    calibration: str
    """Calibration file, from the data folder."""
    source: str


class Engine(_Strict):
    """A serving engine, newest version range last."""

    name: str
    title: str
    aliases: tuple[str, ...] = ()
    versions: tuple[EngineVersion, ...] = Field(min_length=1)


class _File(_Strict):
    schema_: int = Field(alias="schema")
    engines: tuple[Engine, ...]


def engines() -> tuple[Engine, ...]:
    """Every engine, in the file's order."""
    return _engines(data_dir() / "engines.yaml")


def engine(name: str, version: str | None = None) -> tuple[Engine, EngineVersion]:
    """The engine of a name or alias, and the range that holds a version (the newest without one).

    Raises InputError for an unknown engine, or a version that no range holds.

    >>> engine("TensorRT-LLM")[1].memory.utilisation_of
    'free'
    """
    wanted = squashed(name)
    for found in engines():
        if wanted in {squashed(found.name), *(squashed(alias) for alias in found.aliases)}:
            if version is None:
                return found, found.versions[-1]
            for candidate in found.versions:
                if holds(candidate.range, version):
                    return found, candidate
            ranges = "; ".join(candidate.range for candidate in found.versions)
            raise InputError(f"engine {found.name}: no range holds version {version}; known: {ranges}")
    raise InputError(f"engine: {unknown_name('engine', name, [e.name for e in engines()])}")


def kv_share_bytes(
    policy: MemoryPolicy, total_bytes: float, other_bytes: float, factor: float | None = None
) -> float:
    """Bytes for KV on a GPU of `total_bytes` beside `other_bytes` of weights and workspace.

    total·f − other where the factor is of the total, (total − other)·f where it is of what is free.

    >>> gib = 2**30
    >>> kv_share_bytes(engine("trtllm")[1].memory, 80 * gib, 20 * gib) / gib
    54.0
    >>> kv_share_bytes(engine("vllm", "0.19")[1].memory, 80 * gib, 20 * gib) / gib
    52.0
    """
    share = policy.default if factor is None else factor
    if policy.utilisation_of == "free":
        return (total_bytes - other_bytes) * share
    return total_bytes * share - other_bytes


def holds(range_: str, version: str) -> bool:
    """Whether a version is inside a range of comparisons, by its leading numbers.

    >>> holds(">=0.8,<0.22", "0.19.0"), holds(">=0.8,<0.22", "0.22.1rc1")
    (True, False)
    """
    at = _numbers(version)
    for part in range_.split(","):
        match = re.fullmatch(r"\s*(>=|<=|<|>|==)\s*([\d.]+)\s*", part)
        if match is None:
            raise InputError(f"version range {range_!r}: comparisons like >=0.8,<0.22 are needed")
        limit = _numbers(match[2])
        size = max(len(at), len(limit))
        left, right = at + (0,) * (size - len(at)), limit + (0,) * (size - len(limit))
        if not {
            ">=": left >= right,
            "<=": left <= right,
            "<": left < right,
            ">": left > right,
            "==": left == right,
        }[match[1]]:
            return False
    return True


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"v?(\d+(?:\.\d+)*)", version)
    if match is None:
        raise InputError(f"version {version!r}: numbers like 0.19.0 are needed")
    return tuple(int(part) for part in match[1].split("."))


@functools.cache
def _engines(path: Path) -> tuple[Engine, ...]:
    try:
        return _File.model_validate(read_yaml(path, "a table of engines")).engines
    except ValidationError as error:
        raise InputError(
            *(f"{path}: {'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
        ) from None
