"""Versions of a report: written once under a name that holds their digest, a manifest beside them, an index over all."""

from __future__ import annotations

import contextlib
import fcntl
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fleetplan.errors import InputError
from fleetplan.store.files import whole

_PAGE = re.compile(r"v(\d{3,})-([0-9a-f]{12})\.html")
_MEANING = re.compile(r'<script type="application/json" id="meaning">(.*?)</script>', re.S)


@dataclass(frozen=True)
class Version:
    """One page of a scenario: its number, the digest in its name, and its file."""

    number: int
    digest: str
    path: Path


def folder(out: Path, scenario: str) -> Path:
    """The folder of a scenario's pages; a name that is no plain file name is refused."""
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", scenario):
        raise InputError(
            f"scenario: cannot name a folder (got {scenario!r}), "
            "takes letters, digits, '.', '_' and '-', the first a letter or digit"
        )
    return out / scenario


def found(out: Path, scenario: str) -> list[Version]:
    """The versions of a scenario, oldest first."""
    place = folder(out, scenario)
    if not place.is_dir():
        return []
    matches = ((_PAGE.fullmatch(path.name), path) for path in place.iterdir())
    return sorted(
        (Version(int(match[1]), match[2], path) for match, path in matches if match),
        key=lambda version: version.number,
    )


def page_path(out: Path, scenario: str, number: int, digest: str) -> Path:
    """Where the page of a version lies."""
    return folder(out, scenario) / f"v{number:03d}-{digest}.html"


def meaning(page: Path) -> dict[str, Any]:
    """What a page says, as it holds it for the comparison with the next version; empty for a page without it."""
    match = _MEANING.search(page.read_text(encoding="utf-8"))
    return dict(json.loads(match[1])) if match else {}


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def manifest(out: Path, scenario: str) -> dict[str, Any]:
    """The manifest of a scenario as its pages give it: the newest version, and all of them, newest first."""
    versions = [
        {
            "version": version.number,
            "digest": version.digest,
            "path": version.path.relative_to(out).as_posix(),
            **meaning(version.path).get("summary", {}),
        }
        for version in reversed(found(out, scenario))
    ]
    if not versions:
        return {"scenario": scenario, "versions": []}
    newest = versions[0]
    return {
        "scenario": scenario,
        **{key: newest[key] for key in ("version", "digest", "path")},
        "versions": versions,
    }


def manifest_text(content: dict[str, Any]) -> str:
    """A manifest as its file holds it."""
    return json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def reported(out: Path) -> list[str]:
    """The scenarios that have at least one page."""
    if not out.is_dir():
        return []
    names = sorted(path.name for path in out.iterdir() if path.is_dir() and not path.name.startswith("."))
    return [name for name in names if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", name) and found(out, name)]


@contextlib.contextmanager
def locked(out: Path) -> Iterator[None]:
    """Hold the folder of reports alone; the system lets go of it when the process ends, however it ends."""
    out.mkdir(parents=True, exist_ok=True)
    with (out / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
