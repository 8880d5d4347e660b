"""One trace as read: sorted arrays, what was dropped and why, and what the reader had to decide."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetplan.errors import InputError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

LONGEST_SPAN_S = 2 * 366 * 86_400.0
"""A trace that spans more has a slip in a time: its counts by second would not fit in memory either."""

NO_RATE = "all arrivals fall on one instant, so the trace has no rate: a rate must be given"


@dataclass(frozen=True)
class Fault:
    """One row that was dropped: its line in the file (1 is the first), the reason, and the text as it stands."""

    line: int
    reason: str
    text: str


@dataclass(frozen=True)
class Totals:
    """What a log without single requests says of them all; a quantile that it does not give is absent."""

    rows: int
    rate_per_s: float | None
    prompt_tokens: dict[str, float]
    output_tokens: dict[str, float]


@dataclass(frozen=True, eq=False)
class Rows:
    """What a reader found, in the file's order: usable rows only; `time_s` is on the file's own clock."""

    line: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    time_s: Floats | None = None
    start: str | None = None
    dropped: dict[str, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    notes: tuple[str, ...] = ()
    session_id: Ints | None = None
    block_offsets: Ints | None = None
    block_hashes: Ints | None = None
    hash_block_tokens: int = 0
    local_time: bool = False


@dataclass(frozen=True, eq=False)
class Log:
    """What a load generator's log gave: rows, or totals, with what must be known about them."""

    format: str
    rows: Rows | None
    totals: Totals | None
    notes: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Trace:
    """n usable requests of a file, in order of (arrival, line); arrays of shape (n,)."""

    path: str
    format: str
    detected: str
    """One sentence: by what the format was recognised, or that it was given."""
    time_unit: str | None
    """How the file writes time: 'datetime', 's', 'ms', 'us', 'ns'; None where it has no arrivals."""
    columns: tuple[str, ...]
    arrival_s: Floats | None
    """Seconds from the first arrival; None where the file has no arrivals."""
    prompt_tokens: Ints
    output_tokens: Ints
    line: Ints
    start: str | None = None
    """The first arrival as the file writes it (for the hour profile), where it writes a date."""
    dropped: dict[str, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    """The first dropped rows (at most 20)."""
    notes: tuple[str, ...] = ()
    session_id: Ints | None = None
    block_offsets: Ints | None = None
    block_hashes: Ints | None = None
    hash_block_tokens: int = 0
    totals: Totals | None = None
    """Set, with empty arrays, where the log holds totals only."""

    def __len__(self) -> int:
        return len(self.prompt_tokens)

    @property
    def span_s(self) -> float | None:
        """Last minus first arrival [s]; None without arrivals."""
        return (
            float(self.arrival_s[-1] - self.arrival_s[0])
            if self.arrival_s is not None and len(self)
            else None
        )


def assemble(
    path: Path, format: str, detected: str, unit: str | None, columns: tuple[str, ...], rows: Rows
) -> Trace:
    """A `Trace` from a reader's rows: refused when none is usable, sorted where they are not, with notes that say so."""
    if not len(rows.line):
        said = ", ".join(f"{n} {reason}" for reason, n in rows.dropped.items())
        first = f"; the first at line {rows.faults[0].line}: {rows.faults[0].text!r}" if rows.faults else ""
        raise InputError(
            f"{path}: no usable row (got {f'dropped: {said}{first}' if said else 'a header and nothing else'}), "
            f"a trace needs at least one request"
        )
    notes = list(rows.notes)
    order: Ints | None = None
    time = rows.time_s
    if time is not None:
        steps = np.diff(time)
        back = np.flatnonzero(steps < 0)
        if len(back):
            step = -float(steps[back[0]])
            notes.append(
                f"rows are not in order of time: {len(back)} step{'s' if len(back) > 1 else ''} back, the first by "
                f"{step:g} s at line {rows.line[back[0] + 1]}; sorted"
            )
            if rows.local_time and ((steps[back] <= -1800) & (steps[back] >= -3600)).any():
                notes.append(
                    "the times have no offset from UTC and step back by up to an hour: local time may repeat there "
                    "(end of daylight saving time); read as written"
                )
            order = np.argsort(time, kind="stable")
            time = time[order]
        time = time - time[0]
        if not time[-1] <= LONGEST_SPAN_S:
            line = rows.line[-1 if order is None else order[-1]]
            raise InputError(
                f"{path}:{line}: is {time[-1]:g} s after the first request (times read as {unit}), at most two years are taken: "
                f"correct the time, or name the unit with --time-unit"
            )
        if time[-1] == 0:
            notes.append(NO_RATE)
    else:
        notes.append("the file has no arrival times: a rate must be given")
    trace = Trace(
        path=str(path), format=format, detected=detected, time_unit=unit, columns=columns, arrival_s=time,
        prompt_tokens=rows.prompt_tokens, output_tokens=rows.output_tokens, line=rows.line, start=rows.start,
        dropped=rows.dropped, faults=rows.faults, notes=tuple(notes), session_id=rows.session_id,
        block_offsets=rows.block_offsets, block_hashes=rows.block_hashes, hash_block_tokens=rows.hash_block_tokens,
    )  # fmt: skip
    return trace if order is None else _sorted(trace, order)


def _sorted(trace: Trace, order: Ints) -> Trace:
    """The trace with all but its times (sorted already) put in this order."""
    offsets, hashes = trace.block_offsets, trace.block_hashes
    if offsets is not None and hashes is not None:
        lengths = np.diff(offsets)[order]
        new = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        owner = np.repeat(np.arange(len(order)), lengths)
        hashes = hashes[offsets[order][owner] + np.arange(new[-1]) - new[owner]]
        offsets = new
    return replace(
        trace,
        prompt_tokens=trace.prompt_tokens[order],
        output_tokens=trace.output_tokens[order],
        line=trace.line[order],
        session_id=None if trace.session_id is None else trace.session_id[order],
        block_offsets=offsets,
        block_hashes=hashes,
    )
