"""Rows of the stage `capacity`: what a given fleet holds, by candidate."""

from __future__ import annotations

from typing import Any

from fleetplan.sizing.capacity import Capacity, Held

Row = dict[str, Any]


def rows(found: Capacity) -> dict[str, list[Row]]:
    """Table → rows."""
    return {
        "capacity": [_held(held, held is found.best) for held in found.held],
        "capacity_promises": [row for held in found.held for row in _promises(held)],
    }


def _held(held: Held, best: bool) -> Row:
    return {
        "candidate_id": held.machine.candidate.candidate_id,
        "gpu": held.machine.candidate.gpu,
        "gpus": held.gpus,
        "replicas": held.replicas,
        "prefill_replicas": held.pools[0],
        "decode_replicas": held.pools[1],
        "best": best,
        "highest_requests_per_s": held.rate_per_s,
        "highest_factor": held.factor,
        "lowest_failing_factor": held.failing_factor,
        "saturated_requests_per_s": held.sustainable_per_s,
        "binding_limit": held.binding,
        "reason": held.reason,
        "holds_today": held.today.passes if held.today else None,
        "utilisation_today": held.today.utilisation if held.today else None,
        "longest_context_tokens": held.longest_context_tokens,
        "longest_prompt_tokens": held.longest_prompt_tokens,
    }


def _promises(held: Held) -> list[Row]:
    return [
        {
            "candidate_id": held.machine.candidate.candidate_id,
            "class": tightest.limit.class_name,
            "metric": tightest.limit.metric,
            "percentile": round(tightest.limit.share * 100, 9),
            "promised_s": tightest.limit.limit_s,
            "tightest_s": tightest.tightest_s,
            "promised_share": tightest.limit.share,
            "met_share": tightest.met_share,
            "reason": tightest.reason,
        }
        for tightest in held.tightest
    ]
