"""The sections of the fleet's life: faults and what rides them out, the day or week, and the months to come."""

from __future__ import annotations

from fleetplan.report import bars, charts, promises, units
from fleetplan.report.blocks import Block, Figure, Missing, Section, Text
from fleetplan.report.headline import decision_of
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, table


def resilience(store: Store, scenario: str) -> Section:
    """Every fault that the fleet was simulated through, and how many replicas keep the promises meanwhile."""
    title = "When something fails"
    rows = store.table("resilience", scenario, order="event, class, metric")
    decision = decision_of(store, scenario)
    blocks: list[Block] = []
    if (said := decision.get("spares_reason")) is not None:
        blocks.append(Text(f"{_replicas(decision['spare_replicas'], 'spare ')}: {said}."))
    if not rows:
        if asked(store, scenario, "policy.outages") and decision["candidate_id"] is None:
            blocks.append(Missing("No fleet was decided on, so none was simulated through faults."))
        return Section("resilience", title, "", blocks)
    events: dict[str, list[Row]] = {}
    for row in rows:
        events.setdefault(row["event"], []).append(row)
    running = rows[0]["replicas"]
    points = [
        {
            "label": event,
            "value": found[0]["needed_replicas"] or 0,
            "verdict": "holds" if all(row["holds"] for row in found) else "fails",
        }
        for event, found in events.items()
    ]
    words = " ".join(_rides_out(event, found) for event, found in events.items())
    mark = (running, f"bought: {running}")
    chart = bars.ranked(points, "replicas that keep every promise meanwhile", mark, tick_step=1)
    blocks.append(Figure("resilience", "Replicas that ride it out", chart, words))
    tones = {
        (index, "during_share"): "good" if row["holds"] else "bad"
        for index, row in enumerate(rows)
        if row["during_share"] is not None
    }
    blocks.append(
        table(
            "resilience",
            [{**row, "promise": promises.name(row), "away_s": row["up_s"] - row["down_s"]} for row in rows],
            "Every fault, by promise",
            keep=(
                "event", "promise", "replicas", "lost_replicas", "away_s", "lost_requests", "requests", "promised_share",
                "during_share", "run_share", "holds", "needed_replicas", "needed_spare_replicas",
            ),
            tones=tones,
            query=query("resilience", scenario),
            labels={"away_s": "Lasts", "during_share": "Met meanwhile", "run_share": "Met over the run", "holds": "Verdict"},
        )
    )  # fmt: skip
    lead = (
        "Each fault begins at the busiest time; the fleet runs with its spares, and what a lost replica was working on "
        "starts anew elsewhere."
    )
    return Section("resilience", title, lead, blocks)


def schedule(store: Store, scenario: str) -> Section:
    """The fleet that follows the profile of day or week against the one that stays."""
    title = "Over the day"
    rows = store.table("schedule", scenario, order="slot")
    if len(rows) < 2:
        return Section("schedule", title)
    slot_h = rows[1]["start_h"] - rows[0]["start_h"]
    whole_h = slot_h * len(rows)
    if whole_h > 48:
        title = "Over the week"
    kinds = {"static_gpus": "stays", "paid_gpus": "autoscaled"}
    stretched = [*rows, {**rows[-1], "start_h": whole_h}]
    gpus = [
        {"time": row["start_h"], "value": row[column], "series": words}
        for column, words in kinds.items()
        for row in stretched
    ]
    load = {"load_replicas": "busy", "serving_replicas": "serving"}
    replicas = [
        {"time": row["start_h"], "value": row[column], "series": words}
        for column, words in load.items()
        for row in stretched
    ]
    static, paid = (sum(row[column] for row in rows) / len(rows) for column in kinds)
    least, most = (choose(row["serving_replicas"] for row in rows) for choose in (min, max))
    between = f"{least} to {most} replicas serve" if least < most else f"{least} replicas serve throughout"
    words = (
        f"A fleet that stays has {units.count(static)} GPUs; with autoscaling {units.count(paid)} are paid on average, "
        f"{units.share(1 - paid / static)} less."
    )
    behind = table(
        "schedule", rows, "Every slot", drop=("scenario",), query=query("schedule", scenario), most=168
    )
    axis = "hours from the start of the simulation"
    return Section(
        "schedule",
        title,
        "Slot by slot the least replicas with which a simulation of the fleet as it comes and goes keeps every promise.",
        [
            Figure(
                "schedule-gpus",
                "GPUs that are paid",
                charts.over_time(gpus, "GPUs", list(kinds.values()), axis),
                words,
                behind,
                wide=False,
            ),
            Figure(
                "schedule-replicas",
                "Replicas that serve",
                charts.over_time(replicas, "replicas", list(load.values()), axis),
                f"{between}; the traffic would keep {min(row['load_replicas'] for row in rows):.2g} to "
                f"{max(row['load_replicas'] for row in rows):.2g} of them busy all the time.",
                wide=False,
            ),
        ],
    )


def growth(store: Store, scenario: str) -> Section:
    """How many GPUs each month takes, and when the next one is needed."""
    title = "When the next GPU is needed"
    rows = store.table("growth", scenario, order="month")
    if not rows:
        return Section("growth", title)
    known = [row for row in rows if row["gpus"] is not None]
    short = [row for row in rows if row["gpus"] is None]
    blocks: list[Block] = []
    if len(known) > 1:
        points = [{"time": _since(row), "value": row["gpus"], "series": "GPUs"} for row in known]
        points.append({**points[-1], "time": known[-1]["month"] + 0.25})
        steps = [row for row in known if (row["more_gpus"] or 0) > 0]
        words = (
            "; ".join(
                f"{row['gpus']} GPUs from month {units.significant(_since(row))} ({row['more_gpus']} more)"
                for row in steps[:6]
            )
            or f"{known[0]['gpus']} GPUs do for all {known[-1]['month']} months"
        )
        spec = charts.over_time(points, "GPUs to have", ["GPUs"], "months from now")
        blocks.append(Figure("growth", "GPUs by month", spec, words + "."))
    if short:
        first = short[0]
        reason = str(first["reason"] or "no fleet holds")
        blocks.append(Text(f"From month {first['month']} on none will do: {reason}.", "bad"))
    marked = [index for index, row in enumerate(rows) if (row["more_gpus"] or 0) > 0]
    blocks.append(
        table(
            "growth",
            rows,
            "Month by month",
            drop=("scenario",),
            query=query("growth", scenario),
            marked=marked,
            labels={"needed_from_month": "Needed from month"},
        )
    )
    rate = rows[-1]["mean_requests_per_s"] / rows[0]["mean_requests_per_s"]
    lead = f"Traffic grows {rate:.3g}-fold in {rows[-1]['month']} months; each month's count is found by simulation."
    return Section("growth", title, lead, blocks)


def asked(store: Store, scenario: str, path: str) -> bool:
    """Whether the scenario's settings have something at this path."""
    found = store.settings(scenario)
    return any(
        key.startswith(f"{path}.") or (key == path and value != "null") for key, value in found.items()
    )


def _rides_out(event: str, rows: list[Row]) -> str:
    running, needed = rows[0]["replicas"], rows[0]["needed_replicas"]
    failing = [row for row in rows if not row["holds"]]
    if failing:
        worst = min(failing, key=lambda row: _met(row) - row["promised_share"])
        cure = f"{needed} would" if needed is not None else "no count that was tried does"
        return (
            f"{event[:1].upper()}{event[1:]}: {running} replicas do not ride it out, {promises.name(worst)} is met by "
            f"{_apart(_met(worst), worst['promised_share'])} where {units.share(worst['promised_share'])} is promised; {cure}."
        )
    spare = f", {needed} would do" if needed is not None and needed < running else ""
    return f"{event[:1].upper()}{event[1:]}: {running} replicas keep every promise{spare}."


def _met(row: Row) -> float:
    return float(row["run_share"] if row["during_share"] is None else row["during_share"])


def _apart(met: float, promised: float) -> str:
    """A share with the digits that tell it from the promised one."""
    text = units.share(met)
    return f"{met * 100:.3f}" + text[-2:] if abs(met - promised) < 0.0005 else text


def _since(row: Row) -> float:
    """The month from which a row's GPUs must be there."""
    since = row.get("needed_from_month")
    return float(row["month"] if since is None else since)


def _replicas(count: int, kind: str) -> str:
    return f"{count or 'no'} {kind}replica{'' if count == 1 else 's'}"
