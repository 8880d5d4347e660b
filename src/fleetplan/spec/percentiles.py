"""Percentiles as keys: p50, p99, p99.9."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from fleetplan.spec.base import fault
from fleetplan.spec.units import shown

_PERCENTILE = re.compile(r"p(\d{1,3}(?:\.\d{1,6})?)")


def fraction(key: str) -> float:
    """The probability that a percentile key stands for.

    >>> fraction("p99.9")
    0.999
    """
    from fractions import Fraction

    return float(Fraction(key[1:]) / 100)


def _key(value: Any) -> str:
    match = _PERCENTILE.fullmatch(value) if isinstance(value, str) else None
    if not match or float(match[1]) > 100:
        raise fault(f"is no percentile (got {shown(value)}), write it like p50, p99 or p99.9")
    number = match[1].lstrip("0") or "0"
    if "." in number:
        number = number.rstrip("0").rstrip(".")
    number = f"0{number}" if number.startswith(".") else number
    if (number or "0") != match[1]:
        raise fault(f"is a percentile in an odd spelling (got {value}), write it p{number or '0'}")
    return str(value)


def _open_key(value: Any) -> str:
    key = _key(value)
    if fraction(key) in (0.0, 1.0):
        raise fault(
            f"is a promise for no or for every request (got {key}), use a percentile between, like p99 or p99.9"
        )
    return key


Percentile = Annotated[
    str, BeforeValidator(_key), Field(json_schema_extra={"pattern": rf"^{_PERCENTILE.pattern}$"})
]
OpenPercentile = Annotated[
    str, BeforeValidator(_open_key), Field(json_schema_extra={"pattern": rf"^{_PERCENTILE.pattern}$"})
]
