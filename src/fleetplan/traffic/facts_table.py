"""The compact table of facts: length pairs with counts and arrivals per second, enough to draw traffic from.

One Parquet file of four columns: `fact` ('pair' or 'second'), `a` (prompt tokens, or the second), `b` (output tokens, or 0)
and `n` (how often). What the table is of stands in the file's key-value metadata.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetplan.errors import InputError
from fleetplan.traffic.facts import counts_per_bin
from fleetplan.traffic.traces.trace import Trace

Ints = NDArray[np.int64]

MOST_PAIRS = 40_000


@dataclass(frozen=True)
class About:
    """What a table of facts is of."""

    name: str
    title: str
    format: str
    rows: int
    span_s: float
    start: str | None
    source: str
    licence: str
    bins: str
    """'exact', or how coarse the lengths are binned."""


@dataclass(frozen=True, eq=False)
class FactsTable:
    """Distinct (prompt, output) pairs, shape (k,), with counts, and arrivals per second, shape (seconds,)."""

    about: About
    prompt_tokens: Ints
    output_tokens: Ints
    pair_counts: Ints
    counts_per_s: Ints


def facts_of(trace: Trace, name: str, title: str = "", source: str = "", licence: str = "") -> FactsTable:
    """The facts of a trace; pairs are exact while they are few, else binned ever coarser (within 0.4% to 6% of a length)."""
    if trace.totals is not None or trace.arrival_s is None or not trace.span_s:
        raise InputError(
            f"{trace.path}: no table of facts can be made (got no arrival times with a span), use convert to requests instead"
        )
    prompt, output = trace.prompt_tokens, trace.output_tokens
    bins = "exact"
    pairs, counts = _pairs(prompt, output)
    for bits in (8, 7, 6, 5, 4):
        if len(counts) <= MOST_PAIRS:
            break
        pairs, counts = _pairs(_binned(prompt, bits), _binned(output, bits))
        bins = f"means of bins 1/{2 ** (bits - 1)} of a length wide"
    about = About(
        name=name, title=title or name, format=trace.format, rows=len(trace), span_s=float(trace.span_s), start=trace.start,
        source=source, licence=licence, bins=bins,
    )  # fmt: skip
    return FactsTable(about, pairs[:, 0], pairs[:, 1], counts, counts_per_bin(trace.arrival_s, 1.0))


def write(table: FactsTable, path: Path) -> None:
    """Write the table; equal tables give equal bytes. A killed run leaves no half file."""
    import duckdb

    second = np.flatnonzero(table.counts_per_s)
    a = np.concatenate([table.prompt_tokens, second]).astype(np.int32)
    b = np.concatenate([table.output_tokens, np.zeros(len(second))]).astype(np.int32)
    n = np.concatenate([table.pair_counts, table.counts_per_s[second]]).astype(np.int32)
    pairs = len(table.pair_counts)
    # DuckDB reads these arrays by their names.
    row = np.arange(len(n))
    columns = {"row": row, "a": a, "b": b, "n": n}
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{os.getpid()}")
    about = json.dumps(asdict(table.about), ensure_ascii=True)
    con = duckdb.connect()
    try:
        con.execute("SET threads = 1")
        con.register("columns", columns)
        con.execute(
            f"COPY (SELECT CASE WHEN row < {pairs} THEN 'pair' ELSE 'second' END AS fact, a, b, n FROM columns ORDER BY row) "
            f"TO '{_quote(str(part))}' (FORMAT parquet, COMPRESSION zstd, COMPRESSION_LEVEL 19, "
            f"KV_METADATA {{about: '{_quote(about)}'}})"
        )
        os.replace(part, path)
    finally:
        con.close()
        part.unlink(missing_ok=True)


def read(path: Path) -> FactsTable:
    """The table of facts in a file that `write` made; `InputError` for any other."""
    import duckdb

    if not path.is_file():
        raise InputError(
            f"{path}: no such file, a table of facts (from `fleetplan trace convert --facts`) would be right"
        )
    con = duckdb.connect()
    try:
        found = con.execute(
            "SELECT value FROM parquet_kv_metadata($path) WHERE key = 'about'::BLOB", {"path": str(path)}
        ).fetchall()
        got = con.execute(
            "SELECT fact = 'pair' AS pair, a, b, n FROM read_parquet($path)", {"path": str(path)}
        ).fetchnumpy()
        about = About(**json.loads(found[0][0]))
    except (duckdb.Error, IndexError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: not a table of facts (got {str(error).splitlines()[0]}), "
            "one from `fleetplan trace convert --facts` would be right"
        ) from error
    finally:
        con.close()
    pair = np.asarray(got["pair"], dtype=bool)
    a, b, n = (np.asarray(got[name], dtype=np.int64) for name in ("a", "b", "n"))
    counts = np.zeros(int(a[~pair].max()) + 1, dtype=np.int64)
    counts[a[~pair]] = n[~pair]
    return FactsTable(about, a[pair], b[pair], n[pair], counts)


def _pairs(prompt: Ints, output: Ints) -> tuple[Ints, Ints]:
    pairs, counts = np.unique(np.column_stack([prompt, output]), axis=0, return_counts=True)
    return pairs.astype(np.int64), counts.astype(np.int64)


def _binned(tokens: Ints, bits: int) -> Ints:
    """Lengths with all but the leading `bits` binary digits rounded off, each bin told by the rounded mean of what is in it."""
    drop = np.maximum(np.floor(np.log2(tokens)).astype(np.int64) + 1 - bits, 0)
    key = (tokens >> drop) << drop
    _, bin_of, counts = np.unique(key, return_inverse=True, return_counts=True)
    means = np.rint(np.bincount(bin_of, weights=tokens.astype(np.float64)) / counts)
    return means[bin_of].astype(np.int64)


def _quote(text: str) -> str:
    return text.replace("'", "''")
