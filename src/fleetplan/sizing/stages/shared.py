"""Rows of the stage `fleet`: the assignment of several scenarios to one stock and one budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fleetplan.sizing.pool import Assignment, Sized
from fleetplan.spec.fleet import SharedFleet

Row = dict[str, Any]


def rows(spec: SharedFleet, sized: Sequence[Sized], found: Assignment) -> dict[str, list[Row]]:
    """Table → rows."""
    limits, taken, short = spec.limits(), found.gpus, dict(found.short_gpus or {})
    return {
        "fleets": [
            {
                "title": spec.title or spec.fleet,
                "verdict": "feasible" if found.feasible else "infeasible",
                "reason": found.reason,
                "cost_usd_per_hour": found.usd_per_hour,
                "budget_usd_per_hour": spec.budget_usd_per_hour,
                "short_usd_per_hour": found.short_usd_per_hour,
            }
        ],
        "fleet_stock": [
            {
                "gpu": gpu,
                "stock_gpus": limits.get(gpu),
                "taken_gpus": taken.get(gpu, 0),
                "short_gpus": short.get(gpu, 0),
            }
            for gpu in sorted({*limits, *taken, *short})
        ],
        "fleet_plans": [
            *(
                {
                    "scenario": choice.scenario,
                    "gpu": choice.gpu,
                    "taken": choice in found.chosen,
                    "candidate_id": choice.candidate_id,
                    "candidate": choice.label,
                    "replicas": choice.replicas,
                    "gpus": choice.gpus,
                    "cost_usd_per_hour": choice.usd_per_hour,
                    "reason": None,
                }
                for one in sized
                for choice in one.choices
            ),
            *(
                {
                    "scenario": one.scenario,
                    "gpu": gpu,
                    "taken": False,
                    "candidate_id": None,
                    "candidate": None,
                    "replicas": None,
                    "gpus": None,
                    "cost_usd_per_hour": None,
                    "reason": reason,
                }
                for one in sized
                for gpu, reason in one.refused.items()
            ),
        ],
    }
