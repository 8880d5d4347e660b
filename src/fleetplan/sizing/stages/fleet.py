"""Rows of the stage `sizing` about the decided fleet: faults, the day and the week, growth, money and power."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fleetplan.errors import InputError
from fleetplan.sizing.curve import curve
from fleetplan.sizing.decide import Decision, Option
from fleetplan.sizing.growth import months
from fleetplan.sizing.resilience import resilience
from fleetplan.sizing.schedule import Schedule, schedule
from fleetplan.sizing.stages.money import costs
from fleetplan.sizing.ways import Bill, blocks
from fleetplan.spec.policy import Policy

Row = dict[str, Any]


def fleet_rows(decision: Decision) -> dict[str, list[Row]]:
    """Table → rows of what the policy asks about the decided fleet; without a fleet, or unasked, none.

    Raises InputError where autoscaling is asked of traffic that has no profile.
    """
    made: dict[str, list[Row]] = {"resilience": [], "schedule": [], "growth": [], "costs": []}
    chosen, policy = decision.chosen, decision.plan.scenario.policy
    if chosen is None or chosen.fleet is None or not chosen.sustainable_per_s:
        return made
    shape = None
    if policy.autoscaling is not None or policy.api is not None:
        shape = curve(decision.plan, chosen.machine, chosen.mean_per_s or chosen.sustainable_per_s)
    plan = None
    if policy.autoscaling is not None:
        if shape is None:
            raise InputError(
                decision.plan.scenario.line(
                    ("policy", "autoscaling"),
                    "follows a profile that the traffic does not have (got one rate), give arrivals with process: profile, or drop it",
                )
            )
        plan = schedule(decision, shape, policy.autoscaling)
        made["schedule"] = list(_schedule(chosen, policy, plan))
    made["resilience"] = list(_resilience(decision))
    made["growth"] = list(_growth(decision))
    made["costs"] = costs(Bill(decision, chosen, chosen.fleet, shape, plan))
    return made


def _resilience(decision: Decision) -> Iterator[Row]:
    count = decision.chosen.fleet.replicas if decision.chosen and decision.chosen.fleet else 0
    for found in resilience(decision):
        faced = found.faced
        for share in faced.shares:
            yield {
                "event": faced.event.name,
                "class": share.limit.class_name,
                "metric": share.limit.metric,
                "percentile": round(share.limit.share * 100, 9),
                "replicas": faced.replicas,
                "lost_replicas": faced.event.lost(faced.replicas),
                "down_s": faced.down_s,
                "up_s": faced.up_s,
                "lost_requests": faced.lost_requests,
                "requests": share.requests,
                "promised_share": share.limit.share,
                "during_share": share.during_share,
                "run_share": share.run_share,
                "holds": share.holds,
                "needed_spare_replicas": None
                if found.needed_replicas is None
                else found.needed_replicas - count,
                "needed_replicas": found.needed_replicas,
            }


def _schedule(chosen: Option, policy: Policy, plan: Schedule) -> Iterator[Row]:
    assert chosen.fleet is not None
    added, always = blocks(chosen, policy, plan)
    paid = always + added @ plan.paid_s / plan.curve.slot_s
    for slot, serving in enumerate(plan.serving.tolist()):
        yield {
            "slot": slot,
            "start_h": slot * plan.curve.slot_s / 3600,
            "mean_requests_per_s": float(plan.curve.rate_per_s[slot]),
            "load_replicas": float(plan.curve.load_replicas[slot]),
            "static_replicas": chosen.fleet.replicas,
            "serving_replicas": serving,
            "static_gpus": chosen.fleet.gpus,
            "paid_gpus": float(paid[slot]),
        }


def _growth(decision: Decision) -> Iterator[Row]:
    before: int | None = None
    for month in months(decision):
        fleet = month.fleet
        yield {
            "month": month.month,
            "mean_requests_per_s": month.rate_per_s,
            "replicas": fleet.replicas if fleet else None,
            "spare_replicas": fleet.spare_replicas if fleet else None,
            "gpus": fleet.gpus if fleet else None,
            "more_gpus": fleet.gpus - (fleet.gpus if before is None else before) if fleet else None,
            "needed_from_month": month.needed_from,
            "utilisation": month.utilisation,
            "cost_usd_per_hour": fleet.usd_per_hour if fleet else None,
            "reason": month.reason,
        }
        before = fleet.gpus if fleet else before
