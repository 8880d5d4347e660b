"""What sampling settings do to acceptance: theory and a run of the exact rule on a toy pair."""

from __future__ import annotations

from fleetplan.report import bars, units
from fleetplan.report.blocks import Block, Figure
from fleetplan.report.reading import Store
from fleetplan.report.tabulate import query, table


def sampling(store: Store, scenario: str) -> list[Block]:
    """The chart of acceptance by setting with its table; nothing where the store holds none."""
    if not store.has("sampling_acceptance", "acceptance_measured"):
        return []
    rows = sorted(store.table("sampling_acceptance", scenario), key=lambda row: -row["acceptance"])
    if not rows:
        return []
    points = [
        {"label": row["setting"], "value": row["acceptance_measured"], "verdict": "holds"} for row in rows
    ]
    plain = next((row for row in rows if row["setting"].startswith("both at temperature 1 ")), None)
    plain = plain or next((row for row in rows if row["setting"] == "both at temperature 1"), rows[0])
    chart = bars.ranked(points, "share of drafts accepted", (plain["acceptance"], plain["setting"]))
    worst = max(abs(row["acceptance_measured"] - row["acceptance"]) for row in rows)
    words = (
        f"On one toy pair of eight tokens, from {rows[0]['setting']} with {units.share(rows[0]['acceptance'])} accepted to "
        f"{rows[-1]['setting']} with {units.share(rows[-1]['acceptance'])}. Measured and 1 − total variation differ by at most "
        f"{worst:.2g}; the least p-value of the tests that the output is the target's is {min(row['least_p_value'] for row in rows):.2g}, "
        f"and {sum(row['impossible_tokens'] for row in rows)} tokens came that the target cannot emit."
    )
    behind = table(
        "sampling_acceptance", rows, "Acceptance by sampling setting", drop=("scenario",), query=query("sampling_acceptance", scenario)
    )  # fmt: skip
    return [Figure("sampling", "What sampling settings do to acceptance", chart, words, behind)]
