"""Published tables of other shapes (fixed batches, offline throughput, open-loop rates), predicted with nothing fitted to them."""

from __future__ import annotations

import math
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan import catalog
from fleetplan.calibration.points import engine_name, find_model, read_rows
from fleetplan.engine import EngineConfig, simulate
from fleetplan.errors import InputError
from fleetplan.physics import precision
from fleetplan.physics.calibrated import Calibrated, calibrate_step
from fleetplan.traffic.requests import Requests

REQUESTS_OPEN_LOOP = 500
COLUMNS = (
    "engine",
    "model",
    "gpu",
    "tp",
    "weight_dtype",
    "kv_dtype",
    "isl",
    "osl",
    "load_kind",
    "load_value",
    "metric",
    "value",
)
METRICS = ("e2e_latency_ms", "output_tok_s_total", "total_tok_s_total", "ttft_ms_mean", "itl_ms_mean")


def predict_table(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Error by metric of a table with columns engine, model, gpu, tp, weight_dtype, isl, osl, load_kind, load_value, metric, value; and its rows.

    Fixed batches and offline runs start all requests at once; a request rate is Poisson with 500 requests. An engine without constants is
    predicted with vLLM's, and counted as such. Rows that cannot be predicted are counted by reason.
    """
    rows: list[dict[str, Any]] = []
    excluded: Counter[str] = Counter()
    for line, row in enumerate(read_rows(path, COLUMNS), 2):
        made = _row(row, line)
        if isinstance(made, str):
            excluded[made] += 1
        else:
            rows.append(made)
    table: dict[str, Any] = {"points": len(rows), "excluded": dict(excluded), "by_metric": {}}
    for metric in sorted({r["metric"] for r in rows}):
        error = np.array([abs(r["predicted"] / r["measured"] - 1) for r in rows if r["metric"] == metric])
        table["by_metric"][metric] = {
            "points": len(error),
            "median": float(np.median(error)),
            "mean": float(error.mean()),
            "p90": float(np.quantile(error, 0.9)),
        }
    return table, rows


_CACHE: dict[tuple[Any, ...], dict[str, float]] = {}


def _row(row: dict[str, str], line: int) -> dict[str, Any] | str:
    metric = row["metric"]
    if metric not in METRICS:
        return f"metric {metric} follows from others"
    if row["load_value"].strip().upper() == "INF":
        return "rate without limit: 500 requests are ramp alone"
    try:
        model, gpu = find_model(row["model"]), catalog.gpu(row["gpu"].replace("SXM-80GB", "80-sxm"))
        isl, osl, load, measured = (
            int(row["isl"]),
            int(row["osl"]),
            float(row["load_value"]),
            float(row["value"]),
        )
        degree = int(float(row["tp"] or 1))
        if not (min(isl, osl, degree) >= 1 and 0 < load < math.inf and 0 < measured < math.inf):
            return "a size or value is not above 0"
        weights = {"fp16": "bf16", "": "bf16"}.get(row["weight_dtype"], row["weight_dtype"])
    except InputError as error:
        return str(error).split(";")[0]
    except (ValueError, OverflowError):
        return "a size or value is no number"
    engine = engine_name(row["engine"]) or "vllm"
    kv = "fp8" if row["kv_dtype"].startswith("fp8") else "bf16"
    key = (model.name, gpu.name, engine, weights, kv, degree, isl, osl, row["load_kind"], load)
    if key not in _CACHE:
        made = calibrate_step(
            model.architecture,
            gpu,
            weights=weights,
            kv_cache=kv,
            tensor_parallel=degree,
            engine=engine,
            max_tokens=8192,
        )
        _CACHE[key] = _run(made, key, _kv_tokens(made, model.architecture, weights, gpu, degree))
    predicted = _CACHE[key].get(metric)
    if predicted is None or not math.isfinite(predicted):
        return "does not fit, or does not finish"
    return {
        "line": line,
        "model": model.name,
        "gpu": gpu.name,
        "engine": row["engine"],
        "load": f"{row['load_kind']} {row['load_value']}",
        "metric": metric,
        "measured": measured,
        "predicted": predicted,
    }


def _kv_tokens(made: Calibrated, architecture: Any, weights: str, gpu: catalog.Gpu, degree: int) -> int:
    held = precision.weight_bytes(architecture, precision.scheme(weights, architecture)) / degree
    free = gpu.memory_usable_bytes * 0.9 - held - 4e9
    return int(free / (made.work.kv_bytes_per_token + made.work.window_kv_bytes_per_token))


def _run(made: Calibrated, key: tuple[Any, ...], kv_tokens: int) -> dict[str, float]:
    isl, osl, kind, load = key[-4:]
    if kv_tokens < isl + osl:
        return {}
    if kind == "request_rate":
        count = REQUESTS_OPEN_LOOP
        rng = np.random.default_rng(zlib.crc32(repr(key).encode()))
        arrivals = np.cumsum(rng.exponential(1 / load, count))
        seqs = 2048
    else:
        count = int(load)
        arrivals = np.zeros(count)
        seqs = max(count, 1)
    result = simulate(
        Requests.of(arrivals, isl, osl),
        made.step,
        EngineConfig("chunked", max_num_seqs=seqs, max_num_batched_tokens=8192, kv_blocks=kv_tokens // 16),
    )
    span = float(np.nanmax(result.finish_s))
    tokens = count * osl / span
    client = made.client_s + made.client_token_s * isl
    return {
        "e2e_latency_ms": 1e3 * span,
        "output_tok_s_total": tokens,
        "total_tok_s_total": count * (isl + osl) / span,
        "ttft_ms_mean": 1e3 * (float(np.mean(result.ttft_s)) + client),
        "itl_ms_mean": 1e3 * float(np.nanmean(result.tpot_s)) if osl > 1 else math.nan,
    }
