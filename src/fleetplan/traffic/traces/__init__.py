"""Traces of real traffic: one `read` for every format, which is detected and said, and may be overruled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fleetplan.errors import InputError, unknown_name
from fleetplan.traffic.traces import csv_rows, formats
from fleetplan.traffic.traces.trace import Fault, Rows, Totals, Trace, assemble

__all__ = ["FORMATS", "Fault", "Rows", "Totals", "Trace", "read"]

FORMATS: tuple[str, ...] = tuple(formats.CSV_FORMATS)


def read(
    path: str | Path,
    format: str | None = None,
    *,
    time_unit: str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Trace:
    """The requests of a trace file.

    `format` (one of `FORMATS`) overrules detection, `time_unit` ('datetime', 's', 'ms', 'us', 'ns') the unit of time, and
    `columns` maps 'time', 'prompt', 'output' to a CSV's own column names.
    Raises `InputError` for a file that is empty, lacks a column or holds no usable row.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise InputError(unknown_name("trace format", format, FORMATS))
    if not path.is_file():
        raise InputError(f"{path}: no such file, a trace file would be right")
    header = csv_rows.read_header(path)
    if header is None:
        raise InputError(f"{path}: the file is empty (got 0 rows), a trace needs at least one request")
    return _read_csv(path, header, format, time_unit, columns)


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
