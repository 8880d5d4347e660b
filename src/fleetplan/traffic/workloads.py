"""Workloads of real traffic: a shipped table of facts by name, or the rows of a trace file."""

from __future__ import annotations

from dataclasses import replace as _with
from pathlib import Path

import numpy as np

from fleetplan.errors import InputError, unknown_name
from fleetplan.traffic import facts_table, traces
from fleetplan.traffic.model import Class, Joint, Recorded, Replay, Workload


def tables() -> dict[str, Path]:
    """The tables of facts of the data folder, by name."""
    from fleetplan.catalog import data_dir

    return {path.stem: path for path in sorted((data_dir() / "workloads").glob("*.parquet"))}


def table(name: str, folder: Path | None = None) -> facts_table.FactsTable:
    """A table of facts by its name in the data folder, or by its path (ending in .parquet, from `folder`)."""
    if name.endswith(".parquet"):
        return facts_table.read((folder or Path()) / name)
    known = tables()
    if name not in known:
        raise InputError(unknown_name("empirical workload", name, known))
    return facts_table.read(known[name])


def recorded(found: facts_table.FactsTable, spread_s: float = 60.0) -> Recorded:
    """The arrivals per second of a table."""
    return Recorded(found.counts_per_s, found.about.name, spread_s)


def joint(found: facts_table.FactsTable) -> Joint:
    """The joint lengths of a table."""
    return Joint(found.prompt_tokens, found.output_tokens, found.pair_counts, found.about.name)


def empirical(
    name: str, *, class_name: str = "all", spread_s: float = 60.0, folder: Path | None = None
) -> Workload:
    """A workload of one class that draws arrivals second by second and lengths pair by pair from a table of facts."""
    found = table(name, folder)
    return Workload((Class(class_name, recorded(found, spread_s), joint=joint(found)),))


def replay(
    source: str | Path | traces.Trace,
    format: str | None = None,
    *,
    class_name: str = "all",
    spread_s: float = 60.0,
) -> Workload:
    """A workload of one class that replays the rows of a trace file (or of a trace that was read).

    Beyond its end it starts again one mean gap after the last arrival. Raises `InputError` for a trace without a rate.
    """
    trace = source if isinstance(source, traces.Trace) else traces.read(source, format)
    return Workload((Class(class_name, arrivals_of(trace, spread_s)),))


def arrivals_of(trace: traces.Trace, spread_s: float = 60.0) -> Replay:
    """The rows of a trace as arrivals with their own lengths."""
    if trace.totals is not None:
        raise InputError(
            f"{trace.path}: cannot be replayed (got totals of a benchmark), a trace of requests would be right"
        )
    if trace.arrival_s is None or not trace.span_s:
        raise InputError(
            f"{trace.path}: has no rate (got {len(trace)} requests without a span of time), "
            "give arrivals of your own, like {process: poisson, rate: 12 req/s}"
        )
    return Replay(
        arrival_s=trace.arrival_s, prompt_tokens=trace.prompt_tokens, output_tokens=trace.output_tokens,
        period_s=trace.span_s * len(trace) / max(len(trace) - 1, 1), name=Path(trace.path).name, spread_s=spread_s,
        session_id=None, block_offsets=trace.block_offsets, block_hashes=trace.block_hashes,
        hash_block_tokens=trace.hash_block_tokens,
    )  # fmt: skip


def from_lengths(trace: traces.Trace, workload: Workload) -> Workload:
    """The workload with the lengths of all its classes drawn, in pairs, from a trace."""
    pairs, counts = np.unique(
        np.column_stack([trace.prompt_tokens, trace.output_tokens]), axis=0, return_counts=True
    )
    drawn = Joint(pairs[:, 0], pairs[:, 1], counts.astype(np.int64), Path(trace.path).name)
    return _with(workload, classes=tuple(_with(c, joint=drawn) for c in workload.classes))
