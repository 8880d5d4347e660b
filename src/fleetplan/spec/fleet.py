"""A fleet that several scenarios share: which ones, what stock of GPUs there is, and what may be spent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import PrivateAttr, model_validator

from fleetplan.errors import InputError
from fleetplan.spec.base import ManyOrNone, Model, Name, Text, UsdPerHour, fault
from fleetplan.spec.candidates import EACH_ONCE
from fleetplan.spec.document import Document, read
from fleetplan.spec.reading import model_of

if TYPE_CHECKING:
    from fleetplan.spec.scenario import Asked


class SharedFleet(Model):
    """Several scenarios on one pool of GPUs, one budget, or both."""

    fleet: Name
    """Name of the fleet."""
    title: Text = ""
    """A line for people."""
    scenarios: Annotated[tuple[Text, ...], *EACH_ONCE]
    """Scenario files, from this file's folder."""
    stock: dict[Text, ManyOrNone] | None = None
    """Most GPUs that all scenarios together can have, by GPU; of those not named as many as wanted."""
    budget_usd_per_hour: UsdPerHour | None = None
    """Most that all scenarios together may cost."""

    _loaded: tuple[Asked, ...] = PrivateAttr(default=())

    @model_validator(mode="after")
    def _limited(self) -> Self:
        if self.stock is None and self.budget_usd_per_hour is None:
            raise fault(
                "shares nothing (got neither stock nor budget), give one, like stock: {h100-sxm: 16}; "
                "scenarios that share nothing are planned one by one"
            )
        return self

    @property
    def loaded(self) -> tuple[Asked, ...]:
        """The scenarios, read and checked."""
        return self._loaded

    def limits(self) -> dict[str, int]:
        """The stock by catalogue name."""
        from fleetplan import catalog

        return {catalog.gpu(name).name: count for name, count in (self.stock or {}).items()}


def load_fleet(path: str | Path) -> SharedFleet:
    """The fleet of a file with its scenarios. Raises InputError with a line for each fault of any of the files."""
    path = Path(path)
    return fleet_of(read(path), path.parent)


def fleet_of(document: Document, folder: Path) -> SharedFleet:
    """The document as a fleet whose scenarios and GPUs are there."""
    from fleetplan import catalog
    from fleetplan.spec import load

    made = model_of(SharedFleet, document)
    lines: list[str] = []

    def say(loc: tuple[str | int, ...], sentence: str) -> None:
        lines.append(document.line(document.place(loc), loc, sentence))

    scenarios: list[Asked] = []
    for index, name in enumerate(made.scenarios):
        if not (folder / name).is_file():
            say(
                ("scenarios", index),
                f"names a file that is not there (got {folder / name}), give a path from the fleet's folder",
            )
            continue
        try:
            scenario = load(folder / name)
        except InputError as error:
            lines.extend(error.lines)
            continue
        if scenario.scenario in (s.scenario for s in scenarios):
            say(
                ("scenarios", index),
                f"has the name of another one (got {scenario.scenario}), names must differ",
            )
        scenarios.append(scenario)
    known: dict[str, str] = {}
    for name in made.stock or {}:
        try:
            gpu = catalog.gpu(name).name
        except InputError as error:
            say(("stock", name), error.lines[0].removeprefix("gpu: "))
            continue
        if gpu in known:
            say(
                ("stock", name),
                f"is the same GPU as {known[gpu]!r} (got {name!r}, both are {gpu}), keep one",
            )
        known[gpu] = name
    if lines:
        raise InputError(*lines)
    made._loaded = tuple(scenarios)
    return made
