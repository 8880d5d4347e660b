"""Quantities: exact to the last bit, and refused with the units that are taken."""

import pytest
from pydantic_core import PydanticCustomError

from fleetplan.spec.units import KINDS, Quantity

TAKEN = [
    ("time", "300 ms", 0.3), ("time", "40ms", 0.04), ("time", "1e3 us", 1e-3), ("time", "0.1 s", 0.1),
    ("time", "1.5 min", 90.0), ("time", "2 h", 7200.0), ("time", "1 day", 86400.0), ("time", "1 month", 2_628_000.0),
    ("size", "80 GiB", 85_899_345_920.0), ("size", "80 GB", 80e9), ("bandwidth", "3.35 TB/s", 3.35e12),
    ("bandwidth", "400 Gbit/s", 50e9), ("compute rate", "989 TFLOP/s", 989e12), ("request rate", "12 req/s", 12.0),
    ("request rate", "90 req/min", 1.5), ("cost rate", "2.50 USD/h", 2.5), ("cost rate", "730 USD/month", 1.0),
    ("price per token", "3 USD/Mtoken", 3e-6), ("time per token", "20 us/token", 2e-5),
    ("time per sequence", "500 us/sequence", 5e-4), ("power", "0.7 kW", 700.0), ("carbon intensity", "0.3 kg/kWh", 300.0),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "written", "value"), TAKEN, ids=[w for _, w, _ in TAKEN])
def test_taken(kind: str, written: str, value: float) -> None:
    assert Quantity(kind).read(written) == value


REFUSED = [
    ("time", 300, "needs a unit"), ("time", "300", "needs a unit"), ("time", "5 GB", "which is no time"),
    ("time", "1 MS", "perhaps ms"), ("time", "0 s", "more than 0"), ("time", "-1 s", "more than 0"),
    ("time", "nan s", "is no time"), ("time", "inf s", "is no time"), ("time", "1e400 s", "out of range"),
    ("time", "1e999999999 s", "unknown unit"), ("time", "1e-400 s", "more than 0"), ("time", True, "must be a time"),
    ("time", [1], "must be a time"), ("time", "1 s 2 ms", "unknown unit"), ("time", "s", "is no time"),
    ("time", "1,5 s", "unknown unit"), ("time", float("nan"), "must be finite"), ("size", "80 Gb", "bits or bytes"),
    ("time", "1 s**2", "unknown unit"), ("request rate", "12 1/s", "is no request rate"), ("request rate", "12 rps", "unknown unit"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "written", "says"), REFUSED, ids=[str(w) for _, w, _ in REFUSED])
def test_refused_with_the_units_taken(kind: str, written: object, says: str) -> None:
    with pytest.raises(PydanticCustomError) as caught:
        Quantity(kind).read(written)
    text = str(caught.value)
    assert says in text
    assert "got" in text
    if "more than 0" not in text and "out of range" not in text:
        assert all(unit in text for unit in KINDS[kind][1])


def test_zero_where_it_is_allowed() -> None:
    assert Quantity("time", zero=True).read("0 s") == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_every_unit_converts(kind: str) -> None:
    for unit in KINDS[kind][1]:
        assert Quantity(kind).read(f"1 {unit}") > 0
