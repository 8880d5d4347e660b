"""Readers of other tools' benchmark results: each states its definitions of TTFT and TPOT and its unit, and refuses what cannot be right."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.calibration.reader_checks import (
    Run,
    checked,
    consistent,
    json_object,
    need,
    rate,
    reached,
    size,
)
from fleetplan.errors import InputError, read_text, read_yaml


@dataclass(frozen=True, eq=False)
class RequestLog:
    """A per-request log, in order of arrival; times [s] from the first arrival."""

    tool: str
    definition: str
    arrival_s: NDArray[np.float64]
    first_scheduled_s: NDArray[np.float64]
    first_token_s: NDArray[np.float64]
    last_token_s: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    settings: dict[str, Any]
    """max_num_seqs, max_num_batched_tokens, kv_tokens where the log's meta.json has them; model and engine_version."""


def read(path: Path) -> list[Run] | RequestLog:
    """The runs of a result file, or a per-request log, by its own marks.

    Raises InputError for a format it does not know, duplicate keys, a time in the wrong unit, or a rate that was not reached.
    """
    if path.is_dir():
        path = path / "requests.jsonl"
    text = read_text(path, "a benchmark result")
    if not text.strip():
        raise InputError(f"{path}: empty; a benchmark result is needed")
    if path.suffix in (".yaml", ".yml"):
        documents = [read_yaml(path, "a benchmark result")]
    elif path.suffix == ".jsonl":
        documents = [
            json_object(line, f"{path}:{number}")
            for number, line in enumerate(text.splitlines(), 1)
            if line.strip()
        ]
    else:
        documents = [json_object(text, str(path))]
    first = documents[0]
    if not isinstance(first, dict):
        raise InputError(f"{path}: a JSON object is needed (got {type(first).__name__})")
    for mark, reader in _READERS:
        if mark(first):
            return reader(documents, path)
    raise InputError(
        f"{path}: no benchmark result that is known (top-level keys: {', '.join(list(first)[:8])}); known: vLLM bench serve, SGLang bench_serving, GuideLLM, "
        "inference-perf lifecycle, aiperf/genai-perf records, a per-request log, or a CSV with the columns of data/measurements/serving.csv"
    )


def _vllm_bench(documents: list[dict[str, Any]], path: Path) -> list[Run]:
    runs = []
    for document in documents:
        where = str(path)
        sglang = "sglang" in str(document.get("backend", "")) or "random_input_len" in document
        tool = "SGLang bench_serving" if sglang else "vLLM bench serve"
        suffix = "_ms" if any(key.endswith("ttft_ms") for key in document) else ""
        statistic = "mean" if f"mean_ttft{suffix}" in document else "median"
        scale, unit, notes = 1e-3, "ms", []
        if not suffix:
            scale, unit = 1.0, "s"
            notes.append(
                "names without a unit: taken as seconds, as E2E = TTFT + (n − 1)·TPOT and the run's duration confirm"
            )
        ttft = need(document, f"{statistic}_ttft{suffix}", where) * scale
        tpot = need(document, f"{statistic}_tpot{suffix}", where) * scale
        completed = int(need(document, "completed", where))
        if completed < 1:
            raise InputError(f"{where}: completed: {completed} requests; at least one is needed")
        prompt = need(document, "total_input_tokens", where) / completed
        output = need(document, "total_output_tokens", where) / completed
        duration = need(document, "duration", where)
        consistent(document, f"{statistic}_e2e", suffix, scale, ttft, tpot, output, duration, where)
        failed = int(document.get("num_prompts") or completed) - completed
        requested = rate(document.get("request_rate"))
        achieved = completed / duration
        limit = document.get("max_concurrency")
        if math.isfinite(requested) and not limit:
            reached(requested, achieved, where)
        in_flight = achieved * (ttft + (output - 1) * tpot)
        concurrency = float(limit) if limit else in_flight
        runs.append(
            checked(
                Run(
                    tool,
                    f"TTFT from sending; TPOT = (E2E − TTFT)/(output − 1) a request; {unit}",
                    statistic,
                    ttft,
                    tpot,
                    prompt,
                    output,
                    concurrency,
                    not limit,
                    completed,
                    max(failed, 0),
                    tuple(notes),
                ),
                where,
            )
        )
    return runs


def _guidellm(documents: list[dict[str, Any]], path: Path) -> list[Run]:
    runs = []
    for index, bench in enumerate(documents[0]["benchmarks"]):
        where = f"{path}: benchmarks[{index}]"
        metrics = bench.get("metrics", {})

        def mean(name: str, metrics: dict[str, Any] = metrics, where: str = where) -> float:
            block = metrics.get(name, {}).get("successful") or {}
            return need(block, "mean", f"{where}: metrics.{name}.successful")

        strategy = bench.get("config", {}).get("strategy", {})
        requested = strategy.get("rate")
        achieved = mean("requests_per_second")
        totals = metrics.get("request_totals", {})
        done = int(totals.get("successful", 0))
        if isinstance(requested, int | float) and strategy.get("type_") in ("constant", "poisson"):
            reached(float(requested), achieved, where)
        ttft, itl = mean("time_to_first_token_ms") / 1e3, mean("inter_token_latency_ms") / 1e3
        runs.append(
            checked(
                Run(
                    "GuideLLM",
                    "TTFT ms; its TPOT is E2E/n, so ITL = (E2E − TTFT)/(n − 1), pooled over tokens, is taken; latencies of requests in s",
                    "mean",
                    ttft,
                    itl,
                    mean("prompt_token_count"),
                    mean("output_token_count"),
                    max(mean("request_concurrency"), 1e-9),
                    strategy.get("type_") not in ("concurrent", "synchronous"),
                    done,
                    int(totals.get("errored", 0)) + int(totals.get("incomplete", 0)),
                ),
                where,
            )
        )
    return runs


def _inference_perf(documents: list[dict[str, Any]], path: Path) -> list[Run]:
    document, where = documents[0], str(path)
    load, good = document.get("load_summary", {}), document.get("successes", {})
    latency = good.get("latency", {})
    if isinstance(load.get("requested_rate"), int | float) and "achieved_rate" in load:
        reached(float(load["requested_rate"]), float(load["achieved_rate"]), where)
    ttft_block, tpot_block = latency.get("time_to_first_token"), latency.get("time_per_output_token")
    if not ttft_block or not tpot_block:
        raise InputError(
            f"{where}: successes.latency has no time_to_first_token or time_per_output_token: was the run streamed?"
        )
    ttft, tpot = need(ttft_block, "mean", where), need(tpot_block, "mean", where)
    prompt, output = (
        need(size(good, "prompt_len"), "mean", where),
        need(size(good, "output_len"), "mean", where),
    )
    rate = float(load.get("achieved_rate") or good.get("throughput", {}).get("requests_per_sec") or 0)
    if rate <= 0:
        raise InputError(f"{where}: load_summary.achieved_rate: a rate above 0 is needed")
    whole = latency.get("request_latency", {}).get("mean", ttft + (output - 1) * tpot)
    notes = []
    if abs(whole / (ttft + (output - 1) * tpot) - 1) > 0.15:
        # Chunks that carry several tokens make the tool's TPOT too small or too large.
        tpot = (whole - ttft) / max(output - 1, 1)
        notes.append(
            "time_per_output_token disagrees with (latency − TTFT)/(output − 1): the latter is taken"
        )
    return [
        checked(
            Run(
                "inference-perf",
                "TTFT from sending (the client's own queue is schedule_delay); TPOT a request; seconds",
                "mean",
                ttft,
                tpot,
                prompt,
                output,
                rate * float(whole),
                True,
                int(good.get("count", 0)),
                int(document.get("failures", {}).get("count") or 0),
                tuple(notes),
            ),
            where,
        )
    ]


def _aiperf(documents: list[dict[str, Any]], path: Path) -> list[Run]:
    rows = [d for d in documents if d.get("metrics")]
    if not rows:
        raise InputError(f"{path}: no record has metrics: every request failed")
    values: dict[str, list[float]] = {}
    for number, row in enumerate(rows, 1):
        for name in (
            "time_to_first_token",
            "inter_token_latency",
            "request_latency",
            "input_sequence_length",
            "output_sequence_length",
        ):
            cell = row["metrics"].get(name)
            if isinstance(cell, dict) and isinstance(cell.get("value"), int | float):
                unit = {"ms": 1e-3, "s": 1.0, "us": 1e-6, "ns": 1e-9, "tokens": 1.0}.get(
                    str(cell.get("unit"))
                )
                if unit is None:
                    raise InputError(
                        f"{path}:{number}: {name}: unit {cell.get('unit')!r} is not known; ms, s, us or ns is needed"
                    )
                values.setdefault(name, []).append(float(cell["value"]) * unit)
    missing = [
        n
        for n in (
            "time_to_first_token",
            "inter_token_latency",
            "input_sequence_length",
            "output_sequence_length",
        )
        if n not in values
    ]
    if missing:
        raise InputError(f"{path}: metrics missing: {', '.join(missing)}")
    starts = [row["metadata"]["request_start_ns"] for row in rows]
    ends = [row["metadata"]["request_end_ns"] for row in rows]
    span = (max(ends) - min(starts)) / 1e9
    in_flight = sum(e - s for s, e in zip(starts, ends, strict=True)) / 1e9 / max(span, 1e-9)
    mean = {name: float(np.mean(v)) for name, v in values.items()}
    return [
        checked(
            Run(
                "aiperf",
                "TTFT and ITL = (latency − TTFT)/(n − 1) a request; each value carries its unit",
                "mean",
                mean["time_to_first_token"],
                mean["inter_token_latency"],
                mean["input_sequence_length"],
                mean["output_sequence_length"],
                in_flight,
                True,
                len(rows),
                len(documents) - len(rows),
            ),
            str(path),
        )
    ]


def _request_log(documents: list[dict[str, Any]], path: Path) -> RequestLog:
    names = ("queued_ts", "scheduled_ts", "first_token_ts", "last_token_ts", "input_toks", "output_toks")
    faults = [
        f"{path}:{i}: {n} is missing"
        for i, d in enumerate(documents, 1)
        for n in names
        if not isinstance(d.get(n), int | float)
    ]
    if faults:
        raise InputError(*faults[:10])
    rows = sorted(documents, key=lambda d: d["queued_ts"])
    column = {n: np.array([d[n] for d in rows], dtype=np.float64) for n in names}
    order = (column["queued_ts"], column["scheduled_ts"], column["first_token_ts"], column["last_token_ts"])
    for earlier, later, text in zip(
        order,
        order[1:],
        ("scheduled before queued", "first token before scheduled", "last token before first"),
        strict=False,
    ):
        bad = np.flatnonzero(later < earlier - 1e-6)
        if bad.size:
            raise InputError(
                f"{path}: request {rows[bad[0]].get('request_id', bad[0])}: {text}; the four times must be of one clock"
            )
    start = column["queued_ts"][0]
    settings: dict[str, Any] = {}
    meta = path.with_name("meta.json")
    if meta.is_file():
        document = json_object(read_text(meta, "a JSON object"), str(meta))
        arguments = document.get("engine_kwargs", {})
        settings = {
            "model": document.get("model"),
            "engine_version": document.get("vllm_version"),
            "max_num_seqs": arguments.get("max_num_seqs"),
            "max_num_batched_tokens": arguments.get("max_num_batched_tokens"),
            "kv_tokens": (document.get("kv_cache") or {}).get("num_kv_tokens"),
        }
    return RequestLog(
        "per-request log",
        "TTFT = first token − queued, at the engine; TPOT = (last − first)/(output − 1); seconds of one clock",
        order[0] - start,
        order[1] - start,
        order[2] - start,
        order[3] - start,
        column["input_toks"].astype(np.int64),
        column["output_toks"].astype(np.int64),
        settings,
    )


_READERS: tuple[
    tuple[Callable[[dict[str, Any]], bool], Callable[[list[dict[str, Any]], Path], list[Run] | RequestLog]],
    ...,
] = (
    (lambda d: "queued_ts" in d, _request_log),
    (lambda d: isinstance(d.get("benchmarks"), list), _guidellm),
    (lambda d: "load_summary" in d and "successes" in d, _inference_perf),
    (lambda d: isinstance(d.get("metrics"), dict) and isinstance(d.get("metadata"), dict), _aiperf),
    (lambda d: "completed" in d and "duration" in d, _vllm_bench),
)
