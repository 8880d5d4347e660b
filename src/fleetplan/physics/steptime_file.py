"""Step-time models in JSON files, so that other people's cost models run on the engine and ours elsewhere."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.errors import InputError, read_text, unknown_name
from fleetplan.physics.form import StepTime, affine, linear, table

_AFFINE = ("t_fixed_s", "prefill_s_per_token", "decode_s_per_sequence")
_LINEAR = (
    "overhead_s",
    "compute_s_per_token",
    "weights_s",
    "compute_s_per_query_key_pair",
    "kv_s_per_token",
    "sequence_s",
)
_SCALARS = {
    "c": "pair_s",
    "c_w": "window_pair_s",
    "m": "kv_token_s",
    "m_w": "window_kv_token_s",
    "m_s": "state_s",
    "sigma": "sequence_s",
    "delta": "decode_s",
    "O_slope": "overhead_slope_s",
    "C_slope": "compute_slope_s",
    "M_slope": "memory_slope_s",
}
_VECTORS_REQUIRED = ("O", "C", "M", "c", "m", "sigma", "delta")
_TABLE = ("tokens", "step_s")
_PIPELINE = ("stages", "stage")
_LARGEST = 1e12


def from_json(path: str | os.PathLike[str]) -> StepTime:
    """The step-time model of a JSON file: `model` is affine, linear, vectors or table; of a pipeline with `stages` and a `stage`.

    Raises `InputError` with one line a fault: a key that is missing, unknown or given twice, a value that is no finite number, vectors
    of unequal length. In `vectors`, entry 0 is the step of one token.
    """
    where = str(path)
    text = read_text(path, "a step-time model in JSON")
    try:
        document = json.loads(text, object_pairs_hook=_no_duplicates, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{where}: not a JSON document ({error}); see docs/step-time.md for the form"
        ) from error
    return from_document(document, where)


def from_document(document: Any, where: str = "step time") -> StepTime:
    """The step-time model of a parsed JSON document; `where` names it in errors."""
    if not isinstance(document, dict):
        raise InputError(f"{where}: a JSON object is needed (got {type(document).__name__})")
    kinds: dict[str, tuple[tuple[str, ...], tuple[str, ...], Callable[[dict[str, Any], str], StepTime]]] = {
        "affine": (_AFFINE, (), lambda d, w: affine(**_numbers(d, _AFFINE, w))),
        "linear": (_LINEAR, (), lambda d, w: linear(**_numbers(d, _LINEAR, w))),
        "vectors": (_VECTORS_REQUIRED, (*_SCALARS, "window_tokens"), _vectors),
        "table": (_TABLE, ("kv_tokens", "sequence_s"), _table),
    }
    kind = document.get("model")
    if not isinstance(kind, str) or kind not in kinds:
        raise InputError(f"{where}: model: {unknown_name('cost model', str(kind), kinds)}")
    if "stages" in document or "stage" in document:
        return _pipeline(document, where)
    required, optional, build = kinds[kind]
    faults = [
        f"{where}: {key} is missing; a model {kind!r} needs {', '.join(required)}"
        for key in required
        if key not in document
    ]
    faults += [
        f"{where}: {unknown_name('key', key, (*required, *optional, *_PIPELINE))}"
        for key in document
        if key not in required and key not in optional and key not in ("model", "comment")
    ]
    if faults:
        raise InputError(*faults)
    return build(document, where)


def to_document(step: StepTime) -> dict[str, Any]:
    """The model as a `vectors` document; `from_document` gives an equal model back.

    >>> from fleetplan.physics.form import linear
    >>> step = linear(0.001, 1e-6, 0.005, 0.0, 2e-8, 1e-5)
    >>> again = from_document(to_document(step))
    >>> bool(again.step_s(7, 2, 1, 900, 30) == step.step_s(7, 2, 1, 900, 30))
    True
    """
    longest = max(len(step.overhead_s), len(step.compute_s), len(step.memory_s)) - 1
    document: dict[str, Any] = {"model": "vectors"}
    for key, vector, slope in (
        ("O", step.overhead_s, step.overhead_slope_s),
        ("C", step.compute_s, step.compute_slope_s),
        ("M", step.memory_s, step.memory_slope_s),
    ):
        last = len(vector) - 1
        if last < longest and math.isnan(slope):
            raise ValueError(
                f"{key} holds {last} tokens, another vector {longest}, and it has no slope to go on with"
            )
        beyond = vector[last] + np.arange(1, longest - last + 1) * (0.0 if math.isnan(slope) else slope)
        document[key] = [float(x) for x in np.concatenate([vector[1:], beyond])]
    for key, field in _SCALARS.items():
        value = float(getattr(step, field))
        if not math.isnan(value):
            document[key] = value
    if step.window_tokens:
        document["window_tokens"] = step.window_tokens
    if step.stage is not None:
        document |= {"stages": step.stages, "stage": to_document(step.stage)}
    return document


def to_json(step: StepTime, path: str | os.PathLike[str]) -> None:
    """Write the model as a `vectors` document, whole or not at all."""
    target = Path(path)
    temporary = target.with_name(target.name + ".tmp")
    temporary.write_text(json.dumps(to_document(step), allow_nan=False) + "\n", encoding="utf-8")
    os.replace(temporary, target)


def _pipeline(document: dict[str, Any], where: str) -> StepTime:
    """A step of any model with `stages` and the `stage` that is longest, a model of any kind itself."""
    stages = document.get("stages")
    if not isinstance(stages, int) or isinstance(stages, bool) or stages < 1:
        raise InputError(f"{where}: stages: a whole number from 1 up is needed (got {_shown(stages)})")
    step = from_document({key: value for key, value in document.items() if key not in _PIPELINE}, where)
    stage = from_document(document["stage"], f"{where}: stage") if "stage" in document else None
    try:
        return replace(step, stages=stages, stage=stage)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _vectors(document: dict[str, Any], where: str) -> StepTime:
    vectors = {key: _list(document, key, where) for key in ("O", "C", "M")}
    lengths = {key: len(vector) for key, vector in vectors.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            f"{where}: O, C and M are of one length (got {lengths}), one entry a number of tokens"
        )
    scalars: dict[str, Any] = _numbers(
        document, tuple(key for key in _SCALARS if key in document), where, may_be_negative=("delta",)
    )
    window = document.get("window_tokens", 0)
    if not isinstance(window, int) or isinstance(window, bool) or window < 0:
        raise InputError(f"{where}: window_tokens: a whole number of tokens, 0 for none (got {window!r})")
    return StepTime(
        overhead_s=np.concatenate([[0.0], vectors["O"]]),
        compute_s=np.concatenate([[0.0], vectors["C"]]),
        memory_s=np.concatenate([[0.0], vectors["M"]]),
        window_tokens=window,
        **{_SCALARS[key]: value for key, value in scalars.items()},
    )


def _table(document: dict[str, Any], where: str) -> StepTime:
    tokens = _list(document, "tokens", where)
    if (tokens != np.floor(tokens)).any() or (tokens < 1).any():
        raise InputError(f"{where}: tokens: whole numbers from 1 up")
    kv = _list(document, "kv_tokens", where) if "kv_tokens" in document else None
    sequence = _numbers(document, ("sequence_s",), where)["sequence_s"] if "sequence_s" in document else 0.0
    try:
        return table(tokens.astype(np.int64), _list(document, "step_s", where), kv, sequence)
    except ValueError as error:
        raise InputError(f"{where}: {error}") from error


def _numbers(
    document: dict[str, Any], keys: tuple[str, ...], where: str, may_be_negative: tuple[str, ...] = ()
) -> dict[str, float]:
    faults = []
    for key in keys:
        value = document[key]
        if not _is_number(value):
            faults.append(
                f"{where}: {key}: a finite number of seconds, at most 1e12, is needed (got {_shown(value)})"
            )
        elif value < 0 and key not in may_be_negative:
            faults.append(f"{where}: {key}: a time is 0 or above (got {value!r})")
    if faults:
        raise InputError(*faults)
    return {key: float(document[key]) for key in keys}


def _list(document: dict[str, Any], key: str, where: str) -> np.ndarray:
    value = document[key]
    if not isinstance(value, list) or not value:
        raise InputError(
            f"{where}: {key}: a list with at least one number is needed (got {type(value).__name__})"
        )
    for index, entry in enumerate(value):
        if not _is_number(entry) or entry < 0:
            raise InputError(
                f"{where}: {key}[{index}]: a finite number from 0 to 1e12 is needed (got {_shown(entry)})"
            )
    return np.asarray(value, dtype=np.float64)


def _is_number(value: Any) -> bool:
    """Whether a JSON value is a number that can be a time: finite, and small enough that sums of it are."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}…"


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, value in pairs:
        if key in document:
            raise ValueError(f"key {key!r} is given twice")
        document[key] = value
    return document


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
