"""The sections of the choice: runner-ups and rejected candidates, cost against latency, levers, and how sure the count is."""

from __future__ import annotations

from collections.abc import Sequence

from fleetplan.report import bars, charts, units
from fleetplan.report.blocks import Block, Figure, Missing, Section, Text
from fleetplan.report.headline import decision_of, gpu_title
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import query, shared_parts, short_labels, table

_PLAN_COLUMNS = (
    "label", "replicas", "gpus", "cost_usd_per_hour", "cost_usd_per_million_output_tokens", "utilisation", "ttft_p99_s",
    "tpot_p95_s", "reason",
)  # fmt: skip


def alternatives(store: Store, scenario: str) -> Section:
    """Every candidate with a plan, by cost; cost against latency; those that were rejected, with the reason."""
    decision = decision_of(store, scenario)
    candidates = store.table("candidates", scenario)
    title = "Runner-ups and rejected"
    if not candidates:
        return Section("alternatives", title, "", [Missing("No candidates are in the store.")])
    labels = {row["candidate_id"]: row["label"] for row in candidates}
    plans = [
        {"label": labels.get(row["candidate_id"], row["candidate_id"]), **row}
        for row in store.table("plans", scenario, order="ALL")
    ]
    short = short_labels(list(labels.values()))
    counted = sorted(
        (
            {**row, "label": short.get(row["label"], row["label"])}
            for row in plans
            if row.get("gpus") is not None and row.get("cost_usd_per_hour") is not None
        ),
        key=lambda row: (row["cost_usd_per_hour"], row["gpus"]),
    )
    blocks: list[Block] = []
    chart = _pareto(counted, decision, scenario)
    if chart is not None:
        blocks.append(chart)
    if counted:
        blocks.append(
            table(
                "plans",
                counted,
                "Plans by cost, cheapest first",
                keep=(*_PLAN_COLUMNS[:-1], *_told(counted), "reason"),
                query=query("plans", scenario),
                marked=_where(counted, decision["candidate_id"]),
                labels={"label": "Candidate"},
                note=shared_parts(list(labels.values())),
            )
        )
    else:
        alive = [row for row in candidates if not row.get("reason")]
        blocks.append(_alive(alive, decision, scenario))
    blocks += _rejected(candidates, plans, scenario)
    return Section("alternatives", title, _counted(candidates, plans), blocks)


def _told(plans: Sequence[Row]) -> tuple[str, ...]:
    """Columns that some plan has something to say in: sequences that gave way, requests that were sent again."""
    least = {"preemptions_per_request": 0.0, "attempts_per_request": 1.0}
    return tuple(key for key, usual in least.items() if any((row.get(key) or usual) > usual for row in plans))


def levers(store: Store, scenario: str) -> Section:
    """What the next change would buy, each by a plan of its own: a tornado and its table."""
    rows = [
        {**row, "change": gpu_title(row["change"]) if row["lever"] == "GPU" else row["change"]}
        for row in store.table("levers", scenario, order="ALL")
    ]
    title = "What would make it cheaper"
    if not rows:
        return Section("levers", title, "", [Missing("Levers were not computed for this scenario.")])
    today = decision_of(store, scenario).get("cost_usd_per_hour")
    tones = {
        (index, "saved_usd_per_hour"): "good" if row["saved_usd_per_hour"] > 0 else "bad"
        for index, row in enumerate(rows)
        if row.get("saved_usd_per_hour")
    }
    blocks: list[Block] = []
    known = [row for row in rows if row.get("cost_usd_per_hour") is not None]
    if today is not None and known:
        moving = [row for row in known if abs(row["cost_usd_per_hour"] - today) > 1e-9 * today]
        ranked = sorted(moving, key=lambda row: row["cost_usd_per_hour"])
        changes = [
            {
                "label": row.get("change") or row["lever"],
                "value": row["cost_usd_per_hour"],
                "better": row["cost_usd_per_hour"] <= today,
            }
            for row in ranked
        ]
        same = len(known) - len(moving)
        words = f"The fleet costs {units.usd(today)} an hour."
        if ranked and ranked[0]["cost_usd_per_hour"] < today:
            least = ranked[0]["cost_usd_per_hour"]
            best = [row.get("change") or row["lever"] for row in ranked if row["cost_usd_per_hour"] == least]
            words += f" The cheapest single change, {', or '.join(best[:3])}, makes that {units.usd(least)}."
        else:
            words += " No single change that was tried makes it cheaper."
        if same:
            words += f" {same} change{'s' if same > 1 else ''} of the table leave{'s' if same == 1 else ''} it as it is."
        if ranked:
            chart = bars.tornado(changes, "cost of the fleet (USD/h)", today)
            blocks.append(Figure("levers", "Cost after one change, cheapest first", chart, words))
        else:
            blocks.append(Missing(words))
    blocks.append(
        table(
            "levers",
            rows,
            "Levers, each a plan of its own",
            drop=("scenario",),
            query=query("levers", scenario),
            tones=tones,
        )
    )
    return Section(
        "levers", title, "Each bar is a plan made anew with one thing changed; some cost more.", blocks
    )


def uncertainty(store: Store, scenario: str) -> Section:
    """How probable each count is to keep every promise, over what is not known."""
    rows = [
        row
        for row in store.table("uncertainty", scenario, order="ALL")
        if row.get("replicas") is not None and row.get("probability_holds") is not None
    ]
    title = "How sure the count is"
    prices = _choices(store, scenario)
    if not rows and prices:
        return Section("uncertainty", title, "Prices drawn anew; the count was taken as known.", prices)
    if not rows:
        missing = "The count's uncertainty (rate forecast, lengths, step-time error) was not computed for this scenario."
        return Section("uncertainty", title, "", [Missing(missing)])
    rows.sort(key=lambda row: row["replicas"])
    points = [
        {"x": row["replicas"], "y": row["probability_holds"], "series": "keeps every promise"} for row in rows
    ]
    trials = store.table("draws", scenario, order="draw")
    words = (
        "Probability of keeping every promise"
        + (f", as the share of {len(trials)} draws: " if trials else ": ")
        + ", ".join(f"{units.share(row['probability_holds'])} at {row['replicas']}" for row in rows[:10])
        + "."
    )
    chart = charts.lines(
        points,
        "replicas that serve",
        "probability of keeping every promise",
        percent=True,
        whole_x=True,
        steps=True,
    )
    behind = table(
        "uncertainty", rows, "Probability by count", drop=("scenario",), query=query("uncertainty", scenario)
    )
    decision = decision_of(store, scenario)
    lead = "What is not known is drawn anew in each trial, and the count searched by simulation"
    lead += f": {decision['uncertain']}." if decision.get("uncertain") else "."
    blocks: list[Block] = [
        Figure("uncertainty", "Probability of keeping every promise", chart, words, behind),
        *prices,
    ]
    if trials:
        blocks.append(
            table("draws", trials, "Every draw", drop=("scenario",), query=query("draws", scenario))
        )
    return Section("uncertainty", title, lead, blocks)


def _choices(store: Store, scenario: str) -> list[Block]:
    """What each candidate may cost when prices turn out otherwise, and how probably it is the cheapest."""
    rows = store.table("choices", scenario)
    if not rows:
        return []
    labels: dict[str, str] = {
        row["candidate_id"]: row["label"] for row in store.table("candidates", scenario)
    }
    short = short_labels([labels.get(str(row["candidate_id"]), str(row["candidate_id"])) for row in rows])
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = sorted(
        rows, key=lambda row: (-row["probability_cheapest"], row["cost_p50_usd_per_hour"] or float("inf"))
    )
    named = [
        {**row, "label": short.get(label, label)}
        for row in rows
        for label in [labels.get(str(row["candidate_id"]), str(row["candidate_id"]))]
    ]
    mine = next((row for row in named if row["candidate_id"] == chosen), None)
    said: list[Block] = []
    if mine is not None:
        span = [mine[key] for key in ("cost_low_usd_per_hour", "cost_high_usd_per_hour")]
        between = (
            f"costs {units.usd(span[0])} to {units.usd(span[1])} an hour and " if None not in span else ""
        )
        said.append(
            Text(
                f"When prices turn out otherwise the chosen candidate {between}stays the cheapest with probability "
                f"{units.share(mine['probability_cheapest'])}."
            )
        )
    keep = (
        "label", "probability_cheapest", "cost_low_usd_per_hour", "cost_p50_usd_per_hour", "cost_high_usd_per_hour", "basis",
    )  # fmt: skip
    return [
        *said,
        table(
            "choices",
            named,
            "Which candidate is the cheapest",
            keep=keep,
            query=query("choices", scenario),
            marked=_where(named, chosen),
            labels={"label": "Candidate", "cost_p50_usd_per_hour": "Median cost"},
            note=shared_parts([labels.get(str(row["candidate_id"]), "") for row in rows]),
        ),
    ]


def _counted(candidates: Sequence[Row], plans: Sequence[Row]) -> str:
    out = sum(1 for row in candidates if row.get("reason"))
    if len(candidates) == 1 and not out:
        return "One candidate, which can run."
    whole = f"{len(candidates)} candidate{'s' if len(candidates) != 1 else ''}"
    said = [whole, f"{out} cannot run" if out else "all can run"]
    for status, words in (
        ("infeasible", "hold at no count"),
        ("pruned", "cannot be cheaper by their bounds"),
    ):
        number = sum(1 for row in plans if row.get("status") == status)
        said += [f"{number} {words}"] if number else []
    return "; ".join(said) + "."


def _pareto(plans: Sequence[Row], decision: Row, scenario: str) -> Figure | None:
    column = next(
        (name for name in ("ttft_p99_s", "ttft_p95_s", "tpot_p95_s") if any(row.get(name) for row in plans)),
        "",
    )
    shown = [row for row in plans if column and row.get(column) is not None]
    if len(shown) < 2:
        return None
    points, least = [], float("inf")
    short = short_labels([row["label"] for row in shown])
    for row in sorted(shown, key=lambda row: (row["cost_usd_per_hour"], row[column])):
        frontier = row[column] < least
        least = min(least, row[column])
        chosen = row["candidate_id"] == decision["candidate_id"]
        role = "decision" if chosen else "frontier" if frontier else "dominated"
        points.append(
            {
                "label": short[row["label"]],
                "latency_s": row[column],
                "cost_usd_per_hour": row["cost_usd_per_hour"],
                "gpus": row["gpus"],
                "role": role,
            }
        )
    best = [row for row in points if row["role"] != "dominated"]
    label = column.removesuffix("_s").replace("_", " ").upper().replace(" P", " p")
    words = "From the cheapest to the fastest, no other plan is both: " + "; ".join(
        f"{row['label']}, {units.usd(row['cost_usd_per_hour'])}/h, {units.seconds(row['latency_s'])}"
        for row in best[:6]
    )
    chart = charts.cost_and_latency(points, None, label)
    return Figure("pareto", f"Cost against {label}", chart, words + ".")


def _alive(alive: list[Row], decision: Row, scenario: str) -> Block:
    if not alive:
        return Missing("No candidate can run: each is listed with its reason below.")
    return table(
        "candidates",
        alive,
        "Candidates that can run",
        keep=(
            "label",
            "gpu",
            "gpus_per_replica",
            "weights",
            "kv_cache",
            "scheduler",
            "kv_blocks",
            "left_bytes",
        ),
        query=query("candidates", scenario, "fits"),
        marked=_where(alive, decision["candidate_id"]),
    )


def _rejected(candidates: Sequence[Row], plans: Sequence[Row], scenario: str) -> list[Block]:
    rejected = [{"label": row["label"], "reason": row["reason"]} for row in candidates if row.get("reason")]
    known = {row["label"] for row in rejected}
    rejected += [
        {"label": row["label"], "reason": row["reason"]}
        for row in plans
        if row.get("reason") and row["label"] not in known and row.get("gpus") is None
    ]
    if not rejected:
        return []
    where = query("candidates", scenario, "reason IS NOT NULL")
    return [
        table(
            "candidates",
            rejected,
            "Rejected candidates, with the reason",
            query=where,
            labels={"label": "Candidate"},
        )
    ]


def _where(rows: Sequence[Row], candidate_id: str | None) -> list[int]:
    return [index for index, row in enumerate(rows) if row["candidate_id"] == candidate_id]
