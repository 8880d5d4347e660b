"""Measured acceptance by method, model and task, and the ways to draft with what each costs."""

from __future__ import annotations

import csv
import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ruamel.yaml import YAML

from fleetplan.catalog import data_dir
from fleetplan.errors import InputError, unknown_name
from fleetplan.speculation.theory import (
    Floats,
    acceptance_from_survival,
    geometric_overstatement,
    survival_from_lengths,
)


@dataclass(frozen=True)
class MeasuredAcceptance:
    """One curve of the table: mean accepted length, the target's own token counted, by number of drafts."""

    name: str
    method: str
    model: str
    task: str
    mode: str
    gpu: str
    engine: str
    drafts: tuple[int, ...]
    mean_accepted_tokens: tuple[float, ...]
    source: str

    @property
    def survival(self) -> Floats:
        """Survival by position, shape (largest measured K,), never rising."""
        return survival_from_lengths(self.drafts, self.mean_accepted_tokens)

    def by_position(self, drafts: int) -> tuple[float, ...]:
        """Acceptance of each of `drafts` positions given the ones before; `InputError` beyond what was measured."""
        s = self.survival
        if not 1 <= drafts <= len(s):
            raise InputError(
                f"{self.name}: acceptance was measured for 1..{len(s)} drafts (got {drafts}); it is not extrapolated"
            )
        return tuple(acceptance_from_survival(s[:drafts]).tolist())

    @property
    def geometric_overstatement(self) -> float:
        """How far the geometric law fitted at position 1 overstates tokens per pass at the longest draft."""
        return geometric_overstatement(self.survival)


@dataclass(frozen=True)
class Method:
    """A way to draft, as data/speculation.yaml describes it."""

    name: str
    title: str
    passes: str
    """each, one or none: draft steps on the GPU for K drafts."""
    weights: str
    """model, layer or none: what a draft step reads."""
    extra_d2: float
    """Further weights of the head, in units of d²."""
    precision: str
    """Scheme of the head's layer in memory; target: that of the model."""
    source: str

    def draft_passes(self, drafts: int) -> int:
        """Draft steps that K drafts take on the GPU."""
        return {"each": drafts, "one": min(drafts, 1), "none": 0}[self.passes]


def measured(name: str) -> MeasuredAcceptance:
    """The curve of that name in data/acceptance.csv; `InputError` with near names otherwise."""
    table = measured_table()
    if name not in table:
        raise InputError(f"acceptance_from: {unknown_name('row of measured acceptance', name, table)}")
    return table[name]


def measured_table(path: Path | None = None) -> dict[str, MeasuredAcceptance]:
    """All curves by name, from data/acceptance.csv or a file of the same columns."""
    return _read(path or data_dir() / "acceptance.csv")


def method(name: str) -> Method:
    """The way to draft of that name, '-' and '_' alike; a name that is none of them is a draft model's and raises `InputError`."""
    known = methods()
    for key in (name, name.replace("-", "_"), name.replace("_", "-")):
        if key.lower() in known:
            return known[key.lower()]
    raise InputError(f"draft: {unknown_name('drafting method', name, known)}")


def methods() -> dict[str, Method]:
    """All ways to draft by name."""
    return _methods(data_dir() / "speculation.yaml")


@functools.cache
def _methods(path: Path) -> dict[str, Method]:
    entries: dict[str, dict[str, Any]] = YAML(typ="safe").load(path.read_text(encoding="utf-8"))["methods"]
    return {name: Method(name=name, **entry) for name, entry in entries.items()}


@functools.cache
def _read(path: Path) -> dict[str, MeasuredAcceptance]:
    columns = (
        "name",
        "method",
        "model",
        "task",
        "mode",
        "gpu",
        "engine",
        "drafts",
        "mean_accepted_tokens",
        "source",
    )
    groups: dict[str, list[dict[str, str]]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if missing := [c for c in columns if c not in (reader.fieldnames or ())]:
            raise InputError(f"{path}: missing columns {', '.join(missing)}")
        for row in reader:
            groups.setdefault(row["name"], []).append(row)
    table = {}
    for name, rows in groups.items():
        rows.sort(key=lambda r: int(r["drafts"]))
        first = rows[0]
        table[name] = MeasuredAcceptance(
            **{c: first[c] for c in ("name", "method", "model", "task", "mode", "gpu", "engine", "source")},
            drafts=tuple(int(r["drafts"]) for r in rows),
            mean_accepted_tokens=tuple(float(r["mean_accepted_tokens"]) for r in rows),
        )
        if not np.isfinite(table[name].survival).all():
            raise InputError(f"{path}: {name}: survival is not finite")
    return table
