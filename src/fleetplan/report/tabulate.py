"""Rows of the store as a table of a page: headings and their meaning from the data dictionary, values with units."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fleetplan.report import units
from fleetplan.report.blocks import Cell, Column, Table
from fleetplan.report.reading import Row

# Rows of a table that a page shows at most; the query beneath it gives the rest.
MOST_ROWS = 60

_WORDS = {
    "ttft": "TTFT", "ttfvt": "TTFVT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E", "kv": "KV", "gpu": "GPU", "gpus": "GPUs",
    "id": "id", "mtp": "MTP", "cv": "CV", "api": "API", "usd": "USD", "pue": "PUE", "slo": "SLO",
}  # fmt: skip
_UNIT_ENDING = re.compile(
    r"_(usd_per_(hour|month|year)|bytes_per_s|bytes_per_token|flop_per_s|flop_per_byte|usd|bytes|flop|w|(?<!per_)s|h)$"
)


def table(
    source: str,
    rows: Sequence[Row],
    caption: str,
    *,
    query: str = "",
    keep: Sequence[str] = (),
    drop: Sequence[str] = (),
    labels: dict[str, str] | None = None,
    tones: dict[tuple[int, str], str] | None = None,
    marked: Sequence[int] = (),
    note: str = "",
    most: int = MOST_ROWS,
) -> Table:
    """The rows as a table; `keep` gives the columns in order (those that are there), else all but `drop`.

    `source` names the table of the store, whose dictionary entry says what each column means. `tones` colours a cell by
    (row, column); a column whose cells are all missing is left out.
    """
    there = list(dict.fromkeys(key for row in rows for key in row))
    names = [name for name in keep if name in there] if keep else [name for name in there if name not in drop]
    names = [name for name in names if any(row.get(name) is not None for row in rows)]
    columns = tuple(
        Column(name, (labels or {}).get(name, heading(name)), meaning(source, name), _numeric(rows, name))
        for name in names
    )
    cells = tuple(
        tuple(cell(name, row.get(name), (tones or {}).get((index, name), "")) for name in names)
        for index, row in enumerate(rows[:most])
    )
    return Table(caption, columns, cells, len(rows), query, note, frozenset(marked))


def query(name: str, scenario: str, where: str = "") -> str:
    """The query that gives a table's rows in full, as the page prints it."""
    more = f" AND {where}" if where else ""
    return f"SELECT * FROM {name} WHERE scenario = '{scenario.replace(chr(39), chr(39) * 2)}'{more}"


def short_labels(labels: Sequence[str]) -> dict[str, str]:
    """Labels without the parts that all of them share, for the narrow places of charts.

    >>> short_labels(["H100, TP 2, fp8, vllm", "H100, TP 4, fp8, vllm"])
    {'H100, TP 2, fp8, vllm': 'TP 2', 'H100, TP 4, fp8, vllm': 'TP 4'}
    """
    parts = {label: label.split(", ") for label in labels}
    if len({len(each) for each in parts.values()}) != 1 or len(parts) < 2:
        return {label: label for label in labels}
    differ = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
    short = {
        label: ", ".join(part for part, keep in zip(each, differ, strict=True) if keep)
        for label, each in parts.items()
    }
    return {label: text.removeprefix("NVIDIA ").replace(" weights", "") for label, text in short.items()}


def shared_parts(labels: Sequence[str]) -> str:
    """The parts that all labels share, as a note under a table of short labels; empty when there are none.

    >>> shared_parts(["H100, TP 2, vllm", "H100, TP 4, vllm"])
    'All candidates: H100, vllm.'
    """
    parts = [label.split(", ") for label in dict.fromkeys(labels)]
    if len({len(each) for each in parts}) != 1 or len(parts) < 2:
        return ""
    common = [column[0] for column in zip(*parts, strict=True) if len(set(column)) == 1]
    return f"All candidates: {', '.join(common)}." if common else ""


def cell(column: str, value: object, tone: str = "") -> Cell:
    """A value as a cell: its text with the unit; a missing value is quiet; truth values carry a tone of their own."""
    if value is None:
        return Cell(units.NONE, "quiet")
    if column == "class" and value == "*":
        return Cell("all", "quiet")
    if column == "holds" and isinstance(value, bool):
        return Cell("holds" if value else "fails", "good" if value else "bad")
    text = units.quantity(column, value)
    return Cell(text, tone or ("long" if len(text) > 48 else "wordy" if len(text) > 20 else ""))


def heading(column: str) -> str:
    """A column's name as a heading, without the unit that its values carry.

    >>> heading("ttft_p99_s"), heading("cost_usd_per_hour"), heading("kv_blocks")
    ('TTFT p99', 'Cost per hour', 'KV blocks')
    """
    per = re.search(r"_usd_(per_.*)$", column)
    name = _UNIT_ENDING.sub("", column)
    if per and name != column:
        name = f"{name}_{per[1]}"
    name = name.replace("usd_per_million", "per_million").replace("per_million", "per_1M")
    name = re.sub(r"_per_s(?=_|$)", "_per_second", name)
    words = [_WORDS.get(word, word) for word in name.split("_")]
    text = " ".join(words)
    return text[:1].upper() + text[1:] if words[0] not in _WORDS.values() else text


def meaning(source: str, column: str) -> str:
    """What the data dictionary says of a column; nothing when it does not know it."""
    from fleetplan.store import tables

    if source not in tables.TABLES:
        return ""
    for each in tables.TABLES[source].columns:
        if each.name == column:
            return each.description
    return ""


def _numeric(rows: Sequence[Row], name: str) -> bool:
    values = [row[name] for row in rows if row.get(name) is not None]
    return bool(values) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
