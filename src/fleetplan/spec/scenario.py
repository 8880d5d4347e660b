"""A scenario: one question to the planner, whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PrivateAttr

from fleetplan.spec.base import (
    Count,
    Many,
    Model,
    Name,
    Seconds,
    SecondsOrZero,
    Text,
    Whole,
)
from fleetplan.spec.candidates import Candidates
from fleetplan.spec.document import Document
from fleetplan.spec.policy import Policy
from fleetplan.spec.slo import Slo
from fleetplan.spec.steptime import StepTimeChoice
from fleetplan.spec.workload import ClassesWorkload, Deadline, TraceWorkload, Workload


class Simulation(Model):
    """How long and how often the traffic is simulated; what is left out the planner chooses."""

    horizon_s: Seconds | None = None
    """Simulated time of one replication; left out: long enough for the promised percentiles."""
    warm_up_s: SecondsOrZero | None = None
    """Requests that arrive before this are not judged; left out: a tenth of the horizon."""
    replications: Annotated[Count, Field(le=10_000)] | None = None
    """Independent runs; left out: as many as the confidence takes."""


class Asked(Model):
    """What every scenario has, whatever serves its traffic."""

    if TYPE_CHECKING:
        scenario: str
        title: str
        policy: Policy
        simulation: Simulation
        seed: int

    _folder: Path = PrivateAttr(default=Path("."))
    _document: Document | None = PrivateAttr(default=None)

    @property
    def folder(self) -> Path:
        """Folder that the paths in the spec start from: that of the file it was read from."""
        return self._folder

    @property
    def drawn(self) -> Workload:
        """The traffic that is drawn."""
        raise NotImplementedError

    def gpus(self) -> tuple[str, ...]:
        """GPUs that it names, as written."""
        raise NotImplementedError

    def files(self) -> dict[str, Path]:
        """The files that the spec names, by dotted path."""
        raise NotImplementedError

    def line(self, path: tuple[str | int, ...], sentence: str) -> str:
        """`file:line:column: dotted.path: sentence` for a fault that is found after reading; written keys, not stored names."""
        document = self._document or Document(self.scenario)
        return document.line(document.place(path), path, sentence)

    def slos(self) -> dict[str, Slo | None]:
        """Promises by class name, in the order of the classes."""
        drawn = self.drawn
        if isinstance(drawn, ClassesWorkload):
            return {c.name: c.slo for c in drawn.classes}
        return {drawn.name: drawn.slo}

    def deadlines(self) -> dict[str, Deadline]:
        """Deadlines by class name."""
        drawn = self.drawn
        classes = drawn.classes if isinstance(drawn, ClassesWorkload) else ()
        return {c.name: c.deadline for c in classes if c.deadline is not None}

    def meaning(self) -> dict[str, Any]:
        """All that can change a result, defaults filled in and SI throughout, as strict JSON: what digests are taken of."""
        return self.model_dump(mode="json", exclude={"title"})


class Scenario(Asked):
    """What one file of data/scenarios/ asks: this model, this traffic, these promises, on which hardware."""

    scenario: Name
    """Name of the scenario; it names its parts and reports."""
    title: Text = ""
    """A line for people."""
    model: Text
    """A catalogue name, or a path to a config.json from the spec's folder."""
    workload: Workload
    """The traffic and its promises: `classes`, `empirical` or `trace`."""
    candidates: Candidates
    """The grid that is searched."""
    capacity: dict[Text, Many] | None = None
    """GPUs that there are already, by GPU: what they hold of this traffic is told beside the decision."""
    step_time: StepTimeChoice = "calibrated"
    """Model of a step's time: calibrated, or {roofline: …}, {affine: …}, {table: path}."""
    policy: Policy
    """Prices, headroom, spares and confidence of the decision."""
    simulation: Simulation = Simulation()
    """Length and number of the simulations."""
    seed: Whole = 0
    """Seed of every random draw."""

    @property
    def drawn(self) -> Workload:
        """The traffic as written."""
        return self.workload

    def gpus(self) -> tuple[str, ...]:
        """GPUs of the grid and of its pools, as written."""
        pools = [
            side.gpu
            for choice in self.candidates.disaggregated
            if not isinstance(choice, str)
            for side in (choice.prefill, choice.decode)
            if side.gpu is not None
        ]
        return tuple(dict.fromkeys((*self.candidates.gpu, *pools)))

    def files(self) -> dict[str, Path]:
        """The files that the spec names, by dotted path: a trace, a step-time table, calibrations, a model's config."""
        found = {}
        if isinstance(self.workload, TraceWorkload):
            found["workload.trace"] = self.folder / self.workload.trace
        if (table := getattr(self.step_time, "table", None)) is not None:
            found["step_time.table"] = self.folder / table
        for i, engine in enumerate(self.candidates.engine if self.candidates is not None else ()):
            if engine.file is not None:
                found[f"candidates.engine.{i}"] = self.folder / engine.file
        if self.model and (self.model.endswith(".json") or "/" in self.model):
            found["model"] = self.folder / self.model
        return found

    @property
    def model_reference(self) -> str:
        """What the catalogue looks the model up by: a path from the spec's folder where there is such a file, else the name."""
        path = self.files().get("model")
        return str(path) if path is not None and path.exists() else self.model
