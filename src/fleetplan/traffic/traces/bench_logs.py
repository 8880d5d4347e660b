"""Logs of load generators: requests where they list them, else the totals that they give."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.errors import InputError
from fleetplan.traffic.traces import guidellm
from fleetplan.traffic.traces.trace import Log, Rows, Totals

LOG_FORMATS = ("vllm-bench", "sglang-bench", "inference-perf-report", "guidellm-report")


def log_format(record: Any) -> str | None:
    """The format of a benchmark's log by its keys; None for anything else."""
    if not isinstance(record, dict):
        return None
    if "load_summary" in record and "successes" in record:
        return "inference-perf-report"
    runs = record.get("benchmarks")
    if isinstance(runs, list) and runs and all(isinstance(run, dict) and "metrics" in run for run in runs):
        return "guidellm-report"
    if "completed" in record and "total_input_tokens" in record:
        sglang = (
            str(record.get("backend", "")).startswith("sglang") or "total_output_tokens_retokenized" in record
        )
        return "sglang-bench" if sglang else "vllm-bench"
    return None


def read_log(path: Path, format: str, record: dict[str, Any]) -> Log:
    """One log's requests or totals. A rate is an offered rate only in an open loop; a closed loop's is an outcome."""
    if format == "inference-perf-report":
        return _inference_perf(path, record)
    if format == "guidellm-report":
        return guidellm.read(path, record["benchmarks"])
    return _serving(path, format, record)


def _serving(path: Path, format: str, log: dict[str, Any]) -> Log:
    rate = _number(log.get("request_rate"))
    notes = []
    if rate is None or not math.isfinite(rate):
        at = log.get("max_concurrency")
        done = _number(log.get("request_throughput"))
        notes.append(
            f"requests were sent without a rate (request_rate {log.get('request_rate')!r})"
            + (f", at most {at} at a time" if at else "")
            + (
                f": the {done:g} requests/s that came out are the system's, not an arrival rate"
                if done
                else ""
            )
        )
        rate = None
    else:
        notes.append(f"the rate is the one that was asked of the load generator, {rate:g} requests/s")
    given: tuple[Any, Any] = (log.get("input_lens"), log.get("output_lens"))
    if all(isinstance(g, list) and g for g in given):
        prompt, output = (np.array([int(x or 0) for x in g], dtype=np.int64) for g in given)
        good = (prompt > 0) & (output > 0)
        starts = log.get("start_times")
        time = (
            np.array(starts, dtype=np.float64)[good]
            if isinstance(starts, list) and len(starts) == len(good)
            else None
        )
        dropped = {"failed_request": int((~good).sum())} if not good.all() else {}
        line = np.flatnonzero(good).astype(np.int64) + 1
        return Log(format, Rows(line, prompt[good], output[good], time, dropped=dropped), None, tuple(notes))
    n = log.get("completed")
    if not isinstance(n, int) or n < 1:
        raise InputError(f"{path}: no completed request (got completed {n!r}), at least one is needed")
    notes.append("the log holds totals only: means, no quantiles, no arrivals")
    means = [{"mean": float(log[f"total_{side}_tokens"]) / n} for side in ("input", "output")]
    return Log(format, None, Totals(n, rate, means[0], means[1]), tuple(notes))


def _inference_perf(path: Path, log: dict[str, Any]) -> Log:
    load, good = log["load_summary"], log["successes"]
    if not good.get("count"):
        raise InputError(
            f"{path}: no successful request (got count {good.get('count')!r}), at least one is needed"
        )
    names = {"mean": "mean", "median": "p50", "p90": "p90", "p95": "p95", "p99": "p99", "max": "max"}
    lengths = [
        {new: float(block[old]) for old, new in names.items() if block.get(old) is not None}
        for block in (good.get("prompt_len") or {}, good.get("output_len") or {})
    ]
    asked, sent = _number(load.get("requested_rate")), _number(load.get("achieved_rate"))
    notes = ["the report holds totals only: no arrivals; its quantiles are its own"]
    if asked and sent and abs(sent / asked - 1) > 0.02:
        notes.append(
            f"{asked:g} requests/s were asked for and {sent:g} sent: the load was not offered, its latencies leave out the wait in the client"
        )
    failed = (log.get("failures") or {}).get("count") or 0
    if failed:
        notes.append(f"{failed} requests failed and are not in the lengths")
    return Log(
        "inference-perf-report", None, Totals(int(good["count"]), sent, lengths[0], lengths[1]), tuple(notes)
    )


def _number(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None
