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
    from fleetplan.spec.several import read_all

    return {found.path: list(found.faults) for found in read_all(paths)}
