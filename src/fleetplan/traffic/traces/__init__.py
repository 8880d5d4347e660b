"""Traces of real traffic: one `read` for every format, which is detected and said, and may be overruled."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fleetplan.errors import InputError, unknown_name
from fleetplan.traffic.traces import bench_logs, csv_rows, formats, json_rows, plain
from fleetplan.traffic.traces.trace import Fault, Log, Rows, Totals, Trace, assemble

__all__ = ["FORMATS", "Fault", "Rows", "Totals", "Trace", "read"]

FORMATS: tuple[str, ...] = (*formats.CSV_FORMATS, *json_rows.JSON_FORMATS, *bench_logs.LOG_FORMATS, "parquet")


def read(
    path: str | Path,
    format: str | None = None,
    *,
    time_unit: str | None = None,
    columns: Mapping[str, str] | None = None,
    block_tokens: int | None = None,
) -> Trace:
    """The requests of a trace file.

    `format` (one of `FORMATS`) overrules detection, `time_unit` ('datetime', 's', 'ms', 'us', 'ns') the unit of time, and
    `columns` maps 'time', 'prompt', 'output' to a CSV's own column names; `block_tokens` is the size of hashed prompt blocks.
    Raises `InputError` for a file that is empty, lacks a column or holds no usable row.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise InputError(unknown_name("trace format", format, FORMATS))
    if not path.is_file():
        raise InputError(f"{path}: no such file, a trace file would be right")
    if format == "parquet" or (format is None and path.suffix == ".parquet"):
        return plain.read_parquet(path)
    try:
        return _read(path, format, time_unit, columns, block_tokens)
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise InputError(f"{path}: is no whole gzip file (got: {error}), unpack or fetch it again") from error


def _read(
    path: Path,
    format: str | None,
    time_unit: str | None,
    columns: Mapping[str, str] | None,
    block_tokens: int | None,
) -> Trace:
    header = csv_rows.read_header(path)
    if header is None:
        raise InputError(f"{path}: the file is empty (got 0 rows), a trace needs at least one request")
    written = path.suffix in json_rows.YAML_ENDINGS
    if format in formats.CSV_FORMATS or (format is None and header.text[0] not in "{[" and not written):
        return _read_csv(path, header, format, time_unit, columns)
    return _read_json(path, format, time_unit, block_tokens)


def _read_csv(
    path: Path,
    header: csv_rows.Header,
    format: str | None,
    unit: str | None,
    given: Mapping[str, str] | None,
) -> Trace:
    sample = [line for line in csv_rows.first_lines(path, 1000)[header.line - 1 :] if line.strip()]
    if given and format is None:
        f, detected = formats.CSV_FORMATS["csv"], "columns named by the caller"
    elif format is not None:
        f, detected = formats.CSV_FORMATS[format], "named by the caller"
    else:
        f, detected = formats.detect_csv(path, header, sample)
    columns = formats.columns_of(path, header, f, given)
    notes: list[str] = []
    if "time" not in columns:
        unit = None
    elif unit is None:
        cells = [line.split(header.delimiter) for line in sample[1:]]
        times = [c[columns["time"]].strip().strip('"') for c in cells if len(c) > columns["time"]]
        unit = f.unit or formats.time_unit(path, header.cells[columns["time"]], times, notes)
    rows = csv_rows.read_rows(path, header, columns, unit)
    if f.name == "azure-2024":
        rows = replace(rows, local_time=False)
    trace = assemble(path, f.name, detected, unit, header.cells, rows)
    return replace(trace, notes=(*notes, *trace.notes))


def _read_json(path: Path, format: str | None, unit: str | None, block_tokens: int | None) -> Trace:
    found = json_rows.records(path)
    detected = "named by the caller"
    log = bench_logs.log_format(found[0][1]) if found else None
    if format in bench_logs.LOG_FORMATS or (format is None and log is not None):
        if log is None or (format is not None and format != log):
            raise InputError(f"{path}: not a {format} log (got {log or 'other keys'})")
        if len(found) > 1:
            raise InputError(
                f"{path}: holds {len(found)} runs (got one a line), a file of one run would be right"
            )
        said = detected if format else f"keys {', '.join(list(found[0][1])[:8])}"
        return _of_log(path, said, bench_logs.read_log(path, log, found[0][1]))
    if format is not None:
        f = json_rows.JSON_FORMATS[format]
    else:
        f, detected = json_rows.detect_json(path, found)
    rows, unit = json_rows.read_json_rows(path, found, f, unit, block_tokens)
    keys = next((tuple(value) for _, value, _ in found if isinstance(value, dict)), ())
    return assemble(path, f.name, detected, unit, keys, rows)


def _of_log(path: Path, detected: str, log: Log) -> Trace:
    if log.rows is not None:
        trace = assemble(
            path, log.format, detected, "s" if log.rows.time_s is not None else None, (), log.rows
        )
        return replace(trace, notes=(*log.notes, *trace.notes))
    none = np.zeros(0, dtype=np.int64)
    return Trace(
        str(path), log.format, detected, None, (), None, none, none, none, notes=log.notes, totals=log.totals
    )
