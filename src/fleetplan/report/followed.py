"""The page of a run followed through time: measured and simulated lines, one file, no request."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import jinja2

_WIDTH, _HEIGHT, _LEFT, _TOP = 640, 180, 48, 12

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d7dce2; --paper: #fff; --a: #1f5fa8; --b: #b4540a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebef; --soft: #9aa4b0; --line: #343b44; --paper: #14171b; --a: #7fb2ee; --b: #f0a35e; } }
body { margin: 2rem auto; max-width: 46rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin: 1.6rem 0 .3rem; } .soft { color: var(--soft); }
svg { width: 100%; height: auto; } polyline { fill: none; stroke-width: 1.6; } .measured { stroke: var(--a); } .simulated { stroke: var(--b); stroke-dasharray: 5 3; }
svg line { stroke: var(--line); } svg text { fill: var(--soft); font-size: 11px; }
</style></head><body>
<h1>{{ title }}</h1>
<p>Measured: blue; simulated: orange, dashed. {{ note }}</p>
{% for panel in panels %}
<h2>{{ panel.title }}</h2>
<svg viewBox="0 0 {{ width }} {{ height + 40 }}" role="img" aria-label="{{ panel.title }} over time, measured and simulated: on average {{ panel.apart }} of the highest value apart">
<line x1="{{ left }}" x2="{{ width - 8 }}" y1="{{ top + height }}" y2="{{ top + height }}"/><line x1="{{ left }}" x2="{{ left }}" y1="{{ top }}" y2="{{ top + height }}"/>
<text x="{{ left - 6 }}" y="{{ top + 8 }}" text-anchor="end">{{ panel.most }}</text><text x="{{ left - 6 }}" y="{{ top + height }}" text-anchor="end">0</text>
<text x="{{ left }}" y="{{ top + height + 16 }}">0 s</text><text x="{{ width - 8 }}" y="{{ top + height + 16 }}" text-anchor="end">{{ last }} s</text>
<polyline class="measured" points="{{ panel.measured }}"/><polyline class="simulated" points="{{ panel.simulated }}"/></svg>
<p class="soft">On average {{ panel.apart }} of the highest measured value apart.</p>
{% endfor %}
</body></html>
"""


def write_followed(
    title: str,
    note: str,
    time_s: Sequence[float],
    panels: Mapping[str, tuple[Sequence[float], Sequence[float], float]],
    path: Path,
) -> None:
    """Write the page whole or not at all; `panels`: title → measured, simulated, mean distance as a share of the highest."""
    last = max(time_s)
    drawn = []
    for name, (measured, simulated, apart) in panels.items():
        most = max(*measured, *simulated, 1e-9)
        drawn.append(
            {
                "title": name,
                "most": f"{most:.4g}",
                "apart": f"{apart:.1%}",
                "measured": _points(time_s, measured, last, most),
                "simulated": _points(time_s, simulated, last, most),
            }
        )
    page = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    text = page.from_string(_PAGE).render(
        title=title, note=note, panels=drawn, last=f"{last:.4g}", width=_WIDTH, height=_HEIGHT, left=_LEFT, top=_TOP
    )  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _points(time_s: Sequence[float], values: Sequence[float], last: float, most: float) -> str:
    across = (_WIDTH - 8 - _LEFT) / max(last, 1e-9)
    return " ".join(
        f"{_LEFT + across * max(t, 0.0):.1f},{_TOP + _HEIGHT * (1 - v / most):.1f}"
        for t, v in zip(time_s, values, strict=True)
    )
