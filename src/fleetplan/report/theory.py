"""The sections of the closed forms: queueing beside the simulations, and where speculative decoding pays."""

from __future__ import annotations

from fleetplan.report import bars, charts, units
from fleetplan.report.blocks import Block, Figure, Missing, Section
from fleetplan.report.headline import candidate_of, decision_of
from fleetplan.report.reading import Row, Store
from fleetplan.report.sampling import sampling
from fleetplan.report.tabulate import query, table

_FORMULAS = {
    "mm1": "M/M/1",
    "mmc": "M/M/c",
    "md1": "M/D/1",
    "mg1": "M/G/1",
    "ggc": "G/G/c",
    "continuous_batching": "birth–death chain",
}


def queueing(store: Store, scenario: str) -> Section:
    """Waits by closed forms against the number of replicas, for the decided candidate."""
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = [
        row
        for row in store.table("queueing", scenario, order="formula, replicas")
        if row["candidate_id"] == chosen
    ]
    rows = [{**row, "formula": _FORMULAS.get(row["formula"], row["formula"])} for row in rows]
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
        blocks.append(
            Missing(
                "No candidate was decided on, so there are no closed forms about a count."
                if chosen is None
                else "The decided candidate has no closed form: it drafts, has two pools or holds adapters."
            )
        )
    blocks += _chain(store, scenario, chosen) + _room(store, scenario, chosen)
    sizes = store.table("endpoints", scenario, order="ALL") if store.has("endpoints", "scenario") else []
    if sizes:
        labels = {row["candidate_id"]: row["label"] for row in store.table("candidates", scenario)}
        sizes = [{"label": labels.get(row["candidate_id"]), **row} for row in sizes]
        blocks.append(
            table(
                "endpoints",
                sizes,
                "Servers by the closed form, for each candidate and promise",
                drop=("scenario", "candidate_id"),
                query=query("endpoints", scenario),
            )
        )
    return Section(
        "queueing",
        "What queueing theory says",
        "An instant answer beside the simulations, each form right for its own system: M/G/1 takes a full batch for one server, M/M/c "
        "and G/G/c every sequence of it, the birth–death chain has the batch's own speed. The decision stands on the simulation.",
        blocks,
    )


def _whose(store: Store, scenario: str, row: Row, chosen: str | None) -> str:
    """The candidate that figures are of, where it is not the decided one; a sentence, or nothing."""
    if row["candidate_id"] == chosen:
        return ""
    return f" Shown for {_label(store, scenario, row['candidate_id'])}."


def _chain(store: Store, scenario: str, chosen: str | None) -> list[Block]:
    """The birth–death chain against the engine, by load."""
    rows = (
        store.table("chain_errors", scenario, order="utilisation")
        if store.has("chain_errors", "utilisation")
        else []
    )
    if len(rows) < 2:
        return []
    times = [row[key] for row in rows for key in ("ttft_mean_s", "ttft_simulated_s")]
    divisor, unit = charts.scale_of(times)
    points = [
        {"x": row["utilisation"] * 100, "y": row[key] / divisor, "series": name}
        for key, name in (("ttft_mean_s", "chain"), ("ttft_simulated_s", "engine"))
        for row in rows
    ]
    said = ", ".join(f"{row['ttft_error']:+.0%} at {units.share(row['utilisation'])}" for row in rows)
    behind = table(
        "chain_errors",
        rows,
        "The chain against the engine",
        drop=("scenario", "candidate_id"),
        query=query("chain_errors", scenario),
    )
    return [
        Figure(
            "chain",
            "The birth–death chain against the engine",
            charts.lines(points, "load, share of a full batch's rate (%)", f"mean TTFT ({unit})", "by"),
            f"Error of the chain's mean TTFT under Poisson arrivals: {said} load."
            + _whose(store, scenario, rows[0], chosen),
            behind,
            wide=False,
        )
    ]


def _room(store: Store, scenario: str, chosen: str | None) -> list[Block]:
    """What Little's law asks for, what static batching would waste, what reservation, paging and sharing hold."""
    rows = store.table("room", scenario) if store.has("room", "sequences_paged") else []
    if not rows:
        return []
    row = rows[0]
    kept = [
        (words, row[key])
        for key, words in (
            ("sequences_reserved", "reserved at the longest"),
            ("sequences_paged", "in pages, mean length"),
            ("sequences_sharing_prefix", "in pages, one shared prefix"),
            ("sequences_sharing_prompt", "in pages, answers share prompts"),
        )
        if row[key] is not None
    ]
    said = (
        ""
        if row["concurrent_requests"] is None
        else f"By Little's law {row['concurrent_requests']:,.3g} requests are inside one engine at once and hold "
        f"{units.count(round(row['kv_need_tokens']))} tokens of KV cache. "
    )
    words = (
        f"{said}Static batches of {row['batch']:,} would keep {units.share(row['static_utilisation'])} of their slots at work "
        f"({units.share(row['static_utilisation_geometric'])} with geometric lengths).{_whose(store, scenario, row, chosen)}"
    )
    behind = table(
        "room", rows, "Room of one engine", drop=("scenario", "candidate_id"), query=query("room", scenario)
    )
    if not kept:
        return [behind]
    points = [{"label": label, "value": value, "verdict": "holds"} for label, value in kept]
    need = row["concurrent_requests"] or 0.0
    chart = bars.ranked(
        points, "sequences that fit in one engine's KV cache", (need, "inside by Little's law")
    )
    return [Figure("room", "Room of the KV cache", chart, words, behind, wide=False)]


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
    if all(row["candidate_id"] != chosen for row in rows):
        chosen = rows[0]["candidate_id"]
    rows = [row for row in rows if row["candidate_id"] == chosen]
    basis = min((str(row.get("basis") or "") for row in rows), key=lambda name: name.startswith("what if"))
    rows = [row for row in rows if str(row.get("basis") or "") == basis]
    level, context = (_middle([row.get(key) for row in rows]) for key in ("acceptance", "context_tokens"))
    shown = [row for row in rows if row["acceptance"] == level and row.get("context_tokens") == context]
    at = f"acceptance {level:g}" + (f" ({basis})" if basis else "")
    at += f", {context:,.0f} tokens of context" if context is not None else ""
    points = [
        {"x": row["batch"], "y": row["speedup"], "series": f"{row['drafts']}"}
        for row in sorted(shown, key=lambda row: (row["drafts"], row["batch"]))
    ]
    best = max(rows, key=lambda row: row["speedup"])
    words = (
        f"At {at}: {_switch_off(shown)} The largest speed-up of all is {best['speedup']:.2f}, with "
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
        ticks=sorted({float(row["batch"]) for row in shown}),
        level=(1.0, "no gain"),
    )
    blocks: list[Block] = [Figure("speculation", f"Speed-up at {at}", chart, words, behind)]
    choices = [row for row in store.table("speculation_choices", scenario) if row["candidate_id"] == chosen]
    if choices:
        blocks.append(
            table(
                "speculation_choices",
                choices,
                "The best draft length by batch and context",
                drop=("scenario", "candidate_id"),
                query=query("speculation_choices", scenario, f"candidate_id = '{chosen}'"),
            )
        )
    blocks += sampling(store, scenario)
    return Section(
        "speculation",
        "Speculative decoding",
        "Verifying drafts costs compute; at a large batch there is none to spare, and the speed-up falls below 1.",
        blocks,
    )


def goodput(store: Store, scenario: str) -> Section:
    """One replica by the cap on its batch: attainment with its cliff, and throughput against interactivity."""
    title = "The cap on the batch"
    rows = store.table("goodput", scenario, order="ALL")
    chosen = decision_of(store, scenario)["candidate_id"]
    rows = [row for row in rows if row["candidate_id"] == chosen] or rows
    rows = sorted(
        (row for row in rows if row["candidate_id"] == rows[0]["candidate_id"]),
        key=lambda row: row["batch_cap"],
    )
    if len(rows) < 2:
        return Section("goodput", title, "", [Missing("The goodput curve over batch caps was not computed.")])
    best = max(rows, key=lambda row: (row["goodput_requests_per_s"], -row["batch_cap"]))
    attained = [{"x": row["batch_cap"], "y": row["attainment"], "series": "attainment"} for row in rows]
    paired = [
        {"x": row["user_tokens_per_s"], "y": row["throughput_tokens_per_s"], "series": "replica"}
        for row in rows
        if row.get("user_tokens_per_s") is not None
    ]
    where = f"candidate_id = '{rows[0]['candidate_id']}'"
    behind = table(
        "goodput",
        rows,
        "By cap on the batch",
        drop=("scenario", "candidate_id"),
        query=query("goodput", scenario, where),
    )
    blocks: list[Block] = [
        Figure(
            "goodput",
            "Attainment against the cap",
            charts.lines(
                attained,
                "most sequences in a step",
                "requests that meet all promises",
                log_x=True,
                percent=True,
                ticks=_powers(rows),
            ),
            f"Goodput is highest, {units.quantity('goodput_requests_per_s', best['goodput_requests_per_s'])}, with a cap of "
            f"{best['batch_cap']:,}, where {units.share(best['attainment'])} of the requests meet their promises.",
            behind,
            wide=False,
        )
    ]
    if len(paired) > 1:
        blocks.append(
            Figure(
                "interactivity",
                "Throughput against interactivity",
                charts.lines(
                    sorted(paired, key=lambda row: row["x"]),
                    "tokens/s of one user",
                    "output tokens/s of one replica",
                ),
                f"From {units.count(round(rows[0]['throughput_tokens_per_s']))} tokens/s with a cap of {rows[0]['batch_cap']:,} to "
                f"{units.count(round(rows[-1]['throughput_tokens_per_s']))} with {rows[-1]['batch_cap']:,}.",
                wide=False,
            )
        )
    own = _whose(store, scenario, rows[0], chosen)
    return Section(
        "goodput", title, f"A larger batch serves more and makes each user wait longer.{own}", blocks
    )


def _label(store: Store, scenario: str, candidate_id: str) -> str:
    return str(candidate_of(store, scenario, candidate_id).get("label") or f"candidate {candidate_id}")


def _powers(rows: list[Row]) -> list[float]:
    return [
        float(4**power) for power in range(12) if rows[0]["batch_cap"] <= 4**power <= rows[-1]["batch_cap"]
    ]


def _middle(values: list[float | None]) -> float | None:
    known = sorted({value for value in values if value is not None})
    return known[len(known) // 2] if known else None


def _switch_off(rows: list[Row]) -> str:
    paying = [row["batch"] for row in rows if row["pays"]]
    losing = [row["batch"] for row in rows if not row["pays"]]
    if not paying:
        return "it never pays."
    if not losing:
        return "it pays at every batch shown."
    return f"it pays up to batch {max(paying):,} at best; from batch {min(losing):,} some draft lengths lose."
