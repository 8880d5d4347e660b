"""Pages as text: one file that holds its style, its charts, its data and the one script that draws them."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from fleetplan import __version__
from fleetplan.report import definitions
from fleetplan.report.blocks import Figure, Missing, Section, Table, Text
from fleetplan.report.changes import Changes
from fleetplan.report.headline import Headline


def page(
    *,
    scenario: str,
    version: int,
    digest: str,
    written: str,
    headline: Headline,
    changes: Changes | None,
    sections: list[Section],
    meaning: Mapping[str, Any],
) -> str:
    """A scenario's page: complete, and drawn without any request to a network."""
    figures = [block for section in sections for block in section.blocks if isinstance(block, Figure)]
    scripts = (_bundle(), _asset("report.js")) if figures else ()
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            scenario=scenario,
            version=version,
            digest=digest,
            written=written,
            headline=headline,
            changes=changes,
            sections=sections,
            definitions=definitions.METRICS,
            meaning=embedded(meaning),
            specs=[(figure.name, embedded(figure.spec)) for figure in figures],
            scripts=[Markup(script) for script in scripts],
            policy=policy(scripts),
            style=Markup(_asset("report.css")),
            program=f"fleetplan {__version__}",
        )
    )


def index(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The list of all scenarios and their versions."""
    return (
        _environment()
        .get_template("index.html.j2")
        .render(
            manifests=manifests,
            style=Markup(_asset("report.css")),
            policy=policy(()),
            program=f"fleetplan {__version__}",
        )
    )


def embedded(value: Any) -> Markup:
    """JSON that is safe inside a script element, whatever texts it holds.

    >>> str(embedded({"label": "</script>"}))
    '{"label":"\\\\u003c/script>"}'
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return Markup(text)


def policy(scripts: tuple[str, ...]) -> str:
    """The page's content security policy: these scripts alone, and no request to anywhere."""
    hashes = " ".join(
        f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
        for script in scripts
    )
    run = f"script-src {hashes} 'unsafe-eval'; " if hashes else ""  # Vega compiles its expressions
    return f"default-src 'none'; {run}style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


@functools.cache
def _bundle() -> str:
    import vl_convert

    text = str(vl_convert.javascript_bundle())  # type: ignore[call-arg]
    if "</script" in text.lower() or "<!--" in text:
        raise ValueError("the chart bundle holds text that would end its own script element")
    return text


@functools.cache
def _asset(name: str) -> str:
    return resources.files("fleetplan.report").joinpath("templates", name).read_text(encoding="utf-8")


@functools.cache
def _environment() -> jinja2.Environment:
    from fleetplan.report import units

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetplan.report", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(units=units)
    environment.tests.update(
        {
            "figure": lambda block: isinstance(block, Figure),
            "tabular": lambda block: isinstance(block, Table),
            "prose": lambda block: isinstance(block, Text),
            "missing": lambda block: isinstance(block, Missing),
        }
    )
    return environment
