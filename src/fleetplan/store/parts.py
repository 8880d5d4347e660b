"""Parquet parts: one table of one scenario in one file, typed by the data dictionary, byte-identical for equal rows."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError
from fleetplan.store import tables
from fleetplan.store.files import whole
from fleetplan.store.tables import Column, Table

Row = Mapping[str, Any]


def part_path(parts_dir: str | Path, scenario: str, table: str) -> Path:
    """Where a part lives: parts_dir/scenario/stage/table.parquet."""
    return Path(parts_dir) / scenario / tables.table(table).stage / f"{table}.parquet"


def write_part(
    parts_dir: str | Path, scenario: str, table: str, rows: Iterable[Row], meta: Mapping[str, str | int]
) -> Path:
    """Write the rows of one table of one scenario (or fleet), sorted by the table's key; returns the part's path.

    Each row holds just the columns of the dictionary (its subject may be left out, as it is given). A missing or an extra
    column, a value of another type, a null where none may be, a NaN or an infinity and a duplicate key raise
    `ValueError`. No rows at all make a valid, empty part. `meta` (e.g. spec_digest, code_fingerprint, seed) is kept in
    the file's key-value metadata. The file appears whole, by `os.replace`, or not at all.
    """
    layout = tables.table(table)
    columns = _columns(layout, scenario, rows)
    path = part_path(parts_dir, scenario, table)
    with whole(path) as temporary:
        _copy(layout, columns, temporary, meta)
    return path


def read_part(parts_dir: str | Path, scenario: str, table: str) -> list[dict[str, Any]]:
    """The rows of a part, in key order; `InputError` if there is no such part or its columns are not the dictionary's."""
    import duckdb

    layout = tables.table(table)
    path = part_path(parts_dir, scenario, table)
    if not path.is_file():
        raise InputError(
            f"{path}: there is no such part; run `fleetplan {layout.stage}` for scenario {scenario} first"
        )
    with duckdb.connect() as connection:
        cursor = connection.execute("SELECT * FROM read_parquet(?)", [glob_escape(path)])
        found = [(name, str(kind)) for name, kind, *_ in cursor.description or ()]
        if [name for name, _ in found] != [column.name for column in layout.columns]:
            raise InputError(
                f"{path}: its columns are not those of table {table} (got {', '.join(name for name, _ in found)}); "
                f"run `fleetplan {layout.stage}` for scenario {scenario} again"
            )
        names = [name for name, _ in found]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def read_meta(path: str | Path) -> dict[str, str]:
    """The key-value metadata of a part."""
    import duckdb

    with duckdb.connect() as connection:
        pairs = connection.execute(
            "SELECT key, value FROM parquet_kv_metadata(?)", [glob_escape(path)]
        ).fetchall()
    return {key.decode(): value.decode() for key, value in pairs}


def glob_escape(path: str | Path) -> str:
    """The path with DuckDB's glob characters taken literally."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in str(path))


def quoted(literal: str | Path) -> str:
    """An SQL string literal."""
    return "'" + str(literal).replace("'", "''") + "'"


def identifier(name: str) -> str:
    """An SQL identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


def _columns(layout: Table, scenario: str, rows: Iterable[Row]) -> dict[str, list[Any]]:
    names = {column.name for column in layout.columns}
    checked: list[dict[str, Any]] = []
    for index, row in enumerate(rows):
        where = f"table {layout.name}, row {index}"
        row = {layout.subject: scenario, **row}
        if row[layout.subject] != scenario:
            raise ValueError(
                f"{where}: {layout.subject} is {row[layout.subject]!r} in a part of {scenario!r}"
            )
        if missing := sorted(names - row.keys()):
            raise ValueError(f"{where}: missing {', '.join(missing)}")
        if extra := sorted(row.keys() - names):
            raise ValueError(f"{where}: not in the data dictionary: {', '.join(extra)}")
        checked.append({column.name: _value(where, column, row[column.name]) for column in layout.columns})
    key = operator.itemgetter(*layout.key)
    checked.sort(key=key)
    for before, after in itertools.pairwise(checked):
        if key(before) == key(after):
            raise ValueError(f"table {layout.name}: two rows have the key {key(after)!r}")
    return {column.name: [row[column.name] for row in checked] for column in layout.columns}


def _value(where: str, column: Column, value: Any) -> Any:
    if value is None:
        if not column.nullable:
            raise ValueError(f"{where}: {column.name} may not be null")
        return None
    if column.type.endswith("[]"):
        inner = Column(column.name, column.type[:-2], column.unit, column.comment)
        return [_value(where, inner, item) for item in value]
    try:
        return _SCALARS[column.type](value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}: {column.name} is {value!r}, {error}") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return str(value)


def _integer(value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError("not a whole number")
    whole = operator.index(value)
    if not -(2**63) <= whole < 2**63:
        raise ValueError("beyond 64 bits")
    return whole


def _number(value: Any) -> float:
    if isinstance(value, (bool, str)):
        raise TypeError("not a number")
    real = float(value)
    if not math.isfinite(real):
        raise ValueError("not finite: store null and say why")
    return real + 0.0  # -0.0 becomes 0.0, so that equal rows are equal bytes


def _flag(value: Any) -> bool:
    if type(value).__name__ not in ("bool", "bool_"):
        raise TypeError("not a truth value")
    return bool(value)


_SCALARS = {"VARCHAR": _text, "BIGINT": _integer, "DOUBLE": _number, "BOOLEAN": _flag}


def _copy(layout: Table, columns: Mapping[str, list[Any]], path: Path, meta: Mapping[str, str | int]) -> None:
    import duckdb

    select = ", ".join(
        f"unnest(${index}::{column.type}[]) AS {identifier(column.name)}"
        for index, column in enumerate(layout.columns, start=1)
    )
    pairs = ", ".join(f"{identifier(name)}: {quoted(str(meta[name]))}" for name in sorted(meta))
    options = "FORMAT parquet, COMPRESSION zstd" + (f", KV_METADATA {{{pairs}}}" if pairs else "")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute(f"CREATE TEMP TABLE part AS SELECT {select}", list(columns.values()))
        connection.execute(f"COPY part TO {quoted(path)} ({options})")
