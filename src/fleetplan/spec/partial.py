"""What is sound of a scenario with faults: section by section, without the entries that are wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from fleetplan.spec.base import Model
from fleetplan.spec.document import Loc
from fleetplan.spec.scenario import Scenario
from fleetplan.spec.workload import ClassesWorkload, TrafficClass

M = TypeVar("M", bound=Model)

_GONE = object()


def sound(written: dict[str, Any]) -> tuple[Scenario, Callable[[Loc], Loc]]:
    """An unchecked scenario of the sections that can be read, None for the others, and where its entries were written.

    A faulty entry is left out; where that leaves its mapping incomplete, the mapping is left out too, and so on up.
    """
    scenario, dropped = _members(Scenario, written)
    workload = written.get("workload")
    if isinstance(workload, dict) and isinstance(workload.get("classes"), list):
        # a class of which a needed key is faulty still has its others, in its place
        classes = [_members(TrafficClass, c if isinstance(c, dict) else {}) for c in workload["classes"]]
        dropped = {loc for loc in dropped if loc[:2] != ("workload", "classes")}
        dropped |= {("workload", "classes", i, *loc) for i, (_, gone) in enumerate(classes) for loc in gone}
        made = ClassesWorkload.model_construct(classes=tuple(c for c, _ in classes))
        scenario = scenario.model_copy(update={"workload": made})

    def original(loc: Loc) -> Loc:
        found: Loc = ()
        for part in loc:
            if isinstance(part, int):
                for index in sorted(p[-1] for p in dropped if p[:-1] == found and isinstance(p[-1], int)):
                    part += index <= part
            found = (*found, part)
        return found

    return scenario, original


def _members(kind: type[M], written: dict[str, Any]) -> tuple[M, set[Loc]]:
    """A model of the fields that can be read, each alone, and the paths left out."""
    hints = get_type_hints(kind, include_extras=True)
    parts: dict[str, Any] = {}
    dropped: set[Loc] = set()
    for name, info in kind.model_fields.items():
        key = info.alias or name
        if key not in written:
            parts[name] = None if info.is_required() else info.get_default()
            continue
        parts[name], gone = _sound(TypeAdapter(hints[name]), written[key])
        dropped |= {(key, *loc) for loc in gone}
    return cast(M, kind.model_construct(**parts)), dropped


def _sound(kind: TypeAdapter[Any], value: Any) -> tuple[Any, set[Loc]]:
    """The value read without its faulty entries, None where nothing is left of it; and the paths left out, as written."""
    dropped: set[Loc] = set()
    while True:
        kept, places = _without(value, dropped)
        if kept is _GONE:
            return None, dropped
        try:
            return kind.validate_python(kept), dropped
        except ValidationError as error:
            for item in error.errors(include_url=False, include_context=False, include_input=False):
                loc = tuple(
                    p for p in item["loc"] if not (isinstance(p, str) and p[:1] in "<[" and p[-1:] in ">]")
                )
                # a fault of a key that is not there is one of the nearest mapping that is
                while loc and loc not in places:
                    loc = loc[:-1]
                dropped.add(places[loc])


def _without(value: Any, dropped: set[Loc], at: Loc = (), now: Loc = ()) -> tuple[Any, dict[Loc, Loc]]:
    """The value without the dropped paths, and for each path of what is left the one it was written at."""
    if at in dropped:
        return _GONE, {}
    places = {now: at}
    if not isinstance(value, (dict, list)):
        return value, places
    entries: list[tuple[Any, Any]] = []
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        name = key if isinstance(value, dict) else len(entries)
        kept, inside = _without(inner, dropped, (*at, key), (*now, name))
        if kept is not _GONE:
            entries.append((name, kept))
            places |= inside
    return (dict(entries) if isinstance(value, dict) else [kept for _, kept in entries]), places
