"""Quantities as people write them, a number and a unit, read exactly into SI floats."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from fleetplan.errors import near_names

NUMBER = r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d{1,3})?"
_QUANTITY = re.compile(rf"({NUMBER}) *([^\s\d].*)")

# kind: (SI unit of the stored float, units taken, the common ones first)
KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "time": ("s", ("s", "ms", "us", "µs", "ns", "min", "h", "day", "week", "month", "year")),
    "request rate": ("req/s", ("req/s", "req/min", "req/h", "req/day")),
    "token rate": ("token/s", ("token/s", "tokens/s", "tokens/min", "tokens/h", "tokens/day")),
    "size": ("B", ("GB", "GiB", "B", "kB", "MB", "TB", "KiB", "MiB", "TiB")),
    "bandwidth": ("B/s", ("GB/s", "TB/s", "GiB/s", "MB/s", "Gbit/s", "Tbit/s", "B/s")),
    "compute rate": ("FLOP/s", ("TFLOP/s", "PFLOP/s", "GFLOP/s", "FLOP/s")),
    "time per token": ("s/token", ("us/token", "µs/token", "ns/token", "ms/token", "s/token")),
    "time per sequence": ("s/sequence", ("us/sequence", "µs/sequence", "ms/sequence", "s/sequence")),
    "money": ("USD", ("USD",)),
    "cost rate": ("USD/h", ("USD/h", "USD/day", "USD/month", "USD/year")),
    "price per token": ("USD/token", ("USD/Mtoken", "USD/token")),
    "energy price": ("USD/kWh", ("USD/kWh", "USD/MWh")),
    "power": ("W", ("W", "kW", "MW")),
    "carbon intensity": ("g/kWh", ("g/kWh", "kg/kWh", "kg/MWh")),
}

# What one of a kind is at most, and at least where it is not 0: beyond lies a slip, an exponent or a unit that is not meant.
LIMITS: dict[str, tuple[str | None, str]] = {
    "time": ("1 ns", "100 year"),
    "request rate": ("0.001 req/day", "10000000 req/s"),
    "token rate": ("1 tokens/day", "1000000000000 tokens/s"),
    "size": ("1 B", "1000000 TB"),
    "bandwidth": ("1 B/s", "1000000 TB/s"),
    "compute rate": ("1 FLOP/s", "1000000 PFLOP/s"),
    "time per token": (None, "1000 s/token"),
    "time per sequence": (None, "1000 s/sequence"),
    "money": (None, "1000000000000 USD"),
    "cost rate": (None, "1000000000 USD/h"),
    "price per token": (None, "1 USD/token"),
    "energy price": (None, "1000 USD/kWh"),
    "power": (None, "100000 MW"),
    "carbon intensity": (None, "100 kg/kWh"),
}

# A month is a twelfth of 365 days (730 h), the month of cloud price lists.
_DEFINITIONS = """
second = [time] = s
millisecond = 1/1000 * second = ms
microsecond = 1/1000000 * second = us = µs
nanosecond = 1/1000000000 * second = ns
minute = 60 * second = min
hour = 3600 * second = h
day = 24 * hour
week = 7 * day
month = 730 * hour
year = 8760 * hour
request = [request] = req
token = [token] = _ = tokens
Mtoken = 1000000 * token
sequence = [sequence]
byte = [size] = B
bit = 1/8 * byte
kB = 1000 * byte
MB = 1000000 * byte
GB = 1000000000 * byte
TB = 1000000000000 * byte
KiB = 1024 * byte
MiB = 1048576 * byte
GiB = 1073741824 * byte
TiB = 1099511627776 * byte
Gbit = 1000000000 * bit
Tbit = 1000000000000 * bit
FLOP = [work]
GFLOP = 1000000000 * FLOP
TFLOP = 1000000000000 * FLOP
PFLOP = 1000000000000000 * FLOP
USD = [money]
watt = [power] = W
kW = 1000 * watt
MW = 1000000 * watt
kWh = kW * hour
MWh = MW * hour
gram = [mass] = g
kg = 1000 * gram
"""


@dataclass(frozen=True)
class Quantity:
    """Annotation of a float field that is written as a string with a unit and stored in the kind's SI unit."""

    kind: str
    zero: bool = False
    """Whether 0 is taken; negative values never are."""
    least: str | None = None
    """The least that is taken, where it is more than that of every quantity of the kind."""
    most: str | None = None
    """The most that is taken, where it is less."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(lambda v: v)
        )

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        unit, taken = KINDS[self.kind]
        return {
            "type": "string",
            "pattern": rf"^{NUMBER.replace('[-+]?', '[+]?', 1)} *({'|'.join(taken)})$",
            "examples": [f"1 {taken[0]}", f"2.5 {taken[1 % len(taken)]}"],
            "x-unit": unit,
        }

    def read(self, written: Any) -> float:
        """The SI value of what is written; raises PydanticCustomError with one sentence for a person.

        >>> Quantity("time").read("300 ms"), Quantity("size").read("80 GiB")
        (0.3, 85899345920.0)
        """
        unit, taken = KINDS[self.kind]
        units = ", ".join(taken)
        if isinstance(written, bool) or not isinstance(written, (str, int, float)):
            raise _fault(
                f"must be a {self.kind} (got {shown(written)}), a number with one of the units {units}"
            )
        if isinstance(written, float) and not math.isfinite(written):
            raise _fault(
                f"must be finite (got {written}), write it like '1 {taken[0]}'; units taken: {units}"
            )
        if not isinstance(written, str):
            raise _fault(
                f"needs a unit (got {shown(written)}), write it like '{shown(written)} {taken[0]}'; units taken: {units}"
            )
        text = written.strip()
        match = _QUANTITY.fullmatch(text)
        if re.fullmatch(NUMBER, text):
            raise _fault(
                f"needs a unit (got {written!r}), write it like '{text} {taken[0]}'; units taken: {units}"
            )
        if not match:
            raise _fault(
                f"is no {self.kind} (got {written!r}), write one number and one unit, like '1 {taken[0]}'; "
                f"units taken: {units}"
            )
        number, name = match.groups()
        if name not in taken:
            raise _fault(_wrong_unit(self.kind, written, name, taken))
        try:
            value = float(Fraction(number) * _factor(name, unit))
        except (OverflowError, ValueError):
            raise _fault(f"is out of range (got {written!r}), a finite {self.kind} is needed") from None
        if value < 0 or (value == 0 and not self.zero):
            least = "0 or more" if self.zero else "more than 0"
            raise _fault(f"must be {least} (got {written!r}), write it like '1 {taken[0]}'")
        if value:
            self._within(value, written)
        return value

    def _within(self, value: float, written: str) -> None:
        least, most = self.least or LIMITS[self.kind][0], self.most or LIMITS[self.kind][1]
        unit = KINDS[self.kind][0]
        if value > _si(most, unit):
            raise _fault(
                f"is more than any {self.kind} that is meant (got {written!r}), at most {most} is taken"
            )
        if least is not None and value < _si(least, unit):
            raise _fault(
                f"is less than any {self.kind} that is meant (got {written!r}), at least {least} is taken"
            )


def shown(value: Any) -> str:
    """How an error shows what it got, short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict):
        return f"a mapping with {', '.join(map(str, list(value)[:4]))}" if value else "an empty mapping"
    if isinstance(value, (list, tuple)):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "…" + text[-1]


def _wrong_unit(kind: str, written: str, name: str, taken: tuple[str, ...]) -> str:
    known = {u for _, units in KINDS.values() for u in units}
    if name in known:
        what = f"has the unit {name}, which is no {kind}"
    elif name in ("Gb", "Mb", "Kb", "Tb", "Gb/s", "Tb/s", "Gbps"):
        what = f"has a unit that reads as bits or bytes, {name}"
    else:
        what = f"has an unknown unit {name}"
    folded = [u for u in taken if u.lower() == name.lower()]
    near = folded or near_names(name, taken, most=1)
    hint = f"perhaps {near[0]}; " if near else ""
    return f"{what} (got {written!r}), {hint}units taken: {', '.join(taken)}"


def _fault(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("fault", "{sentence}", {"sentence": sentence})


@cache
def _registry() -> Any:
    import pint  # a fifth of a second: only when a unit is read

    registry: Any = pint.UnitRegistry(None, non_int_type=Fraction, cache_folder=None)
    registry.load_definitions(_DEFINITIONS.strip().splitlines())
    return registry


@cache
def _si(text: str, unit: str) -> float:
    number, name = text.split(" ", 1)
    return float(Fraction(number) * _factor(name, unit))


@cache
def _factor(name: str, unit: str) -> Fraction:
    return Fraction(_registry().Quantity(Fraction(1), name).to(unit).magnitude)
