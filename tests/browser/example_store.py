"""A small store made from the data dictionary, as the tests of the report need it: a decision with its evidence."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb

from fleetplan.store import tables

Rows = dict[str, list[dict[str, Any]]]

_DEFAULTS = {"VARCHAR": "", "BIGINT": 0, "DOUBLE": 0.0, "BOOLEAN": True}


def make(path: Path, *scenarios: Rows) -> Path:
    """Write a store that holds these scenarios' rows; a column that a row leaves out is null or a plain default."""
    path.unlink(missing_ok=True)
    with duckdb.connect(str(path)) as connection:
        for name, columns in _columns().items():
            ddl = ", ".join(f'"{column}" {kind}' for column, (kind, _) in columns.items())
            connection.execute(f"CREATE TABLE {name} ({ddl})")
            rows = [row for each in scenarios for row in each.get(name, [])]
            unknown = {key for row in rows for key in row} - columns.keys()
            assert not unknown, f"{name}: {unknown}"
            values = [
                [row.get(column, None if nullable else _DEFAULTS.get(kind, [])) for row in rows]
                for column, (kind, nullable) in columns.items()
            ]
            if rows:
                select = ", ".join(f"unnest(?::{kind}[])" for kind, _ in columns.values())
                connection.execute(f"INSERT INTO {name} SELECT {select}", values)
    return path


def _columns() -> dict[str, dict[str, tuple[str, bool]]]:
    return {
        table.name: {column.name: (column.type, column.nullable) for column in table.columns}
        for table in tables.TABLES.values()
    }


def feasible(
    name: str = "support-chat",
    *,
    rate: float = 12.0,
    replicas: int = 7,
    label: str = "H100 SXM × 2, fp8",
    title: str = "Support chat on Llama 3.3 70B",
) -> Rows:
    """A scenario with a decision: 70B on pairs of H100, at a rate and a count."""
    price = 2.99 * 2 * (replicas + 1)
    grid = [
        ("c1", label, "h100-sxm", 2, "fp8", None, 37.4),
        ("c2", "H100 SXM × 4, bf16", "h100-sxm", 4, "bf16", None, 35.2),
        ("c3", "H200 SXM × 2, fp8", "h200-sxm", 2, "fp8", None, 92.1),
        ("c4", "H200 SXM × 2, bf16", "h200-sxm", 2, "bf16", None, 54.9),
        ("c5", "H100 SXM × 1, bf16", "h100-sxm", 1, "bf16", "does not fit: short by 61.9 GiB, needs TP ≥ 2", -61.9),
        ("c6", "H100 SXM × 8, bf16", "h100-sxm", 8, "bf16", "costs more than the decision even at its lower bound of 3 replicas", 51.0),
    ]  # fmt: skip
    rows: Rows = {
        "scenarios": [
            {
                "scenario": name,
                "title": title,
                "model": "llama-3.3-70b",
                "traffic": f"{rate:g} req/s, Poisson",
                "step_time": "calibrated: TPOT within 8 % in the median",
                "prices": "on-demand-2026-08",
            }
        ],
        "settings": [
            {"scenario": name, "path": path, "value": value}
            for path, value in (
                ("model", "llama-3.3-70b"),
                ("workload.classes[chat].arrivals.rate_requests_per_s", f"{rate:g}"),
                ("workload.classes[chat].slo.ttft.p99_s", "1"),
                ("policy.max_utilisation", "0.8"),
            )
        ],
        "decisions": [
            {
                "scenario": name,
                "candidate_id": "c1",
                "verdict": "feasible",
                "gpu": "h100-sxm",
                "replicas": replicas,
                "spare_replicas": 1,
                "gpus_per_replica": 2,
                "gpus": 2 * (replicas + 1),
                "utilisation": 0.731,
                "max_utilisation": 0.8,
                "confidence": 0.95,
                "decided": True,
                "replicas_low": max(1, replicas - 1),
                "replicas_high": replicas + 1,
                "interval_level": 0.9,
                "probability_holds": 0.93,
                "cost_usd_per_million_tokens": 0.71,
                "cost_usd_per_hour": price,
                "cost_usd_per_month": price * 730,
                "cost_usd_per_million_output_tokens": price / (3600 * rate * 250) * 1e6,
                "binding_limit": "TTFT p99 of class chat",
            }
        ],
        "candidates": [
            {
                "scenario": name,
                "candidate_id": key,
                "label": text,
                "gpu": gpu,
                "gpus_per_replica": count,
                "tensor_parallel": count,
                "pipeline_parallel": 1,
                "data_parallel": 1,
                "expert_parallel": 1,
                "weights": weights,
                "kv_cache": "fp8",
                "scheduler": "chunked",
                "max_num_seqs": 256,
                "max_num_batched_tokens": 8192,
                "prefix_caching": False,
                "speculation": "none",
                "fits": left > 0,
                "reason": reason,
                "usable_bytes": int(79.6 * 2**30) if gpu == "h100-sxm" else int(140.4 * 2**30),
                "weights_bytes": int((65.7 if weights == "fp8" else 131.4) / count * 2**30),
                "left_bytes": int(left * 2**30),
                "kv_blocks": 14_000 if left > 0 else None,
            }
            for key, text, gpu, count, weights, reason, left in grid
        ],
        "parts": [
            {
                "scenario": name,
                "stage": stage,
                "part": part,
                "rows": 9,
                "spec_digest": f"{rate:g}".encode().hex().rjust(64, "a"),
                "code_fingerprint": "c0de" * 16,
                "seed": 7,
                "sha256": "ab" * 32,
            }
            for stage, part in (
                ("candidates", "candidates"),
                ("roofline", "rooflines"),
                ("sizing", "decisions"),
            )
        ],
    }
    rows["evidence"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "replicas": count,
            "class": group,
            "metric": metric,
            "percentile": percentile,
            "limit_s": limit,
            "simulated_s": None if count == replicas - 3 and metric == "ttft" else value,
            "promised_share": percentile / 100,
            "met_share": min(0.9991, percentile / 100 * (limit / value) ** 0.02),
            "low_share": min(0.9989, percentile / 100 * (limit / value) ** 0.02 - 0.001),
            "high_share": min(0.9995, percentile / 100 * (limit / value) ** 0.02 + 0.001),
            "requests": 12_000,
            "replications": 3,
            "utilisation": 0.731 * replicas / count,
            "decided": True,
            "holds": value <= limit and not (count == replicas - 3 and metric == "ttft"),
        }
        for group, metric, percentile, limit, least in (
            ("chat", "ttft", 99.0, 1.0, 0.812),
            ("chat", "tpot", 95.0, 0.04, 0.0312),
            ("search", "ttft", 99.0, 2.0, 1.12),
        )
        for count in range(max(1, replicas - 3), replicas + 3)
        for value in [least * (replicas / count) ** (4 if metric == "ttft" else 1.4)]
    ]
    rows["bounds"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "ridge_flop_per_byte": 590.0,
            "batch_by_memory": 164,
            "lone_ttft_s": 0.091,
            "lone_tpot_s": 0.0149,
            "throughput_tokens_per_s": 5100.0,
            "bound_by": "memory",
        }
    ]
    rows["rooflines"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "batch": batch,
            "step_s": step,
            "compute_s": compute,
            "memory_s": memory,
            "overhead_s": 0.0021,
            "intensity_flop_per_byte": 2.0 * batch,
            "throughput_tokens_per_s": batch / step,
            "bound_by": "compute" if compute > memory else "memory",
        }
        for batch in (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
        for memory in [0.0128 + batch * 4.1e-5]
        for compute in [batch * 8.9e-5]
        for step in [0.0021 + max(memory, compute)]
    ]
    rows["plans"] = [
        {
            "scenario": name,
            "candidate_id": key,
            "replicas": count,
            "gpus": gpus,
            "cost_usd_per_hour": cost,
            "ttft_p99_s": ttft,
            "tpot_p95_s": 0.03,
            "status": "chosen" if key == "c1" else "pruned" if count is None else "dearer",
            "reason": reason,
        }
        for key, count, gpus, cost, ttft, reason in (
            ("c1", replicas, 2 * replicas + 2, price, 0.812, None),
            ("c2", 4, 20, price * 1.2, 0.655, None),
            ("c3", 5, 12, price * 1.09, 0.71, None),
            ("c4", 5, 12, price * 1.31, 0.84, None),
            (
                "c6",
                None,
                None,
                None,
                None,
                "costs more than the decision even at its lower bound of 3 replicas",
            ),
        )
    ]
    rows["levers"] = [
        {
            "scenario": name,
            "lever": lever,
            "change": change,
            "gpus": gpus,
            "cost_usd_per_hour": price * factor,
            "saved_usd_per_hour": price - price * factor,
            "verdict": "feasible",
        }
        for lever, change, gpus, factor in (
            ("speculation", "EAGLE-3 with 3 drafts", 12, 0.75),
            ("slo", "TTFT p99 1.2 s instead of 1 s", 14, 0.875),
            ("prefix", "prefix share 0.5 instead of 0.9", 22, 1.375),
            ("kv_cache", "bf16 KV cache", 18, 1.125),
            ("chunk", "4,096 tokens a step", 16, 1.0),
        )
    ]
    rows["uncertainty"] = [
        {"scenario": name, "replicas": replicas - 2 + index, "probability_holds": chance, "draws": 200}
        for index, chance in enumerate((0.04, 0.41, 0.93, 0.988, 0.999))
    ]
    rows["resilience"] = [
        {
            "scenario": name, "event": event, "class": "chat", "metric": "ttft", "percentile": 99.0, "replicas": replicas + 1,
            "lost_replicas": lost, "down_s": 300.0, "up_s": 900.0, "lost_requests": 9.0 * lost, "requests": 7200,
            "promised_share": 0.99, "during_share": share, "run_share": 0.997, "holds": share >= 0.99, "needed_replicas": needed,
        }
        for event, lost, share, needed in (
            ("1 of 3 zones is lost", 3, 0.98997, replicas + 3),
            ("1 replica fails", 1, 0.9961, replicas),
            ("2 replicas fail", 2, 0.91, None),
            ("rolling restart", 1, 0.9957, replicas + 1),
        )
    ]  # fmt: skip
    rows["schedule"] = [
        {
            "scenario": name, "slot": hour, "start_h": float(hour), "mean_requests_per_s": rate * level, "load_replicas": level * 4,
            "static_replicas": replicas, "serving_replicas": serving, "static_gpus": 2 * replicas + 2, "paid_gpus": 2.0 * serving + 2,
        }
        for hour in range(24)
        for level in [1 - 0.6 * math.cos(hour / 24 * 2 * math.pi)]
        for serving in [min(math.ceil(level * 5), replicas)]
    ]  # fmt: skip
    rows["growth"] = [
        {
            "scenario": name, "month": month, "mean_requests_per_s": rate * 1.1**month, "replicas": count, "spare_replicas": 1,
            "gpus": None if count is None else 2 * count + 2, "more_gpus": more, "needed_from_month": since,
            "utilisation": None if count is None else 0.7, "cost_usd_per_hour": None if count is None else 5.98 * (count + 1),
            "reason": "needs at least 24 GPUs and the stock of h100-sxm is 20: short by 4" if count is None else None,
        }
        for month, count, more, since in ((0, 7, 0, None), (1, 8, 2, 0.31), (2, 8, 0, None), (3, 9, 2, 2.5), (4, None, None, 3.1))
    ]  # fmt: skip
    rows["costs"] = [
        {
            "scenario": name, "option": option, "gpus": 16.0, "cost_usd_per_hour": price * factor, "holds": held, "note": "so many GPUs",
            "break_even_requests_per_s": None if held is None else 1.9 * factor, "power_w": 9300.0,
            "energy_wh_per_million_tokens": 151.0, "carbon_g_per_million_tokens": 57.0,
        }
        for option, factor, held in (
            ("rented", 1.0, True), ("rented, autoscaled, by commitments", 0.61, True), ("owned", 0.47, True), ("api", 1.22, None),
        )
    ]  # fmt: skip
    rows["capacity"] = [
        {
            "scenario": name, "candidate_id": key, "gpu": gpu, "gpus": 16, "replicas": count, "best": key == "c1",
            "highest_requests_per_s": None if factor is None else rate * factor, "highest_factor": factor, "holds_today": bool(factor),
            "binding_limit": "TTFT p99 of chat", "reason": None if factor else "a replica takes 32 GPUs (got 16)",
            "longest_context_tokens": 131072, "longest_prompt_tokens": 41000,
        }
        for key, gpu, count, factor in (("c1", "h100-sxm", 8, 1.12), ("c3", "h200-sxm", 8, 0.93), ("c2", "h100-sxm", 0, None))
    ]  # fmt: skip
    rows["capacity_promises"] = [
        {
            "scenario": name, "candidate_id": "c1", "class": "chat", "metric": "ttft", "percentile": 99.0, "promised_s": 1.0,
            "tightest_s": 0.612, "promised_share": 0.99, "met_share": 0.9971,
        }
    ]  # fmt: skip
    rows["fleets"] = [
        {"fleet": f"all-of-us-with-{name}"[:80], "title": "All of us", "verdict": "feasible", "cost_usd_per_hour": 3 * price}
    ]  # fmt: skip
    rows["fleet_plans"] = [
        {
            "fleet": f"all-of-us-with-{name}"[:80], "scenario": name, "gpu": gpu, "taken": gpu == "h200-sxm", "candidate_id": key,
            "candidate": text, "replicas": 5, "gpus": 12, "cost_usd_per_hour": price * 1.09,
        }
        for gpu, key, text in (("h100-sxm", "c1", label), ("h200-sxm", "c3", "H200 SXM × 2, fp8"))
    ]  # fmt: skip
    rows["choices"] = [
        {
            "scenario": name, "candidate_id": key, "basis": basis, "cost_low_usd_per_hour": price * factor * 0.8,
            "cost_p50_usd_per_hour": price * factor, "cost_high_usd_per_hour": price * factor * 1.3, "probability_cheapest": chance,
        }
        for key, basis, factor, chance in (("c1", "counted anew", 1.0, 0.81), ("c3", "counted anew", 1.09, 0.17), ("c6", "lower bound", 1.5, 0.02))
    ]  # fmt: skip
    rows["draws"] = [
        {"scenario": name, "draw": draw, "rate_factor": 0.9 + draw / 50, "step_time_factor": 1.1 - draw / 60, "replicas": replicas + draw % 3}
        for draw in range(10)
    ]  # fmt: skip
    rows["timeseries"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "replicas": count,
            "time_s": second / 2,
            "waiting_requests": max(0.0, 4 * math.sin(second / 40) + (2 if count == replicas else 9)),
            "running_requests": 80 + 20 * math.sin(second / 55) + (0 if count == replicas else 22),
        }
        for count in (replicas, replicas - 1)
        for second in range(1200)
    ]
    rows["workloads"] = [
        {
            "scenario": name,
            "class": group,
            "mean_requests_per_s": rate * part,
            "peak_minute_requests_per_s": rate * part * 1.4,
            "interarrival_cv": 1.0,
            "prompt_mean_tokens": prompt,
            "output_mean_tokens": 250.0,
        }
        for group, part, prompt in (("chat", 0.8, 1200.0), ("search", 0.2, 4100.0))
    ]
    rows["simulations"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "load_share": load,
            "class": "*",
            "replicas": 1,
            "offered_requests_per_s": load * 2.3,
            "requests": 12_000,
            "rejected_requests": 0,
            "stable": load < 1,
            "ttft_p99_s": 0.2 / (1.02 - load),
            "tpot_p95_s": 0.018 / (1.4 - load),
            "attainment": 1 - 0.01 * load**6,
            "throughput_tokens_per_s": load * 2.3 * 250,
        }
        for load in (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
    ]
    rows["queueing"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "replicas": count,
            "formula": formula,
            "arrival_rate_requests_per_s": rate,
            "service_s": 7.1,
            "servers": count * 16,
            "utilisation": 0.73 * replicas / count,
            "stable": 0.73 * replicas / count < 1,
            "wait_mean_s": 0.02 * factor * (replicas / count) ** 8 if 0.73 * replicas / count < 1 else None,
            "method": "exact" if formula == "mmc" else "approximation",
            "note": None
            if 0.73 * replicas / count < 1
            else "unstable: the offered load is above the servers",
        }
        for formula, factor in (("mmc", 1.0), ("md1", 0.6))
        for count in range(max(1, replicas - 2), replicas + 3)
    ]
    rows["goodput"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "batch_cap": cap,
            "arrival_rate_requests_per_s": 2.0,
            "throughput_tokens_per_s": 40.0 * cap**0.8,
            "user_tokens_per_s": 40 / (1 + cap / 90),
            "attainment": 0.99 if 8 <= cap <= 169 else 0.02,
            "goodput_requests_per_s": min(2.0, cap / 8) if cap <= 169 else 0.1,
            "stable": cap >= 8,
            "pareto": True,
        }
        for cap in (1, 2, 4, 8, 16, 32, 64, 128, 169, 170, 256)
    ]
    rows["speculation"] = [
        {
            "scenario": name,
            "candidate_id": "c1",
            "drafts": drafts,
            "acceptance": acceptance,
            "batch": batch,
            "basis": "stated",
            "draft": "eagle3",
            "draft_cost": 0.05,
            "context_tokens": 2048.0,
            "expected_output_tokens": tokens,
            "speedup": speedup,
            "speedup_textbook": tokens / (1 + 0.05 * drafts),
            "throughput_tokens_per_s_per_gpu": batch * tokens / 0.02 / 4,
            "pays": speedup > 1,
        }
        for drafts in (1, 3, 5)
        for acceptance in (0.6, 0.8)
        for batch in (1, 4, 16, 64, 128, 256)
        for tokens in [(1 - acceptance ** (drafts + 1)) / (1 - acceptance)]
        for speedup in [tokens / (1 + 0.05 * drafts) / (1 + batch * drafts / 400)]
    ]
    return rows


def infeasible(name: str = "impossible") -> Rows:
    """A scenario that nothing can satisfy."""
    rows = feasible(name, title="A promise that nothing keeps")
    for emptied in (
        "evidence", "plans", "levers", "uncertainty", "timeseries", "resilience", "schedule", "growth", "costs", "choices", "draws",
    ):  # fmt: skip
        rows[emptied] = []
    rows["decisions"] = [
        {
            "scenario": name,
            "verdict": "infeasible",
            "nearest_change": "TTFT p99 of 1.4 s instead of 500 ms: 4 × H200 SXM would keep it",
            "reason": "TTFT of a lone request is 1.3 s where 500 ms is promised: no number of replicas mends it.",
        }
    ]
    return rows
