"""What a page is made of: sections of sentences, tables and figures; plain data, escaped when it is rendered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Column:
    """One column of a table: the row's key, the heading, what it means, and whether it is a number."""

    key: str
    label: str
    help: str = ""
    numeric: bool = False


@dataclass(frozen=True)
class Cell:
    """A cell's text, with the value it was written from, and a tone: good, bad, quiet or nothing."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Table:
    """A table of cells, its caption, how many rows there are in the store, and the query that gives them all."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    total_rows: int
    query: str = ""
    note: str = ""
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """A chart as a Vega-Lite document, its title, its content in words, and the table behind it."""

    name: str
    title: str
    spec: dict[str, Any]
    words: str
    table: Table | None = None
    wide: bool = True


@dataclass(frozen=True)
class Text:
    """One paragraph."""

    text: str
    tone: str = ""


@dataclass(frozen=True)
class Missing:
    """A thing that was not computed, said in a sentence."""

    text: str


Block = Table | Figure | Text | Missing


@dataclass(frozen=True)
class Section:
    """A heading, one sentence under it, and its blocks."""

    name: str
    title: str
    lead: str = ""
    blocks: Sequence[Block] = field(default_factory=tuple)
