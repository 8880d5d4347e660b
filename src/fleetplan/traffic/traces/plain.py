"""The project's own plain file of requests: arrival_s, prompt_tokens, output_tokens, as CSV or Parquet (its CSV is read as any)."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from fleetplan.errors import InputError
from fleetplan.traffic.traces.trace import Rows, Trace, assemble


def write_requests(trace: Trace, path: Path) -> None:
    """Write a trace's requests to .csv or .parquet (session_id too, where it has one); a killed run leaves no half file."""
    import duckdb

    if trace.totals is not None:
        raise InputError(f"{trace.path}: has no requests to write (got totals of a benchmark)")
    if path.suffix not in (".csv", ".parquet"):
        raise InputError(
            f"{path}: unknown kind of file (got {path.suffix or 'no ending'}), .csv or .parquet would be right"
        )
    columns = {"prompt_tokens": trace.prompt_tokens, "output_tokens": trace.output_tokens}
    if trace.arrival_s is not None:
        columns = {"arrival_s": trace.arrival_s, **columns}  # type: ignore[dict-item]
    if trace.session_id is not None:
        columns["session_id"] = trace.session_id
    part = path.with_name(f".{path.name}.{os.getpid()}")
    kind = "FORMAT csv, HEADER" if path.suffix == ".csv" else "FORMAT parquet, COMPRESSION zstd"
    con = duckdb.connect()
    try:
        con.execute("SET threads = 1")
        con.register("requests", columns)
        con.execute(f"COPY (SELECT * FROM requests) TO '{str(part).replace(chr(39), chr(39) * 2)}' ({kind})")
        os.replace(part, path)
    finally:
        con.close()
        part.unlink(missing_ok=True)


def read_parquet(path: Path) -> Trace:
    """The requests of a Parquet file with the columns that `write_requests` writes; `line` is the row, from 1."""
    import duckdb

    con = duckdb.connect()
    try:
        con.execute("SET threads = 2; SET memory_limit = '1GB'")
        described = con.execute("DESCRIBE SELECT * FROM read_parquet($path)", {"path": str(path)}).fetchall()
        types = {str(row[0]): str(row[1]) for row in described}
        missing = [c for c in ("prompt_tokens", "output_tokens") if c not in types]
        wrong = [c for c in ("prompt_tokens", "output_tokens") if "INT" not in types.get(c, "INT")]
        if missing or wrong:
            raise InputError(
                *(f"{path}: column {c!r} is missing (got {', '.join(types)})" for c in missing),
                *(f"{path}: column {c!r} must be of whole numbers (got {types[c]})" for c in wrong),
            )
        timed = "arrival_s" in types
        usable = "prompt_tokens >= 1 AND output_tokens >= 1" + (
            " AND isfinite(arrival_s::DOUBLE)" if timed else ""
        )
        columns = "line, prompt_tokens, output_tokens" + (", arrival_s::DOUBLE AS arrival_s" if timed else "")
        got = con.execute(
            f"SELECT {columns} FROM (SELECT *, row_number() OVER () AS line FROM read_parquet($path)) WHERE {usable} ORDER BY line",
            {"path": str(path)},
        ).fetchnumpy()
        rows = con.execute("SELECT count(*) FROM read_parquet($path)", {"path": str(path)}).fetchall()[0][0]
    except duckdb.Error as error:
        raise InputError(
            f"{path}: not a Parquet file of requests (got {str(error).splitlines()[0]})"
        ) from error
    finally:
        con.close()
    line, prompt, output = (
        np.asarray(got[c], dtype=np.int64) for c in ("line", "prompt_tokens", "output_tokens")
    )
    time = np.asarray(got["arrival_s"], dtype=np.float64) if timed else None
    dropped = {"unusable_row": int(rows) - len(line)} if rows > len(line) else {}
    found = Rows(line, prompt, output, time, dropped=dropped)
    return assemble(
        path, "parquet", f"columns {', '.join(types)}", "s" if timed else None, tuple(types), found
    )
