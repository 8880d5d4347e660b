"""Questions to the store: opened read-only, answers as rows, faults as sentences."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError

DEFAULT_STORE = Path("results/fleet.duckdb")


@dataclass(frozen=True)
class Answer:
    """The columns of a query's result and its rows."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def records(self) -> list[dict[str, Any]]:
        """Rows as mappings fit for strict JSON: NaN and infinity are null, dates are ISO 8601."""
        return [dict(zip(self.columns, map(plain, row), strict=True)) for row in self.rows]


@contextmanager
def opened(store: str | Path = DEFAULT_STORE, wait_s: float = 2.0) -> Iterator[Any]:
    """A read-only connection to the store, which can reach no other file.

    Waits up to `wait_s` seconds for another process to let go of it. Raises `InputError` when there is no store, it is
    no DuckDB file, or it stays locked: then the message holds the process's id.
    """
    import duckdb

    path = Path(store)
    if not path.is_file():
        raise InputError(
            f"{path}: there is no results store; run `make plan` to make it (or `fleetplan load` from parts)"
        )
    until = time.monotonic() + wait_s
    while True:
        try:
            connection = duckdb.connect(str(path), read_only=True, config={"enable_external_access": False})
            break
        except duckdb.IOException as error:
            text = str(error)
            if "lock" not in text.lower():
                raise InputError(
                    f"{path}: is not a DuckDB store ({text.splitlines()[0]}); `fleetplan load` makes it anew"
                ) from None
            if time.monotonic() >= until:
                holder = re.search(r"PID (\d+)", text)
                who = f"process {holder[1]}" if holder else "another process"
                raise InputError(
                    f"{path}: {who} holds it open for writing; close that and ask again"
                ) from None
            time.sleep(0.1)
        except duckdb.Error as error:
            raise InputError(f"{path}: cannot be opened ({str(error).splitlines()[0]})") from None
    try:
        yield connection
    finally:
        connection.close()


def ask(query: str, store: str | Path = DEFAULT_STORE, wait_s: float = 2.0) -> Answer:
    """The answer to a query; `InputError` with the database's own words when the query is wrong."""
    import duckdb

    with opened(store, wait_s) as connection:
        try:
            cursor = connection.execute(query)
            if cursor is None or cursor.description is None:
                raise InputError("the query is empty; ask e.g. SELECT * FROM decisions")
            return Answer(_distinct([column[0] for column in cursor.description]), cursor.fetchall())
        except duckdb.Error as error:
            raise InputError(*str(error).rstrip().splitlines()) from None


def plain(value: Any) -> Any:
    """A value fit for strict JSON.

    >>> plain(float("nan")), plain([1.5, float("inf")])
    (None, [1.5, None])
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (bytes, bytearray)):
        return value.hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__name__ == "Decimal":
        return plain(float(value))
    return str(value)


def _distinct(names: list[str]) -> tuple[str, ...]:
    taken: list[str] = []
    for name in names:
        free, count = name, 0
        while free in taken:
            count += 1
            free = f"{name}_{count}"
        taken.append(free)
    return tuple(taken)
