"""What no benchmark result may be: checks that every reader of other tools' files shares."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from fleetplan.errors import InputError

LEAST_TTFT_S, MOST_TPOT_S = 5e-4, 10.0
REACHED = 0.95
"""Share of the requested rate below which a run was saturated and its latencies miss the client's queue."""


@dataclass(frozen=True)
class Run:
    """One benchmark run, in SI units."""

    tool: str
    definition: str
    """What the tool calls TTFT and TPOT, and the unit it writes."""
    statistic: str
    """mean or median."""
    ttft_s: float
    tpot_s: float
    prompt_tokens: float
    output_tokens: float
    concurrency: float
    """Requests in flight: the closed loop's, or rate · latency of an open one (Little)."""
    open_loop: bool
    requests: int
    failed: int = 0
    notes: tuple[str, ...] = ()


def checked(run: Run, where: str) -> Run:
    faults = []
    if run.requests < 1:
        faults.append(f"{where}: no successful request")
    for name in ("ttft_s", "tpot_s", "prompt_tokens", "output_tokens", "concurrency"):
        value = getattr(run, name)
        if not math.isfinite(value) or value <= 0:
            faults.append(f"{where}: {name}: a number above 0 is needed (got {value})")
    if not faults and run.ttft_s < LEAST_TTFT_S:
        faults.append(
            f"{where}: a TTFT of {run.ttft_s * 1e3:.3g} ms for {run.prompt_tokens:.0f} prompt tokens cannot be: is it in seconds under a name in ms?"
        )
    if not faults and run.tpot_s > MOST_TPOT_S:
        faults.append(
            f"{where}: a TPOT of {run.tpot_s:.3g} s cannot be: is it in ms under a name in seconds?"
        )
    if faults:
        raise InputError(*faults)
    return run


def consistent(
    document: dict[str, Any],
    stem: str,
    suffix: str,
    scale: float,
    ttft: float,
    tpot: float,
    output: float,
    duration: float,
    where: str,
) -> None:
    """Refuse a unit that the run's own duration contradicts."""
    whole = ttft + (output - 1) * tpot
    if whole > 1.5 * duration:
        raise InputError(
            f"{where}: a request of TTFT + (n − 1)·TPOT = {whole:.3g} s in a run of {duration:.3g} s: the unit cannot be what the names say"
        )
    for key in (f"{stem}l{suffix}", f"{stem}_latency{suffix}"):
        value = document.get(key)
        if isinstance(value, int | float) and not 0.5 < value * scale / whole < 2.0:
            raise InputError(
                f"{where}: {key} is {value * scale:.4g} s, TTFT + (n − 1)·TPOT is {whole:.4g} s: they must agree"
            )


def reached(requested: float, achieved: float, where: str) -> None:
    if achieved < REACHED * requested:
        raise InputError(
            f"{where}: {requested:.4g} requests/s were asked for and {achieved:.4g} reached: the load was never offered (or the client queued), "
            f"so its latencies are not those of {requested:.4g}/s; give a run that reaches {100 * REACHED:.0f}% of its rate"
        )


def rate(value: Any) -> float:
    if value is None or (isinstance(value, str) and value.lower() in ("inf", "infinity")):
        return math.inf
    return float(value)


def size(good: dict[str, Any], name: str) -> dict[str, Any]:
    block = good.get(name)
    if not isinstance(block, dict):
        block = good.get("text", {}).get(name) if isinstance(good.get("text"), dict) else None
    return block or {}


def need(block: dict[str, Any], key: str, where: str) -> float:
    value = block.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise InputError(f"{where}: {key}: a finite number is needed (got {value!r})")
    return float(value)


def json_object(text: str, where: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for key, value in pairs:
            if key in made:
                raise InputError(
                    f"{where}: key {key!r} is given twice ({made[key]!r} and {value!r}); which one is meant cannot be known"
                )
            made[key] = value
        return made

    try:
        document: dict[str, Any] = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not JSON ({error})") from error
    return document
