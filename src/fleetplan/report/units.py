"""Numbers as a person reads them: the unit comes from the column's name, the prefix from the magnitude."""

from __future__ import annotations

import math
from typing import Any

NONE = "–"
_SPACE = "\u202f"  # narrow no-break space between a number and its unit

# (ending of a column's name, what the number counts, how it is written); the first ending that fits is taken.
_ENDINGS: tuple[tuple[str, str], ...] = (
    ("_usd_per_hour", "usd_per_hour"),
    ("_usd_per_month", "usd_per_month"),
    ("_usd_per_year", "usd_per_year"),
    ("_usd_per_request", "usd"),
    ("_usd_per_million_tokens", "usd"),
    ("_usd_per_million_output_tokens", "usd"),
    ("_usd_per_million_input_tokens", "usd"),
    ("_usd", "usd"),
    ("_flop_per_byte", "flop_per_byte"),
    ("_bytes_per_token", "bytes"),
    ("_bytes_per_s", "bytes_per_s"),
    ("_flop_per_s", "flop_per_s"),
    ("_requests_per_s", "per_s"),
    ("_tokens_per_s", "per_s"),
    ("_per_s", "per_s"),
    ("_bytes", "bytes"),
    ("_flop", "flop"),
    ("_wh_per_million_tokens", "watt_hours"),
    ("_g_per_million_tokens", "grams"),
    ("_w", "watts"),
    ("_h", "hours"),
    ("_share", "share"),
    ("_fraction", "share"),
    ("_error", "share"),
    ("utilisation", "share"),
    ("attainment", "share"),
    ("probability", "share"),
    ("confidence", "share"),
    ("headroom", "share"),
    ("_s", "seconds"),
)


def quantity(column: str, value: Any) -> str:
    """`value` of the column `column`, with its unit; a missing value is a dash, a boolean is yes or no.

    >>> quantity("ttft_p99_s", 0.0123).replace("\\u202f", " ")
    '12.3 ms'
    >>> quantity("kv_bytes", 3 * 2**30).replace("\\u202f", " ")
    '3.00 GiB'
    """
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, int | float):
        return str(value)
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "unbounded"
    return _WRITERS[kind(column)](value)


def kind(column: str) -> str:
    """What a column counts, from the ending of its name; `number` when no ending is known.

    >>> kind("cost_usd_per_hour"), kind("tpot_p95_s"), kind("replicas")
    ('usd_per_hour', 'seconds', 'number')
    """
    if column.startswith("probability_"):
        return "share"
    for ending, what in _ENDINGS:
        if column.endswith(ending):
            return what
    return "number"


def seconds(value: float | None) -> str:
    """A duration in the unit that keeps it between 1 and 1000.

    >>> [seconds(x).replace("\\u202f", " ") for x in (3.1e-5, 0.04, 1.25, 300, 90_000)]
    ['31.0 µs', '40.0 ms', '1.25 s', '5.00 min', '25.0 h']
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if math.isinf(value):
        return "unbounded"
    size = abs(value)
    if size == 0:
        return f"0{_SPACE}s"
    if size < 1e-9:
        return f"under 1{_SPACE}ns"
    if size < 0.9995e-3:
        return f"{significant(value * 1e6)}{_SPACE}µs"
    if size < 0.9995:
        return f"{significant(value * 1e3)}{_SPACE}ms"
    if size < 180:
        return f"{significant(value)}{_SPACE}s"
    if size < 3 * 3600:
        return f"{significant(value / 60)}{_SPACE}min"
    if size < 3 * 86400:
        return f"{significant(value / 3600)}{_SPACE}h"
    return f"{significant(value / 86400)}{_SPACE}days"


def usd(value: float | None) -> str:
    """US dollars: cents below 1,000, whole dollars above, four digits below one dollar.

    >>> usd(0.03172), usd(12.5), usd(48211.4)
    ('$0.0317', '$12.50', '$48,211')
    """
    if value is None:
        return NONE
    size = abs(value)
    sign = "−" if value < 0 else ""
    if size and size < 0.995:
        return f"{sign}${significant(size)}"
    return f"{sign}${size:,.2f}" if size < 1000 else f"{sign}${size:,.0f}"


def share(value: float | None) -> str:
    """A fraction as a percentage; shares near 0 and 1 keep the digits that matter.

    >>> [share(x).replace("\\u202f", " ") for x in (0.5, 0.9991, 1.0, 0.0004)]
    ['50 %', '99.91 %', '100 %', '0.04 %']
    """
    if value is None:
        return NONE
    percent = value * 100
    if abs(percent - round(percent)) < 1e-9 or abs(percent) >= 1000:
        text = f"{percent:,.0f}"
    elif 99 < percent < 100 or abs(percent) < 1:
        text = f"{percent:.2f}"
    else:
        text = f"{percent:.1f}"
    return f"{text}{_SPACE}%"


def count(value: float | None) -> str:
    """A whole number with thousands separators, or three significant digits.

    >>> count(1234567), count(3.14159)
    ('1,234,567', '3.14')
    """
    if value is None:
        return NONE
    if float(value).is_integer() and abs(value) < 1e15:
        return f"{int(value):,}".replace("-", "−")
    return significant(value)


def significant(value: float, digits: int = 3) -> str:
    """`value` at `digits` significant digits, thousands separated, no exponent between 1e-4 and 1e15.

    >>> significant(1234.5), significant(0.0456789), significant(9.999)
    ('1,234', '0.0457', '10.0')
    """
    if value == 0:
        return "0"
    sign = "−" if value < 0 else ""
    size = abs(value)
    if size < 1e-4 or size >= 1e15:
        return f"{sign}{size:.{digits - 1}e}"
    exponent = math.floor(math.log10(size))
    if round(size, digits - 1 - exponent) >= 10 ** (exponent + 1):
        exponent += 1
    return f"{sign}{size:,.{max(0, digits - 1 - exponent)}f}"


def _scaled(value: float, base: float, units: tuple[str, ...]) -> str:
    size, index = abs(value), 0
    while size >= base * 0.99995 and index < len(units) - 1:
        size /= base
        index += 1
    text = count(size) if index == 0 else significant(size)
    return f"{'−' if value < 0 else ''}{text}{_SPACE}{units[index]}"


_WRITERS = {
    "seconds": seconds,
    "usd": usd,
    "usd_per_hour": lambda value: f"{usd(value)}/h",
    "usd_per_month": lambda value: f"{usd(value)}/month",
    "usd_per_year": lambda value: f"{usd(value)}/year",
    "bytes": lambda value: _scaled(value, 1024, ("B", "KiB", "MiB", "GiB", "TiB")),
    "bytes_per_s": lambda value: _scaled(value, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")),
    "flop_per_s": lambda value: _scaled(
        value, 1000, ("FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s")
    ),
    "flop": lambda value: _scaled(value, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP")),
    "per_s": lambda value: f"{count(value)}{_SPACE}/s",
    "watts": lambda value: _scaled(value, 1000, ("W", "kW", "MW")),
    "share": share,
    "watt_hours": lambda value: _scaled(value, 1000, ("Wh", "kWh", "MWh")),
    "grams": lambda value: _scaled(value, 1000, ("g", "kg", "t")),
    "hours": lambda value: seconds(value * 3600),
    "flop_per_byte": lambda value: f"{significant(value)}{_SPACE}FLOP/B",
    "number": count,
}
