"""From a YAML document to a checked model: all faults of a file at once, in the order of its lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from fleetplan.errors import InputError
from fleetplan.spec.base import Model
from fleetplan.spec.document import Document
from fleetplan.spec.faults import faults
from fleetplan.spec.scenario import Scenario
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


def scenario_of(document: Document, folder: Path) -> Scenario:
    """The document as a scenario whose references hold. Raises InputError with a line for each fault."""
    from fleetplan.spec.references import faults as references

    scenario = model_of(Scenario, document)
    scenario._folder = folder
    scenario._document = document
    if found := references(scenario):
        places = sorted((document.place(loc), loc, sentence) for loc, sentence in found)
        raise InputError(*[document.line(*fault) for fault in places])
    return scenario
