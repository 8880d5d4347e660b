"""The CSV formats: which columns each has, by what it is recognised, and how it writes time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fleetplan.errors import InputError
from fleetplan.traffic.traces.csv_rows import UNITS, Header

_PLAIN_TIME = (
    "arrival_s", "arrival_ms", "arrival_us", "arrival_ns", "arrival_time_s", "arrival_time_ms", "arrival_time",
    "arrived_at", "arrival_timestamp", "arrival", "timestamp_s", "timestamp_ms", "timestamp_us", "timestamp_ns",
    "timestamp", "start_time", "time_s", "time_ms", "time", "ts",
)  # fmt: skip
_PLAIN_PROMPT = (
    "prompt_tokens", "input_tokens", "input_length", "input_len", "prompt_length", "prompt_len", "prompt_size",
    "num_prefill_tokens", "context_tokens", "contexttokens", "request_tokens", "input_toks", "isl", "num_prompt_tokens",
)  # fmt: skip
_PLAIN_OUTPUT = (
    "output_tokens", "completion_tokens", "output_length", "output_len", "generated_tokens", "generatedtokens", "token_size",
    "num_decode_tokens", "response_tokens", "output_toks", "osl", "num_output_tokens",
)  # fmt: skip


@dataclass(frozen=True)
class CsvFormat:
    """One CSV format: for each role the names a column may have (normalised), and its unit of time (None: look)."""

    name: str
    time: tuple[str, ...]
    prompt: tuple[str, ...]
    output: tuple[str, ...]
    unit: str | None = None
    time_optional: bool = False
    session: tuple[str, ...] = ()


CSV_FORMATS: dict[str, CsvFormat] = {
    f.name: f
    for f in (
        CsvFormat("azure-2023", ("timestamp",), ("contexttokens",), ("generatedtokens",), "datetime"),
        CsvFormat("azure-2024", ("timestamp",), ("contexttokens",), ("generatedtokens",), "datetime"),
        CsvFormat(
            "burstgpt",
            ("timestamp",),
            ("request_tokens",),
            ("response_tokens",),
            "s",
            session=("session_id",),
        ),
        CsvFormat("splitwise", ("arrival_timestamp",), ("prompt_size",), ("token_size",), "s"),
        CsvFormat(
            "vidur", ("arrived_at",), ("num_prefill_tokens",), ("num_decode_tokens",), "s", time_optional=True
        ),
        CsvFormat(
            "csv", _PLAIN_TIME, _PLAIN_PROMPT, _PLAIN_OUTPUT, time_optional=True, session=("session_id",)
        ),
    )
}


def normalised(name: str) -> str:
    """A column's name as it is compared: lower case, one underscore for blanks and dashes.

    >>> normalised(" Request tokens")
    'request_tokens'
    """
    return re.sub(r"[\s\-]+", "_", name.strip().strip('"').lower())


def detect_csv(path: Path, header: Header, sample: list[str]) -> tuple[CsvFormat, str]:
    """The format whose columns the header has, and the sentence that says by what; else `InputError` with what is missing."""
    names = [normalised(cell) for cell in header.cells]

    def found(f: CsvFormat) -> list[bool]:
        roles = [f.prompt, f.output] + ([] if f.time_optional else [f.time])
        return [any(n in names for n in role) for role in roles]

    for f in CSV_FORMATS.values():
        if all(found(f)):
            if f.name == "azure-2023" and re.search(
                r"(Z|[+-]\d{2}:?\d{2})(,|$)", sample[1] if len(sample) > 1 else ""
            ):
                f = CSV_FORMATS["azure-2024"]
                return f, "columns TIMESTAMP, ContextTokens, GeneratedTokens, times with an offset from UTC"
            return f, f"columns {', '.join(header.cells)}"
    nearest = max(CSV_FORMATS.values(), key=lambda f: sum(found(f)))
    if not any(found(nearest)):
        raise InputError(
            f"{path}:{header.line}: no format has these columns (got {_shown(header)}), "
            "name them with --columns time=…,prompt=…,output=…"
        )
    raise InputError(*_missing(path, header, nearest))


def columns_of(
    path: Path, header: Header, f: CsvFormat, given: Mapping[str, str] | None = None
) -> dict[str, int]:
    """Cell numbers of prompt, output and, where there are any, time and session.

    Raises `InputError` when a column is missing, or is there twice.
    """
    names = [normalised(cell) for cell in header.cells]
    twice = [header.cells[names.index(name)] for name, n in Counter(names).items() if n > 1 and name]
    if twice:
        raise InputError(
            *(
                f"{path}:{header.line}: column {name!r} is there {names.count(normalised(name))} times "
                f"(got {', '.join(header.cells)}), each column once would be right"
                for name in twice
            )
        )
    columns: dict[str, int] = {}
    for role, candidates in (
        ("time", f.time),
        ("prompt", f.prompt),
        ("output", f.output),
        ("session", f.session),
    ):
        wanted = (normalised(given[role]),) if given and role in given else candidates
        index = next((names.index(name) for name in wanted if name in names), None)
        if index is not None:
            columns[role] = index
        elif given and role in given:
            raise InputError(
                f"{path}:{header.line}: no column {given[role]!r} (got {', '.join(header.cells)})"
            )
    missing = [r for r in ("prompt", "output") if r not in columns]
    if missing or ("time" not in columns and not f.time_optional):
        raise InputError(*_missing(path, header, f))
    return columns


def time_unit(path: Path, name: str, sample: list[str], notes: list[str]) -> str:
    """How a plain CSV's time column is written: by its name's ending, by its look, by its size; else `InputError` or a note."""
    filled = [cell for cell in sample if cell]
    if any(re.match(r"\d{4}-\d{2}-\d{2}[ T]", cell) for cell in filled):
        return "datetime"
    ending = normalised(name).rsplit("_", 1)[-1]
    if ending in UNITS and "_" in normalised(name):
        return ending
    values = []
    for cell in filled:
        try:
            values.append(float(cell))
        except ValueError:
            continue
    return unit_by_size(f"{path}: column {name!r}", values, notes)


def unit_by_size(where: str, values: list[float], notes: list[str]) -> str:
    """The unit of a bare clock: a count from 1970 tells by its size; otherwise seconds, said, unless that makes no sense."""
    largest = max(values, default=0.0)
    for floor, unit in ((1e17, "ns"), (1e14, "us"), (1e11, "ms"), (1e9, "s")):
        if largest >= floor:
            notes.append(f"{where} counts from 1970: read as {unit}")
            return unit
    whole = len(values) > 1 and all(v == int(v) for v in values)
    gap = (largest - min(values)) / (len(values) - 1) if len(values) > 1 else 0.0
    if whole and gap > 60:
        raise InputError(
            f"{where}: its unit is unclear (got whole numbers {gap:g} apart on average: {1 / gap:.3g} req/s as seconds, "
            f"{1000 / gap:.3g} req/s as milliseconds), say --time-unit s or --time-unit ms"
        )
    notes.append(f"{where} names no unit: read as seconds (--time-unit overrules)")
    return "s"


def _missing(path: Path, header: Header, f: CsvFormat) -> list[str]:
    names = [normalised(cell) for cell in header.cells]
    shown = {"contexttokens": "ContextTokens", "generatedtokens": "GeneratedTokens", "timestamp": "TIMESTAMP"}
    roles = [("prompt", f.prompt), ("output", f.output)] + ([] if f.time_optional else [("time", f.time)])
    return [
        f"{path}:{header.line}: column {shown.get(candidates[0], candidates[0])!r} ({role}) is missing "
        f"(got {_shown(header)}), {f.name} needs it"
        for role, candidates in roles
        if not any(name in names for name in candidates)
    ]


def _shown(header: Header) -> str:
    """The header's cells, printable and short."""
    text = "".join(c if c.isprintable() else "?" for c in ", ".join(header.cells))
    return text if len(text) <= 160 else f"{text[:160]}…"
