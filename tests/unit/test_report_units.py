"""Numbers as a page writes them: unit by the column's name, prefix by magnitude."""

from __future__ import annotations

import doctest
import importlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetplan.report import units
from fleetplan.report.tabulate import heading
from fleetplan.store import tables


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("ttft_p99_s", 0.0004567, "457 µs"),
        ("ttft_p99_s", 0.9996, "1.00 s"),
        ("ttft_p99_s", 0.0, "0 s"),
        ("ttft_p99_s", math.inf, "unbounded"),
        ("ttft_p99_s", None, "–"),
        ("horizon_s", 5400, "90.0 min"),
        ("kv_bytes", 85_899_345_920, "80.0 GiB"),
        ("kv_bytes", -13_314_398_617, "−12.4 GiB"),
        ("kv_bytes", 512, "512 B"),
        ("bandwidth_bytes_per_s", 3.35e12, "3.35 TB/s"),
        ("peak_flop_per_s", 989e12, "989 TFLOP/s"),
        ("cost_usd_per_hour", 47.84, "$47.84/h"),
        ("cost_usd_per_month", 34923.2, "$34,923/month"),
        ("cost_usd_per_million_output_tokens", 0.4271, "$0.427"),
        ("utilisation", 0.731, "73.1 %"),
        ("attainment", 0.99912, "99.91 %"),
        ("throughput_tokens_per_s", 5123.4, "5,123 /s"),
        ("replicas", 1234, "1,234"),
        ("holds", False, "no"),
        ("power_w", 10_200.0, "10.2 kW"),
    ],
)
def test_quantity(column: str, value: Any, text: str) -> None:
    assert units.quantity(column, value).replace("\u202f", " ") == text


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_durations_keep_three_digits(value: float) -> None:
    """Whatever the magnitude, the text is within half a unit of the third digit."""
    number, unit = units.seconds(value).split("\u202f")
    scale = {"µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "days": 86400}[unit]
    assert float(number.replace(",", "")) * scale == pytest.approx(value, rel=0.0051)


@given(
    st.sampled_from([c.name for t in tables.TABLES.values() for c in t.columns]), st.floats() | st.integers()
)
def test_any_number_of_any_column_has_a_text(column: str, value: float) -> None:
    """No value of any stored column makes a page say nan or inf."""
    text = units.quantity(column, value)
    assert text
    assert "nan" not in text
    assert "inf" not in text


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("tpot_p95_s", "TPOT p95"),
        ("cost_usd_per_month", "Cost per month"),
        ("cost_usd_per_million_output_tokens", "Cost per 1M output tokens"),
        ("gpus_per_replica", "GPUs per replica"),
        ("throughput_tokens_per_s", "Throughput tokens per second"),
    ],
)
def test_heading(column: str, text: str) -> None:
    assert heading(column) == text


@pytest.mark.parametrize("module", ["units", "tabulate", "charts", "headline", "page"])
def test_examples_of_the_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"fleetplan.report.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
