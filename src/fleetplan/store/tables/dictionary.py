"""What a table and a column of the data dictionary are, with the checks that keep them honest."""

from __future__ import annotations

import re
from dataclasses import dataclass

TYPES = ("VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "DOUBLE[]", "BIGINT[]", "VARCHAR[]")

# unit: how the name of a column that holds it must end (a convention that a reader of SQL can rely on).
ENDINGS: dict[str, tuple[str, ...]] = {
    "": ("",),
    "s": ("_s",),
    "h": ("_h",),
    "token": ("tokens",),
    "request": ("requests",),
    "block": ("blocks",),
    "GPU": ("gpus", "gpus_per_replica"),
    "byte": ("_bytes",),
    "byte/token": ("_bytes_per_token",),
    "byte/s": ("_bytes_per_s",),
    "FLOP": ("_flop",),
    "FLOP/s": ("_flop_per_s",),
    "FLOP/byte": ("_flop_per_byte",),
    "1/s": ("_per_s",),
    "request/s": ("requests_per_s",),
    "token/s": ("tokens_per_s",),
    "token/s/GPU": ("tokens_per_s_per_gpu",),
    "USD": ("_usd",),
    "USD/h": ("_usd_per_hour",),
    "USD/month": ("_usd_per_month",),
    "USD/year": ("_usd_per_year",),
    "USD/request": ("_usd_per_request",),
    "USD/1M tokens": (
        "_usd_per_million_tokens",
        "_usd_per_million_output_tokens",
        "_usd_per_million_input_tokens",
    ),
    "W": ("_w",),
    "Wh/1M tokens": ("_wh_per_million_tokens",),
    "g/1M tokens": ("_g_per_million_tokens",),
}


@dataclass(frozen=True)
class Column:
    """One column: its name (which ends in its unit), DuckDB type, unit ("" for a pure number or a text) and meaning."""

    name: str
    type: str
    unit: str
    comment: str
    nullable: bool = False

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", self.name):
            raise ValueError(f"column {self.name!r}: a name is lower case letters, digits and underscores")
        if self.type not in TYPES:
            raise ValueError(f"column {self.name!r}: type {self.type!r} is none of {', '.join(TYPES)}")
        if self.unit not in ENDINGS:
            raise ValueError(f"column {self.name!r}: unit {self.unit!r} is none of {', '.join(ENDINGS)}")
        if not self.name.endswith(ENDINGS[self.unit]):
            raise ValueError(
                f"column {self.name!r}: with unit {self.unit} its name ends in {' or '.join(ENDINGS[self.unit])}"
            )
        if not self.comment:
            raise ValueError(f"column {self.name!r} has no comment")

    @property
    def description(self) -> str:
        """The comment with the unit, as the store's COMMENT ON COLUMN has it."""
        return f"{self.comment} [{self.unit}]" if self.unit else self.comment


@dataclass(frozen=True)
class Table:
    """One table: the stage whose verb fills it, its meaning, its columns and its primary key.

    Every table begins with its subject, the column `scenario`, or `fleet` where it is about several; `key` names the primary key's columns, by which rows are sorted.
    """

    name: str
    stage: str
    comment: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError(f"table {self.name}: a column's name is there twice")
        if names[0] not in ("scenario", "fleet"):
            raise ValueError(f"table {self.name}: the first column is `scenario` or `fleet`")
        for name in self.key:
            if name not in names or self.column(name).nullable:
                raise ValueError(f"table {self.name}: key column {name!r} is missing or nullable")

    @property
    def subject(self) -> str:
        """The column that names what a part is of."""
        return self.columns[0].name

    def column(self, name: str) -> Column:
        """The column of that name; KeyError if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def text(name: str, comment: str, *, nullable: bool = False) -> Column:
    """A column of text."""
    return Column(name, "VARCHAR", "", comment, nullable)


def flag(name: str, comment: str, *, nullable: bool = False) -> Column:
    """A column of truth values."""
    return Column(name, "BOOLEAN", "", comment, nullable)


def integer(name: str, comment: str, unit: str = "", *, nullable: bool = False) -> Column:
    """A column of whole numbers."""
    return Column(name, "BIGINT", unit, comment, nullable)


def number(name: str, comment: str, unit: str = "", *, nullable: bool = False) -> Column:
    """A column of finite real numbers: what is unbounded or undefined is stored as null, with a reason beside it."""
    return Column(name, "DOUBLE", unit, comment, nullable)


def money() -> tuple[Column, ...]:
    """The columns of a cost: by time, and over what is served at the planned traffic."""
    given = (
        ("cost_usd_per_hour", "cost; mean over the period where it changes", "USD/h"),
        ("cost_usd_per_month", "cost in a twelfth of a year", "USD/month"),
        ("cost_usd_per_year", "cost in 365.25 days", "USD/year"),
        (
            "cost_usd_per_million_input_tokens",
            "cost over the prompt tokens, as if they bore all of it; null: an endpoint without tokens",
            "USD/1M tokens",
        ),
        (
            "cost_usd_per_million_output_tokens",
            "cost over the output tokens, as if they bore all of it; null: an endpoint without tokens",
            "USD/1M tokens",
        ),
        (
            "cost_usd_per_million_tokens",
            "cost over all tokens, prompt and output; null: an endpoint without tokens",
            "USD/1M tokens",
        ),
        ("cost_usd_per_request", "cost over the requests that are served", "USD/request"),
    )
    return tuple(number(name, comment, unit, nullable=True) for name, comment, unit in given)


SCENARIO = text("scenario", "name of the scenario")
CANDIDATE = text("candidate_id", "stable id of the candidate: a hash of its own fields")
