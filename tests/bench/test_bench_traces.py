"""Reading a large trace: 10 million rows in Azure's format in under a minute and 2 GiB (FLEETPLAN_BENCH_ROWS for another number)."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

ROWS = int(os.environ.get("FLEETPLAN_BENCH_ROWS", "100000"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bench") / "large.csv"
    duckdb.execute(
        f"COPY (SELECT strftime(TIMESTAMP '2024-05-10' + to_microseconds(i * 60480), '%Y-%m-%d %H:%M:%S.%f') || '+00:00' AS TIMESTAMP, "
        f"1 + (i * 7919) % 4000 AS ContextTokens, 1 + (i * 104729) % 1000 AS GeneratedTokens FROM range({ROWS}) t(i)) "
        f"TO '{path}' (HEADER)"
    )
    return path


def test_a_large_trace_is_summarised(benchmark: Any, large: Path) -> None:
    def summarised() -> dict[str, Any]:
        out = subprocess.run(
            [sys.executable, "-m", "fleetplan", "trace", "summarise", str(large), "--json"],
            check=True,
            capture_output=True,
        ).stdout
        return dict(json.loads(out))

    got = benchmark.pedantic(summarised, rounds=1, iterations=1)
    peak_bytes = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    benchmark.extra_info["peak_bytes"] = peak_bytes
    assert (got["rows"], got["dropped"], got["format"]) == (ROWS, {}, "azure-2024")
    assert got["span_s"] == pytest.approx((ROWS - 1) * 0.06048)
    assert peak_bytes < 2 * 2**30
