"""The section of the fleet that there is: what it holds of the traffic, how far today is from it, its tightest promises."""

from __future__ import annotations

from fleetplan.report import bars, promises, units
from fleetplan.report.blocks import Block, Figure, Missing, Section, Text
from fleetplan.report.headline import gpu_title
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, shared_parts, short_labels, table


def held(store: Store, scenario: str) -> Section:
    """What each candidate holds on the given GPUs, and the tightest promises of the best one."""
    title = "What the fleet that there is holds"
    rows = sorted(
        store.table("capacity", scenario),
        key=lambda row: (-(row["highest_factor"] or 0), row["candidate_id"]),
    )
    if not rows:
        return Section("held", title)
    labels: dict[str, str] = {
        row["candidate_id"]: row["label"] for row in store.table("candidates", scenario)
    }
    mine = [str(labels.get(row["candidate_id"], row["candidate_id"])) for row in rows]
    short = short_labels(mine)
    named = [{**row, "label": short[label]} for row, label in zip(rows, mine, strict=True)]
    there = dict.fromkeys(f"{row['gpus']} × {gpu_title(row['gpu'])}" for row in rows)
    blocks: list[Block] = []
    best = next((row for row in named if row["best"]), None)
    if best is None:
        blocks.append(Missing(f"It holds no load: {named[0]['reason']}."))
    else:
        blocks.append(Text(_in_words(best, len(named)), "good" if best["highest_factor"] >= 1 else "bad"))
    able = [row for row in named if row["highest_factor"] is not None][:16]
    if len(able) > 1:
        points = [
            {
                "label": row["label"],
                "value": row["highest_factor"],
                "verdict": "holds" if row["highest_factor"] >= 1 else "fails",
            }
            for row in able
        ]
        chart = bars.ranked(points, "highest rate over the planned one", (1.0, "today"))
        said = ", ".join(f"{row['highest_factor']:.2f} {row['label']}" for row in able[:6])
        blocks.append(
            Figure("held", "Headroom by candidate", chart, f"Highest rate over the planned one: {said}.")
        )
    keep = (
        "label", "replicas", "highest_requests_per_s", "highest_factor", "holds_today", "utilisation_today", "binding_limit",
        "longest_context_tokens", "longest_prompt_tokens", "reason",
    )  # fmt: skip
    blocks.append(
        table(
            "capacity",
            named,
            "What each candidate holds",
            keep=keep,
            query=query("capacity", scenario),
            marked=[index for index, row in enumerate(named) if row["best"]],
            labels={"label": "Candidate"},
            note=shared_parts(mine),
        )
    )
    if best is not None and (limits := _limits(store, scenario, best)):
        where = f"candidate_id = '{best['candidate_id']}'"
        blocks.append(
            table(
                "capacity_promises",
                limits,
                "The tightest promises that it could make at today's traffic",
                keep=("promise", "promised_s", "tightest_s", "promised_share", "met_share", "reason"),
                query=query("capacity_promises", scenario, where),
            )
        )
    return Section(
        "held", title, f"Given are {' and '.join(there)}; every candidate has all of its kind.", blocks
    )


def _in_words(best: Row, candidates: int) -> str:
    rate, factor = (
        units.quantity("highest_requests_per_s", best["highest_requests_per_s"]),
        best["highest_factor"],
    )
    far = (
        f"{units.share(factor - 1)} above today's traffic"
        if factor >= 1
        else f"{units.share(1 - factor)} short of today's traffic"
    )
    which = f" with {best['label']}" if candidates > 1 else ""
    return (
        f"It holds {rate}{which}, {far}, on {promises.fleet(best)}; "
        f"what stops it there is {best['binding_limit']}."
    )


def _limits(store: Store, scenario: str, best: Row) -> list[Row]:
    return [
        {**row, "promise": promises.name(row)}
        for row in store.table("capacity_promises", scenario, order="class, metric, percentile")
        if row["candidate_id"] == best["candidate_id"]
    ]
