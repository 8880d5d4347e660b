"""CSV traces through DuckDB: every line is read as text, split and cast strictly, so no type is ever guessed."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.errors import InputError
from fleetplan.traffic.traces.trace import Fault, Rows

FAULTS_KEPT = 20
UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class Header:
    """The first line of a CSV that is not blank: its number, its text, its cells, and what parts them."""

    line: int
    text: str
    cells: tuple[str, ...]
    delimiter: str


def read_header(path: Path) -> Header | None:
    """The header of a CSV (a BOM and blank lines before it are skipped); None for a file without any text."""
    with _open(path) as file:
        for number, raw in enumerate(file, start=1):
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8", "replace").strip("\r\n")
            if text.strip():
                delimiter = max(",;\t", key=text.count)
                try:
                    cells = tuple(cell.strip() for cell in next(csv.reader([text], delimiter=delimiter)))
                except csv.Error as error:
                    raise InputError(
                        f"{path}:{number}: is no header ({error}), a line of column names would be right"
                    ) from error
                return Header(number, text.strip(), cells, delimiter)
    return None


def first_lines(path: Path, n: int) -> list[str]:
    """The first n lines as text, without their ends."""
    with _open(path) as file:
        return [
            raw.decode("utf-8-sig", "replace").rstrip("\r\n") for _, raw in zip(range(n), file, strict=False)
        ]


def read_rows(path: Path, header: Header, columns: Mapping[str, int], unit: str | None) -> Rows:
    """The rows of a CSV; `columns` maps prompt, output and, where there are any, time and session to cell numbers.

    `unit` is 'datetime', one of `UNITS`, or None without times. Rows that cannot be used are dropped by reason:
    blank_line, repeated_header, partial_line, too_many_cells, time_missing, time_unreadable, and, for prompt and output,
    *_tokens_missing, *_tokens_not_whole, *_tokens_below_1.
    """
    import duckdb

    con = duckdb.connect()
    con.execute("SET threads = 2; SET memory_limit = '1GB'; SET preserve_insertion_order = true")
    try:
        quoted = any('"' in line for line in first_lines(path, 1000))
        _parse(con, path, header, columns, unit, quoted)
        if not quoted and con.execute("SELECT count(*) FROM parsed WHERE quote").fetchall()[0][0]:
            _parse(con, path, header, columns, unit, True)
        return _collect(con, columns, unit)
    except duckdb.Error as error:
        what = str(error).splitlines()[0]
        raise InputError(
            f"{path}: not readable as text (got: {what}), a UTF-8 file would be right"
        ) from error
    finally:
        con.close()


def _parse(
    con: Any, path: Path, header: Header, columns: Mapping[str, int], unit: str | None, quoted: bool
) -> None:
    """Fill the table `parsed` (line, time, prompt, output, session, reason, text of a faulty row, quote)."""
    n = len(header.cells)
    if quoted:
        names = "{" + ", ".join(f"'c{i}': 'VARCHAR'" for i in range(n)) + "}"
        source = (
            f"SELECT row_number() OVER () + {header.line} AS line, concat_ws('{_quote(header.delimiter)}', COLUMNS(*)) AS text, "
            f"[{', '.join(f'c{i}' for i in range(n))}] AS cell FROM read_csv($path, columns = {names}, delim = $delimiter, "
            f"quote = '\"', escape = '\"', header = false, skip = {header.line}, auto_detect = false, null_padding = true, "
            "strict_mode = false, max_line_size = 16000000)"
        ).replace("COLUMNS(*)", ", ".join(f"c{i}" for i in range(n)))
    else:
        source = (
            "SELECT line, text, string_split(text, $delimiter) AS cell FROM (SELECT row_number() OVER () AS line, text FROM "
            "read_csv($path, columns = {'text': 'VARCHAR'}, delim = '\x01', quote = '', escape = '', header = false, "
            f"auto_detect = false, strict_mode = false, new_line = '\\r\\n', max_line_size = 16000000)) WHERE line > {header.line}"
        )
    time = f"trim(cell[{columns['time'] + 1}])" if unit else "NULL"
    session = f"trim(cell[{columns['session'] + 1}])" if "session" in columns else "NULL"
    prompt, output = (f"trim(cell[{columns[name] + 1}])" for name in ("prompt", "output"))
    needed = max(columns.values()) + 1
    con.execute(
        f"""
        CREATE OR REPLACE TEMP TABLE parsed AS
        WITH source AS ({source}),
        cells AS (
            SELECT line, text, len(cell) AS n, {time} AS time_text, {session} AS session,
                   {prompt} AS prompt_text, {output} AS output_text FROM source
        ),
        zones AS (SELECT *, {_zone_sql(unit)} AS zone FROM cells),
        casts AS (
            SELECT *, {_time_sql(unit)} AS time, {_whole_sql("prompt_text")} AS prompt, {_whole_sql("output_text")} AS output
            FROM zones
        ),
        judged AS (
            SELECT *, CASE
                WHEN text IS NULL OR trim(text) = '' THEN 'blank_line'
                WHEN trim(text) = $header THEN 'repeated_header'
                WHEN n < {needed} OR ({"prompt_text IS NULL AND output_text IS NULL" if quoted else "false"}) THEN 'partial_line'
                WHEN n > {n} THEN 'too_many_cells'
                {_time_faults(unit)}
                {_token_faults("prompt")}
                {_token_faults("output")}
            END AS reason FROM casts
        )
        SELECT line, time, prompt::INTEGER AS prompt, output::INTEGER AS output, session, reason,
               CASE WHEN reason IS NOT NULL THEN text[:200] END AS text, contains(text, '"') AS quote FROM judged
        """,
        {"path": str(path), "delimiter": header.delimiter, "header": header.text},
    )


def _whole_sql(cell: str) -> str:
    """A whole number, strictly: '12.7' and '1e2' are not, '007' is 7, '374.0' is 374."""
    return (
        f"CASE WHEN regexp_full_match({cell}, '-?[0-9]{{1,9}}(\\.0+)?') THEN TRY_CAST({cell} AS BIGINT) END"
    )


def _zone_sql(unit: str | None) -> str:
    """The offset from UTC at the end of a date, like '+02:00'; '' without."""
    return r"regexp_extract(time_text[17:], '[+-]\d{2}:?\d{2}$')" if unit == "datetime" else "''"


def _time_sql(unit: str | None) -> str:
    if unit is None:
        return "NULL::DOUBLE"
    if unit != "datetime":
        return "CASE WHEN isfinite(TRY_CAST(time_text AS DOUBLE)) THEN TRY_CAST(time_text AS DOUBLE) END"
    # The years that nanoseconds since 1970 in 64 bits hold.
    shape = r"(1[7-9]|2[01])\d{2}-\d{2}-\d{2}[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?(Z| ?[+-]\d{2}:?\d{2})?"
    whole = "CASE WHEN time_text[17] = ':' THEN time_text[:19] ELSE time_text[:16] || ':00' END"
    digits = "rtrim(time_text[21:length(time_text) - length(zone)], ' Z')"
    fraction = f"CASE WHEN time_text[20] = '.' THEN rpad({digits}[:9], 9, '0')::BIGINT ELSE 0 END"
    offset = (
        "CASE WHEN zone IN ('', '+00:00', '-00:00') THEN 0 ELSE (CASE WHEN zone[1] = '-' THEN -1 ELSE 1 END) * "
        "(zone[2:3]::INTEGER * 3600 + zone[-2:]::INTEGER * 60) END"
    )
    # Nanoseconds since 1970 in a BIGINT: DuckDB's own TIMESTAMP keeps microseconds and drops a seventh digit.
    return (
        f"CASE WHEN regexp_full_match(time_text, '{shape}') THEN epoch_us(TRY_CAST({whole} AS TIMESTAMP)) * 1000 + {fraction} "
        f"- ({offset})::BIGINT * 1000000000 END"
    )


def _time_faults(unit: str | None) -> str:
    if unit is None:
        return ""
    empty = "lower(coalesce(time_text, '')) IN ('', 'nan', 'null', 'none', 'nat')"
    return f"WHEN {empty} THEN 'time_missing' WHEN time IS NULL THEN 'time_unreadable'"


def _token_faults(which: str) -> str:
    empty = f"lower(coalesce({which}_text, '')) IN ('', 'nan', 'null', 'none')"
    return (
        f"WHEN {empty} THEN '{which}_tokens_missing' WHEN {which} IS NULL THEN '{which}_tokens_not_whole' "
        f"WHEN {which} < 1 THEN '{which}_tokens_below_1'"
    )


def _collect(con: Any, columns: Mapping[str, int], unit: str | None) -> Rows:
    good = "FROM parsed WHERE reason IS NULL ORDER BY line"
    session_sql = ", dense_rank() OVER (ORDER BY session) - 1 AS session" if "session" in columns else ""
    got = con.execute(f"SELECT line, time, prompt, output{session_sql} {good}").fetchnumpy()
    counts = con.execute(
        "SELECT reason, count(*) FROM parsed WHERE reason IS NOT NULL GROUP BY reason ORDER BY min(line)"
    ).fetchall()
    faults = con.execute(
        f"SELECT line, reason, coalesce(text, '') FROM parsed WHERE reason IS NOT NULL ORDER BY line LIMIT {FAULTS_KEPT}"
    ).fetchall()
    time = None
    start = None
    local = False
    if unit == "datetime":
        ticks = np.asarray(got["time"])
        if len(ticks):
            first = ticks.min()
            time = (ticks - first).astype(np.float64) / 1e9
            start = str(np.datetime64(int(first), "ns"))
            local = True
    elif unit is not None:
        values = np.asarray(got["time"], dtype=np.float64)
        # Subtracting first keeps the digits of a clock that counts from 1970.
        time = (values - values.min()) * UNITS[unit] if len(values) else values
    return Rows(
        line=np.asarray(got["line"], dtype=np.int64),
        prompt_tokens=np.asarray(got["prompt"], dtype=np.int64),
        output_tokens=np.asarray(got["output"], dtype=np.int64),
        time_s=time,
        start=start,
        dropped={str(reason): int(n) for reason, n in counts},
        faults=tuple(Fault(int(line), str(reason), str(text)) for line, reason, text in faults),
        session_id=np.asarray(got["session"], dtype=np.int64) if "session" in columns else None,
        local_time=local,
    )


def _quote(text: str) -> str:
    return text.replace("'", "''")


def _open(path: Path) -> Any:
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
