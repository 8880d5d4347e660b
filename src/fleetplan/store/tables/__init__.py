"""The data dictionary: every table of the store; DDL, column comments, reference pages and tests come from it."""

from __future__ import annotations

from fleetplan.errors import InputError, unknown_name
from fleetplan.store.tables import (
    accuracy,
    batching,
    candidates,
    capacity,
    fleet,
    provenance,
    queueing,
    roofline,
    shared,
    sizing,
    speculation,
)
from fleetplan.store.tables.dictionary import Column, Table

# The stages in the order of the data; each is a verb of the command line and a rule of the workflow.
STAGES = ("candidates", "roofline", "batching", "speculation", "sizing", "queueing", "capacity", "load")
# Beside them: what several scenarios share. Its parts are those of a fleet.
OF_FLEETS = ("fleet",)
# And evidence that belongs to no scenario. Its parts are those of a set of measured points.
EVIDENCE = "validate-model"

TABLES: dict[str, Table] = {
    table.name: table
    for module in (
        candidates,
        roofline,
        batching,
        speculation,
        sizing,
        fleet,
        queueing,
        capacity,
        shared,
        accuracy,
        provenance,
    )
    for table in module.TABLES
}

__all__ = ["EVIDENCE", "OF_FLEETS", "STAGES", "TABLES", "Column", "Table", "stage_tables", "table"]


def table(name: str) -> Table:
    """The table of that name; an `InputError` with the near names if there is none."""
    if name not in TABLES:
        raise InputError(unknown_name("table", name, TABLES))
    return TABLES[name]


def stage_tables(stage: str) -> tuple[Table, ...]:
    """The tables that a stage fills, in the dictionary's order."""
    if stage not in (*STAGES, *OF_FLEETS, EVIDENCE):
        raise InputError(unknown_name("stage", stage, (*STAGES, *OF_FLEETS, EVIDENCE)))
    return tuple(each for each in TABLES.values() if each.stage == stage)
