"""The section of money and power: every way to pay side by side, where an API breaks even, energy and carbon."""

from __future__ import annotations

from fleetplan.report import bars, units
from fleetplan.report.blocks import Block, Figure, Section, Text
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, table


def money(store: Store, scenario: str) -> Section:
    """Ways to pay by cost, and what the fleet draws."""
    title = "Ways to pay, and power"
    rows = sorted(store.table("costs", scenario), key=lambda row: (row["cost_usd_per_hour"], row["option"]))
    if not rows:
        return Section("money", title)
    today = next((row for row in rows if row["option"] == "rented"), rows[-1])
    points = [
        {
            "label": row["option"],
            "value": row["cost_usd_per_hour"],
            "verdict": "unknown" if row["holds"] is None else "holds" if row["holds"] else "fails",
        }
        for row in rows
    ]
    blocks: list[Block] = []
    if len(rows) > 1:
        mark = (today["cost_usd_per_hour"], f"rented: {units.usd(today['cost_usd_per_hour'])}")
        blocks.append(
            Figure(
                "money", "Cost by way to pay", bars.ranked(points, "cost (USD/h)", mark), _words(rows, today)
            )
        )
    if said := " ".join(filter(None, (_spread(rows), _api(rows, today), _power(today)))):
        blocks.append(Text(said))
    blocks.append(
        table(
            "costs",
            rows,
            "Every way to pay, cheapest first",
            drop=("scenario",),
            query=query("costs", scenario),
            marked=[index for index, row in enumerate(rows) if row is today],
            labels={"holds": "Simulated"},
        )
    )
    return Section("money", title, "The same traffic, served and paid otherwise.", blocks)


def _words(rows: list[Row], today: Row) -> str:
    best = next((row for row in rows if row["holds"] is not False), rows[0])
    if best is today:
        return "Renting every GPU all the time is the cheapest of them." + _grey(rows)
    saved = 1 - best["cost_usd_per_hour"] / today["cost_usd_per_hour"]
    return (
        f"Cheapest is “{best['option']}”, {units.usd(best['cost_usd_per_hour'])} an hour: {units.share(saved)} less than renting "
        f"every GPU all the time. {best['note'][:1].upper()}{best['note'][1:]}." + _grey(rows)
    )


def _grey(rows: list[Row]) -> str:
    broken = [row["option"] for row in rows if row["holds"] is False]
    said = f" Promises would break with: {'; '.join(broken)}." if broken else ""
    return said + (" Grey: not simulated." if any(row["holds"] is None for row in rows) else "")


def _spread(rows: list[Row]) -> str:
    known = [row for row in rows if row.get("probability_cheapest") is not None]
    if not known:
        return ""
    best = max(known, key=lambda row: row["probability_cheapest"])
    return (
        f"When prices turn out otherwise, “{best['option']}” is the cheapest that keeps its promises with probability "
        f"{units.share(best['probability_cheapest'])} ({units.usd(best['cost_low_usd_per_hour'])} to "
        f"{units.usd(best['cost_high_usd_per_hour'])} an hour)."
    )


def _api(rows: list[Row], today: Row) -> str:
    priced = [row for row in rows if row["break_even_requests_per_s"] is not None]
    if not priced:
        return ""
    best = min(priced, key=lambda row: row["cost_usd_per_hour"])
    said = f"Below {units.significant(today['break_even_requests_per_s'])} requests/s an API is cheaper than the rented fleet"
    if best is today:
        return f"{said}."
    return f"{said}, below {units.significant(best['break_even_requests_per_s'])} than the cheapest one ({best['option']})."


def _power(row: Row) -> str:
    if row["power_w"] is None:
        return ""
    energy, carbon = row["energy_wh_per_million_tokens"], row["carbon_g_per_million_tokens"]
    return (
        f"The rented fleet draws {units.quantity('power_w', row['power_w'])} on average"
        + (f", {units.quantity('energy_wh_per_million_tokens', energy)} a million tokens" if energy else "")
        + (
            f" and {units.quantity('carbon_g_per_million_tokens', carbon)} of CO₂ on this grid"
            if carbon
            else ""
        )
        + "."
    )
