"""Rows of the stage `queueing` from plain figures: closed forms by replicas, the chain's error, the goodput curve."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from fleetplan.engine import EngineConfig, simulate
from fleetplan.physics.steptime import StepTime
from fleetplan.queueing.batching import BatchingResult, Policy, continuous_batching
from fleetplan.queueing.goodput import GoodputPoint, pareto
from fleetplan.queueing.multi import ggc, mmc
from fleetplan.queueing.result import QueueResult
from fleetplan.queueing.single import mg1
from fleetplan.traffic.requests import Requests

LOADS = (0.3, 0.5, 0.7, 0.8, 0.9)


@dataclass(frozen=True)
class Shape:
    """What closed forms know of a traffic: its rate and the first two moments of gaps and lengths."""

    arrival_per_s: float
    arrival_cv: float
    prompt_tokens: float
    prompt_cv: float
    output_tokens: float
    output_cv: float

    @classmethod
    def of(cls, requests: Requests, arrival_per_s: float) -> Shape:
        """Moments of these requests' gaps and lengths, at the given rate."""
        s, g = requests.prompt_tokens, requests.output_tokens
        return cls(
            arrival_per_s,
            gaps_cv(requests),
            float(s.mean()),
            float(s.std() / s.mean()),
            float(g.mean()),
            float(g.std() / g.mean()),
        )


def gaps_cv(requests: Requests) -> float:
    """Coefficient of variation of the gaps between arrivals; 1 where no time passes."""
    gaps = np.diff(requests.arrival_s)
    return float(gaps.std() / gaps.mean()) if len(gaps) and gaps.mean() > 0 else 1.0


def chain(shape: Shape, steptime: StepTime, config: EngineConfig, arrival_per_s: float) -> BatchingResult:
    """One engine of this configuration under Poisson arrivals of the shape's lengths; `static` is taken as `continuous`."""
    policy = (
        config.scheduler if config.scheduler in ("chunked", "continuous", "prefill_first") else "continuous"
    )
    return continuous_batching(
        arrival_per_s,
        steptime,
        shape.prompt_tokens,
        shape.output_tokens,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        kv_tokens=None if config.kv_blocks is None else config.kv_blocks * config.block_size,
        queue_limit=config.max_queued_requests,
        policy=cast(Policy, policy),
        output_cv=shape.output_cv,
        prompt_cv=shape.prompt_cv,
    )


def queueing_rows(
    candidate_id: str,
    shape: Shape,
    steptime: StepTime,
    config: EngineConfig,
    engines_per_replica: int = 1,
    decided: int | None = None,
) -> list[dict[str, Any]]:
    """Rows of the table `queueing` at N − 1, N and N + 1 replicas, N the least that is stable by the chain; and about the `decided` count.

    `continuous_batching` and `mg1` (a full batch as one server) see one engine's share; `mmc` and `ggc` a central
    queue before all slots, each as fast as in a full batch.
    """
    least = least_stable(shape, steptime, config, engines_per_replica)
    rows = []
    near = {count + by for count in (least, decided) if count is not None for by in (-1, 0, 1)}
    for replicas in sorted(count for count in near if count > 0):
        engines = replicas * engines_per_replica
        share = shape.arrival_per_s / engines
        result = chain(shape, steptime, config, share)
        slots = result.cap * engines
        residence = result.cap / result.capacity_per_s
        rows.append(_chain_row(result, result.ttft_percentile_s(0.99)))
        rows.append(formula_row("mmc", mmc(shape.arrival_per_s, residence, slots), residence))
        forms = ggc(shape.arrival_per_s, residence, slots, shape.arrival_cv, shape.output_cv)
        rows.append(formula_row("ggc", forms, residence))
        service = 1 / result.capacity_per_s
        rows.append(formula_row("mg1", mg1(share, service, shape.output_cv), service))
        for row in rows[-4:]:
            row |= {"candidate_id": candidate_id, "replicas": replicas}
    return rows


def least_stable(shape: Shape, steptime: StepTime, config: EngineConfig, engines_per_replica: int = 1) -> int:
    """The least count of replicas that is stable by the chain."""
    probe = chain(shape, steptime, config, shape.arrival_per_s)
    per_replica = probe.capacity_per_s * engines_per_replica
    return math.floor(shape.arrival_per_s / per_replica * (1 + 1e-12)) + 1


def chain_error_rows(
    candidate_id: str,
    shape: Shape,
    steptime: StepTime,
    config: EngineConfig,
    *,
    loads: Sequence[float] = LOADS,
    count: int = 2000,
    seed: int = 0,
) -> list[dict[str, Any]]:
    """Rows of the table `chain_errors`: Poisson arrivals, prompts at their mean, outputs of a like spread (gamma, rounded)."""
    fixed = Shape(
        shape.arrival_per_s, 1.0, round(shape.prompt_tokens), 0.0, shape.output_tokens, shape.output_cv
    )
    full = chain(fixed, steptime, config, 1e-9).capacity_per_s
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(1.0, count)
    cv = max(shape.output_cv, 1e-3)
    outputs = np.maximum(1, np.rint(rng.gamma(1 / cv**2, shape.output_tokens * cv**2, count))).astype(
        np.int64
    )
    drawn = Shape(
        fixed.arrival_per_s,
        1.0,
        fixed.prompt_tokens,
        0.0,
        float(outputs.mean()),
        float(outputs.std() / outputs.mean()),
    )
    rows = []
    for load in loads:
        rate = load * full
        theory = chain(drawn, steptime, config, rate)
        if not theory.stable or theory.ttft_mean_s is None:
            continue
        requests = Requests.of(np.cumsum(gaps) / rate, int(fixed.prompt_tokens), outputs)
        run = simulate(requests, steptime, config)
        kept = slice(count // 5, count)
        ttft = run.ttft_s[kept]
        ttft = ttft[np.isfinite(ttft)]
        decode = (run.finish_s - run.first_token_s)[kept]
        tokens = (outputs - 1)[kept]
        tpot = float(np.nansum(decode) / tokens.sum()) if tokens.sum() else None
        rows.append(
            {
                "candidate_id": candidate_id,
                "utilisation": load,
                "requests": count,
                "ttft_mean_s": theory.ttft_mean_s,
                "ttft_simulated_s": float(ttft.mean()),
                "ttft_standard_error_s": batch_means_error(ttft),
                "tpot_mean_s": theory.tpot_mean_s,
                "tpot_simulated_s": tpot,
                "ttft_error": theory.ttft_mean_s / float(ttft.mean()) - 1,
                "tpot_error": None
                if tpot is None or theory.tpot_mean_s is None
                else theory.tpot_mean_s / tpot - 1,
            }
        )
    return rows


def goodput_rows(
    candidate_id: str, arrival_per_s: float, points: Sequence[GoodputPoint]
) -> list[dict[str, Any]]:
    """Rows of the table `goodput`."""
    rows: list[dict[str, Any]] = [
        {
            "candidate_id": candidate_id,
            "batch_cap": p.batch_cap,
            "arrival_rate_requests_per_s": arrival_per_s,
            "ttft_p99_s": p.ttft_s,
            "tpot_p99_s": p.tpot_s,
            "throughput_tokens_per_s": p.output_tokens_per_s,
            "user_tokens_per_s": p.output_tokens_per_s_per_user,
            "attainment": p.attainment,
            "goodput_requests_per_s": p.goodput_per_s,
            "stable": p.stable,
        }
        for p in points
    ]
    best = {id(row) for row in pareto(rows, "throughput_tokens_per_s", "user_tokens_per_s")}
    return [row | {"pareto": id(row) in best} for row in rows]


def batch_means_error(values: np.ndarray, batches: int = 20) -> float:
    """Standard error of the mean of a correlated series, from the spread of the means of `batches` equal parts."""
    size = len(values) // batches
    if size < 1:
        return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else 0.0
    means = values[: size * batches].reshape(batches, size).mean(axis=1)
    return float(means.std(ddof=1) / math.sqrt(batches))


def _chain_row(result: BatchingResult, ttft_p99_s: float | None) -> dict[str, Any]:
    return {
        "formula": "continuous_batching",
        "arrival_rate_requests_per_s": result.arrival_per_s,
        "service_s": result.cap / result.capacity_per_s,
        "servers": result.cap,
        "utilisation": result.rho,
        "stable": result.stable,
        "wait_mean_s": result.wait_mean_s,
        "wait_p99_s": None,
        "ttft_mean_s": result.ttft_mean_s,
        "ttft_p99_s": ttft_p99_s,
        "tpot_mean_s": result.tpot_mean_s,
        "e2e_p95_s": None,
        "e2e_p99_s": None,
        "method": f"approximation: birth–death chain, bound by {result.bound_by}",
        "note": result.reason or "the wait alone has no percentile here; see ttft_p99_s",
    }


def formula_row(formula: str, result: QueueResult, service_s: float) -> dict[str, Any]:
    """A row of the table `queueing` for a model of waiting alone."""
    return {
        "formula": formula,
        "arrival_rate_requests_per_s": result.arrival_per_s,
        "service_s": service_s,
        "servers": result.servers,
        "utilisation": result.rho,
        "stable": result.stable,
        "wait_mean_s": result.wait_mean_s,
        "wait_p99_s": result.wait_percentile_s(0.99),
        "ttft_mean_s": None,
        "ttft_p99_s": None,
        "tpot_mean_s": None,
        "e2e_p95_s": None,
        "e2e_p99_s": None,
        "method": result.method,
        "note": result.reason or "TTFT and TPOT are not of this model",
    }
