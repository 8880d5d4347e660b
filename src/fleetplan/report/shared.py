"""The section of fleets that a scenario shares with others: which plan it gets of the common stock."""

from __future__ import annotations

from fleetplan.report import units
from fleetplan.report.blocks import Block, Section, Text
from fleetplan.report.headline import gpu_title
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, table


def shared(store: Store, scenario: str) -> Section:
    """The scenario's plan in every fleet that names it, and the plans that it could have had."""
    title = "On a fleet shared with others"
    rows = store.table("fleet_plans", scenario, order="fleet, gpu")
    if not rows:
        return Section("shared", title)
    blocks: list[Block] = []
    for name in dict.fromkeys(row["fleet"] for row in rows):
        fleet = store.rows("SELECT * FROM fleets WHERE fleet = ?", name)[0]
        plan = next((row for row in rows if row["fleet"] == name and row["taken"]), None)
        blocks.append(Text(_in_words(name, fleet, plan), "" if plan else "bad"))
    blocks.append(
        table(
            "fleet_plans",
            rows,
            "Its cheapest plan on each kind of GPU",
            drop=("scenario", "candidate_id"),
            query=query("fleet_plans", scenario),
            marked=[index for index, row in enumerate(rows) if row["taken"]],
        )
    )
    lead = (
        "Scenarios that share a stock of GPUs or a budget get their plans together, at the least cost of all."
    )
    return Section("shared", title, lead, blocks)


def _in_words(name: str, fleet: Row, plan: Row | None) -> str:
    if plan is None:
        return f"{name} has no assignment: {fleet['reason']}."
    return (
        f"In {name} it gets {plan['gpus']} {gpu_title(plan['gpu'])}, {plan['replicas']} "
        f"replica{'' if plan['replicas'] == 1 else 's'}, for {units.usd(plan['cost_usd_per_hour'])} an hour; the whole fleet costs "
        f"{units.usd(fleet['cost_usd_per_hour'])}."
    )
