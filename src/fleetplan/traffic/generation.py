"""From a workload to `Requests`: arrivals, lengths and structure, each from its own random stream."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from fleetplan.errors import InputError
from fleetplan.traffic import arrivals, lengths, structure
from fleetplan.traffic.model import (
    Arrivals,
    Bounded,
    Class,
    ClosedLoop,
    Joint,
    Recorded,
    Replay,
    Stops,
    Workload,
)
from fleetplan.traffic.requests import Requests
from fleetplan.traffic.streams import Streams

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERVICE_GUESS_S = 0.004
"""Least time [s] a generated token is taken to need, for how many turns a closed loop may run in a horizon."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Requests and what happened on the way to them, counted: clipped lengths, cache hits, retries, ended sessions."""

    requests: Requests
    tallies: dict[str, int] = field(default_factory=dict)


def generate(
    workload: Workload,
    *,
    duration_s: float | None = None,
    n_requests: int | None = None,
    seed: int = 0,
    rate_scale: float = 1.0,
) -> Requests:
    """The requests of `duration_s` seconds, or the first `n_requests`, of a workload.

    Equal arguments give equal requests. Arrivals and every kind of length of every class have streams of their own: request k
    of a class has the same lengths whatever its arrivals, so candidates (and rates) are compared on common random numbers.
    `rate_scale` multiplies the rates: the parameter of a process, the users of a closed loop, the copies of a recording.

    >>> from fleetplan.traffic.model import Class, Fixed, Poisson
    >>> w = Workload((Class("chat", Poisson(10.0), prompt_tokens=Fixed(100), output_tokens=Fixed(10)),))
    >>> len(generate(w, n_requests=5)), len(generate(w, duration_s=100, seed=1))
    (5, 1001)
    """
    return draw(
        workload, duration_s=duration_s, n_requests=n_requests, seed=seed, rate_scale=rate_scale
    ).requests


def draw(
    workload: Workload,
    *,
    duration_s: float | None = None,
    n_requests: int | None = None,
    seed: int = 0,
    rate_scale: float = 1.0,
) -> Drawn:
    """As `generate`, with the tallies."""
    if (duration_s is None) == (n_requests is None):
        raise InputError("generate: give a duration or a number of requests (got both or neither)")
    if not (rate_scale > 0 and math.isfinite(rate_scale)):
        raise InputError(f"generate: rate scale must be > 0 and finite (got {rate_scale})")
    check(workload)
    if duration_s is not None:
        if not (duration_s > 0 and math.isfinite(duration_s)):
            raise InputError(f"generate: duration must be > 0 s and finite (got {duration_s})")
        return _for_horizon(workload, duration_s, seed, rate_scale, None)
    assert n_requests is not None
    if n_requests < 1:
        raise InputError(f"generate: the number of requests must be at least 1 (got {n_requests})")
    rate = mean_rate_per_s(workload, rate_scale) or 1.0
    horizon = (n_requests + 4 * math.sqrt(n_requests) + 4) / rate
    for _ in range(60):
        got = _for_horizon(workload, horizon, seed, rate_scale, n_requests)
        if len(got.requests) >= n_requests:
            return Drawn(got.requests.take(np.arange(n_requests)), got.tallies)
        horizon *= 2
    raise InputError(
        f"generate: no {n_requests} requests come however long one waits (got {len(got.requests)})"
    )


def mean_rate_per_s(workload: Workload, rate_scale: float = 1.0) -> float | None:
    """Long-run requests per second that reach the model (turns, retries and cache hits counted); None with a closed loop of unknown service."""
    total = 0.0
    for c in workload.classes:
        common = workload.arrivals if c.arrivals is None else c.arrivals
        rate = None if common is None else arrivals.mean_rate_per_s(common, rate_scale)
        if rate is None:
            return None
        if c.arrivals is None:
            rate *= c.share or 0.0
        if c.sessions is not None:
            rate *= lengths.mean_tokens(c.sessions.turns)
        if c.semantic_cache is not None:
            rate *= 1 - c.semantic_cache.hit_share * (1 - c.semantic_cache.stale_share)
        if c.retries is not None:
            rate *= sum(c.retries.chance**i for i in range(c.retries.most + 1))
        total += rate
    return total


def check(workload: Workload) -> None:
    """Raise `InputError` with every fault of a workload."""
    faults = []
    if not workload.classes:
        faults.append("workload: has no class (got none), at least one is needed")
    if (
        workload.arrivals is not None
        and abs(sum(c.share or 0 for c in workload.classes if c.arrivals is None) - 1) > 1e-9
    ):
        faults.append("workload: the shares of the classes with common arrivals must sum to 1")
    for c in workload.classes:
        where = f"class {c.name}"
        own = c.arrivals or workload.arrivals
        if own is None:
            faults.append(f"{where}: has no arrivals (got none, and the workload has none)")
            continue
        if (
            not isinstance(own, Replay)
            and c.joint is None
            and (c.prompt_tokens is None or c.output_tokens is None)
        ):
            faults.append(
                f"{where}: has no lengths (got no joint and not both prompt_tokens and output_tokens)"
            )
        if not -1 < c.correlation < 1:
            faults.append(f"{where}: correlation must be within (-1, 1) (got {c.correlation})")
        if c.sessions is not None and isinstance(own, (Replay, ClosedLoop)):
            faults.append(
                f"{where}: sessions do not go with a replay (got both), whose rows are its turns already; take one of them"
                if isinstance(own, Replay)
                else f"{where}: sessions do not go with a closed loop (got both), whose users are its sessions already; take one of them"
            )
        try:
            arrivals.check(own)
            for d in (c.prompt_tokens, c.output_tokens, c.reasoning_tokens):
                if d is not None:
                    lengths.check(d)
        except InputError as error:
            faults.extend(f"{where}: {line}" for line in error.lines)
    if faults:
        raise InputError(*faults)


def _for_horizon(workload: Workload, horizon: float, seed: int, scale: float, most: int | None) -> Drawn:
    tallies: dict[str, int] = {}
    parts: list[dict[str, Any]] = []
    common = workload.arrivals
    owner: Ints | None = None
    base: dict[str, Any] = {}
    if common is not None:
        # Streams of the common arrivals lie behind those of all classes.
        streams = Streams(seed, len(workload.classes))
        base = _arrive(common, horizon, scale, streams, most)
        shares = np.cumsum([c.share or 0.0 if c.arrivals is None else 0.0 for c in workload.classes])
        owner = np.searchsorted(
            shares[:-1], streams.rng("prompt").random(len(base["arrival_s"])), side="right"
        )
    for index, c in enumerate(workload.classes):
        streams = Streams(seed, index)
        if c.arrivals is not None:
            arrived = _arrive(c.arrivals, horizon, scale, streams, most)
        else:
            mine = owner == index
            arrived = {name: value[mine] if np.ndim(value) else value for name, value in base.items()}
        parts.append(_class(c, index, arrived, horizon, streams, workload.max_context_tokens, tallies))
    return Drawn(_joined(parts, workload), tallies)


def _arrive(a: Arrivals, horizon: float, scale: float, streams: Streams, most: int | None) -> dict[str, Any]:
    """Columns that the arrivals decide: always arrival_s; for replays the lengths too."""
    if isinstance(a, ClosedLoop):
        return _closed_loop(a, horizon, scale, streams, most)
    if not isinstance(a, (Recorded, Replay)):
        return {"arrival_s": arrivals.times_s(a, horizon, scale, streams.seeds("arrivals"))}
    time, row, copy = arrivals.rows_of_recording(a, horizon, scale, streams.seeds("arrivals"))
    got: dict[str, Any] = {"arrival_s": time}
    if isinstance(a, Replay):
        got |= {"prompt_tokens": a.prompt_tokens[row], "output_tokens": a.output_tokens[row]}
        if a.session_id is not None:
            n = int(a.session_id.max(initial=-1)) + 1
            got["session_id"] = np.where(a.session_id[row] < 0, -1, a.session_id[row] + copy * n)
        if a.block_offsets is not None and a.block_hashes is not None:
            many = int(a.block_hashes.max(initial=-1)) + 1
            count = np.diff(a.block_offsets)[row]
            offsets = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
            who = np.repeat(np.arange(len(row)), count)
            source = a.block_offsets[row][who] + np.arange(offsets[-1]) - offsets[who]
            # Copies of a recording are other users: their prompts share nothing with the first's.
            got |= {"block_counts": count, "block_hashes": a.block_hashes[source] + copy[who] * many}
            got["hash_block_tokens"] = a.hash_block_tokens
    return got


def _closed_loop(
    a: ClosedLoop, horizon: float, scale: float, streams: Streams, most: int | None
) -> dict[str, Any]:
    users = max(round(a.users * scale), 1)
    turns = math.ceil(horizon / max(a.think_s + a.mean_service_s, SERVICE_GUESS_S * 25)) + 1
    if most is not None:
        turns = min(turns, math.ceil(most / users))
    rng = streams.rng("gaps")
    gap = rng.exponential(a.think_s, (turns, users)) if a.think_s else np.zeros((turns, users))
    # Users begin somewhere in their first think time, not all at once, unless they never think.
    nominal = np.cumsum(gap, axis=0) + a.mean_service_s * np.arange(turns)[:, None]
    gap[0] = np.nan
    return {
        "arrival_s": nominal.ravel(),
        "gap_s": gap.ravel(),
        "session_id": np.tile(np.arange(users), turns),
        "history_tokens": np.zeros(users * turns, dtype=np.int64),
    }


def _class(
    c: Class,
    index: int,
    got: dict[str, Any],
    horizon: float,
    streams: Streams,
    context: int | None,
    tallies: dict[str, int],
) -> dict[str, Any]:
    """All columns of one class's requests, in order of arrival (turns of a session in order)."""
    if c.sessions is not None:
        got = structure.turns(c, got, streams)
    n = len(got["arrival_s"])
    if "prompt_tokens" not in got:
        got["prompt_tokens"], got["output_tokens"] = _lengths(c, n, streams, tallies)
    prefix = structure.prefixes(c, got, streams)
    hidden = np.zeros(n, dtype=np.int64)
    if c.reasoning_tokens is not None:
        hidden = lengths.draw(c.reasoning_tokens, streams.rng("reasoning").random(n))
        got["output_tokens"] = got["output_tokens"] + hidden
    if c.max_output_tokens is not None:
        structure.count(tallies, "output_cut_by_max_tokens", got["output_tokens"] > c.max_output_tokens)
        got["output_tokens"] = np.minimum(got["output_tokens"], c.max_output_tokens)
    keep = np.ones(n, dtype=bool)
    if c.sessions is not None:
        keep &= structure.grow(c, got, horizon, context, tallies)
    if c.semantic_cache is not None:
        hits = streams.rng("cache").random((n, 2))
        hit = hits[:, 0] < c.semantic_cache.hit_share
        stale = hit & (hits[:, 1] < c.semantic_cache.stale_share)
        structure.count(tallies, "semantic_cache_hits", keep & hit & ~stale)
        structure.count(tallies, "semantic_cache_stale", keep & stale)
        keep &= ~hit | stale
    if context is not None:
        structure.clip(got, context, tallies)
    got["prefix_tokens"] = np.minimum(prefix["prefix_tokens"], got["prompt_tokens"] - 1)
    got["prefix_id"] = np.where(got["prefix_tokens"] > 0, prefix["prefix_id"], -1)
    got["hidden_tokens"] = np.minimum(hidden, got["output_tokens"])
    got |= {
        "class_index": np.full(n, index),
        "priority": np.full(n, c.priority),
        "timeout_s": np.full(n, c.timeout_s),
    }
    got["answers"] = np.full(n, c.answers)
    if c.adapters is not None:
        got["adapter_id"] = structure.adapters(c, got, streams)
    if c.sessions is not None:
        structure.bridge(got, keep)
    got = structure.kept(got, keep)
    if c.retries is None:
        return got
    again = structure.retried if c.sessions is None else structure.retried_turns
    return again(c, got, horizon, streams, tallies)


def _lengths(c: Class, n: int, streams: Streams, tallies: dict[str, int]) -> tuple[Ints, Ints]:
    first = streams.rng("prompt").random(n)
    if c.joint is not None:
        return _pairs(c.joint, first)
    assert c.prompt_tokens is not None
    assert c.output_tokens is not None
    second = streams.rng("output").random(n)
    if c.correlation:
        # Gaussian copula: Spearman's rho of uniforms is 6/π·asin(r/2) of normals with correlation r.
        r = 2 * math.sin(math.pi * c.correlation / 6)
        second = special.ndtr(r * special.ndtri(first) + math.sqrt(1 - r * r) * special.ndtri(second))
    prompt, output = lengths.draw(c.prompt_tokens, first), lengths.draw(c.output_tokens, second)
    for name, d, tokens in (("prompt", c.prompt_tokens, prompt), ("output", c.output_tokens, output)):
        if isinstance(d, Bounded) and d.maximum is not None:
            structure.count(tallies, f"{name}_at_maximum", tokens >= d.maximum)
    if isinstance(c.output_tokens, Stops):
        cut = tokens_cut = np.zeros(n, dtype=bool)
        if c.output_tokens.max_tokens is not None:
            cut = output >= c.output_tokens.max_tokens
            structure.count(tallies, "output_cut_by_max_tokens", cut)
        if c.output_tokens.stop_hazard:
            tokens_cut = ~cut & (streams.rng("stops").random(n) < lengths.stop_share(c.output_tokens, output))
            structure.count(tallies, "output_cut_by_stop_sequence", tokens_cut)
    return prompt, output


def _pairs(joint: Joint, u: Floats) -> tuple[Ints, Ints]:
    cumulative = np.cumsum(joint.counts)
    row = np.searchsorted(cumulative, np.floor(u * cumulative[-1]).astype(np.int64), side="right")
    return joint.prompt_tokens[row], joint.output_tokens[row]


def _joined(parts: list[dict[str, Any]], workload: Workload) -> Requests:
    """One `Requests` of all classes; ids of sessions, prefixes, adapters and blocks are told apart by class."""
    defaults: dict[str, Any] = {"gap_s": np.nan, "session_id": -1, "adapter_id": -1, "history_tokens": -1}
    columns: dict[str, list[Any]] = {}
    above = dict.fromkeys(("session_id", "prefix_id", "adapter_id", "block_hashes"), 0)
    above["adapter_id"] = _name_adapters(parts, workload)
    blocks = max((int(p.get("hash_block_tokens", 0)) for p in parts), default=0)
    if len({p["hash_block_tokens"] for p in parts if "hash_block_tokens" in p}) > 1:
        raise InputError("workload: replayed traces with hashed blocks of different sizes cannot be joined")
    for part, c in zip(parts, workload.classes, strict=True):
        n = len(part["arrival_s"])
        part.pop("hash_block_tokens", None)
        for name, value in defaults.items():
            part.setdefault(name, np.full(n, value))
        if blocks:
            part.setdefault("block_counts", np.zeros(n, dtype=np.int64))
            part.setdefault("block_hashes", np.zeros(0, dtype=np.int64))
        for name, floor in above.items():
            if name in part and not (name == "adapter_id" and c.adapters is not None and c.adapters.names):
                ids = part[name]
                part[name] = np.where(ids >= 0, ids + floor, ids)
                above[name] = max(floor, int(part[name].max(initial=-1)) + 1)
        for name, value in part.items():
            columns.setdefault(name, []).append(value)
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in columns.items()}
    hashes: dict[str, Any] = {}
    if blocks:
        counts = joined.pop("block_counts")
        hashes = {
            "block_offsets": np.concatenate([[0], np.cumsum(counts)]),
            "block_hashes": joined.pop("block_hashes"),
            "hash_block_tokens": blocks,
        }
    names = tuple(c.name for c in workload.classes)
    return Requests.of(
        joined.pop("arrival_s"),
        joined.pop("prompt_tokens"),
        joined.pop("output_tokens"),
        classes=names,
        **joined,
        **hashes,
    )


def _name_adapters(parts: list[dict[str, Any]], workload: Workload) -> int:
    """Give adapters of one name the same id in all classes; how many names there are, behind which ids of the classes' own begin."""
    known: dict[str, int] = {}
    for part, c in zip(parts, workload.classes, strict=True):
        if c.adapters is None or not c.adapters.names:
            continue
        ids = np.array([*(known.setdefault(name, len(known)) for name in c.adapters.names), -1])
        part["adapter_id"] = ids[part["adapter_id"]]
    return len(known)
