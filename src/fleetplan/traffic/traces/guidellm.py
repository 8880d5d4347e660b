"""Reports of GuideLLM: the requests of its runs where the report lists them, else their totals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.errors import InputError
from fleetplan.traffic.traces.trace import Log, Rows, Totals

_OPEN = ("constant", "poisson", "async")
"""Strategies that send at a rate, whatever comes back."""
_QUANTILES = {"p50": "p50", "p90": "p90", "p95": "p95", "p99": "p99"}


def read(path: Path, runs: list[dict[str, Any]]) -> Log:
    """The runs of a report as one log. Arrivals and quantiles are those of a single run; of several, lengths are pooled."""
    listed = [request for run in runs for request in _successful(run)]
    notes = [f"run {number}: {_told(run)}" for number, run in enumerate(runs, start=1)]
    failed = sum(int(_total(run, kind) or 0) for run in runs for kind in ("errored", "incomplete"))
    if failed:
        notes.append(f"{failed} requests failed or did not end, and are not in the lengths")
    if listed:
        return Log("guidellm-report", _rows(listed, len(runs), notes), None, tuple(notes))
    counts = [int(_total(run, "successful") or 0) for run in runs]
    if not sum(counts):
        raise InputError(f"{path}: no successful request (got {len(runs)} runs), at least one is needed")
    notes.append(
        "the report holds totals only: no arrivals" + ("; means of all its runs" if len(runs) > 1 else "")
    )
    rate = _sent_per_s(runs[0]) if len(runs) == 1 and _kind(runs[0]) in _OPEN else None
    lengths = [_lengths(runs, counts, f"{side}_token_count") for side in ("prompt", "output")]
    return Log("guidellm-report", None, Totals(sum(counts), rate, *lengths), tuple(notes))


def _successful(run: dict[str, Any]) -> list[dict[str, Any]]:
    requests = run.get("requests")
    listed = requests.get("successful") if isinstance(requests, dict) else None
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _rows(listed: list[dict[str, Any]], runs: int, notes: list[str]) -> Rows:
    prompt = np.array([_tokens(each, "prompt", "input") for each in listed], dtype=np.int64)
    output = np.array([_tokens(each, "output", "output") for each in listed], dtype=np.int64)
    starts = [each.get("request_start_time", each.get("start_time")) for each in listed]
    good = (prompt > 0) & (output > 0)
    timed = runs == 1 and all(isinstance(at, int | float) for at in starts)
    if not timed:
        notes.append(
            "no arrivals: "
            + ("each run has a clock of its own" if runs > 1 else "its requests have no start")
        )
    return Rows(
        np.flatnonzero(good).astype(np.int64) + 1,
        prompt[good],
        output[good],
        np.array(starts, dtype=np.float64)[good] if timed else None,
        dropped={} if good.all() else {"tokens_missing": int((~good).sum())},
    )


def _tokens(request: dict[str, Any], name: str, metrics: str) -> int:
    inside = request.get(f"{metrics}_metrics")
    value = request.get(f"{name}_tokens")
    if value is None and isinstance(inside, dict):
        value = inside.get("total_tokens", inside.get("text_tokens"))
    return int(value) if isinstance(value, int | float) and 0 < value < 10**9 else 0


def _told(run: dict[str, Any]) -> str:
    asked, sent = _strategy(run).get("rate"), _sent_per_s(run)
    words = [_kind(run)]
    if isinstance(asked, int | float):
        words.append(f"asked for {asked:g} requests/s")
    if sent is not None:
        words.append(f"{sent:.4g} requests/s came out")
    if words[0] not in _OPEN:
        words.append("a closed loop: its rate is the system's, not an arrival rate")
    elif isinstance(asked, int | float) and sent and abs(sent / asked - 1) > 0.02:
        words.append("not the rate that was asked for")
    return ", ".join(words)


def _strategy(run: dict[str, Any]) -> dict[str, Any]:
    found = (run.get("config") or run.get("args") or {}).get("strategy")
    return found if isinstance(found, dict) else {}


def _kind(run: dict[str, Any]) -> str:
    strategy = _strategy(run)
    return str(strategy.get("type_", strategy.get("kind", "unknown strategy")))


def _sent_per_s(run: dict[str, Any]) -> float | None:
    """Rate of the successful requests, as the report has it."""
    value = (run["metrics"].get("requests_per_second") or {}).get("successful") or {}
    return float(value["mean"]) if isinstance(value.get("mean"), int | float) else None


def _total(run: dict[str, Any], kind: str) -> Any:
    return (run["metrics"].get("request_totals") or {}).get(kind)


def _lengths(runs: list[dict[str, Any]], counts: list[int], name: str) -> dict[str, float]:
    blocks = [(run["metrics"].get(name) or {}).get("successful") or {} for run in runs]
    found = {
        "mean": sum(n * float(block.get("mean", 0.0)) for n, block in zip(counts, blocks, strict=True))
        / sum(counts),
        "max": max(float(block.get("max", 0.0)) for block in blocks),
    }
    if len(runs) == 1:
        quantiles = blocks[0].get("percentiles") or {}
        found |= {new: float(quantiles[old]) for new, old in _QUANTILES.items() if old in quantiles}
    return found
