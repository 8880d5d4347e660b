"""Speculative decoding on paper: acceptance, tokens per target pass, survival by position, speed-up, best draft length."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetplan.errors import InputError

Floats = NDArray[np.float64]


def acceptance(target: ArrayLike, draft: ArrayLike) -> Floats:
    """α = Σ min(p, q) = 1 − TV(p, q) over the last axis of two arrays of probabilities (MODEL 9).

    >>> float(acceptance([0.5, 0.5], [0.9, 0.1]))
    0.6
    """
    p, q = np.asarray(target, dtype=np.float64), np.asarray(draft, dtype=np.float64)
    for name, law in (("target", p), ("draft", q)):
        if law.size == 0 or (law < 0).any() or not np.allclose(law.sum(axis=-1), 1, atol=1e-9):
            raise InputError(
                f"{name}: each row must hold probabilities ≥ 0 that sum to 1 (got {law.tolist()!r:.80})"
            )
    result: Floats = np.minimum(p, q).sum(axis=-1)
    return result


def survival(by_position: ArrayLike) -> Floats:
    """S_i = a_1·…·a_i from acceptance by position, each given that the drafts before it were accepted.

    >>> survival([0.75, 0.70, 0.66]).round(4).tolist()
    [0.75, 0.525, 0.3465]
    """
    a = np.atleast_1d(np.asarray(by_position, dtype=np.float64))
    _check_shares("acceptance", a)
    return np.asarray(np.cumprod(a), dtype=np.float64)


def geometric_survival(alpha: float, drafts: int) -> Floats:
    """S_i = α^i for i = 1..drafts: the law of equal acceptance at every position."""
    return survival(np.full(check_drafts(drafts), alpha))


def expected_tokens(alpha: float, drafts: int) -> float:
    """E = (1 − α^(K+1))/(1 − α) tokens per target pass at equal acceptance; K + 1 at α = 1 (MODEL 9).

    >>> round(expected_tokens(0.8, 5), 4), expected_tokens(1.0, 4), expected_tokens(0.0, 4)
    (3.6893, 5.0, 1.0)
    """
    return expected_tokens_by_position(np.full(check_drafts(drafts), alpha))


def expected_tokens_by_position(by_position: ArrayLike) -> float:
    """E = 1 + Σ S_i from acceptance by position, each given the ones before.

    >>> round(expected_tokens_by_position([0.75, 0.70, 0.66]), 4)
    2.6215
    """
    a = np.atleast_1d(np.asarray(by_position, dtype=np.float64))
    return 1.0 + (float(survival(a).sum()) if a.size else 0.0)


def speedup_textbook(alpha: float, drafts: int, draft_cost: float) -> float:
    """E/(1 + K·c), the draft's step costing c target steps and verification nothing extra.

    >>> round(speedup_textbook(0.8, 5, 0.1), 4), round(speedup_textbook(0.6, 5, 0.2), 4)
    (2.4595, 1.1917)
    """
    if not draft_cost >= 0 or not np.isfinite(draft_cost):
        raise InputError(f"draft_cost: must be a finite number ≥ 0, in target steps (got {draft_cost!r})")
    return expected_tokens(alpha, drafts) / (1 + drafts * draft_cost)


def best_drafts_textbook(alpha: float, draft_cost: float, most: int = 64) -> int:
    """The draft length K in 0..`most` of the highest textbook speed-up, the least one on ties; 0: do not speculate.

    >>> [best_drafts_textbook(a, 0.15) for a in (0.9, 0.8, 0.7, 0.5)]
    [8, 5, 3, 2]
    """
    check_drafts(most)
    speedups = [1.0, *(speedup_textbook(alpha, k, draft_cost) for k in range(1, most + 1))]
    return int(np.argmax(speedups))


def survival_from_lengths(drafts: Sequence[int], mean_accepted_length: Sequence[float]) -> Floats:
    """Survival by position, shape (K,), from the mean accepted length (the sure token counted) at each draft length.

    E(k) − E(k−1) is survival at position k. The measured differences are noisy, so the fit is the least-squares one that
    never rises (pool adjacent violators) and lies in [0, 1]. Where lengths were skipped, survival falls geometrically
    through the gap to the measured sum, or evenly where no geometric fall gives it. Raises `InputError` unless lengths are ascending and ≥ 1 and means in 1..K+1.

    >>> survival_from_lengths([1, 2, 3, 4], [1.8, 2.4, 2.8, 3.3]).round(3).tolist()
    [0.8, 0.6, 0.45, 0.45]
    """
    k = [0, *drafts]
    e = [1.0, *mean_accepted_length]
    if len(k) != len(e) or len(k) < 2:
        raise InputError(
            f"mean_accepted_length: one value per draft length (got {len(e) - 1} for {len(k) - 1})"
        )
    if any(b <= a for a, b in pairwise(k)):
        raise InputError(f"drafts: must be whole numbers ≥ 1, ascending (got {list(drafts)!r})")
    wrong = [(i, v) for i, v in zip(k, e, strict=True) if not 1 <= v <= i + 1]
    if wrong:
        raise InputError(
            *(f"mean_accepted_length at {i} drafts: must lie in 1..{i + 1} (got {v!r})" for i, v in wrong)
        )
    gains = [(e1 - e0, k1 - k0) for (k0, k1), (e0, e1) in zip(pairwise(k), pairwise(e), strict=True)]
    if max(width for _, width in gains) > 1:
        falling = _falling(gains)
        if falling is not None:
            return falling
    blocks: list[list[float]] = []  # [mean, positions]
    for gain, width in gains:
        blocks.append([gain / width, float(width)])
        while len(blocks) > 1 and blocks[-1][0] > blocks[-2][0]:
            mean, positions = blocks.pop()
            blocks[-1][0] = (blocks[-1][0] * blocks[-1][1] + mean * positions) / (blocks[-1][1] + positions)
            blocks[-1][1] += positions
    fitted = np.concatenate([np.full(round(positions), mean) for mean, positions in blocks])
    result: Floats = np.clip(fitted, 0.0, 1.0)
    return result


def acceptance_from_survival(survived: ArrayLike) -> Floats:
    """a_i = S_i/S_{i−1}, the inverse of `survival`; 0 once nothing survives.

    >>> acceptance_from_survival([0.75, 0.525, 0.3465]).round(4).tolist()
    [0.75, 0.7, 0.66]
    """
    s = np.atleast_1d(np.asarray(survived, dtype=np.float64))
    _check_shares("survival", s)
    before = np.concatenate([[1.0], s[:-1]])
    if (s > before).any():
        raise InputError(f"survival: may not rise with position (got {s.tolist()})")
    result: Floats = np.divide(s, before, out=np.zeros_like(s), where=before > 0)
    return result


def geometric_overstatement(survived: ArrayLike) -> float:
    """How far, as a share, the geometric law fitted at the first position overstates E over all positions.

    >>> round(geometric_overstatement([0.8, 0.6, 0.45, 0.45]), 3)
    0.019
    """
    s = np.atleast_1d(np.asarray(survived, dtype=np.float64))
    return expected_tokens(float(s[0]), len(s)) / (1 + float(s.sum())) - 1


def _falling(gains: list[tuple[float, int]]) -> Floats | None:
    # Through each gap S_prev·(r + … + r^width) = gain; None where that would need r > 1.
    out: list[float] = []
    last = 1.0
    for gain, width in gains:
        powers = np.arange(1, width + 1)
        if not 0 < gain <= last * width:
            return None
        low, high = 0.0, 1.0
        for _ in range(80):
            middle = (low + high) / 2
            low, high = (middle, high) if last * float((middle**powers).sum()) < gain else (low, middle)
        out.extend((last * high**powers).tolist())
        last = out[-1]
    return np.array(out)


def check_drafts(drafts: int) -> int:
    """The number of drafts, or `InputError` unless it is a whole number ≥ 0."""
    if isinstance(drafts, bool) or not isinstance(drafts, int | np.integer) or drafts < 0:
        raise InputError(f"drafts: must be a whole number ≥ 0 (got {drafts!r})")
    return int(drafts)


def _check_shares(name: str, values: Floats) -> None:
    lines = [
        f"{name}[{i}]: must lie in 0..1 (got {v!r})" for i, v in enumerate(values.tolist()) if not 0 <= v <= 1
    ]
    if lines:
        raise InputError(*lines)
