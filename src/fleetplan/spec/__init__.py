"""What a user may write: scenarios as frozen models, with units, and with the line and column of every fault."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fleetplan.spec.scenario import Asked


def load(path: str | Path) -> Asked:
    """The scenario of a file, checked against the catalogues.

    Raises InputError with one line `file:line:column: dotted.path: sentence` for each fault of the file.
    """
    from fleetplan.spec.document import read
    from fleetplan.spec.reading import scenario_of

    path = Path(path)
    return scenario_of(read(path), path.parent)


def loads(text: str | bytes, file: str = "<spec>", folder: str | Path = ".") -> Asked:
    """The scenario of a text, as `load` of a file of that name in that folder."""
    from fleetplan.spec.document import parse
    from fleetplan.spec.reading import scenario_of

    return scenario_of(parse(text.encode() if isinstance(text, str) else text, file), Path(folder))


def validate(paths: Iterable[str | Path]) -> list[str]:
    """The faults of these files, one line each; none where all are right. Scenario names must differ among them."""
    return [line for lines in check(paths).values() for line in lines]


def check(paths: Iterable[str | Path]) -> dict[str, list[str]]:
    """The faults of each file, one line each, by its path as given."""
    from fleetplan.errors import InputError

    found: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for path in map(str, paths):
        if path in found:
            continue
        found[path] = []
        try:
            scenario, at = _scenario_in(path)
        except InputError as error:
            found[path] = list(error.lines)
            continue
        if scenario is None:
            continue
        name = scenario.scenario
        if name in names:
            found[path].append(
                f"{path}:{at[0]}:{at[1]}: scenario: is the name of {names[name]} too (got {name}), give each file a name of its own"
            )
        names[name] = path
    return found


def _scenario_in(path: str) -> tuple[Asked | None, tuple[int, int]]:
    """The scenario of a file and where its name stands; None where it holds a fleet of scenarios, which is checked too."""
    from fleetplan.spec.document import read
    from fleetplan.spec.reading import scenario_of

    document = read(Path(path))
    if isinstance(document.value, dict) and "fleet" in document.value and "scenario" not in document.value:
        from fleetplan.spec.fleet import fleet_of

        fleet_of(document, Path(path).parent)
        return None, (1, 1)
    return scenario_of(document, Path(path).parent), document.place(("scenario",))
