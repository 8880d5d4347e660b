"""The project's own plain file of requests: arrival_s, prompt_tokens, output_tokens, as CSV or Parquet."""

from __future__ import annotations

import os
from pathlib import Path

from fleetplan.errors import InputError
from fleetplan.traffic.traces.trace import Trace


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
