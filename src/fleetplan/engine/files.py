"""Requests from a CSV file, checked line by line, and the records of a run to CSV or Parquet."""

from __future__ import annotations

import csv
import math
import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.outcome import OUTCOMES
from fleetplan.engine.result import Result
from fleetplan.errors import InputError, unknown_name
from fleetplan.traffic.requests import Requests

NEEDED = ("arrival_s", "prompt_tokens", "output_tokens")
OPTIONAL = (
    "timeout_s", "session_id", "gap_s", "history_tokens", "prefix_id", "prefix_tokens", "answers", "adapter_id", "hidden_tokens", "priority", "class",
)  # fmt: skip
MOST_FAULTS = 20
LONGEST_S = 1e10
"""Latest time [s] that is taken: beyond it a double no longer holds a microsecond, and latencies would be rounded away."""

COLUMNS = (
    "arrival_s",
    "first_scheduled_s",
    "first_token_s",
    "finish_s",
    "preemptions",
    "replica",
    "outcome",
    "first_visible_s",
)
HANDOFF_COLUMNS = ("prefill_replica", "decode_replica", "prefilled_s", "reserved_s", "sent_s", "landed_s")
"""Written too where prefill and decode are pools of their own."""


def read_requests(path: str | Path) -> tuple[Requests, NDArray[np.int64]]:
    """The requests of a CSV file with the columns NEEDED and any of OPTIONAL, and for each the data row of the file (from 0).

    Raises InputError with `file:line` for every fault, at most MOST_FAULTS of them.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = csv.reader(file)
            header = [cell.strip() for cell in next(lines, [])]
            _check_header(path, header)
            columns, faults = _read_columns(path, header, lines)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error}), a CSV file in UTF-8 would be right") from error
    if faults:
        more = [f"{path}: and more faults after these"] if len(faults) >= MOST_FAULTS else []
        raise InputError(*faults, *more)
    arrival = np.array(columns.pop("arrival_s"), dtype=np.float64)
    if not len(arrival):
        raise InputError(f"{path}:2: no request (got 0 rows), at least one row would be right")
    names = columns.pop("class", None)
    classes = tuple(dict.fromkeys(names)) if names else ("all",)
    if names:
        columns["class_index"] = [classes.index(name) for name in names]
    optional: dict[str, Any] = columns
    prompt, output = columns.pop("prompt_tokens"), columns.pop("output_tokens")
    return Requests.of(arrival, prompt, output, classes=classes, **optional), np.argsort(
        arrival, kind="stable"
    )


def write_records(result: Result, order: NDArray[np.int64], path: str | Path) -> None:
    """One row a request, in the file's order, to .csv or .parquet; what did not happen is empty. Replaces the file at once."""
    path = Path(path)
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(f"--out: the file's name must end in .csv or .parquet (got {path.name})")
    columns = records(result, order)
    partial = path.with_name(f".{path.name}.partial")
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".csv":
        with partial.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(columns)
            writer.writerows(zip(*(_cells(column) for column in columns.values()), strict=True))
    else:
        import duckdb

        with duckdb.connect() as con:
            con.register("records", columns)
            floats = ", ".join(
                f"CASE WHEN isnan({c}) THEN NULL ELSE {c} END AS {c}" if c.endswith("_s") else c
                for c in columns
            )
            target = str(partial).replace("'", "''")
            con.execute(f"COPY (SELECT {floats} FROM records) TO '{target}' (FORMAT parquet)")
    os.replace(partial, path)


def records(result: Result, order: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    """The columns of COLUMNS, of HANDOFF_COLUMNS for two pools, and the tokens found by a prefix cache, requests in the order of the file that they came from."""
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    columns = {name: getattr(result, name)[back] for name in COLUMNS}
    columns["outcome"] = np.array(OUTCOMES, dtype=object)[columns["outcome"]]
    if result.handoff is not None:
        columns |= {name: getattr(result.handoff, name)[back] for name in HANDOFF_COLUMNS}
    if result.prefix_hit_tokens is not None:
        columns["prefix_hit_tokens"] = result.prefix_hit_tokens[back]
    if result.attempts is not None and result.refusals is not None:
        columns |= {"attempts": result.attempts[back], "refusals": result.refusals[back]}
    return columns


def _cells(column: NDArray[Any]) -> list[Any]:
    if column.dtype.kind != "f":
        return column.tolist()
    return ["" if math.isnan(x) else repr(x) for x in column.tolist()]


def _check_header(path: Path, header: list[str]) -> None:
    known = (*NEEDED, *OPTIONAL)
    faults = [
        f"{path}:1: column {name} is missing (got {','.join(header) or 'an empty line'})"
        for name in NEEDED
        if name not in header
    ]
    faults += [f"{path}:1: {unknown_name('column', name, known)}" for name in header if name not in known]
    if "prefix_tokens" in header and "prefix_id" not in header:
        faults.append(
            f"{path}:1: column prefix_tokens is the length of a shared prefix (got no column prefix_id), add which one it is"
        )
    faults += [
        f"{path}:1: column {name} is given twice" for name in dict.fromkeys(header) if header.count(name) > 1
    ]
    if faults:
        raise InputError(*faults)


def _read_columns(path: Path, header: list[str], lines: Any) -> tuple[dict[str, list[Any]], list[str]]:
    columns: dict[str, list[Any]] = {name: [] for name in header}
    faults: list[str] = []
    targets = [(name, columns[name].append, _PARSERS[name]) for name in header]
    for cells in lines:
        if not cells:
            continue
        if len(cells) != len(header):
            faults.append(
                f"{path}:{lines.line_num}: {len(cells)} cells (got {','.join(cells)}), {len(header)} would be right"
            )
        else:
            for (name, append, (parse, right)), cell in zip(targets, cells, strict=True):
                try:
                    append(parse(cell))
                except ValueError:
                    faults.append(
                        f"{path}:{lines.line_num}: {name} is wrong (got {cell!r}), {right} would be right"
                    )
        if len(faults) >= MOST_FAULTS:
            break
    return columns, faults


def _time(cell: str) -> float:
    value = float(cell)
    if not 0 <= value <= LONGEST_S or "_" in cell:
        raise ValueError(cell)
    return value


def _whole(cell: str) -> int:
    """A whole number as files write it: Python would take 1_000 and digits of other scripts too."""
    if not cell.isascii() or "_" in cell:
        raise ValueError(cell)
    return int(cell)


def _tokens(cell: str) -> int:
    value = _whole(cell)
    if not 1 <= value < 1 << 31:
        raise ValueError(cell)
    return value


def _count(cell: str) -> int:
    value = _whole(cell) if cell.strip() else 0
    if not 0 <= value < 1 << 31:
        raise ValueError(cell)
    return value


def _history(cell: str) -> int:
    return -1 if not cell.strip() else _count(cell)


def _answers(cell: str) -> int:
    value = _whole(cell) if cell.strip() else 1
    if not 1 <= value < 1 << 15:
        raise ValueError(cell)
    return value


def _timeout(cell: str) -> float:
    return math.inf if not cell.strip() else _time(cell)


def _gap(cell: str) -> float:
    return math.nan if not cell.strip() else _time(cell)


def _identity(cell: str) -> int:
    if not cell.strip():
        return -1
    value = _whole(cell)
    if not -1 <= value < 1 << 63:
        raise ValueError(cell)
    return value


_PARSERS: dict[str, tuple[Any, str]] = {
    "arrival_s": (_time, "a number of seconds from 0 to 1e10"),
    "prompt_tokens": (_tokens, "a whole number from 1 to 2^31 − 1"),
    "output_tokens": (_tokens, "a whole number from 1 to 2^31 − 1"),
    "timeout_s": (_timeout, "a number of seconds from 0 to 1e10, or nothing for never"),
    "session_id": (_identity, "a whole number from 0 to 2^63 − 1, or nothing (or -1) for none"),
    "gap_s": (_gap, "a number of seconds from 0 to 1e10, or nothing where arrival_s is fixed"),
    "hidden_tokens": (_count, "a whole number from 0 to 2^31 − 1, or nothing for none"),
    "history_tokens": (
        _history,
        "a whole number from 0 to 2^31 − 1, or nothing for the whole turn before",
    ),
    "prefix_tokens": (_count, "a whole number from 0 to 2^31 − 1, or nothing for 0"),
    "answers": (_answers, "a whole number from 1 to 32767, or nothing for 1"),
    "adapter_id": (_identity, "a whole number from 0 to 2^63 − 1, or nothing (or -1) for none"),
    "priority": (_count, "a whole number from 0 (the most urgent) to 2^31 − 1, or nothing for 0"),
    "prefix_id": (_identity, "a whole number from 0 to 2^63 − 1, or nothing (or -1) for none"),
    "class": (str, "a name"),
}
