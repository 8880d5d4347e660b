"""Rows of the stage `sizing` that tell of the traffic: its facts by class, arrivals over time, dispersion over scales, the hours."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.sizing.decide import Decision, Plan
from fleetplan.traffic.model import Profile
from fleetplan.traffic.patterns import SCALES_S, cached_share, dispersion
from fleetplan.traffic.requests import Requests

TIMES = 200
"""Points of a line over time."""
HOUR_S = 3600.0
DAY_HOURS = 24

Row = dict[str, Any]


def traffic_rows(decision: Decision) -> dict[str, list[Row]]:
    """Table → rows of one replication of the planned traffic."""
    subject = decision.plan
    parts = dict(_parts(subject))
    return {
        "workloads": [_facts(name, requests, decision) for name, requests in parts.items()],
        "arrivals": list(_arrivals(subject)),
        "dispersions": [
            {"class": name, "scale_s": scale, "dispersion": value}
            for name, requests in parts.items()
            for scale, value in dispersion(_by_second(requests, subject), SCALES_S).items()
        ],
        "hours": list(_hours(subject, parts)),
    }


def _parts(subject: Plan) -> Iterator[tuple[str, Requests]]:
    """All requests, and those of each class where there are several."""
    mix = subject.traffic.requests()
    if subject.traffic.closed:  # the last turns of users lie beyond, more and more thinly
        mix = mix.take(mix.arrival_s < subject.traffic.duration_s)
    yield "*", mix
    if len(mix.classes) > 1:
        for index, name in enumerate(mix.classes):
            rows = mix.class_index == index
            if rows.any():
                yield name, mix.take(rows)


def _facts(name: str, requests: Requests, decision: Decision) -> Row:
    subject = decision.plan
    duration = subject.traffic.duration_s
    gaps = np.diff(requests.arrival_s)
    minutes = np.bincount((requests.arrival_s // 60).astype(np.int64))
    mean = len(requests) / duration
    peak_minute = float(minutes.max()) / min(60.0, duration)
    peak_second = float(_by_second(requests, subject).max())
    cache = _cache_tokens(decision)
    return {
        "class": name,
        "mean_requests_per_s": mean,
        "peak_minute_requests_per_s": peak_minute,
        "peak_second_requests_per_s": peak_second,
        "peak_minute_over_mean": peak_minute / mean,
        "peak_second_over_mean": peak_second / mean,
        "interarrival_cv": float(gaps.std() / gaps.mean()) if len(gaps) > 1 and gaps.mean() > 0 else None,
        "prefix_hit_share": cached_share(requests),
        "prefix_hit_share_cached": None if cache is None else cached_share(requests, cache),
        "cache_tokens": cache,
        **_lengths(requests, subject.model is not None),
        "simulated_requests": len(requests),
        "simulated_s": duration,
    }


def _lengths(requests: Requests, tokens: bool) -> Row:
    """Facts of the lengths; all null of an endpoint, which has no tokens."""
    from scipy import stats  # half a second, which the other stages need not pay

    prompt, output = requests.prompt_tokens, requests.output_tokens
    varied = prompt.std() > 0 and output.std() > 0
    found: Row = {
        f"{what}_{name}_tokens": float(value)
        for what, of in (("prompt", prompt), ("output", output))
        for name, value in (("mean", of.mean()), *((f"p{q}", np.percentile(of, q)) for q in (50, 95, 99)))
    }
    found["length_correlation"] = float(np.corrcoef(prompt, output)[0, 1]) if varied else None
    found["length_rank_correlation"] = float(stats.spearmanr(prompt, output).statistic) if varied else None
    return found if tokens else dict.fromkeys(found)


def _cache_tokens(decision: Decision) -> int | None:
    """Tokens of the KV pool of one engine of the chosen candidate; None: none was chosen, or it has no such pool."""
    config = decision.chosen.machine.config if decision.chosen else None
    return None if config is None or config.kv_blocks is None else config.kv_blocks * config.block_size


def _by_second(requests: Requests, subject: Plan) -> NDArray[np.int64]:
    return np.bincount(requests.arrival_s.astype(np.int64), minlength=int(subject.traffic.duration_s))


def _arrivals(subject: Plan) -> Iterable[Row]:
    """Requests per second through one replication, by class."""
    mix, duration = subject.traffic.requests(), subject.traffic.duration_s
    edges = np.linspace(0.0, duration, TIMES + 1)
    for index, name in enumerate(mix.classes):
        counts, _ = np.histogram(mix.arrival_s[mix.class_index == index], edges)
        for middle, count in zip((edges[:-1] + edges[1:]) / 2, counts, strict=True):
            yield {
                "class": name,
                "time_s": float(middle),
                "mean_requests_per_s": float(count / (edges[1] - edges[0])),
            }


def _hours(subject: Plan, parts: dict[str, Requests]) -> Iterable[Row]:
    """The rate in each hour of the day, where the traffic lasts a day or more; hours count from where its profile or recording begins."""
    workload, duration = subject.traffic.workload, subject.traffic.duration_s
    if duration < DAY_HOURS * HOUR_S:
        return
    profiles = [a for c in workload.classes if isinstance(a := c.arrivals or workload.arrivals, Profile)]
    start = profiles[0].start_s if profiles else 0.0
    edges = np.arange(0.0, start + duration + HOUR_S, HOUR_S)
    lasts = np.clip(edges[1:], start, start + duration) - np.clip(edges[:-1], start, start + duration)
    spent = np.bincount(np.arange(len(lasts)) % DAY_HOURS, weights=lasts, minlength=DAY_HOURS)
    for name, requests in parts.items():
        hour = ((requests.arrival_s + start) // HOUR_S).astype(np.int64) % DAY_HOURS
        for at, count in enumerate(np.bincount(hour, minlength=DAY_HOURS).tolist()):
            yield {"class": name, "hour_h": at, "mean_requests_per_s": count / float(spent[at])}
