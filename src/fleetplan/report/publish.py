"""From the store to the folder of reports: a version where the meaning is new, its manifest, the index."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

from fleetplan.report import changes, page, provenance, versions
from fleetplan.report.headline import headline
from fleetplan.report.reading import Store, chosen, opened
from fleetplan.report.sections import sections


def publish(
    store_path: Path, out: Path, wanted: tuple[str, ...] = (), rewrite: bool = False
) -> list[dict[str, Any]]:
    """Report the wanted scenarios (all without names) of the store in the folder `out`; returns their manifests.

    A page is written when the store says something else than the newest version, under the next number; `rewrite` draws
    the newest version again in its place. Manifests and index are written each time, from the pages that are there. Each
    file appears whole or not at all, so a run that was killed is mended by the next.
    """
    with opened(store_path) as store, versions.locked(out):
        manifests = [_scenario(store, out, name, rewrite) for name in chosen(store, wanted)]
        everything = [versions.manifest(out, name) for name in versions.reported(out)]
        versions.write(out / "index.html", page.index(everything))
    return manifests


def _scenario(store: Store, out: Path, scenario: str, rewrite: bool) -> dict[str, Any]:
    now = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    said = changes.meaning(store, scenario, now)
    digest = said["digest"][:12]
    known = versions.found(out, scenario)
    newest = known[-1] if known else None
    same = newest is not None and newest.digest == digest
    fresh = None
    if not same or rewrite:
        before = known[:-1] if same else known
        number = before[-1].number + 1 if before else 1
        text = page.page(
            scenario=scenario,
            version=number,
            digest=digest,
            written=now,
            headline=headline(store, scenario),
            changes=changes.compare(versions.meaning(before[-1].path), said, before[-1].number)
            if before
            else None,
            sections=[*sections(store, scenario), provenance.section(store, scenario)],
            meaning=said,
        )
        fresh = versions.page_path(out, scenario, number, digest)
        versions.write(fresh, text)
    content = versions.manifest(out, scenario)
    versions.write(versions.folder(out, scenario) / "manifest.json", versions.manifest_text(content))
    return {**content, "new": fresh is not None and not same}
