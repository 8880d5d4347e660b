"""What changed since the version before, item by item and in total, and what in the scenario or the code caused it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetplan.report import promises, units
from fleetplan.report.headline import decision_of, evidence_of, gpu_title, title_of
from fleetplan.report.reading import Row, Store
from fleetplan.report.tabulate import heading

ADDED, CHANGED, REMOVED = "+", "~", "−"


@dataclass(frozen=True)
class Change:
    """One line of a comparison: its sign, what it is about, the values before and after, the difference in words."""

    sign: str
    item: str
    before: str
    after: str
    difference: str = ""


@dataclass(frozen=True)
class Changes:
    """A comparison with the version before: totals, causes, and the changes of results, promises and candidates."""

    before: int
    totals: tuple[Change, ...]
    causes: tuple[Change, ...]
    results: tuple[Change, ...]
    promises: tuple[Change, ...]
    candidates: tuple[Change, ...]
    notes: tuple[str, ...]

    @property
    def groups(self) -> tuple[tuple[str, tuple[Change, ...]], ...]:
        """The groups that hold a change, with their titles, causes first."""
        named = (
            ("Why: what changed in the scenario", self.causes),
            ("The decision", self.results),
            ("Promises", self.promises),
            ("Candidates", self.candidates),
        )
        return tuple((title, changes) for title, changes in named if changes)


_TOTALS = ("gpus", "cost_usd_per_hour", "cost_usd_per_month")


def meaning(store: Store, scenario: str, written: str) -> dict[str, Any]:
    """What a version says, as plain data: kept in its page, compared with the next version's."""
    decision = decision_of(store, scenario)
    evidence = evidence_of(store, scenario, decision["candidate_id"])
    candidates = store.table("candidates", scenario)
    parts = store.table("parts", scenario)
    return {
        "scenario": scenario,
        "digest": store.digest(scenario),
        "summary": {**summary(decision), "title": title_of(store, scenario), "written": written},
        "decision": {key: value for key, value in decision.items() if key != "scenario"},
        "promises": {
            promises.name(row): [
                promises.limit(row),
                promises.simulated(row),
                row["limit_s"],
                row["simulated_s"],
            ]
            for row in promises.at_decision(evidence, decision)
        },
        "settings": store.settings(scenario),
        "candidates": {
            row["candidate_id"]: [row["label"], row.get("reason") or "can run"] for row in candidates
        },
        "spec": {row["stage"]: row["spec_digest"] for row in parts if row["spec_digest"]},
        "code": {row["stage"]: row["code_fingerprint"] for row in parts if row["code_fingerprint"]},
    }


def summary(decision: Row) -> dict[str, Any]:
    """The few figures of a decision that the manifest and the index show."""
    keys = (
        "verdict", "gpus", "replicas", "cost_usd_per_hour", "cost_usd_per_month", "probability_holds", "confidence", "nearest_change",
    )  # fmt: skip
    return {**{key: decision.get(key) for key in keys}, "gpu_title": gpu_title(decision.get("gpu"))}


def compare(before: Mapping[str, Any], after: Mapping[str, Any], number: int) -> Changes:
    """The comparison of two versions' meanings; `number` is the earlier version's."""
    old, new = before.get("decision", {}), after["decision"]
    results = tuple(
        _change(heading(key), key, old.get(key), new.get(key))
        for key in dict.fromkeys([*new, *old])
        if old.get(key) != new.get(key) and key not in (*_TOTALS, "candidate_id")
    )
    totals = tuple(
        _change(heading(key), key, old.get(key), new.get(key))
        for key in _TOTALS
        if old.get(key) is not None or new.get(key) is not None
    )
    return Changes(
        number,
        totals,
        _texts(before.get("settings", {}), after["settings"]),
        _candidate_choice(before, after) + results,
        _promises(before.get("promises", {}), after["promises"]),
        _candidates(before.get("candidates", {}), after["candidates"]),
        _notes(before, after),
    )


def _change(item: str, column: str, old: Any, new: Any) -> Change:
    sign = ADDED if old is None else REMOVED if new is None else CHANGED
    if old == new:
        sign = ""
    both = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (old, new))
    return Change(
        sign,
        item,
        "" if old is None else units.quantity(column, old),
        "" if new is None else units.quantity(column, new),
        _difference(column, old, new) if both else "",
    )


def _difference(column: str, old: float, new: float) -> str:
    if old == new:
        return "no change"
    size = units.quantity(column, abs(new - old))
    sign = "+" if new > old else "−"
    relative = f" ({sign}{units.share(abs(new - old) / abs(old))})" if old else ""
    return f"{sign}{size}{relative}"


def _texts(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    lines = []
    for key in sorted({*old, *new}):
        if key not in old:
            lines.append(Change(ADDED, key, "", str(new[key])))
        elif key not in new:
            lines.append(Change(REMOVED, key, str(old[key]), ""))
        elif old[key] != new[key]:
            lines.append(Change(CHANGED, key, str(old[key]), str(new[key])))
    return tuple(lines)


def _candidate_choice(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Change, ...]:
    names = []
    for meaning_ in (before, after):
        chosen = meaning_.get("decision", {}).get("candidate_id")
        names.append(meaning_.get("candidates", {}).get(chosen, [chosen or units.NONE])[0])
    return () if names[0] == names[1] else (Change(CHANGED, "Chosen candidate", *names),)


def _promises(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    lines = []
    for name in dict.fromkeys([*new, *old]):
        if name not in new:
            lines.append(Change(REMOVED, name, f"promise {old[name][0]}", ""))
        elif name not in old:
            lines.append(Change(ADDED, name, "", f"promise {new[name][0]}, simulated {new[name][1]}"))
        else:
            for index, what in ((0, "promise"), (1, "simulated")):
                values = old[name][index + 2], new[name][index + 2]
                if old[name][index] != new[name][index]:
                    known = None not in values
                    words = _difference("simulated_s", *values) if known else ""
                    lines.append(
                        Change(CHANGED, f"{name}: {what}", old[name][index], new[name][index], words)
                    )
    return tuple(lines)


def _candidates(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[Change, ...]:
    lines = [Change(ADDED, new[key][0], "", new[key][1]) for key in new if key not in old]
    lines += [Change(REMOVED, old[key][0], old[key][1], "") for key in old if key not in new]
    lines += [
        Change(CHANGED, new[key][0], old[key][1], new[key][1])
        for key in new
        if key in old and old[key][1] != new[key][1]
    ]
    return tuple(lines)


def _notes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    notes = []
    spec = sorted(
        stage for stage, digest in after["spec"].items() if before.get("spec", {}).get(stage) != digest
    )
    code = sorted(stage for stage, mark in after["code"].items() if before.get("code", {}).get(stage) != mark)
    if spec and not (before.get("settings") and after["settings"]):
        notes.append(f"The scenario's meaning changed for {', '.join(spec)}.")
    if code:
        notes.append(f"The code changed behind {', '.join(code)}.")
    if not spec and not code:
        notes.append("Neither the scenario's meaning nor the stages' code changed; their data did.")
    return tuple(notes)
