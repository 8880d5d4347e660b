"""Where a page's figures come from: digests of the spec and of the code, seeds, versions."""

from __future__ import annotations

import platform
from importlib import metadata

from fleetplan.report.blocks import Block, Missing, Section
from fleetplan.report.reading import Store
from fleetplan.report.tabulate import query, table

_LIBRARIES = ("fleetplan", "numpy", "numba", "duckdb", "altair", "vl-convert-python")


def section(store: Store, scenario: str) -> Section:
    """The section of provenance: one row a part, and the versions of the libraries that wrote the page."""
    blocks: list[Block] = []
    parts = store.table("parts", scenario)
    if parts:
        short = [
            {key: _short(key, value) for key, value in row.items() if key != "scenario"} for row in parts
        ]
        blocks.append(
            table(
                "parts",
                short,
                "Parts that this page was made from",
                query=query("parts", scenario),
            )
        )
    else:
        blocks.append(Missing("The store does not say from which parts it was loaded."))
    libraries = [{"library": "python", "version": platform.python_version()}]
    libraries += [{"library": name, "version": metadata.version(name)} for name in _LIBRARIES]
    blocks.append(table("", libraries, "Versions that wrote this page"))
    return Section(
        "provenance",
        "Where it comes from",
        "Equal spec, code and seed give equal parts; the digests here say which.",
        blocks,
    )


def _short(key: str, value: object) -> object:
    if key in ("spec_digest", "code_fingerprint", "sha256") and isinstance(value, str):
        return value[:12]
    return value
