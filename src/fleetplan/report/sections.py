"""The sections of a page below the first screen, each from the tables of the store that it needs."""

from __future__ import annotations

from collections.abc import Callable

from fleetplan.report import bars, charts, promises, units
from fleetplan.report.blocks import Block, Figure, Missing, Section, Text
from fleetplan.report.headline import candidate_of, decision_of, evidence_of
from fleetplan.report.held import held
from fleetplan.report.life import growth, resilience, schedule
from fleetplan.report.money import money
from fleetplan.report.planning import alternatives, levers, uncertainty
from fleetplan.report.reading import Row, Store
from fleetplan.report.shared import shared
from fleetplan.report.tabulate import query, short_labels, table
from fleetplan.report.theory import goodput, queueing, speculation
from fleetplan.report.traffic import assumptions, over_time, traffic


def sections(store: Store, scenario: str) -> list[Section]:
    """All sections of a scenario's page, in the order in which they are read."""
    decided = candidate_of(store, scenario, decision_of(store, scenario)["candidate_id"])
    left_out = _OF_TOKENS if decided.get("engine") == "endpoint" else ()
    made = [
        section for make in _SECTIONS if make not in left_out and (section := make(store, scenario)).blocks
    ]
    shown = [section for section in made if not all(isinstance(block, Missing) for block in section.blocks)]
    unsaid = [block for section in made if section not in shown for block in section.blocks]
    if unsaid:
        shown.append(Section("missing", "What this version does not hold", "", unsaid))
    return shown


def proof(store: Store, scenario: str) -> Section:
    """The simulated verdicts around the decision: a chart for each promise and the table of all."""
    decision = decision_of(store, scenario)
    rows = evidence_of(store, scenario, decision["candidate_id"])
    blocks: list[Block] = []
    if decision["candidate_id"] is None and (tried := store.table("evidence", scenario)):
        said = table(
            "evidence",
            tried,
            "What was simulated before giving up",
            drop=("scenario",),
            query=query("evidence", scenario),
        )
        return Section("proof", "How near the candidates came", "No candidate keeps every promise.", [said])
    if (firm := decision.get("certificate")) is not None:
        blocks.append(Text(f"{firm[:1].upper()}{firm[1:]}."))
    named: dict[str, list[Row]] = {}
    for row in rows:
        named.setdefault(promises.name(row), []).append(row)
    for number, (name, points) in enumerate(named.items()):
        spec = _by_count(name, points, decision["replicas"])
        words = _in_words(name, points)
        blocks.append(Figure(f"promise-{number}", f"{name} against replicas", spec, words, wide=False))
    decided = promises.at_decision(rows, decision)
    apart = bool(decision.get("prefill_replicas"))
    if rows:
        blocks.append(
            table(
                "evidence",
                [_read(row) for row in rows],
                "Simulated values by number of replicas and promise",
                drop=(
                    "scenario",
                    "candidate_id",
                    "cap",
                    "utilisation",
                    *(() if apart else ("prefill_replicas", "decode_replicas")),
                ),
                query=query("evidence", scenario, f"candidate_id = '{decision['candidate_id']}'"),
                marked=[i for i, row in enumerate(rows) if row in decided],
                labels=_EVIDENCE_LABELS,
                note=_UNDECIDED if any(row.get("decided") is False for row in rows) else "",
            )
        )
    else:
        blocks.append(
            Missing("No candidate was simulated up to a decision, so there is no evidence to show.")
        )
    return Section(
        "proof",
        "Why this count",
        "Every promise, simulated at the decided number of replicas and at its neighbours, on the same arrivals.",
        blocks,
    )


def _read(row: Row) -> Row:
    """A row of the evidence as it is read: a cap is no percentile, and whether noise is excluded is a word of its own."""
    firm = {True: "excluded", False: "not excluded"}.get(row.get("decided"))  # type: ignore[arg-type]
    if row["metric"] == "utilisation":
        return {**row, "percentile": None, "decided": None, "requests": None}
    return {**row, "decided": firm}


_EVIDENCE_LABELS = {
    "limit_s": "Promise", "simulated_s": "Simulated", "holds": "Verdict", "decided": "Noise", "promised_share": "Must meet it",
    "met_share": "Met it", "low_share": "at least", "high_share": "at most",
}  # fmt: skip
_UNDECIDED = (
    "Noise not excluded: the interval of the share that met the promise (at least, at most) still contains the share that must, so "
    "more replications might turn this one verdict. A count is decided by all of its promises together: the sentence above says whether."
)


def limits(store: Store, scenario: str) -> Section:
    """Throughput against batch with the ridge and the memory wall, the terms of a step, and memory of a GPU."""
    chosen = decision_of(store, scenario)["candidate_id"]
    candidate = candidate_of(store, scenario, chosen)
    blocks: list[Block] = []
    steps = [
        row for row in store.table("rooflines", scenario, order="batch") if row["candidate_id"] == chosen
    ]
    bounds = next((row for row in store.table("bounds", scenario) if row["candidate_id"] == chosen), {})
    if steps:
        blocks += _roofline(scenario, str(chosen), steps, bounds)
    else:
        why = (
            "No candidate was decided on."
            if chosen is None
            else "No step times of the decided candidate are in the store."
        )
        blocks.append(Missing(why))
    memory = _memory(store, scenario, candidate)
    blocks.append(memory or Missing("The memory of the candidates is not in the store."))
    return Section(
        "limits",
        "What the hardware allows",
        "A decode step reads the weights and every sequence's KV cache; past the ridge compute takes longer than that.",
        blocks,
    )


def load(store: Store, scenario: str) -> Section:
    """Latencies and attainment of one replica of the decided candidate against its load."""
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = [
        row
        for row in store.table("simulations", scenario, order="ALL")
        if row["candidate_id"] == chosen and row.get("load_share") is not None
    ]
    if not rows:
        return Section("load", "Under load", "", [Missing("No simulations by load are in the store.")])
    rows.sort(key=lambda row: (row["class"], row["load_share"]))
    blocks: list[Block] = []
    for column, short in (
        ("ttft_p99_s", "TTFT p99"),
        ("tpot_p95_s", "TPOT p95"),
        *(
            (("e2e_p95_s", "Arrival to answer p95"),)
            if all(row["ttft_p99_s"] is None for row in rows)
            else ()
        ),
        ("attainment", "Attainment"),
    ):
        known = [row for row in rows if row.get(column) is not None]
        if len({row["load_share"] for row in known}) > 1:
            blocks.append(_against_load(column, short, known))
    where = f"candidate_id = '{chosen}'"
    # Where no token is hidden the first visible one is the first.
    hidden = ("ttfvt_p99_s",) if all(row.get("ttfvt_p99_s") == row["ttft_p99_s"] for row in rows) else ()
    simulated = table(
        "simulations",
        rows,
        "Simulations of the decided candidate",
        drop=("scenario", "candidate_id", *hidden),
        query=query("simulations", scenario, where),
    )
    lead = "One replica at shares of the rate that it could serve without end, simulated."
    return Section("load", "Under load", lead, [*blocks, simulated])


def _against_load(column: str, short: str, rows: list[Row]) -> Figure:
    percent = column == "attainment"
    divisor, unit = (1.0, "") if percent else charts.scale_of([row[column] for row in rows])
    points = [
        {"x": row["load_share"] * 100, "y": row[column] / divisor, "series": row["class"]} for row in rows
    ]
    title = "requests that meet all promises" if percent else f"{short} ({unit})"
    spec = charts.lines(
        points,
        "offered rate, share of the saturated rate (%)",
        title,
        "class",
        percent=percent,
        zero=not percent,
    )
    whole = [row for row in rows if row["class"] == "*"] or rows
    said = ", ".join(
        f"{units.quantity(column, row[column])} at {units.share(row['load_share'])}"
        for row in whole[:: max(1, len(whole) // 6)]
    )
    words = f"{short}{'' if whole[0]['class'] == '*' else ' of class ' + whole[0]['class']} by share of the saturated rate: {said}."
    return Figure(f"load-{column.split('_')[0]}", f"{short} against load", spec, words, wide=False)


def rest(store: Store, scenario: str) -> Section:
    """Every other table that the store holds of the scenario, as it is."""
    from fleetplan.store import tables

    blocks: list[Block] = []
    for name in sorted(store.columns):
        rows = [] if name in _SHOWN or not store.has(name, "scenario") else store.table(name, scenario)
        if rows:
            known = tables.TABLES.get(name)
            caption = f"{name}: {known.comment}" if known else name
            blocks.append(
                table(name, rows, caption, drop=("scenario",), query=query(name, scenario), most=25)
            )
    return Section(
        "rest", "More from the store", "Tables that no other section shows." if blocks else "", blocks
    )


def _by_count(name: str, points: list[Row], decided: int | None) -> charts.Spec:
    limit = points[0].get("limit_s")
    short = name.split(" of class ")[0]
    if limit is not None:
        divisor, unit = charts.scale_of([limit, *(row["simulated_s"] for row in points)])
        rows = [
            {**row, "value": None if row["simulated_s"] is None else row["simulated_s"] / divisor}
            for row in points
        ]
        rule = (limit / divisor, f"promise {limit / divisor:,.4g} {unit}")
        return charts.by_count(rows, f"{short} ({unit})", rule, decided)
    if points[0]["metric"] == "utilisation":
        rows = [{**row, "value": row["utilisation"] * 100} for row in points]
        cap = points[0].get("cap")
        highest = None if cap is None else (cap * 100, f"cap {cap * 100:.4g} %")
        return charts.by_count(rows, "utilisation (%)", highest, decided)
    shares = [{**row, "value": row["met_share"] * 100} for row in points if row.get("met_share") is not None]
    promised = promises.promised_share(points[0])
    level = None if promised is None else (promised * 100, f"promise {promised * 100:.4g} %")
    return charts.by_count(
        shares or [{**row, "value": None} for row in points], f"{short}: share met (%)", level, decided
    )


def _in_words(name: str, points: list[Row]) -> str:
    said = ", ".join(
        f"{promises.simulated(row)} at {promises.fleet(row) if row.get('prefill_replicas') else row['replicas']}"
        f"{'' if row['holds'] else ' (fails)'}"
        for row in points[:8]
    )
    what = "cap" if points[0]["metric"] == "utilisation" else "promise"
    return f"By number of replicas: {said}. The {what} is {promises.limit(points[0])}."


def _roofline(scenario: str, chosen: str, steps: list[Row], bounds: Row) -> list[Block]:
    wall = bounds.get("batch_by_memory")
    ridge = next((float(row["batch"]) for row in steps if row["bound_by"] == "compute"), None)
    within = [row for row in steps if wall is None or row["batch"] <= wall] or steps[:1]
    best = max(within, key=lambda row: row["throughput_tokens_per_s"])
    words = (
        f"Throughput of one replica reaches {units.count(round(best['throughput_tokens_per_s']))} output tokens/s at "
        f"batch {best['batch']:,}. "
        + (
            f"The ridge, where compute takes over, is at batch {ridge:,.0f}. "
            if ridge
            else "Compute never takes over. "
        )
        + (
            f"The KV cache holds {wall:,} sequences of mean length{': what lies beyond is dashed' if within != steps else ''}."
            if wall is not None
            else ""
        )
    )
    where = f"candidate_id = '{chosen}'"
    behind = table(
        "rooflines",
        steps,
        "A decode step by batch",
        drop=("scenario", "candidate_id"),
        query=query("rooflines", scenario, where),
    )
    return [
        Figure(
            "throughput",
            "Throughput against batch",
            charts.throughput_by_batch(steps, ridge, wall),
            words,
            behind,
            wide=False,
        ),
        Figure(
            "step-terms",
            "Time of a decode step, by term",
            charts.step_terms(steps),
            f"A decode step takes {units.seconds(steps[0]['step_s'])} at batch {steps[0]['batch']:,} and "
            f"{units.seconds(steps[-1]['step_s'])} at batch {steps[-1]['batch']:,}." + _staged(steps[-1]),
            wide=False,
        ),
    ]


def _staged(row: Row) -> str:
    """What of a step's time a pipeline takes until its next step starts, in words."""
    if not row.get("beat_s") or row["beat_s"] >= row["step_s"]:
        return ""
    return (
        f" That batch runs in micro-batches of {row['step_sequences']:,} at most, one in each stage of the pipeline; the next may start "
        f"after {units.seconds(row['beat_s'])}, when the longest stage has passed."
    )


def _memory(store: Store, scenario: str, candidate: Row) -> Figure | None:
    rows = [row for row in store.table("candidates", scenario, where="fits") if (row["left_bytes"] or 0) > 0][
        :11
    ]
    if not rows and not candidate:
        return None
    if candidate:
        rows = [candidate, *(row for row in rows if row["candidate_id"] != candidate["candidate_id"])]
    adapted = any(row.get("adapters_bytes") for row in rows)
    parts = ("weights", "KV cache", *(("LoRA adapters",) if adapted else ()), "runtime and reserve")
    stacked = []
    short = short_labels([row["label"] for row in rows])
    for row in rows:
        sizes = (row["weights_bytes"], row["left_bytes"], *((row["adapters_bytes"],) if adapted else ()))
        rest = max(0, row["usable_bytes"] - sum(sizes))
        stacked += [
            {"label": short[row["label"]], "part": part, "value": size / 2**30}
            for part, size in zip(parts, (*sizes, rest), strict=True)
        ]
    first = candidate or rows[0]
    words = (
        f"Of {units.quantity('usable_bytes', first['usable_bytes'])} usable on one GPU of {first['label']}, weights take "
        f"{units.quantity('weights_bytes', first['weights_bytes'])} and {units.quantity('left_bytes', first['left_bytes'])} "
        "are left for the KV cache."
    )
    behind = table(
        "candidates",
        rows,
        "Memory of one GPU",
        keep=("label", "usable_bytes", "weights_bytes", "left_bytes", "kv_blocks"),
        query=query("candidates", scenario, "fits"),
    )
    labels = list(dict.fromkeys(short[row["label"]] for row in rows))
    return Figure(
        "memory",
        "Memory of one GPU",
        bars.stacked_bars(stacked, "memory of one GPU (GiB)", parts, labels),
        words,
        behind,
    )


_SECTIONS: tuple[Callable[[Store, str], Section], ...] = (
    proof,
    load,
    over_time,
    limits,
    alternatives,
    levers,
    uncertainty,
    resilience,
    schedule,
    growth,
    money,
    held,
    shared,
    queueing,
    goodput,
    speculation,
    traffic,
    assumptions,
    rest,
)

_OF_TOKENS = (limits, goodput, speculation)
"""Sections about what only an LLM has."""

# Tables that the other sections show.
_SHOWN = (
    "decisions", "evidence", "candidates", "bounds", "rooflines", "simulations", "queueing", "speculation", "parts",
    "scenarios", "settings", "plans", "levers", "uncertainty", "timeseries", "workloads", "arrivals", "dispersions", "hours",
    "saturation", "goodput", "speculation_choices", "endpoints", "chain_errors", "room", "sampling_acceptance", "resilience", "schedule", "growth", "costs", "choices",
    "draws", "capacity", "capacity_promises", "fleet_plans",
)  # fmt: skip
