"""Horizontal bar charts as Vega-Lite documents: parts of a whole, and what one change does."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from fleetplan.report.charts import INK, Spec, finished, inline, verdicts
from fleetplan.report.reading import Row

# Heights [px] hold axis and legend too: on a narrow page the legend has a line a part, and few bars must not vanish under it.
_AXIS = 45
_LEGEND = 65


def stacked_bars(rows: Sequence[Row], title: str, parts: Sequence[str], order: Sequence[str]) -> Spec:
    """Horizontal bars of parts. `rows`: label, part (one of `parts`), value; `order` gives the bars from the top."""
    ranks = {part: index for index, part in enumerate(parts)}
    data = [{**row, "rank": ranks[row["part"]]} for row in rows]
    chart = (
        alt.Chart(inline(data))
        .mark_bar(height={"band": 0.62})
        .encode(
            y=alt.Y("label:N", title=None, sort=list(order), axis=alt.Axis(labelLimit=230, domain=False)),
            x=alt.X("value:Q", title=title, stack="zero"),
            order=alt.Order("rank:Q"),
            color=alt.Color(
                "part:N",
                title=None,
                sort=list(parts),
                scale=alt.Scale(domain=list(parts), range=_shades(len(parts))),
            ),
            tooltip=[
                alt.Tooltip("label:N"),
                alt.Tooltip("part:N"),
                alt.Tooltip("value:Q", title=title, format=".4~g"),
            ],
        )
    )
    return finished(chart, 30 * len(order) + _AXIS + _LEGEND)


def tornado(rows: Sequence[Row], title: str, today: float) -> Spec:
    """Bars from today's value to each lever's. `rows`: label, value, better (bool), sorted as they are shown."""
    data = [
        {
            "label": row["label"],
            "value": row["value"],
            "today": today,
            "verdict": "holds" if row["better"] else "fails",
        }
        for row in rows
    ]
    order = [row["label"] for row in rows]
    bars = (
        alt.Chart(inline(data))
        .mark_bar(height={"band": 0.55})
        .encode(
            y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=340, domain=False)),
            x=alt.X("today:Q", title=title, scale=alt.Scale(zero=False)),
            x2="value:Q",
            color=alt.Color("verdict:N", scale=verdicts(), legend=None),
            tooltip=[
                alt.Tooltip("label:N", title="lever"),
                alt.Tooltip("value:Q", title=title, format=",.4~g"),
            ],
        )
    )
    rule = alt.Chart(inline([{"today": today}])).mark_rule(color=INK).encode(x="today:Q")
    return finished(alt.layer(bars, rule), 28 * len(order) + _AXIS)


def ranked(rows: Sequence[Row], title: str, mark: tuple[float, str], tick_step: float | None = None) -> Spec:
    """One bar a row, from the top as given, and a named rule. `rows`: label, value, verdict (holds, fails, unknown)."""
    looks = {"holds": "var(--s1)", "fails": "var(--bad)", "unknown": "var(--rest)"}
    order = [row["label"] for row in rows]
    axis = alt.Axis(tickMinStep=tick_step) if tick_step else alt.Axis()
    bars = (
        alt.Chart(inline(rows))
        .mark_bar(height={"band": 0.55})
        .encode(
            y=alt.Y("label:N", title=None, sort=order, axis=alt.Axis(labelLimit=230, domain=False)),
            x=alt.X("value:Q", title=title, axis=axis),
            color=alt.Color(
                "verdict:N", scale=alt.Scale(domain=list(looks), range=list(looks.values())), legend=None
            ),
            tooltip=[alt.Tooltip("label:N"), alt.Tooltip("value:Q", title=title, format=",.4~g")],
        )
    )
    at = alt.Chart(inline([{"value": mark[0], "label": mark[1]}]))
    rule = at.mark_rule(color=INK, strokeDash=[4, 3]).encode(x="value:Q")
    text = at.mark_text(align="right", baseline="bottom", dx=-3, dy=-2, color=INK, fontSize=11.5).encode(
        x="value:Q", y=alt.value(0), text="label:N"
    )
    return finished(alt.layer(bars, rule, text), 32 * len(order) + _AXIS)


def _shades(parts: int) -> list[str]:
    """A colour for each part of a bar; the last of three or more is what is left over."""
    named = ["var(--s1)", "var(--s4)", "var(--s5)", "var(--s3)", "var(--s2)"]
    return named[:parts] if parts < 3 else [*named[: parts - 1], "var(--rest)"]
