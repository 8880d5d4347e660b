"""From a YAML document to a checked model: all faults of a file at once, in the order of its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fleetplan.errors import InputError
from fleetplan.spec.base import Model
from fleetplan.spec.document import Document, Place
from fleetplan.spec.faults import faults
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.spec.units import shown

M = TypeVar("M", bound=Model)


def model_of(kind: type[M], document: Document) -> M:
    """The document as this model. Raises InputError with a line for each fault."""
    found = list(document.faults)
    result: Any = None
    if not isinstance(document.value, dict):
        if not found:
            place = document.place(())
            found.append(
                (
                    place,
                    (),
                    f"must be a mapping of keys (got {shown(document.value)}), like 'scenario: my-name'",
                )
            )
    else:
        try:
            result = kind.model_validate(document.value)
        except ValidationError as error:
            found += faults(error, kind, document)
    if found:
        raise InputError(*[document.line(*fault) for fault in sorted(found, key=lambda f: (f[0], str(f[1])))])
    return result


def scenario_of(document: Document, folder: Path) -> Asked:
    """The document as a scenario whose references hold. Raises InputError with a line for each fault."""
    from fleetplan.spec.references import faults as references

    scenario: Asked
    if isinstance(document.value, dict) and "endpoint" in document.value:
        from fleetplan.spec.endpoint import EndpointScenario

        scenario = model_of(EndpointScenario, document)
    else:
        try:
            scenario = model_of(Scenario, document)
        except InputError as error:
            raise InputError(*_with_references(error.lines, document, folder)) from None
    scenario._folder = folder
    scenario._document = document
    if found := references(scenario):
        places = sorted((document.place(loc), loc, sentence) for loc, sentence in found)
        raise InputError(*[document.line(*fault) for fault in places])
    return scenario


def _with_references(lines: tuple[str, ...], document: Document, folder: Path) -> list[str]:
    """The faults of the form, and those of the references that stand in what is sound of the file, by place."""
    from fleetplan.spec.partial import sound
    from fleetplan.spec.references import faults as references

    if not isinstance(document.value, dict):
        return list(lines)
    scenario, original = sound(document.value)
    scenario._folder = folder
    found = {line: _place(line, document.file) for line in lines}
    told = set(found.values())
    for loc, sentence in references(scenario, whole=False):
        loc = original(loc)
        # what the file does not have is a default that stands in for a faulty value: its fault is told already
        if (loc in document.values or loc in document.keys) and document.place(loc) not in told:
            found[document.line(document.place(loc), loc, sentence)] = document.place(loc)
    return sorted(found, key=lambda line: found[line])


def _place(line: str, file: str) -> Place:
    row, column = line.removeprefix(f"{file}:").split(":", 2)[:2]
    return int(row), int(column)
