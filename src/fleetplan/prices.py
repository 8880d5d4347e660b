"""Price lists: what an hour of one GPU costs, by list and GPU, each with its date and source."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fleetplan import catalog
from fleetplan.errors import InputError, read_yaml, unknown_name


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Price(_Strict):
    """USD of one GPU for one hour: the median that is planned with, and the span of what was offered."""

    median: float = Field(gt=0, allow_inf_nan=False)
    low: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    high: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    observations: int | None = Field(default=None, gt=0)


class _List(_Strict):
    title: str
    date: str
    commitment: str
    source: str
    gpu_usd_per_hour: dict[str, Price]


@dataclass(frozen=True)
class PriceList:
    """One list, its GPUs by catalogue name."""

    name: str
    title: str
    date: str
    commitment: str
    source: str
    usd_per_gpu_hour: dict[str, Price]

    def of(self, gpu: str) -> Price | None:
        """The price of a GPU by catalogue name; None where the list has none."""
        return self.usd_per_gpu_hour.get(gpu)


def price_list(reference: str, folder: Path | None = None) -> PriceList:
    """A list of data/prices.yaml by name, or `file.yaml#name` of a file of one's own, from `folder`.

    Raises InputError for an unknown list with near names, and for a file that is not a price list.
    """
    file, _, name = reference.rpartition("#")
    path = (folder or Path()) / file if file else catalog.data_dir() / "prices.yaml"
    lists = _read(path)
    if name not in lists:
        raise InputError(f"prices: {unknown_name('price list', name, lists)} (in {path.name})")
    return lists[name]


def names() -> tuple[str, ...]:
    """The lists that come with the planner."""
    return tuple(_read(catalog.data_dir() / "prices.yaml"))


@functools.cache
def _read(path: Path) -> dict[str, PriceList]:
    document = read_yaml(path, "a file of price lists")
    if not isinstance(document, dict):
        raise InputError(
            f"{path}: is no mapping (got {type(document).__name__}), a mapping of price lists by name is needed"
        )
    try:
        entries = {str(name): _List.model_validate(entry) for name, entry in document.items()}
    except ValidationError as error:
        raise InputError(
            *(
                f"{path}: {'.'.join(map(str, fault['loc']))}: {fault['msg']} (got {fault['input']!r})"
                for fault in error.errors()
            )
        ) from None
    return {name: _resolved(name, entry) for name, entry in entries.items()}


def _resolved(name: str, entry: _List) -> PriceList:
    prices = {}
    for gpu, price in entry.gpu_usd_per_hour.items():
        # A list may price hardware that the catalogue does not have; nobody can plan with it, so nothing is lost.
        try:
            prices[catalog.gpu(gpu).name] = price
        except InputError:
            continue
    return PriceList(name, entry.title, entry.date, entry.commitment, entry.source, prices)
