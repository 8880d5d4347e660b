"""Charts as Vega-Lite documents, from rows that the store has aggregated; colours are CSS variables of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from fleetplan.report.reading import Row

Spec = dict[str, Any]

# A chart never holds more points than this; the tables behind it do.
MOST_POINTS = 2000

# The page's style sheet gives these their light, dark and printed values.
INK, QUIET, GOOD, BAD = "var(--ink)", "var(--ink-2)", "var(--good)", "var(--bad)"
SERIES = tuple(f"var(--s{number})" for number in range(1, 7))

_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((2.0**30, "GiB"), (2.0**20, "MiB")),
}
_HEIGHT = 280
_DASHES = [[1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [10, 4]]


def scale_of(values: Sequence[float | None], base: str = "s") -> tuple[float, str]:
    """The divisor and the unit that keep the largest of `values` at or above 1.

    >>> scale_of([0.02, 0.4])
    (0.001, 'ms')
    """
    largest = max((abs(value) for value in values if value is not None), default=0.0)
    steps = _SCALES[base]
    return next((step for step in steps if largest >= step[0]), steps[-1])


def clock_of(times_s: Sequence[float]) -> tuple[float, str]:
    """The divisor and the unit of an axis of times: hours from three hours on.

    >>> clock_of([0.0, 86400.0]), clock_of([0.0, 600.0])
    ((3600.0, 'h'), (1.0, 's'))
    """
    return (3600.0, "h") if max(times_s, default=0.0) >= 3 * 3600 else (1.0, "s")


def by_count(rows: Sequence[Row], title: str, limit: tuple[float, str] | None, decided: int | None) -> Spec:
    """A promise's simulated value against the number of replicas, with the promise as a rule.

    `rows`: replicas, value (None: unbounded), holds. `limit`: the height of the rule and its text.
    """
    data = [
        {"replicas": row["replicas"], "value": row["value"], "verdict": "holds" if row["holds"] else "fails"}
        for row in rows
        if row["value"] is not None
    ]
    unbounded = [
        {"replicas": row["replicas"], "verdict": "unbounded"} for row in rows if row["value"] is None
    ]
    counts = sorted({row["replicas"] for row in rows})
    x = alt.X(
        "replicas:Q",
        title="replicas that serve",
        axis=alt.Axis(values=_thinned(counts), format="d", grid=False),
        scale=alt.Scale(domain=[counts[0] - 0.5, counts[-1] + 0.5], nice=False, zero=False),
    )
    y = alt.Y("value:Q", title=title, scale=alt.Scale(zero=True))
    base = alt.Chart(inline(data))
    line = base.mark_line(color=QUIET, strokeWidth=1.5).encode(x=x, y=y)
    shapes = alt.Scale(domain=["holds", "fails"], range=["circle", "cross"])
    points = base.mark_point(size=110, filled=True, opacity=1).encode(
        x=x,
        y=y,
        color=alt.Color("verdict:N", scale=verdicts(), legend=None),
        shape=alt.Shape("verdict:N", scale=shapes, legend=None),
        tooltip=[
            alt.Tooltip("replicas:Q"),
            alt.Tooltip("value:Q", title=title, format=".4~g"),
            alt.Tooltip("verdict:N"),
        ],
    )
    without = (
        alt.Chart(inline(unbounded))
        .mark_point(shape="triangle-up", size=110, color=BAD, strokeWidth=2)
        .encode(
            x=x,
            y=alt.value(8),
            tooltip=[alt.Tooltip("replicas:Q"), alt.Tooltip("verdict:N", title="simulated")],
        )
    )
    layers = [line, points, without]
    if limit is not None:
        rule, text = _rule_y(limit[0], limit[1], counts[-1] + 0.5)
        layers = [rule, *layers, text]
    if decided is not None:
        marked = alt.Chart(inline([{"replicas": decided}]))
        layers.insert(0, marked.mark_rule(color=GOOD, strokeDash=[2, 3], strokeWidth=1.2).encode(x=x))
    return finished(alt.layer(*layers), 220)


def throughput_by_batch(rows: Sequence[Row], ridge: float | None, wall: float | None) -> Spec:
    """Output tokens/s against batch on a log axis, with the ridge and the memory wall.

    `rows`: batch, throughput_tokens_per_s, bound_by. `ridge`: the batch at which memory and compute time meet; `wall`:
    the most sequences that the KV cache holds.
    """
    data = [
        {
            "batch": row["batch"],
            "value": row["throughput_tokens_per_s"],
            "bound": row["bound_by"],
            "fits": wall is None or row["batch"] <= wall,
        }
        for row in rows
    ]
    marks = [
        {"batch": at, "label": label}
        for at, label in ((ridge, "ridge"), (wall, "memory wall"))
        if at is not None and at >= 1
    ]
    bounds = list(dict.fromkeys(row["bound_by"] for row in rows))
    x = _batch_axis(rows)
    y = alt.Y("value:Q", title="output tokens/s of one replica", scale=alt.Scale(zero=True))
    base = alt.Chart(inline(data)).encode(x=x, y=y)
    beyond = base.mark_line(color=QUIET, strokeWidth=1.2, strokeDash=[3, 3])
    line = base.transform_filter("datum.fits").mark_line(color=SERIES[0], strokeWidth=2)
    points = base.mark_point(size=45, filled=True).encode(
        opacity=alt.condition("datum.fits", alt.value(1), alt.value(0.35)),
        color=alt.Color("bound:N", title="bound by", scale=alt.Scale(domain=bounds, range=list(SERIES[:3]))),
        shape=alt.Shape(
            "bound:N",
            title="bound by",
            scale=alt.Scale(domain=bounds, range=["circle", "square", "triangle-up"]),
        ),
        tooltip=[
            alt.Tooltip("batch:Q"),
            alt.Tooltip("value:Q", title="output tokens/s", format=",.4~g"),
            alt.Tooltip("bound:N", title="bound by"),
        ],
    )
    return finished(alt.layer(*_rules_x(marks, x), beyond, line, points))


def step_terms(rows: Sequence[Row]) -> Spec:
    """A decode step's time and its terms against batch, both axes logarithmic; of a pipeline its longest stage too.

    `rows`: batch, step_s, beat_s, compute_s, memory_s, overhead_s.
    """
    staged = any((row.get("beat_s") or row["step_s"]) < row["step_s"] for row in rows)
    terms = (
        ("step_s", "whole step"),
        ("memory_s", "memory"),
        ("compute_s", "compute"),
        ("overhead_s", "overhead"),
        *((("beat_s", "longest stage"),) if staged else ()),
    )
    divisor, unit = scale_of([row["step_s"] for row in rows])
    data = [
        {"batch": row["batch"], "value": row[key] / divisor, "term": label}
        for row in rows
        for key, label in terms
        if row.get(key)
    ]
    labels = [label for _, label in terms]
    chart = (
        alt.Chart(inline(data))
        .mark_line(strokeWidth=2)
        .encode(
            x=_batch_axis(rows),
            y=alt.Y(
                "value:Q",
                title=f"time of a decode step ({unit})",
                scale=alt.Scale(type="log", nice=False),
                axis=alt.Axis(values=[10.0**power for power in range(-4, 7)], format="~g"),
            ),
            color=alt.Color(
                "term:N",
                title=None,
                scale=alt.Scale(domain=labels, range=[INK, *SERIES[: len(labels) - 1]]),
                sort=labels,
            ),
            strokeDash=alt.StrokeDash(
                "term:N",
                title=None,
                scale=alt.Scale(domain=labels, range=_DASHES[: len(labels)]),
            ),
            tooltip=[
                alt.Tooltip("term:N"),
                alt.Tooltip("batch:Q"),
                alt.Tooltip("value:Q", title=unit, format=".4~g"),
            ],
        )
    )
    return finished(chart)


def cost_and_latency(rows: Sequence[Row], limit_s: float | None, label: str) -> Spec:
    """Cost of the fleet against a latency, a point a candidate, the frontier joined by a line.

    `rows`: label, latency_s, cost_usd_per_hour, gpus, role (decision, frontier, dominated, fails).
    """
    divisor, unit = scale_of([limit_s, *(row["latency_s"] for row in rows)])
    data = [
        {
            "x": row["latency_s"] / divisor,
            "y": row["cost_usd_per_hour"],
            "label": row["label"],
            "role": row["role"],
            "gpus": row["gpus"],
            "size": {"decision": 240, "frontier": 110}.get(row["role"], 50),
        }
        for row in rows
    ]
    looks = {
        "decision": (SERIES[0], "diamond"),
        "frontier": (SERIES[2], "circle"),
        "dominated": (QUIET, "circle"),
        "fails": (BAD, "cross"),
    }
    roles = [role for role in looks if any(row["role"] == role for row in rows)]
    x = alt.X("x:Q", title=f"{label} ({unit})", scale=alt.Scale(zero=False, nice=False, padding=24))
    y = alt.Y("y:Q", title="cost of the fleet (USD/h)", scale=alt.Scale(zero=False, nice=False, padding=24))
    base = alt.Chart(inline(data)).encode(x=x, y=y)
    line = base.transform_filter("datum.role === 'decision' || datum.role === 'frontier'").mark_line(
        color=QUIET, strokeDash=[4, 3], strokeWidth=1.2, interpolate="step-after"
    )
    points = base.mark_point(filled=True, opacity=0.95).encode(
        color=alt.Color(
            "role:N",
            title=None,
            scale=alt.Scale(domain=roles, range=[looks[role][0] for role in roles]),
            sort=roles,
        ),
        shape=alt.Shape(
            "role:N",
            title=None,
            scale=alt.Scale(domain=roles, range=[looks[role][1] for role in roles]),
            sort=roles,
        ),
        size=alt.Size("size:Q", legend=None, scale=None),
        tooltip=[
            alt.Tooltip("label:N", title="candidate"),
            alt.Tooltip("gpus:Q", title="GPUs"),
            alt.Tooltip("x:Q", title=f"{label} ({unit})", format=".4~g"),
            alt.Tooltip("y:Q", title="USD/h", format=",.2f"),
        ],
    )
    layers: list[Any] = [line, points]
    if limit_s is not None:
        layers = [*_rules_x([{"x": limit_s / divisor, "label": "promise"}], x, "x"), *layers]
    return finished(alt.layer(*layers), 320)


def over_time(
    rows: Sequence[Row], title: str, kinds: Sequence[str], x_title: str = "time of the simulation (s)"
) -> Spec:
    """Steps over time. `rows`: time, value, series (one of `kinds`)."""
    chart = (
        alt.Chart(inline(rows))
        .mark_line(strokeWidth=1.6, interpolate="step-after")
        .encode(
            x=alt.X("time:Q", title=x_title, scale=alt.Scale(nice=False)),
            y=alt.Y("value:Q", title=title, scale=alt.Scale(zero=True)),
            color=alt.Color(
                "series:N",
                title=None,
                sort=list(kinds),
                scale=alt.Scale(domain=list(kinds), range=list(SERIES[: len(kinds)])),
                legend=alt.Legend() if len(kinds) > 1 else None,
            ),
            strokeDash=alt.StrokeDash(
                "series:N",
                title=None,
                sort=list(kinds),
                scale=alt.Scale(domain=list(kinds), range=_DASHES[: len(kinds)]),
                legend=alt.Legend() if len(kinds) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("series:N"),
                alt.Tooltip("time:Q", title=x_title, format=".4~g"),
                alt.Tooltip("value:Q", title=title, format=".4~g"),
            ],
        )
    )
    return finished(chart)


def lines(
    rows: Sequence[Row],
    x_title: str,
    y_title: str,
    series_title: str | None = None,
    *,
    log_x: bool = False,
    whole_x: bool = False,
    ticks: Sequence[float] = (),
    zero: bool = True,
    level: tuple[float, str] | None = None,
    percent: bool = False,
    steps: bool = False,
) -> Spec:
    """Lines with points. `rows`: x, y, series; `level` draws a named rule at a height, `whole_x` ticks at each x, `steps` keeps a height until the next x."""
    kinds = list(dict.fromkeys(str(row["series"]) for row in rows))
    scale = alt.Scale(type="log", nice=False) if log_x else alt.Scale(nice=False, zero=False)
    x = alt.X("x:Q", title=x_title, scale=scale)
    if whole_x or ticks:
        x = x.axis(values=_thinned(ticks or sorted({row["x"] for row in rows})), format=",d")
    axis = alt.Axis(format="%") if percent else alt.Axis()
    y = alt.Y("y:Q", title=y_title, scale=alt.Scale(zero=zero), axis=axis)
    chart = (
        alt.Chart(inline([{**row, "series": str(row["series"])} for row in rows]))
        .mark_line(
            strokeWidth=1.8,
            point=alt.OverlayMarkDef(size=36, filled=True),
            interpolate="step-after" if steps else "linear",
        )
        .encode(
            x=x,
            y=y,
            color=alt.Color(
                "series:N",
                title=series_title,
                sort=kinds,
                scale=alt.Scale(domain=kinds, range=[SERIES[i % len(SERIES)] for i in range(len(kinds))]),
                legend=alt.Legend() if len(kinds) > 1 else None,
            ),
            tooltip=[
                alt.Tooltip("series:N", title=series_title or "series"),
                alt.Tooltip("x:Q", title=x_title, format=".4~g"),
                alt.Tooltip("y:Q", title=y_title, format=".1%" if percent else ".4~g"),
            ],
        )
    )
    if level is None:
        return finished(chart)
    last = max(row["x"] for row in rows)
    rule, text = _rule_y(level[0], level[1], last)
    return finished(alt.layer(rule, chart, text))


def _batch_axis(rows: Sequence[Row]) -> alt.X:
    least, most = (choose(row["batch"] for row in rows) for choose in (min, max))
    ticks = [4**power for power in range(12) if least <= 4**power <= most]
    return alt.X(
        "batch:Q",
        title="batch (sequences in a step)",
        scale=alt.Scale(type="log", nice=False),
        axis=alt.Axis(values=ticks, format=",d"),
    )


def _thinned(counts: Sequence[float], most: int = 12) -> list[float]:
    return list(counts[:: -(-len(counts) // most)])


def inline(rows: Sequence[Row]) -> alt.Data:
    """Rows as the chart's own data; refuses more than a chart should hold."""
    if len(rows) > MOST_POINTS:
        raise ValueError(f"a chart of {len(rows)} points: aggregate to {MOST_POINTS} or fewer in SQL")
    return alt.Data(values=list(rows))


def verdicts() -> alt.Scale:
    """The two colours of holds and fails."""
    return alt.Scale(domain=["holds", "fails"], range=[GOOD, BAD])


def _rule_y(height: float, label: str, right: float) -> tuple[alt.Chart, alt.Chart]:
    base = alt.Chart(inline([{"y": height, "x": right, "label": label}]))
    rule = base.mark_rule(color=BAD, strokeDash=[6, 3], strokeWidth=1.2).encode(y="y:Q")
    text = base.mark_text(align="right", baseline="bottom", dx=-2, dy=-3, color=BAD, fontSize=11.5).encode(
        x="x:Q", y="y:Q", text="label:N"
    )
    return rule, text


def _rules_x(marks: Sequence[Row], x: alt.X, field: str = "batch") -> list[alt.Chart]:
    if not marks:
        return []
    base = alt.Chart(inline(marks))
    return [
        base.mark_rule(color=QUIET, strokeDash=[6, 3], strokeWidth=1.2).encode(x=x),
        base.mark_text(
            align="left", baseline="top", angle=270, dx=6, dy=3, color=QUIET, fontSize=11.5
        ).encode(x=alt.X(f"{field}:Q"), y=alt.value(alt.expr("height")), text="label:N"),
    ]


def finished(chart: Any, height: int = _HEIGHT) -> Spec:
    """The chart as a document that fills its place's width; colours and fonts are the page script's."""
    document: Spec = chart.properties(width="container", height=height).to_dict(validate=False)
    # Not validated here: that takes longer than all else, and Chromium in the tests warns of a wrong property.
    # The page's script sets the configuration (fonts, axes, series colours) for all charts at once.
    document.pop("config", None)
    document["autosize"] = {"type": "fit", "contains": "padding"}
    return document
