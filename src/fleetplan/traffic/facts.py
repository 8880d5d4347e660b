"""Facts of a trace: rate, burstiness, peaks and quantiles of lengths, by the definitions of docs/traffic.md."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.traffic.traces.trace import Trace

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LengthFacts:
    """Mean and quantiles [tokens] of one length (linear interpolation); None where a log does not say."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None


@dataclass(frozen=True)
class Summary:
    """The facts that `trace summarise` prints; a figure that is not defined is None and a note says why."""

    format: str
    rows: int
    dropped: dict[str, int]
    rate_per_s: float | None
    span_s: float | None
    interarrival_cv: float | None
    peak_minute_per_s: float | None
    peak_second_per_s: float | None
    prompt_tokens: LengthFacts
    output_tokens: LengthFacts
    length_correlation: float | None
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values for strict JSON."""
        return asdict(self)


def summarise(trace: Trace) -> Summary:
    """The summary of a trace: rate = rows/span, CV = population sd/mean of successive gaps, peaks in bins from the first arrival."""
    totals = trace.totals
    if totals is not None:
        return Summary(
            format=trace.format, rows=totals.rows, dropped=trace.dropped, rate_per_s=totals.rate_per_s, span_s=None,
            interarrival_cv=None, peak_minute_per_s=None, peak_second_per_s=None,
            prompt_tokens=_of_totals(totals.prompt_tokens), output_tokens=_of_totals(totals.output_tokens),
            length_correlation=None, notes=trace.notes,
        )  # fmt: skip
    span = trace.span_s
    arrival = trace.arrival_s
    rated = arrival is not None and span is not None and span > 0
    notes = trace.notes
    if rated and span is not None and span < 60:
        notes = (
            *notes,
            f"it lasts {span:.3g} s, too short for a peak minute{' and a peak second' if span < 1 else ''}",
        )
    return Summary(
        format=trace.format,
        rows=len(trace),
        dropped=trace.dropped,
        rate_per_s=len(trace) / span if rated and span else None,
        span_s=span,
        interarrival_cv=interarrival_cv(arrival) if rated and arrival is not None else None,
        peak_minute_per_s=_peak_per_s(arrival, span, 60.0),
        peak_second_per_s=_peak_per_s(arrival, span, 1.0),
        prompt_tokens=length_facts(trace.prompt_tokens),
        output_tokens=length_facts(trace.output_tokens),
        length_correlation=correlation(trace.prompt_tokens, trace.output_tokens),
        notes=notes,
    )


def interarrival_cv(arrival_s: Floats) -> float | None:
    """Population standard deviation over mean of the successive gaps of sorted arrivals; None when no time passes."""
    gaps = np.diff(arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return float(gaps.std()) / mean if mean > 0 else None


def peak_per_s(arrival_s: Floats, bin_s: float) -> float:
    """The largest count of a bin of `bin_s` seconds, counted from the first arrival, per second."""
    return float(counts_per_bin(arrival_s, bin_s).max()) / bin_s


def counts_per_bin(arrival_s: Floats, bin_s: float) -> Ints:
    """Arrivals in each bin of `bin_s` seconds from the first arrival to the last; shape (bins,)."""
    return np.bincount(((arrival_s - arrival_s[0]) / bin_s).astype(np.int64)).astype(np.int64)


def length_facts(tokens: Ints) -> LengthFacts:
    """Mean and quantiles of lengths, by linear interpolation."""
    p50, p90, p95, p99 = (float(q) for q in np.quantile(tokens, [0.5, 0.9, 0.95, 0.99]))
    return LengthFacts(float(tokens.mean()), p50, p90, p95, p99, float(tokens.max()))


def correlation(a: Ints, b: Ints) -> float | None:
    """Pearson correlation; None where one of them never changes."""
    if len(a) < 2 or a.min() == a.max() or b.min() == b.max():
        return None
    return float(np.corrcoef(a, b)[0, 1])


def _peak_per_s(arrival_s: Floats | None, span_s: float | None, bin_s: float) -> float | None:
    """The peak of bins of this length; None where the trace is shorter than one."""
    return (
        peak_per_s(arrival_s, bin_s)
        if arrival_s is not None and span_s is not None and span_s >= bin_s
        else None
    )


def _of_totals(given: dict[str, float]) -> LengthFacts:
    return LengthFacts(**{name: given.get(name) for name in ("mean", "p50", "p90", "p95", "p99", "max")})
