"""From parts to the store: one DuckDB file, made whole in one transaction and put in place at once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError, unknown_name
from fleetplan.store.files import whole
from fleetplan.store.parts import glob_escape, identifier, part_path, quoted
from fleetplan.store.tables import EVIDENCE, OF_FLEETS, STAGES, TABLES, Table, stage_tables

STORAGE_VERSION = "v1.0.0"  # the oldest format that holds all we store, so that older clients open it


@dataclass(frozen=True)
class Loaded:
    """What a load did: rows by table, scenarios and fleets in the store, and those left out with the reason."""

    rows: dict[str, int]
    scenarios: tuple[str, ...]
    left_out: dict[str, str]


def load(
    parts_dir: str | Path,
    store: str | Path,
    scenarios: Sequence[str] = (),
    known: Sequence[str] | None = None,
    evidence_dir: str | Path | None = None,
) -> Loaded:
    """Make the store anew from the parts.

    `evidence_dir` holds the parts that `validate-model` wrote, a folder a set of points; a folder that is not there is no evidence.

    `scenarios` must be loaded; `known` are those that have a spec (None: whatever has parts). A scenario of `known` that
    lacks a part, and parts whose scenario is not known any more, are left out and named in the answer. Raises
    `InputError` when a scenario of `scenarios` lacks a part, a part's columns are not the dictionary's, or no scenario is left.
    """
    folder = Path(parts_dir)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder of parts, run `make plan` to make it")
    found = sorted(path.name for path in folder.iterdir() if path.is_dir())
    unknown = [
        f"{folder}: {unknown_name('scenario', name, found)}" for name in scenarios if name not in found
    ]
    if unknown:
        raise InputError(*unknown)
    taken: dict[str, list[Table]] = {}
    left_out, faults = {}, []
    for name in found:
        of_fleet = any((folder / name / stage).is_dir() for stage in OF_FLEETS)
        of = OF_FLEETS if of_fleet else STAGES[:-1]
        stages = [table for table in TABLES.values() if table.stage in of]
        missing = [each.name for each in stages if not part_path(folder, name, each.name).is_file()]
        if known is not None and name not in (*known, *scenarios):
            left_out[name] = f"no spec has this name any more; delete {folder / name} to forget it"
        elif missing and name in scenarios:
            faults.append(
                f"{folder / name}: the part {missing[0]} is missing; run `fleetplan {TABLES[missing[0]].stage}` first"
            )
        elif missing:
            left_out[name] = (
                f"incomplete, no part {missing[0]}; run `fleetplan {TABLES[missing[0]].stage}` to have it"
            )
        else:
            taken[name] = stages
    if faults:
        raise InputError(*faults)
    sources = [(folder, name, stages) for name, stages in taken.items()]
    if evidence_dir is not None and Path(evidence_dir).is_dir():
        evidence = Path(evidence_dir)
        sources += [
            (evidence, path.name, list(stage_tables(EVIDENCE)))
            for path in sorted(evidence.iterdir())
            if path.is_dir()
        ]
    if not sources:
        raise InputError(
            f"{folder}: no scenario is complete, so no store is made (got {len(found)} folders of parts); run `make plan`",
            *(f"{folder / name}: {reason}" for name, reason in left_out.items()),
        )
    store = Path(store)
    with whole(store) as temporary:
        rows = _build(sources, temporary)
    return Loaded(rows, tuple(taken), left_out)


def ddl(table: Table) -> list[str]:
    """The statements that create a table: columns, primary key, and a comment on the table and on every column."""
    name = identifier(table.name)
    columns = [
        f"{identifier(column.name)} {column.type}{'' if column.nullable else ' NOT NULL'}"
        for column in table.columns
    ]
    key = ", ".join(identifier(column) for column in table.key)
    return [
        f"CREATE TABLE {name} ({', '.join(columns)}, PRIMARY KEY ({key}))",
        f"COMMENT ON TABLE {name} IS {quoted(table.comment)}",
        *(
            f"COMMENT ON COLUMN {name}.{identifier(column.name)} IS {quoted(column.description)}"
            for column in table.columns
        ),
    ]


def _build(sources: Sequence[tuple[Path, str, Sequence[Table]]], path: Path) -> dict[str, int]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"ATTACH {quoted(path)} AS store (STORAGE_VERSION {quoted(STORAGE_VERSION)})")
        connection.execute("USE store")
        connection.execute("BEGIN")
        for table in TABLES.values():
            for statement in ddl(table):
                connection.execute(statement)
        inserted = [
            _insert(connection, table, part_path(folder, scenario, table.name), scenario)
            for folder, scenario, stages in sources
            for table in stages
        ]
        if inserted:
            connection.execute(
                "INSERT INTO parts SELECT " + ", ".join(f"unnest(${i + 1})" for i in range(8)),
                [list(values) for values in zip(*inserted, strict=True)],
            )
        counts = {
            name: connection.execute(f"SELECT count(*) FROM {identifier(name)}").fetchall()[0][0]
            for name in TABLES
        }
        connection.execute("COMMIT")
        connection.execute("CHECKPOINT store")
        connection.execute("USE memory")
        connection.execute("DETACH store")
    return counts


def _insert(connection: Any, table: Table, part: Path, scenario: str) -> tuple[Any, ...]:
    import duckdb

    again = (
        f"run `fleetplan {EVIDENCE}` again, or delete {part.parent.parent}"
        if table.stage == EVIDENCE
        else f"run `fleetplan {table.stage}` for {table.subject} {scenario} again"
    )
    if not part.is_file():
        raise InputError(f"{part}: is missing; {again}")
    data = part.read_bytes()
    source = glob_escape(part)
    try:
        found = connection.execute("SELECT * FROM read_parquet(?) LIMIT 0", [source]).description
        wanted = [(column.name, column.type) for column in table.columns]
        got = [(name, str(kind)) for name, kind, *_ in found]
        if got != wanted:
            differ = sorted({name for name, _ in set(got) ^ set(wanted)})
            raise InputError(
                f"{part}: its columns are not those of table {table.name} (differ: {', '.join(differ)}); {again}"
            )
        connection.execute(f"INSERT INTO {identifier(table.name)} SELECT * FROM read_parquet(?)", [source])
        pairs = connection.execute("SELECT key, value FROM parquet_kv_metadata(?)", [source]).fetchall()
        rows = connection.execute("SELECT num_rows FROM parquet_file_metadata(?)", [source]).fetchall()[0][0]
    except duckdb.ConstraintException as error:
        raise InputError(f"{part}: {str(error).splitlines()[0]}; {again}") from None
    except (duckdb.InvalidInputException, duckdb.IOException) as error:
        raise InputError(f"{part}: cannot be read ({str(error).splitlines()[0]}); {again}") from None
    meta = {key.decode(): value.decode() for key, value in pairs}
    seed = int(meta["seed"]) if meta.get("seed", "").isdigit() else None
    digest = hashlib.sha256(data).hexdigest()
    return (
        scenario, table.stage, table.name, rows, meta.get("spec_digest"), meta.get("code_fingerprint"), seed, digest,
    )  # fmt: skip
