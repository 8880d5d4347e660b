"""What no scheduler can beat: a lone request's latencies, and the least work of a request. They prune, provably."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.histogram import BITS
from fleetplan.physics.form import StepTime
from fleetplan.sizing.client import NO_CLIENT, ClientTime
from fleetplan.sizing.verdict import Limit
from fleetplan.traffic.requests import Requests

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Lone:
    """Latencies [s] of each request if it had a replica to itself; shape (n,)."""

    ttft_s: Floats
    ttfvt_s: Floats
    """Of no meaning where a request hides all of its tokens."""
    tpot_s: Floats
    """0 where a request has one output token."""
    e2e_s: Floats
    itl_s: Floats
    """The least gap between two steps that decode it: that of its first."""
    last_gap_s: Floats
    """The longest of its gaps, between steps of a single token."""
    steps: NDArray[np.int64]
    """The fewest steps that decode it, each of which ends a gap; what else a step emits comes without one."""

    @property
    def by_metric(self) -> dict[str, Floats]:
        """Each of them by the name that promises use."""
        return {
            "ttft": self.ttft_s,
            "ttfvt": self.ttfvt_s,
            "tpot": self.tpot_s,
            "e2e": self.e2e_s,
            "itl": self.itl_s,
        }

    def without(self, refused: Flags) -> Lone:
        """The same where these requests are never served: all that they have is infinite."""
        if not refused.any():
            return self
        times = {name: np.where(refused, np.inf, value) for name, value in self.by_metric.items()}
        last_gap_s = np.where(refused, np.inf, self.last_gap_s)
        return Lone(
            **{f"{name}_s": value for name, value in times.items()}, last_gap_s=last_gap_s, steps=self.steps
        )


def lone(
    requests: Requests,
    step: StepTime,
    budget_tokens: int | None,
    client_s: ClientTime = NO_CLIENT,
    tokens_a_step: int = 1,
) -> Lone:
    """Lower bounds of what any schedule gives each request, from steps that hold it alone.

    The prompt runs in chunks of `budget_tokens` (None: whole). A decode step's time is convex in the context, so the mean over an
    answer is at least the time at the mean context S + G/2. `client_s` comes on top of TTFT. With drafts a decode step gives up to
    `tokens_a_step` tokens, and is charged as if it were one of a single token at the first context: less than any takes.
    """
    prompt = requests.prompt_tokens
    ttft = np.zeros(len(prompt))
    done = np.zeros(len(prompt), dtype=np.int64)
    while (left := prompt - done).any():
        n = left if budget_tokens is None else np.minimum(left, budget_tokens)
        some = n > 0
        ttft[some] += _lone_step(step, done[some], n[some], decoding=0)
        done = done + n
    ttft += client_s.of(prompt)
    gaps = requests.output_tokens - 1
    tpot, itl, last_gap = (np.zeros(len(prompt)) for _ in range(3))
    several = gaps > 0
    if several.any():
        # Decode step j of G − 1 reads S + j tokens: on average S + G/2.
        further = requests.output_tokens[several] / 2 if tokens_a_step == 1 else np.ones(int(several.sum()))
        context, first = prompt[several] + further, prompt[several] + 1.0
        window = np.minimum(context, step.window_tokens) if step.window_tokens else np.zeros_like(context)
        cut = np.minimum(first, step.window_tokens) if step.window_tokens else np.zeros_like(first)
        itl[several] = step.step_s(1, 1, 1, first, first, cut, cut)
        last = first + gaps[several] - 1
        cut_last = np.minimum(last, step.window_tokens) if step.window_tokens else np.zeros_like(last)
        last_gap[several] = step.step_s(1, 1, 1, last, last, cut_last, cut_last)
        tpot[several] = step.step_s(1, 1, 1, context, context, window, window)
        if step.window_tokens:
            # Cut at the window the time is concave there: the first step is the bound.
            tpot[several] = np.minimum(tpot[several], step.step_s(1, 1, 1, context, context, cut, cut))
    steps = -(-gaps // tokens_a_step)
    tpot[several] *= steps[several] / gaps[several]
    hidden = requests.hidden_tokens > 0
    ttfvt = ttft
    if hidden.any():  # the first decode step is the shortest of them
        first = prompt[hidden] + 1.0
        cut = np.minimum(first, step.window_tokens) if step.window_tokens else np.zeros_like(first)
        ttfvt = ttft.copy()
        ttfvt[hidden] += np.ceil(requests.hidden_tokens[hidden] / tokens_a_step) * step.step_s(
            1, 1, 1, first, first, cut, cut
        )
    return Lone(ttft, ttfvt, tpot, ttft + gaps * tpot, itl, last_gap, steps)


def hopeless(
    limits: tuple[Limit, ...], requests: Requests, alone: Lone, counted: Flags | None = None
) -> str | None:
    """Why no number of replicas keeps a promise: even alone too few requests would meet it. None: none is hopeless."""
    for limit in limits:
        rows, met, all_of_them = _met(limit, requests, alone, counted)
        if met.sum() >= limit.share * all_of_them.sum() * (1 - 1e-12):
            continue
        name, share = limit.name, met.sum() / all_of_them.sum()
        served = np.isfinite(alone.e2e_s[rows])
        if (served * all_of_them).sum() < limit.share * all_of_them.sum() * (1 - 1e-12):
            return (
                f"{name}: {(served * all_of_them).sum() / all_of_them.sum():.1%} of what it judges would be served even by a replica "
                "that has nothing else to do, as the queue's limits and timeouts are; no number of replicas mends it"
            )
        if len(limit.bounds) > 1 or limit.limit_s is None:
            return (
                f"{name}: alone on a replica {share:.1%} of the requests would meet it; "
                "no number of replicas mends it"
            )
        value = nearest_value(alone.by_metric[limit.bounds[0][0]][rows], all_of_them, limit.share)
        return (
            f"{name}: {spoken_s(value)} for requests that have a replica to themselves, above {spoken_s(limit.limit_s)}; "
            "no number of replicas mends it"
        )
    return None


def never(
    limits: tuple[Limit, ...], draws: Iterable[tuple[Requests, Lone, Flags | None]], least: int
) -> str | None:
    """Why no count can pass by the pooled draws that a verdict looks at, from the `least`-th on. None: some look might pass.

    A draw is its requests, what they have alone, and which of them are counted (None: all). A simulated request is never faster
    than alone, so what fails here fails in every simulation of the same draws.
    """
    met, judged = np.zeros(len(limits)), np.zeros(len(limits))
    share = np.array([limit.share for limit in limits])
    why = None
    for look, (requests, alone, counted) in enumerate(draws, 1):
        if look == 1 and (why := hopeless(limits, requests, alone, counted)) is None:
            return None
        each = [_met(limit, requests, alone, counted) for limit in limits]
        met += [ok.sum() for _, ok, _ in each]
        judged += [weight.sum() for _, _, weight in each]
        if look >= least and not (met < share * judged * (1 - 1e-12)).any():
            return None
    return why


def nearest_value(values: Floats, weights: Floats, share: float) -> float:
    """The least of these values that `share` of the weights are at or below."""
    return float(np.quantile(values, share, method="inverted_cdf", weights=weights))


def least_work_s(
    requests: Requests,
    step: StepTime,
    most_tokens: int,
    tokens_a_step: int = 1,
    prefills: Flags | None = None,
) -> float:
    """Mean time [s] of an engine that one request takes at the very least, however it is batched; steps hold at most `most_tokens`.

    `prefills` says of which requests it computes the prompt too (None: of all); of the others it only decodes what follows token 1.

    Over a run Σdt ≥ Σ(O + C + c·X) and Σdt ≥ Σ(O + M + m·R), each with its σ and δ; a step of n tokens costs at least n times the
    least cost of a token. Where a decode step gives up to `tokens_a_step` tokens, a request takes so many fewer of them and reads its
    context so much less often; its tokens and pairs are computed all the same.
    """
    n = np.arange(1, min(most_tokens, max(step.max_tokens, 2)) + 1)
    n = np.unique(np.append(n, most_tokens)) if not np.isnan(step.compute_slope_s) else n
    overhead = step.at(step.overhead_s, step.overhead_slope_s, n)
    compute = float(((overhead + step.at(step.compute_s, step.compute_slope_s, n)) / n).min())
    memory = float(((overhead + step.at(step.memory_s, step.memory_slope_s, n)) / n).min())
    prompt = requests.prompt_tokens.astype(np.float64)
    gaps = requests.output_tokens.astype(np.float64) - 1
    here = np.ones(len(requests), dtype=bool) if prefills is None else prefills
    tokens = prompt * here + gaps
    pairs = prompt * (prompt + 1) / 2 * here + gaps * prompt + gaps * (gaps + 1) / 2
    least = gaps / tokens_a_step
    read = prompt * here + least * prompt + gaps * (gaps + 1) / 2 / tokens_a_step
    # Who decodes is scheduled too: δ below 0 is paid with a σ each time.
    decode = step.sequence_s + step.decode_s
    steps = step.sequence_s * here + decode * (least if decode > 0 else gaps)
    by_compute = tokens * compute + steps + step.pair_s * pairs
    by_memory = tokens * memory + steps + step.kv_token_s * read + step.state_s * (here + least)
    return float(max(by_compute.mean(), by_memory.mean(), 0.0))


def judged(metric: str, requests: Requests) -> Flags:
    """Requests that have this metric at all: one token has no TPOT, and one that hides every token no first visible one."""
    if metric == "tpot":
        return requests.output_tokens > 1
    if metric == "ttfvt":
        return requests.hidden_tokens < requests.output_tokens
    return np.ones(len(requests), dtype=bool)


def _met(
    limit: Limit, requests: Requests, alone: Lone, counted: Flags | None
) -> tuple[Flags, Floats, Floats]:
    """(rows that the limit judges; how much of each meets it alone, at most; how much there is of each): requests, of ITL gaps."""
    rows = requests.class_index == requests.classes.index(limit.class_name)
    if limit.metric == "itl":
        # A run pools the gaps of all its requests, those of the warm-up too.
        bound = limit.bounds[0][1]
        gaps = np.maximum(requests.output_tokens - 1, 1) * requests.answers
        short = alone.itl_s <= bound * (1 + 2.0**-BITS)
        free = np.where(np.isfinite(alone.itl_s), gaps - alone.steps * requests.answers, 0)
        served_single = (requests.output_tokens == 1) & np.isfinite(alone.itl_s)
        rows &= ~served_single
        return rows, np.where(short, gaps, free)[rows].astype(np.float64), gaps[rows].astype(np.float64)
    rows &= judged(limit.metric, requests) if counted is None else counted & judged(limit.metric, requests)
    ok = np.ones(int(rows.sum()), dtype=bool)
    for metric, bound, growth in limit.bounds if ok.size else ():
        met = alone.by_metric[metric] <= bound + growth * requests.prompt_tokens
        ok &= (met | ~judged(metric, requests))[rows]
    return rows, ok.astype(np.float64), np.ones(len(ok))


def _lone_step(step: StepTime, cached: NDArray[np.int64], n: NDArray[np.int64], decoding: int) -> Floats:
    total = (cached + n).astype(np.float64)
    pairs = n * cached + n * (n + 1) / 2
    # Within the window a token sees at most `window` keys; the least any accounting charges is the last token's.
    cut = np.minimum(total, step.window_tokens) if step.window_tokens else np.zeros_like(total)
    return step.step_s(n, 1, decoding, total, pairs, cut, cut)


def spoken_s(value: float) -> str:
    """A time [s] as people say it.

    >>> spoken_s(0.0961), spoken_s(1.32)
    ('96.1 ms', '1.32 s')
    """
    return f"{value:.3g} s" if value >= 1 else f"{value * 1e3:.3g} ms"
