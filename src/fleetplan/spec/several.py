"""Several spec files at once: what each holds, under which name, and what is wrong with it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fleetplan.errors import InputError
from fleetplan.spec.document import Document, read
from fleetplan.spec.fleet import SharedFleet, fleet_of
from fleetplan.spec.reading import scenario_of

if TYPE_CHECKING:
    from fleetplan.spec.scenario import Asked

_NAME = re.compile(r"^(?:scenario|fleet):[ \t]+[\"']?([^\s\"'#]+)", re.MULTILINE)


@dataclass(frozen=True)
class SpecFile:
    """One file: a scenario, or a fleet of several."""

    path: str
    name: str
    """The name that it gives itself, as far as it can be read; else that of the file."""
    spec: Asked | SharedFleet | None
    """None: it is faulty in itself."""
    faults: tuple[str, ...]
    """One line each; a name that an earlier file has is a fault too."""


def read_all(paths: Iterable[str | Path]) -> list[SpecFile]:
    """Each file once, in the order given; scenarios and fleets must differ in their names."""
    found: list[SpecFile] = []
    owner: dict[str, str] = {}
    for path in dict.fromkeys(map(str, paths)):
        document: Document | None = None
        try:
            document = read(Path(path))
            spec = _spec_in(document, Path(path).parent)
        except InputError as error:
            found.append(SpecFile(path, _name_in(path), None, error.lines))
            continue
        key = "fleet" if isinstance(spec, SharedFleet) else "scenario"
        name = spec.fleet if isinstance(spec, SharedFleet) else spec.scenario
        faults: tuple[str, ...] = ()
        if name in owner:
            line, column = document.place((key,))
            faults = (
                f"{path}:{line}:{column}: {key}: is the name of {owner[name]} too (got {name}), give each file a name of its own",
            )
        owner.setdefault(name, path)
        found.append(SpecFile(path, name, spec, faults))
    return found


def _spec_in(document: Document, folder: Path) -> Asked | SharedFleet:
    if isinstance(document.value, dict) and "fleet" in document.value and "scenario" not in document.value:
        return fleet_of(document, folder)
    return scenario_of(document, folder)


def _name_in(path: str) -> str:
    """The name in a file that cannot be read as a spec: its line `scenario: NAME`, where there is one."""
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    line = _NAME.search(text)
    return line.group(1) if line else Path(path).stem
