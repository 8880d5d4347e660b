"""The accuracy page: predicted against measured, fitted and held out apart, with the worst ten named; one file, no request."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Accuracy of the step times</title>
<style>
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #5b6470; --line: #d7dce2; --paper: #fff; --moe: #b4540a; --dense: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8ebef; --soft: #9aa4b0; --line: #343b44; --paper: #14171b; --moe: #f0a35e; --dense: #7fb2ee; } }
body { margin: 2rem auto; max-width: 64rem; padding: 0 1rem; font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; } th:first-child, td:first-child { text-align: left; }
th { color: var(--soft); font-weight: 600; } p, li { max-width: 46rem; } .soft { color: var(--soft); }
svg { width: 100%; max-width: 34rem; height: auto; } .dense { fill: var(--dense); } .moe { fill: var(--moe); } svg line { stroke: var(--line); } svg text { fill: var(--soft); font-size: 11px; }
</style></head><body>
<h1>How far predicted step times are from measurements</h1>
<p>{{ document.points }} public points{% if document.excluded %}; left out: {% for reason, n in document.excluded.items() %}{{ n }} × {{ reason }}{{ "; " if not loop.last }}{% endfor %}{% endif %}.
Errors are |predicted / measured − 1| in percent: median / mean / 90th percentile.</p>
<h2>TPOT, predicted against measured</h2>
<svg viewBox="0 0 440 440" role="img" aria-label="Predicted TPOT over measured TPOT, both logarithmic; the diagonal is a perfect prediction">
{% for tick in ticks %}<line x1="{{ tick.at }}" x2="{{ tick.at }}" y1="20" y2="400"/><line x1="40" x2="420" y1="{{ 420 - tick.at + 20 }}" y2="{{ 420 - tick.at + 20 }}"/>
<text x="{{ tick.at }}" y="415" text-anchor="middle">{{ tick.label }}</text><text x="34" y="{{ 444 - tick.at }}" text-anchor="end">{{ tick.label }}</text>{% endfor %}
<line x1="40" y1="400" x2="420" y2="20"/>
{% for dot in dots %}<circle cx="{{ dot.x }}" cy="{{ dot.y }}" r="2.6" opacity=".65" class="{{ dot.kind }}"><title>{{ dot.title }}</title></circle>{% endfor %}
<text x="230" y="435" text-anchor="middle">measured [ms]</text><text x="44" y="14">predicted [ms]: dense blue, MoE orange</text></svg>
<h2>Held out: constants that never saw the point</h2>
<div class="scroll"><table><tr><th>left out together</th><th>points</th><th>TPOT</th><th>TTFT</th><th>output tokens/s</th></tr>
{% for way, tables in (document.held_out or {}).items() %}{% for name, table in tables.items() if "points" in table %}
<tr><td>{{ way }}: {{ name }}</td><td>{{ table.points }}</td><td>{{ table.tpot|errors }}</td><td>{{ table.ttft|errors }}</td><td>{{ table.output_tokens_per_s|errors }}</td></tr>
{% endfor %}{% endfor %}</table></div>
<p class="soft">deployment: other points of the same model, GPU and engine were seen; pair: the whole (model, GPU, engine) was left out; nearest: the whole (GPU, engine) was.</p>
<h2>With the shipped constants, which saw these points</h2>
<div class="scroll"><table><tr><th>which</th><th>points</th><th>TPOT</th><th>TTFT</th><th>output tokens/s</th></tr>
<tr><td>all</td><td>{{ document.points }}</td><td>{{ document.tpot|errors }}</td><td>{{ document.ttft|errors }}</td><td>{{ document.output_tokens_per_s|errors }}</td></tr>
{% for kind, tables in document.by.items() %}{% for name, table in tables.items() %}
<tr><td>{{ kind }}: {{ name }}</td><td>{{ table.points }}</td><td>{{ table.tpot|errors }}</td><td>{{ table.ttft|errors }}</td><td>{{ table.output_tokens_per_s|errors }}</td></tr>
{% endfor %}{% endfor %}</table></div>
{% if ablation %}<h2>What each term buys</h2>
<p>Everything fitted anew without it; whole (model, GPU, engine) groups left out, and single points of known deployments beside them.</p>
<div class="scroll"><table><tr><th>without</th><th>groups: TPOT</th><th>groups: TTFT median</th><th>points: TPOT</th></tr>
{% for name, ways in ablation.items() %}<tr><td>{{ name }}</td><td>{{ ways.pair|terms }}</td><td>{{ "%.1f"|format(100 * ways.pair.ttft_error_median) }}</td><td>{{ ways.deployment|terms }}</td></tr>
{% endfor %}</table></div>{% endif %}
{% if others %}<h2>Other published tables, nothing fitted to them</h2>
<div class="scroll"><table><tr><th>measured</th><th>constants</th><th>metric</th><th>rows</th><th>error</th><th>left out</th></tr>
{% for row in others %}<tr><td>{{ row.measured }} ({{ row.source }})</td><td>{{ row.constants }}</td><td>{{ row.metric }}</td><td>{{ row.rows }}</td>
<td>{{ "%.0f / %.0f / %.0f"|format(100 * row.error_median|float, 100 * row.error_mean|float, 100 * row.error_p90|float) }}</td><td>{{ row.left_out }}</td></tr>
{% endfor %}</table></div>{% endif %}
<h2>The worst ten</h2>
<ol>{% for row in document.worst_ten %}<li>{{ row.model }} on {{ row.gpus }} × {{ row.gpu }}, {{ row.engine }} {{ row.engine_version }}, {{ row.precision }}, {{ row.prompt_tokens }} in and {{ row.output_tokens }} out at {{ row.concurrency }}:
TPOT {{ "%.1f"|format(1000 * row.tpot_measured_s) }} ms measured, {{ "%.1f"|format(1000 * row.tpot_predicted_s) }} ms predicted{% if row.flag %} ({{ row.flag }}){% endif %}</li>{% endfor %}</ol>
</body></html>
"""


def write_accuracy(
    document: dict[str, Any],
    rows: Sequence[dict[str, Any]],
    path: Path,
    ablation: Sequence[dict[str, Any]] = (),
    others: Sequence[dict[str, str]] = (),
) -> None:
    """Write the page of a validation (`calibration.validate.validate`), whole or not at all; beside it the ablation and errors on other tables."""
    terms: dict[str, dict[str, Any]] = {}
    for row in ablation:
        terms.setdefault(row["without"], {})[row["left_out"]] = row
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["errors"] = _errors
    environment.filters["terms"] = _terms
    page = environment.from_string(_PAGE).render(
        document=document,
        ticks=_ticks(),
        dots=[_dot(row) for row in rows],
        ablation=terms,
        others=others,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(page, encoding="utf-8")
    os.replace(temporary, path)


_LOW_MS, _HIGH_MS = 2.0, 200.0


def _at(seconds: float) -> float:
    value = min(max(1e3 * seconds, _LOW_MS), _HIGH_MS)
    return round(40 + 380 * math.log(value / _LOW_MS) / math.log(_HIGH_MS / _LOW_MS), 1)


def _ticks() -> list[dict[str, Any]]:
    return [{"at": _at(ms / 1e3), "label": f"{ms}"} for ms in (2, 5, 10, 20, 50, 100, 200)]


def _dot(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "x": _at(row["tpot_measured_s"]),
        "y": round(440 - _at(row["tpot_predicted_s"]), 1),
        "kind": "moe" if row["regime"].startswith("moe") else "dense",
        "title": f"{row['model']} on {row['gpus']} × {row['gpu']}, {row['engine']}, {row['prompt_tokens']}/{row['output_tokens']} at {row['concurrency']}",
    }


def _errors(table: dict[str, float] | None) -> str:
    return (
        "–" if table is None else " / ".join(f"{100 * table[key]:.1f}" for key in ("median", "mean", "p90"))
    )


def _terms(row: dict[str, float]) -> str:
    return " / ".join(f"{100 * row[f'tpot_error_{key}']:.1f}" for key in ("median", "mean", "p90"))
