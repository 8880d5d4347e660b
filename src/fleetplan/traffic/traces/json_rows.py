"""JSON and JSONL traces: recognised by their keys, read line by line, each fault with its line number."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.errors import InputError
from fleetplan.traffic.traces.csv_rows import FAULTS_KEPT, UNITS
from fleetplan.traffic.traces.formats import _PLAIN_OUTPUT, _PLAIN_PROMPT, _PLAIN_TIME, unit_by_size
from fleetplan.traffic.traces.trace import Fault, Rows

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class JsonFormat:
    """One JSON format: where a record keeps its time and lengths (dots go inside), its unit of time, its block size."""

    name: str
    time: tuple[str, ...]
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    unit: str | None
    needs: tuple[str, ...] = ()
    """Keys by which the format is recognised, besides those of the lengths."""
    block_tokens: int = 0
    strict_blocks: bool = False
    session: str | None = None


JSON_FORMATS: dict[str, JsonFormat] = {
    f.name: f
    for f in (
        JsonFormat(
            "bailian", ("timestamp",), ("input_length",), ("output_length",), "s", ("chat_id",), 16, session="chat_id"
        ),
        JsonFormat("mooncake", ("timestamp",), ("input_length",), ("output_length",), "ms", ("hash_ids",), 512, True),
        JsonFormat("aiperf", ("timestamp",), ("input_length",), ("output_length",), "ms"),
        JsonFormat(
            "aiperf-export", ("metadata.request_start_ns",), ("metrics.input_sequence_length.value",),
            ("metrics.output_sequence_length.value", "metrics.output_token_count.value"), "ns", ("metadata", "metrics"),
        ),
        JsonFormat(
            "vllm-requests", ("arrival_time", "queued_ts"), ("input_toks",), ("output_toks",), "s", ("input_toks", "output_toks")
        ),
        JsonFormat(
            "inference-perf", ("start_time",), ("info.input_tokens",), ("info.output_tokens",), "s", ("info", "start_time")
        ),
        JsonFormat("sharegpt", ("timestamp",), ("prompt_tokens",), ("output_tokens",), None, ("conversations",)),
        JsonFormat("jsonl", _PLAIN_TIME, _PLAIN_PROMPT, _PLAIN_OUTPUT, None),
    )
}  # fmt: skip

_TOO_MANY_TOKENS = 10**9
"""A longer prompt or output is a slip of the file, as in CSV traces."""
_LATEST = 1e20
"""Largest reading of a clock that is taken: nanoseconds since 1970 are near 2e18."""

YAML_ENDINGS = (".yaml", ".yml")
"""A log whose file ends like this is YAML: one record."""

_DESCRIBES = {"benchmarks", "input_sequence_length", "number_of_turns"}
"""Keys of load generators' own scenarios."""

Record = tuple[int, Any, str]
"""(line, parsed value or None, text)."""


def records(path: Path) -> list[Record]:
    """Every record of a JSONL file by line, or every item of a JSON array; a single object is one record."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        raw = file.read()
    text = raw.decode("utf-8-sig", "replace")
    if path.suffix in YAML_ENDINGS:
        return [(1, _yaml(path, text), "")]
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        return list(_lines(text))
    if isinstance(whole, list):
        return [(i, item, "") for i, item in enumerate(whole, start=1)]
    return [(1, whole, "")]


def detect_json(path: Path, sample: list[Record]) -> tuple[JsonFormat, str]:
    """The format that the first readable record's keys fit, and the sentence that says by what."""
    first = next((value for _, value, _ in sample if isinstance(value, dict)), None)
    if first is None:
        line, _, text = sample[0] if sample else (1, None, "")
        raise InputError(
            f"{path}:{line}: no readable record (got {text[:80]!r}), one JSON object a line would be right"
        )
    for f in JSON_FORMATS.values():
        known = {key.split(".")[0] for key in f.prompt + f.output}
        if all(key in first for key in f.needs) and (f.name == "sharegpt" or known & set(first)):
            return f, f"keys {', '.join(list(first)[:8])}"
    if first.keys() & _DESCRIBES:
        raise InputError(
            f"{path}: describes a load and holds no requests (got {', '.join(list(first)[:12])}), "
            "write it as the `workload` of a scenario, or give the log of a run"
        )
    raise InputError(
        f"{path}: no format has these keys (got {', '.join(list(first)[:12])}), "
        "records with prompt_tokens, output_tokens and arrival_s would be right"
    )


def read_json_rows(
    path: Path, found: list[Record], f: JsonFormat, unit: str | None, block_tokens: int | None
) -> tuple[Rows, str | None]:
    """The rows of a JSON trace in this format, and the unit of time they were read in."""
    if f.name == "sharegpt":
        found = list(_conversations(path, found))
    taken: list[tuple[int, Any, int, int, Any]] = []
    dropped: dict[str, int] = {}
    faults: list[Fault] = []
    notes: list[str] = []
    timed = any(isinstance(r, dict) and _get(r, f.time) is not None for _, r, _ in found)
    hashed: list[list[int]] = []
    block = block_tokens or f.block_tokens
    wrong: list[str] = []
    dated: bool | None = None
    for line, record, text in found:
        reason, row = _row(record, text, line == found[-1][0], f, timed)
        if row is not None and timed:
            # Dates and a clock's numbers in one file cannot be put in order: the first usable row says which it is.
            dated = isinstance(row[0], datetime) if dated is None else dated
            reason = reason if isinstance(row[0], datetime) == dated else "time_unreadable"
        if reason is not None:
            dropped[reason] = dropped.get(reason, 0) + 1
            if len(faults) < FAULTS_KEPT:
                faults.append(Fault(line, reason, text[:200] or json.dumps(record)[:200]))
            continue
        assert row is not None
        taken.append((line, *row))
        ids = record.get("hash_ids") if f.block_tokens else None
        ids = ids if isinstance(ids, list) and all(_is_id(i) for i in ids) else []
        if ids and len(ids) != -(-row[1] // block):
            wrong.append(_mismatch(f"{path}:{line}", len(ids), row[1], block))
            ids = []
        hashed.append(ids)
    if wrong and f.strict_blocks:
        raise InputError(*wrong[:FAULTS_KEPT])
    notes.extend(
        f"{w.split(', it would')[0].split(', no usual')[0]}; its ids are left out" for w in wrong[:3]
    )
    if len(wrong) > 3:
        notes.append(f"{len(wrong) - 3} more rows have ids that do not fit their length")
    time, unit, start = (
        _times(path, [row[1] for row in taken], unit or f.unit, notes) if timed else (None, None, None)
    )
    column = {i: np.array([row[i] for row in taken], dtype=np.int64) for i in (0, 2, 3)}
    sessions = [row[4] for row in taken]
    blocks = any(hashed)
    rows = Rows(
        line=column[0],
        prompt_tokens=column[2],
        output_tokens=column[3],
        time_s=time,
        start=start,
        dropped=dropped,
        faults=tuple(faults),
        notes=tuple(notes),
        session_id=np.unique([str(s) for s in sessions], return_inverse=True)[1].astype(np.int64)
        if any(s is not None for s in sessions)
        else None,
        block_offsets=np.concatenate([[0], np.cumsum([len(h) for h in hashed])]).astype(np.int64)
        if blocks
        else None,
        block_hashes=np.array([i for h in hashed for i in h], dtype=np.int64) if blocks else None,
        hash_block_tokens=block if blocks else 0,
    )
    return rows, unit


def _yaml(path: Path, text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    try:
        return YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: is no readable YAML (got {str(error).splitlines()[0]})") from None


def _lines(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.split("\n"), start=1):
        line = line.rstrip("\r")
        if number > 1 and not line and text.endswith("\n") and number == text.count("\n") + 1:
            return
        try:
            yield number, json.loads(line), line
        except (ValueError, RecursionError):
            yield number, None, line


def _row(
    record: Any, text: str, last: bool, f: JsonFormat, timed: bool
) -> tuple[str | None, tuple[Any, int, int, Any] | None]:
    """Why a record cannot be used, or (time, prompt, output, session)."""
    if not isinstance(record, dict):
        if record is None and not text.strip():
            return "blank_line", None
        return ("partial_line" if last else "unreadable_line"), None
    if record.get("error") or (f.name == "aiperf-export" and record.get("metrics") is None):
        return "failed_request", None
    counts = []
    for which, keys in (("prompt", f.prompt), ("output", f.output)):
        value = _get(record, keys)
        if value is None:
            return f"{which}_tokens_missing", None
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not abs(value) < _TOO_MANY_TOKENS
            or value != int(value)
        ):
            return f"{which}_tokens_not_whole", None
        if value < 1:
            return f"{which}_tokens_below_1", None
        counts.append(int(value))
    time: Any = _get(record, f.time) if timed else None
    if timed and (time is None or time == ""):
        return "time_missing", None
    if isinstance(time, str):
        time = _moment(time)
    if timed and not isinstance(time, datetime) and not _is_clock(time):
        return "time_unreadable", None
    return None, (
        time,
        counts[0],
        counts[1],
        record.get(f.session) if f.session else record.get("session_id"),
    )


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -(1 << 63) <= value < 1 << 63


def _is_clock(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LATEST


def _moment(text: str) -> float | datetime | None:
    """A clock's number or a date with time (UTC where it has no offset) written as text."""
    try:
        number = float(text)
        return number if np.isfinite(number) else None
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _get(record: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """The first of the keys that the record has; a dot goes into a nested object."""
    for key in keys:
        value: Any = record
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is not None:
            return value
    return None


def _times(
    path: Path, values: list[Any], unit: str | None, notes: list[str]
) -> tuple[NDArray[np.float64], str | None, str | None]:
    if values and isinstance(values[0], datetime):
        first = min(values)
        return np.array([(v - first).total_seconds() for v in values]), "datetime", first.isoformat()
    if unit in (None, "datetime"):
        unit = unit_by_size(f"{path}: time", [float(v) for v in values], notes)
    assert unit is not None
    least = min(values, default=0)
    return np.array([float(v - least) for v in values]) * UNITS[unit], unit, None


def _mismatch(where: str, ids: int, tokens: int, block: int) -> str:
    right = next((b for b in (16, 32, 64, 128, 256, 512, 1024) if -(-tokens // b) == ids), None)
    hint = f"it would be right at blocks of {right}" if right else "no usual block size makes it right"
    return (
        f"{where}: {ids} hash_ids for {tokens} tokens (got {ids}, blocks of {block} make {-(-tokens // block)}), {hint}"
        + (f": --block-size {right}" if right else "")
    )


def _conversations(path: Path, found: list[Record]) -> Iterator[Record]:
    """Each answer of a conversation as a record: its prompt is all that was said before it."""
    for number, item, text in found:
        turns = item.get("conversations") if isinstance(item, dict) else None
        if not isinstance(turns, list):
            yield number, item, text
            continue
        said = 0
        for turn in turns:
            tokens = (
                _get(turn, ("tokens", "num_tokens", "token_count", "n_tokens"))
                if isinstance(turn, dict)
                else None
            )
            if tokens is None:
                raise InputError(
                    f"{path}: record {number}: a turn without a token count (got keys {', '.join(turn) if isinstance(turn, dict) else turn!r}), "
                    "give each turn its `tokens`, counted by your model's tokenizer"
                )
            if turn.get("from", turn.get("role")) in ("gpt", "assistant", "chatgpt", "bing", "bard"):
                row = {"prompt_tokens": said, "output_tokens": tokens, "session_id": item.get("id", number)}
                if "timestamp" in item:
                    row["timestamp"] = item["timestamp"]
                yield number, row, ""
            said += tokens
