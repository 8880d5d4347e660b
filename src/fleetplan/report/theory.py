"""The sections of the closed forms: queueing beside the simulations, and where speculative decoding pays."""

from __future__ import annotations

from fleetplan.report import charts, units
from fleetplan.report.blocks import Block, Figure, Missing, Section
from fleetplan.report.headline import decision_of
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, table


def queueing(store: Store, scenario: str) -> Section:
    """Waits by closed forms against the number of replicas, for the decided candidate."""
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = [
        row
        for row in store.table("queueing", scenario, order="formula, replicas")
        if row["candidate_id"] == chosen
    ]
    blocks: list[Block] = []
    waits = [row for row in rows if row["wait_mean_s"] is not None]
    if len({row["replicas"] for row in waits}) > 1:
        divisor, unit = charts.scale_of([row["wait_mean_s"] for row in waits])
        points = [
            {"x": row["replicas"], "y": row["wait_mean_s"] / divisor, "series": row["formula"]}
            for row in waits
        ]
        blocks.append(
            Figure(
                "queueing",
                "Mean wait by closed forms",
                charts.lines(
                    points,
                    "replicas that serve",
                    f"mean wait before service ({unit})",
                    "formula",
                    whole_x=True,
                ),
                "Mean wait before service by number of replicas: "
                + "; ".join(
                    f"{row['formula']} at {row['replicas']}: {units.seconds(row['wait_mean_s'])}"
                    for row in waits[:8]
                )
                + ".",
            )
        )
    if rows:
        blocks.append(
            table(
                "queueing",
                rows,
                "Closed forms of the decided candidate",
                drop=("scenario", "candidate_id"),
                query=query("queueing", scenario, f"candidate_id = '{chosen}'"),
            )
        )
    else:
        blocks.append(Missing("Closed forms of the decided candidate were not computed."))
    return Section(
        "queueing",
        "What queueing theory says",
        "An instant answer beside the simulations; where both are valid they should agree.",
        blocks,
    )


def speculation(store: Store, scenario: str) -> Section:
    """Speed-up of speculative decoding against batch, by draft length, at the acceptance in the middle."""
    rows = store.table("speculation", scenario)
    if not rows:
        return Section(
            "speculation",
            "Speculative decoding",
            "",
            [
                Missing(
                    "Speculative decoding was not computed for this scenario: its spec names no acceptance."
                )
            ],
        )
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = [row for row in rows if row["candidate_id"] == chosen] or [
        row for row in rows if row["candidate_id"] == rows[0]["candidate_id"]
    ]
    levels = sorted({row["acceptance"] for row in rows})
    level = levels[len(levels) // 2]
    shown = [row for row in rows if row["acceptance"] == level]
    points = [
        {"x": row["batch"], "y": row["speedup"], "series": f"{row['drafts']}"}
        for row in sorted(shown, key=lambda row: (row["drafts"], row["batch"]))
    ]
    best = max(rows, key=lambda row: row["speedup"])
    words = (
        f"At an acceptance of {level:g}: {_switch_off(shown)} The largest speed-up of all is {best['speedup']:.2f}, with "
        f"{best['drafts']} drafts at batch {best['batch']:,} and acceptance {best['acceptance']:g}."
    )
    behind = table(
        "speculation",
        rows,
        "Speed-up by draft length, acceptance and batch",
        drop=("scenario", "candidate_id"),
        query=query("speculation", scenario, f"candidate_id = '{rows[0]['candidate_id']}'"),
    )
    chart = charts.lines(
        points,
        "batch (sequences that decode)",
        "speed-up (ratio)",
        "drafts",
        log_x=True,
        whole_x=True,
        level=(1.0, "no gain"),
    )
    return Section(
        "speculation",
        "Speculative decoding",
        "Verifying drafts costs compute; at a large batch there is none to spare, and the speed-up falls below 1.",
        [Figure("speculation", "Where speculation pays", chart, words, behind)],
    )


def _switch_off(rows: list[Row]) -> str:
    paying = [row["batch"] for row in rows if row["pays"]]
    losing = [row["batch"] for row in rows if not row["pays"]]
    if not paying:
        return "it never pays."
    if not losing:
        return "it pays at every batch shown."
    return f"it pays up to batch {max(paying):,} at best; from batch {min(losing):,} some draft lengths lose."
