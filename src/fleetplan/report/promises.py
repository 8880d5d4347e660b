"""A promise and its simulated verdict in words: name, limit, value, and how far the one is from the other."""

from __future__ import annotations

from collections.abc import Sequence

from fleetplan.report import units
from fleetplan.report.reading import Row

TIMES = 2.0
"""From here on a miss is told as a multiple, no percentage."""
_METRICS = ("ttft", "ttfvt", "tpot", "itl", "e2e", "attainment", "utilisation")


def name(row: Row) -> str:
    """A promise in words.

    >>> name({"metric": "ttft", "percentile": 99.0, "class": "chat"})
    'TTFT p99 of class chat'
    >>> name({"metric": "deadline", "percentile": 100.0, "class": "documents"})
    'Deadline of class documents'
    """
    group = row.get("class")
    of = f" of class {group}" if group and group not in ("*", "all") else ""
    if row["metric"] in ("utilisation", "throughput", "deadline"):
        return row["metric"].capitalize() + of
    percentile = row.get("percentile")
    at = ""
    if isinstance(percentile, int | float):
        at = f" {percentile:g}\u202f%" if row["metric"] == "attainment" else f" p{percentile:g}"
    elif percentile:
        at = f" {percentile}"
    metric = "Attainment" if row["metric"] == "attainment" else str(row["metric"]).upper()
    return f"{metric}{at}{of}"


def order(row: Row) -> tuple[object, ...]:
    """Promises as they are read: by replicas, class, then TTFT before TPOT, ITL and E2E."""
    metric = row["metric"]
    place = _METRICS.index(metric) if metric in _METRICS else len(_METRICS)
    return (
        row["replicas"],
        row.get("prefill_replicas") or 0,
        metric == "utilisation",
        row["class"],
        place,
        str(metric),
        str(row.get("percentile")),
    )


def fleet(row: Row) -> str:
    """The replicas of a verdict or of a decision in words.

    >>> fleet({"replicas": 1, "prefill_replicas": 0}), fleet({"replicas": 5, "prefill_replicas": 3, "decode_replicas": 2})
    ('1 replica', '3 prefill and 2 decode replicas')
    """
    if row.get("prefill_replicas"):
        return f"{row['prefill_replicas']} prefill and {row['decode_replicas']} decode replicas"
    return f"{row['replicas']} replica{'' if row['replicas'] == 1 else 's'}"


def at_decision(rows: Sequence[Row], decision: Row) -> list[Row]:
    """The verdicts at the decided count; of two pools, at the decided pair."""
    keys = ("replicas", "prefill_replicas")
    wanted = [decision.get(key) or 0 for key in keys]
    return [row for row in rows if [row.get(key) or 0 for key in keys] == wanted]


def one_fewer(rows: Sequence[Row], decision: Row) -> list[Row]:
    """The verdicts with one replica fewer: of two pools of either, or with their ratio once less."""
    less = [row for row in rows if row["replicas"] == decision["replicas"] - 1]
    before = decision.get("prefill_replicas")
    near = [row for row in less if before and row.get("prefill_replicas") in (before, before - 1)]
    return near or less


def limit(row: Row) -> str:
    """What was promised: a duration, or a share of requests."""
    if row["metric"] == "utilisation":
        return f"≤ {units.share(row['cap'])}" if row.get("cap") is not None else "as the spec has it"
    if row.get("limit_s") is not None:
        return f"≤ {units.seconds(row['limit_s'])}"
    share = promised_share(row)
    return f"≥ {units.share(share)}" if share is not None else "as the spec has it"


def bound(row: Row) -> str:
    """The promised value alone, for use inside a sentence."""
    return limit(row).lstrip("≤≥ ")


def simulated(row: Row) -> str:
    """What was simulated, in the terms of the promise."""
    if row["metric"] == "utilisation":
        return units.share(row["utilisation"])
    if row.get("limit_s") is not None:
        return "unbounded" if row["simulated_s"] is None else units.seconds(row["simulated_s"])
    return units.share(row["met_share"]) if row.get("met_share") is not None else units.NONE


def ratio(row: Row) -> float | None:
    """The simulated value as a share of the promise, so that above 1 fails; None: unbounded, or no such number."""
    if row["metric"] == "utilisation":
        return float(row["utilisation"] / row["cap"]) if row.get("cap") else None
    if row.get("limit_s") and row.get("simulated_s") is not None:
        return float(row["simulated_s"] / row["limit_s"])
    promised = promised_share(row)
    if row.get("limit_s") is None and promised and promised < 1 and row.get("met_share") is not None:
        return float((1 - row["met_share"]) / (1 - promised))
    return None


def margin(row: Row) -> str:
    """How far the value is from the promise."""
    near = ratio(row)
    if row["metric"] != "utilisation" and row.get("limit_s") is None:
        return "of the requests meet it"
    if near is None:
        return "no bound"
    if near <= 1:
        return f"{units.share(1 - near)} to spare"
    return f"{units.share(near - 1)} over" if near < TIMES else f"{near:,.3g} times the promise"


def miss(row: Row) -> str:
    """A failing promise as the end of a sentence."""
    if row.get("limit_s") is None:
        return f"{name(row)} is at {simulated(row)} where {bound(row)} is promised"
    near = ratio(row)
    if near is None:
        return f"{name(row)} is unbounded"
    missed = f"misses by {units.share(near - 1)}" if near < TIMES else f"is {near:,.3g} times the promise"
    return f"{name(row)} {missed}"


def worst(rows: Sequence[Row]) -> Row:
    """The promise that is missed by most, an unbounded one before all."""
    return max(rows, key=lambda row: _weight(row))


def promised_share(row: Row) -> float | None:
    """The share of requests that must meet the limit; from the percentile when it is a number."""
    if row.get("promised_share") is not None:
        return float(row["promised_share"])
    percentile = row.get("percentile")
    if isinstance(percentile, str) and percentile.startswith("p"):
        percentile = float(percentile[1:])
    return None if not isinstance(percentile, int | float) else percentile / 100


def _weight(row: Row) -> float:
    near = ratio(row)
    return float("inf") if near is None else near
