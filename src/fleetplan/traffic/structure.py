"""What stands between single draws and requests: sessions, shared prefixes, context limits, retries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fleetplan.errors import InputError
from fleetplan.traffic import lengths
from fleetplan.traffic.model import Class
from fleetplan.traffic.streams import Streams

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def turns(c: Class, got: dict[str, Any], streams: Streams) -> dict[str, Any]:
    """Each start becomes a session of turns; times of later turns are as if answers took no time, `gap_s` says the rest."""
    assert c.sessions is not None
    starts = got["arrival_s"]
    turns = lengths.draw(c.sessions.turns, streams.rng("turns").random(len(starts)))
    session = np.repeat(np.arange(len(starts)), turns)
    first = np.zeros(len(session), dtype=bool)
    first[np.cumsum(turns) - turns] = True
    rng = streams.rng("gaps")
    if c.sessions.gap_cv == 0 or c.sessions.gap_s == 0:
        gap = np.full(len(session), c.sessions.gap_s)
    else:
        shape = 1 / c.sessions.gap_cv**2
        gap = rng.gamma(shape, c.sessions.gap_s / shape, len(session))
    waited = np.cumsum(np.where(first, 0.0, gap))
    arrival = starts[session] + waited - waited[first][session]
    return {
        "arrival_s": arrival,
        "gap_s": np.where(first, np.nan, gap),
        "session_id": session,
        "first": first,
    }


def grow(
    c: Class, got: dict[str, Any], horizon: float, context: int | None, tallies: dict[str, int]
) -> NDArray[np.bool_]:
    """Make every turn's prompt the whole conversation before it plus its own new tokens; the turns to keep."""
    assert c.sessions is not None
    first = got.pop("first")
    total = np.cumsum(got["prompt_tokens"] + got["output_tokens"])
    start = np.maximum.accumulate(np.where(first, np.arange(len(first)), 0))
    before = total - got["prompt_tokens"] - got["output_tokens"]
    got["prompt_tokens"] = got["prompt_tokens"] + before - before[start]
    limits = [x for x in (c.sessions.max_context_tokens, context) if x is not None]
    fits = np.ones(len(first), dtype=bool)
    if limits:
        fits = (got["prompt_tokens"] + got["output_tokens"] <= min(limits)) | first
        count(tallies, "session_turns_beyond_context", ~fits)
    return fits & (got["arrival_s"] < horizon)


def bridge(got: dict[str, Any], keep: NDArray[np.bool_]) -> None:
    """Let the turns to keep follow each other: a turn that the cache answers takes no time, so its gap adds to the next one's.

    Where the first turns of a session are answered so, the first that is not arrives at its own time. What the cache answered is
    part of the conversation all the same, and the turn before still begins the prompt.
    """
    rows = np.flatnonzero(keep)
    gap, session = got["gap_s"], got["session_id"]
    waited = np.cumsum(np.nan_to_num(gap))
    follows = np.zeros(len(rows), dtype=bool)
    follows[1:] = session[rows[1:]] == session[rows[:-1]]
    since = np.diff(waited[rows], prepend=0.0)
    straight = np.diff(rows, prepend=-2) == 1
    got["gap_s"] = gap.copy()
    got["gap_s"][rows] = np.where(follows, np.where(straight, gap[rows], since), np.nan)


def prefixes(c: Class, got: dict[str, Any], streams: Streams) -> dict[str, Ints]:
    n = len(got["arrival_s"])
    none = {"prefix_id": np.full(n, -1), "prefix_tokens": np.zeros(n, dtype=np.int64)}
    p = c.shared_prefix
    if p is None:
        return none
    rng = streams.rng("prefix")
    # The texts are those of the seed, however many requests there are.
    tokens = lengths.draw(
        p.tokens, np.random.default_rng(streams.seeds("prefix").spawn(1)[0]).random(p.count)
    )
    u = rng.random((n, 2))
    if "first" in got:
        u = u[np.maximum.accumulate(np.where(got["first"], np.arange(n), 0))]
    which = np.searchsorted(lengths.zipf_cdf(p.zipf, p.count)[:-1], u[:, 1], side="right")
    has = u[:, 0] < p.share
    if p.added:
        begins = has & got["first"] if "first" in got else has
        got["prompt_tokens"] = got["prompt_tokens"] + np.where(begins, tokens[which], 0)
    return {"prefix_id": np.where(has, which, -1), "prefix_tokens": np.where(has, tokens[which], 0)}


def adapters(c: Class, got: dict[str, Any], streams: Streams) -> Ints:
    """Index of the adapter that each request uses, that of its session where it is a turn; −1: none."""
    assert c.adapters is not None
    n = len(got["arrival_s"])
    u = streams.rng("adapters").random(n)
    session = got.get("session_id")
    if session is not None and n:
        turn = session >= 0
        first, inverse = np.unique(session, return_index=True, return_inverse=True)[1:]
        u = np.where(turn, u[first[inverse]], u)
    reached = np.cumsum(c.adapters.shares)
    if abs(reached[-1] - 1) < 1e-9:
        reached[-1] = 1.0
    which = np.searchsorted(reached, u, side="right")
    return np.where(which < len(reached), which, -1)


def clip(got: dict[str, Any], context: int, tallies: dict[str, int]) -> None:
    """Cut the output, then the prompt, to the model's context, and count what was cut."""
    if context < 2:
        raise InputError(f"workload: the context must hold a prompt and an output token (got {context})")
    prompt, output = got["prompt_tokens"], got["output_tokens"]
    count(tallies, "prompt_clipped_to_context", prompt > context - 1)
    count(tallies, "output_clipped_to_context", prompt + output > context)
    got["prompt_tokens"] = np.minimum(prompt, context - 1)
    got["output_tokens"] = np.minimum(output, context - got["prompt_tokens"])


def retried(
    c: Class, got: dict[str, Any], horizon: float, streams: Streams, tallies: dict[str, int]
) -> dict[str, Any]:
    """The requests with their repetitions, each sent again after an exponential delay."""
    assert c.retries is not None
    rng = streams.rng("retries")
    every, last = [got], got
    for _ in range(c.retries.most):
        again = kept(last, rng.random(len(last["arrival_s"])) < c.retries.chance)
        again["arrival_s"] = again["arrival_s"] + rng.exponential(c.retries.delay_s, len(again["arrival_s"]))
        last = kept(again, again["arrival_s"] < horizon)
        count(tallies, "retries", np.ones(len(last["arrival_s"]), dtype=bool))
        every.append(last)
    joined: dict[str, Any] = {name: got[name] for name in got if not np.ndim(got[name])}
    return joined | {name: np.concatenate([e[name] for e in every]) for name in got if np.ndim(got[name])}


def retried_turns(
    c: Class, got: dict[str, Any], horizon: float, streams: Streams, tallies: dict[str, int]
) -> dict[str, Any]:
    """The turns with their repetitions: each is sent again, alike, an exponential delay after its end, and the session waits for it.

    A repetition begins with the whole prompt that failed; what that answered is thrown away.
    """
    assert c.retries is not None
    rng = streams.rng("retries")
    n = len(got["arrival_s"])
    fails = np.cumprod(rng.random((n, c.retries.most)) < c.retries.chance, axis=1)
    rows = np.repeat(np.arange(n), 1 + fails.sum(axis=1))
    again = np.zeros(len(rows), dtype=bool)
    again[1:] = rows[1:] == rows[:-1]
    new = {name: value[rows] if np.ndim(value) else value for name, value in got.items()}
    new["gap_s"] = np.where(again, rng.exponential(c.retries.delay_s, len(rows)), new["gap_s"])
    history = got.get("history_tokens", np.full(n, -1))[rows]
    new["history_tokens"] = np.where(again, np.maximum(new["prompt_tokens"] - 1, 0), history)
    waited = np.cumsum(np.nan_to_num(new["gap_s"]))
    start = np.maximum.accumulate(np.where(np.isnan(new["gap_s"]), np.arange(len(rows)), 0))
    new["arrival_s"] = new["arrival_s"][start] + waited - waited[start]
    keep = new["arrival_s"] < horizon
    count(tallies, "retries", again & keep)
    return kept(new, keep)


def kept(got: dict[str, Any], keep: NDArray[np.bool_]) -> dict[str, Any]:
    new = {
        name: value[keep] if np.ndim(value) and name != "block_hashes" else value
        for name, value in got.items()
    }
    if "block_counts" in got:
        new["block_hashes"] = got["block_hashes"][np.repeat(keep, got["block_counts"])]
    return new


def count(tallies: dict[str, int], name: str, which: NDArray[np.bool_]) -> None:
    tallies[name] = tallies.get(name, 0) + int(which.sum())
