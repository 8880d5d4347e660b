"""The sections of the traffic: the queue over time, facts of the workload, and all that was assumed."""

from __future__ import annotations

from fleetplan.report import charts, units
from fleetplan.report.blocks import Block, Cell, Column, Figure, Missing, Section, Table
from fleetplan.report.headline import decision_of
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import cell, heading, query, table

# Times that a line over time shows at most; more are averaged in SQL.
_TIMES = 240


def over_time(store: Store, scenario: str) -> Section:
    """Waiting and running requests over the time of the simulation, at the decided count and at one fewer."""
    decision = decision_of(store, scenario)
    title = "The queue over time"
    needed = ("candidate_id", "replicas", "time_s", "waiting_requests", "running_requests")
    if not store.has("timeseries", *needed) or decision["candidate_id"] is None:
        return Section("time", title, "", [Missing("No state over time is in the store.")])
    rows = _averaged(store, scenario, decision)
    blocks: list[Block] = []
    divisor, unit = charts.clock_of([row["time_s"] for row in rows])
    for column, what in (("waiting_requests", "waiting"), ("running_requests", "running")):
        points = [
            {"time": row["time_s"] / divisor, "value": row[column], "series": f"{row['replicas']} replicas"}
            for row in rows
        ]
        kinds = sorted({str(point["series"]) for point in points}, key=lambda name: -int(name.split()[0]))
        if not points:
            continue
        peaks = ", ".join(
            f"{units.count(max(point['value'] for point in points if point['series'] == name))} at {name}"
            for name in kinds
        )
        spec = charts.over_time(points, f"requests {what}", kinds, f"time of the simulation ({unit})")
        words = f"Most requests {what} at once (averages of equal slots): {peaks}."
        blocks.append(Figure(f"time-{what}", f"Requests {what}", spec, words, wide=False))
    if not blocks:
        return Section(
            "time", title, "", [Missing("No state over time of the decided candidate is in the store.")]
        )
    where = f"candidate_id = '{decision['candidate_id']}'"
    blocks.append(
        table(
            "timeseries", rows, "State over time", query=query("timeseries", scenario, where), drop=("slot",)
        )
    )
    lead = "The same arrivals at the decided count and at one replica fewer."
    return Section("time", title, lead, blocks)


def traffic(store: Store, scenario: str) -> Section:
    """Facts of the workload, a column a class."""
    rows = store.table("workloads", scenario, order="ALL")
    title = "The traffic"
    if not rows:
        return Section("traffic", title, "", [Missing("Facts of the traffic are not in the store.")])
    return Section(
        "traffic",
        title,
        "What the plan was made for: rate, burstiness and lengths as simulated.",
        [
            *_rates(store, scenario),
            *_scales(store, scenario),
            *_hours(store, scenario),
            _transposed(rows, scenario),
        ],
    )


def _rates(store: Store, scenario: str) -> list[Block]:
    rows = store.table("arrivals", scenario, order="class, time_s")
    if not rows:
        return []
    divisor, unit = charts.clock_of([row["time_s"] for row in rows])
    points = [
        {"x": row["time_s"] / divisor, "y": row["mean_requests_per_s"], "series": row["class"]}
        for row in rows
    ]
    chart = charts.lines(points, f"time from the start ({unit})", "requests per second", "class")
    most = max(rows, key=lambda row: row["mean_requests_per_s"])
    words = (
        f"Requests per second through one replication; most, {most['mean_requests_per_s']:.3g}, "
        f"at {units.seconds(most['time_s'])} (class {most['class']})."
    )
    return [Figure("arrivals", "Arrivals over time", chart, words)]


def _scales(store: Store, scenario: str) -> list[Block]:
    """Dispersion over scales, by class."""
    rows = (
        store.table("dispersions", scenario, order="class, scale_s")
        if store.has("dispersions", "scale_s")
        else []
    )
    if len({row["scale_s"] for row in rows}) < 2:
        return []
    points = [{"x": row["scale_s"], "y": row["dispersion"], "series": _said(row["class"])} for row in rows]
    chart = charts.lines(
        points, "width of the bins (s)", "variance over mean of the counts", "class", log_x=True,
        ticks=sorted({row["scale_s"] for row in rows}), level=(1.0, "Poisson"),
    )  # fmt: skip
    every = [row for row in rows if row["class"] == "*"]
    words = "Index of dispersion of all arrivals: " + ", ".join(
        f"{row['dispersion']:.3g} at {units.seconds(row['scale_s'])}" for row in every
    )
    return [Figure("dispersion", "Burstiness over scales", chart, f"{words}; 1 is Poisson.", wide=False)]


def _hours(store: Store, scenario: str) -> list[Block]:
    """The profile of the day, by class."""
    rows = store.table("hours", scenario, order="class, hour_h") if store.has("hours", "hour_h") else []
    if not rows:
        return []
    points = [
        {"x": row["hour_h"], "y": row["mean_requests_per_s"], "series": _said(row["class"])} for row in rows
    ]
    chart = charts.lines(points, "hour of the day", "requests per second", "class", whole_x=True)
    every = [row for row in rows if row["class"] == "*"]
    if not every:
        return []
    most, least = (pick(every, key=lambda row: row["mean_requests_per_s"]) for pick in (max, min))
    words = (
        f"All requests by hour: most, {most['mean_requests_per_s']:.3g} a second, in hour {most['hour_h']}; "
        f"least, {least['mean_requests_per_s']:.3g}, in hour {least['hour_h']}."
    )
    return [Figure("hours", "The hours of the day", chart, words, wide=False)]


def _said(name: str) -> str:
    return "all" if name == "*" else name


def assumptions(store: Store, scenario: str) -> Section:
    """Every setting of the scenario's meaning: what the plan takes as given."""
    rows = [{"path": path, "value": value} for path, value in store.settings(scenario).items()]
    title = "What was assumed"
    blocks: list[Block] = []
    described = (store.table("scenarios", scenario) or [{}])[0]
    known = [
        {"assumption": words, "value": described[key]}
        for key, words in (
            ("model", "Model"), ("traffic", "Traffic"), ("step_time", "Time of a step"), ("prices", "Prices"), ("notes", "Cautions"),
        )
        if described.get(key)
    ]  # fmt: skip
    if known:
        blocks.append(
            table("scenarios", known, "In words", labels={"assumption": "What", "value": "As assumed"})
        )
    if rows:
        listed = table("settings", rows, "Every setting, defaults included", drop=("scenario",), most=200)
        blocks.append(listed)
    else:
        blocks.append(Missing("The scenario's settings are not in the store."))
    return Section(
        "assumptions", title, "All that the plan takes as given, from the scenario or by default.", blocks
    )


def _transposed(rows: list[Row], scenario: str) -> Table:
    facts = [
        name
        for name in rows[0]
        if name not in ("scenario", "class") and any(row[name] is not None for row in rows)
    ]
    columns = [Column("fact", "Fact")]
    columns += [
        Column(f"class-{index}", "all" if row["class"] == "*" else f"class {row['class']}", numeric=True)
        for index, row in enumerate(rows)
    ]
    cells = tuple((Cell(heading(fact)), *(cell(fact, row[fact]) for row in rows)) for fact in facts)
    caption = "Facts of the traffic by class"
    return Table(caption, tuple(columns), cells, len(facts), query("workloads", scenario))


def _averaged(store: Store, scenario: str, decision: Row) -> list[Row]:
    return store.rows(
        "WITH mine AS (SELECT * FROM timeseries WHERE scenario = $1 AND candidate_id = $2 AND replicas IN ($3, $3 - 1)), "
        "span AS (SELECT max(time_s) AS last FROM mine) "
        f"SELECT replicas, floor(time_s / nullif(last, 0) * {_TIMES - 1}) AS slot, min(time_s) AS time_s, "
        "avg(waiting_requests) AS waiting_requests, avg(running_requests) AS running_requests "
        "FROM mine, span GROUP BY ALL ORDER BY replicas DESC, slot",
        scenario,
        decision["candidate_id"],
        decision["replicas"],
    )
