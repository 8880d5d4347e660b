"""The data dictionary as a page of the documentation."""

from __future__ import annotations

from fleetplan.store.tables import EVIDENCE, OF_FLEETS, STAGES, stage_tables


def reference() -> str:
    """docs/tables.md: every table by stage, every column with type, unit and meaning."""
    lines = [
        "# Tables of the results store",
        "",
        "Made from `fleetplan.store.tables` by `make schema`; `fleetplan sql --tables` prints the same. A number's name ends in "
        "its unit. Nothing is stored as NaN or infinity: what is unbounded or undefined is null.",
    ]
    for stage in (*STAGES[:-1], *OF_FLEETS, EVIDENCE, STAGES[-1]):
        lines += ["", f"## Filled by `{stage}`"]
        for table in stage_tables(stage):
            lines += ["", f"### {table.name}", "", f"{table.comment}. Key: {', '.join(table.key)}.", ""]
            lines += ["| column | type | unit | meaning |", "|---|---|---|---|"]
            lines += [
                f"| {column.name} | {column.type}{', null' if column.nullable else ''} | {column.unit} | {_cell(column.comment)} |"
                for column in table.columns
            ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("*", "\\*")
