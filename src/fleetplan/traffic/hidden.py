"""Rates that jump between hidden states, found in counts by second: a Poisson hidden Markov model, by expectation–maximisation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from fleetplan.traffic.model import Mmpp

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SEGMENT = 500
"""Seconds that are gone through at once; each segment begins in the long-run law."""
MOST_ROUNDS = 150
CLOSE = 1e-7
"""Of the log likelihood: a round that raises it by less is the last."""


def hidden_states(counts_per_s: Ints, most: int, rate_per_s: float) -> Mmpp:
    """The MMPP of three to `most` states that these counts speak for, its mean rate scaled to `rate_per_s`.

    Of each number of states the likeliest one; states are added while BIC, n² log(seconds) − 2 log(likelihood), falls.
    """
    least, best = np.inf, None
    for states in range(3, most + 1):
        likelihood, rates, moves = _likeliest(counts_per_s, states)
        criterion = states**2 * np.log(len(counts_per_s)) - 2 * likelihood
        if criterion >= least:
            break
        least, best = criterion, (rates, moves)
    assert best is not None
    return _process(*best, rate_per_s)


def _likeliest(counts_per_s: Ints, states: int) -> tuple[float, Floats, Floats]:
    """(log likelihood, rates, chances of moving each second) of so many states.

    Baum–Welch with Poisson emissions (Rabiner 1989), from rates spread evenly in the logarithm. A second's state lasts 1/(1 − a_ii)
    seconds on average.
    """
    rates = np.geomspace(
        max(counts_per_s.mean() / 20, 1e-3), max(float(np.quantile(counts_per_s, 0.999)), 1.0), states
    )
    moves = np.full((states, states), 0.2 / (states - 1))
    np.fill_diagonal(moves, 0.8)
    seen, which = np.unique(_segments(counts_per_s), return_inverse=True)
    which = which.reshape(SEGMENT, -1)
    likelihood = before = -np.inf
    for _ in range(MOST_ROUNDS):
        likelihood, shares, pairs = _expectation(seen, which, rates, moves)
        moves = pairs / pairs.sum(axis=1, keepdims=True)
        rates = np.maximum((shares * seen[:, None]).sum(axis=0) / shares.sum(axis=0), 1e-6)
        if likelihood - before < CLOSE * abs(likelihood):
            break
        before = likelihood
    order = np.argsort(rates)
    return likelihood, rates[order], moves[np.ix_(order, order)]


def _segments(counts: Ints) -> Ints:
    """The counts as columns of `SEGMENT` seconds, the last column completed with −1: not known."""
    columns = -(-len(counts) // SEGMENT)
    padded = np.full(columns * SEGMENT, -1, dtype=np.int64)
    padded[: len(counts)] = counts
    return padded.reshape(columns, SEGMENT).T


def _expectation(
    seen: Ints, which: NDArray[np.int64], rates: Floats, moves: Floats
) -> tuple[float, Floats, Floats]:
    """(log likelihood, weight of each seen count in each state, expected moves); an unknown count is likely in every state."""
    log = seen[:, None] * np.log(rates) - rates - gammaln(np.maximum(seen, 0) + 1)[:, None]
    log[seen < 0] = 0.0
    highest = log.max(axis=1)
    chance = np.exp(log - highest[:, None])[which]
    forward, scale = np.empty_like(chance), np.empty(which.shape)
    now = np.broadcast_to(_long_run(moves), chance.shape[1:])
    for t in range(SEGMENT):
        now = (now @ moves if t else now) * chance[t]
        scale[t] = now.sum(axis=1)
        now = now / scale[t][:, None]
        forward[t] = now
    later = np.ones_like(now)
    backward = np.empty_like(chance)
    for t in range(SEGMENT - 1, -1, -1):
        backward[t] = later
        later = (chance[t] * later / scale[t][:, None]) @ moves.T
    weight = forward * backward
    weight /= weight.sum(axis=2, keepdims=True)
    ahead = chance[1:] * backward[1:] / scale[1:, :, None]
    known = (seen[which[1:]] >= 0)[:, :, None]
    pairs = moves * np.einsum("tsi,tsj->ij", forward[:-1] * known, ahead)
    shares = np.zeros((len(seen), len(rates)))
    np.add.at(shares, which.ravel(), weight.reshape(-1, len(rates)))
    shares[seen < 0] = 0.0
    return float(np.log(scale).sum() + highest[which].sum()), shares, pairs


def _long_run(moves: Floats) -> Floats:
    values, vectors = np.linalg.eig(moves.T)
    share = np.abs(np.real(vectors[:, int(np.argmin(np.abs(values - 1)))]))
    return np.asarray(share / share.sum())


def _process(rates: Floats, moves: Floats, rate_per_s: float) -> Mmpp:
    """As an MMPP of figures that a person would type."""
    stays = tuple(float(f"{1 / max(1 - moves[i, i], 1e-6):.4g}") for i in range(len(rates)))
    chances = []
    for i, row in enumerate(moves):
        left = np.where(np.arange(len(row)) == i, 0.0, row)
        left = np.round(left / left.sum(), 3)
        left[int(left.argmax())] += 1 - left.sum()
        chances.append(tuple(round(float(chance), 3) for chance in left))
    jumps = _long_run(np.array(chances)) if len(rates) > 2 else np.array([0.5, 0.5])
    time = jumps * stays / (jumps * stays).sum()
    rates = np.where(rates < 1e-3 * rate_per_s, 0.0, rates)
    scaled = rates * (rate_per_s / float(time @ rates))
    return Mmpp(tuple(float(f"{rate:.4g}") for rate in scaled), stays, tuple(chances))
