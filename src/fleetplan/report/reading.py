"""The store as the report reads it: read-only, rows as dictionaries, and whether a table or column is there at all."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError, unknown_name

Row = dict[str, Any]

# What says how a result came about, not what it is: a version of a report does not hang on these.
PROVENANCE = ("parts", "runs", "history")


@dataclass(frozen=True)
class Store:
    """An open store: the connection, and the columns of every table in it."""

    connection: Any
    columns: dict[str, tuple[str, ...]]

    def has(self, table: str, *columns: str) -> bool:
        """Whether the table is there, with all these columns."""
        return table in self.columns and set(columns) <= set(self.columns[table])

    def rows(self, query: str, *parameters: Any) -> list[Row]:
        """The rows of a query, in its order."""
        cursor = self.connection.execute(query, list(parameters))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def table(self, name: str, scenario: str, order: str = "ALL", where: str = "true") -> list[Row]:
        """All rows of a scenario in a table; none when the table is not there."""
        if not self.has(name, "scenario"):
            return []
        return self.rows(f"SELECT * FROM {name} WHERE scenario = ? AND {where} ORDER BY {order}", scenario)

    def settings(self, scenario: str) -> dict[str, str]:
        """Every setting of a scenario's meaning by its path; texts without their quotes."""
        found = {}
        for row in self.table("settings", scenario):
            value = str(row["value"])
            found[row["path"]] = str(json.loads(value)) if value.startswith('"') else value
        return found

    def scenarios(self) -> list[str]:
        """The scenarios that have a decision, by name."""
        if not self.has("decisions", "scenario"):
            return []
        return [row["scenario"] for row in self.rows("SELECT DISTINCT scenario FROM decisions ORDER BY ALL")]

    def digest(self, scenario: str) -> str:
        """SHA-256 of all that the store knows of a scenario, but for its provenance: equal rows, equal digest."""
        whole = hashlib.sha256()
        for name in sorted(self.columns):
            if name in PROVENANCE or "scenario" not in self.columns[name]:
                continue
            rows = self.connection.execute(
                f"SELECT * FROM {name} WHERE scenario = ? ORDER BY ALL", [scenario]
            ).fetchall()
            if rows:
                whole.update(repr((name, self.columns[name])).encode())
            for row in rows:
                whole.update(repr(row).encode())
        return whole.hexdigest()


@contextmanager
def opened(path: Path) -> Iterator[Store]:
    """The store at `path`, opened read-only; `InputError` when there is none or it is not a DuckDB file."""
    import duckdb

    if not path.is_file():
        raise InputError(f"{path}: there is no store; run `fleetplan load` (or `make plan`) first")
    try:
        connection = duckdb.connect(str(path), read_only=True)
    except duckdb.Error as error:
        raise InputError(f"{path}: cannot be read as a store: {str(error).splitlines()[0]}") from None
    with connection:
        found: dict[str, list[str]] = {}
        for table, column in connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_schema = 'main' ORDER BY table_name, ordinal_position"
        ).fetchall():
            found.setdefault(table, []).append(column)
        yield Store(connection, {table: tuple(names) for table, names in found.items()})


def chosen(store: Store, wanted: tuple[str, ...]) -> list[str]:
    """The scenarios to report: those named, or all; `InputError` names each unknown one with the near names."""
    known = store.scenarios()
    unknown = [name for name in wanted if name not in known]
    if unknown:
        if not known:
            raise InputError("the store holds no decision; run `fleetplan sizing` and `fleetplan load` first")
        raise InputError(*(unknown_name("scenario", name, known) for name in unknown))
    return [name for name in known if not wanted or name in wanted]
