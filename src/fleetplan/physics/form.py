"""The time of one engine step, in the one form that every cost model takes.

    dt = O[n] + σ·B + δ·D + max(C[n] + c·X + c_w·X_w,  M[n] + m·R + m_w·R_w + m_s·B)

n tokens are computed by B sequences, D of which decode; R = Σ(c_i + n_i) KV tokens are read and
X = Σ(n_i·c_i + n_i(n_i + 1)/2) query-key pairs computed; R_w and X_w are the same with each context cut at the window.

A pipeline's dt is its latency, all stages and the sends between them; its longest stage has a form of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
# Rounding of sums in another order, relative and absolute [s].
_SLACK, _SLACK_S = 1e-9, 1e-15


@dataclass(frozen=True, eq=False)
class StepTime:
    """Coefficients of one step's time; vectors are indexed by n, entry 0 unused (0.0).

    Beyond the last entry a vector goes on linearly with its `*_slope_s` [s/token]; a NaN slope means that it may not.
    """

    overhead_s: Floats
    """O[n] [s]: time that neither roof hides."""
    compute_s: Floats
    """C[n] [s]: compute roof of the tokens."""
    memory_s: Floats
    """M[n] [s]: memory roof of the weights."""
    sequence_s: float = 0.0
    """σ [s] a scheduled sequence."""
    decode_s: float = 0.0
    """δ [s] a sequence that decodes, on top of σ."""
    pair_s: float = 0.0
    """c [s] a query-key pair."""
    window_pair_s: float = 0.0
    """c_w [s] a query-key pair within the window."""
    kv_token_s: float = 0.0
    """m [s] a KV token read."""
    window_kv_token_s: float = 0.0
    """m_w [s] a KV token read within the window."""
    state_s: float = 0.0
    """m_s [s] a sequence's constant state read."""
    window_tokens: int = 0
    """Sliding window [tokens]; 0: no layer has one."""
    overhead_slope_s: float = float("nan")
    compute_slope_s: float = float("nan")
    memory_slope_s: float = float("nan")
    stages: int = 1
    """Stages of a pipeline, each of which may work on another step at the same time."""
    stage: StepTime | None = None
    """Time of the longest stage for the same arguments: as soon as it has passed, the next step may start. None: one stage."""

    def __post_init__(self) -> None:
        if self.stages == 1 and self.stage is None:
            return
        if self.stages < 1 or self.stages != int(self.stages):
            raise ValueError(f"stages: a whole number from 1 up is needed (got {self.stages})")
        if self.stages == 1:
            raise ValueError("stage: one stage is the step itself; give stages: 2 or more, or no stage")
        if self.stage is None:
            raise ValueError(f"stage: {self.stages} stages need the longest one's step time")
        fault = _no_part(self.stage, self)
        if fault:
            raise ValueError(f"stage: {fault}")

    @property
    def beat(self) -> StepTime:
        """Time after which the next step may start: the longest stage's, or without a pipeline the step's own."""
        return self.stage or self

    @property
    def max_tokens(self) -> int:
        """Largest n that the vectors hold."""
        return len(self.overhead_s) - 1

    def step_s(
        self,
        tokens: ArrayLike,
        sequences: ArrayLike,
        decoding: ArrayLike,
        kv_tokens: ArrayLike,
        pairs: ArrayLike,
        window_kv_tokens: ArrayLike = 0,
        window_pairs: ArrayLike = 0,
    ) -> Floats:
        """Time [s] of steps with n tokens, B sequences, D decoding, R, X, R_w, X_w; arrays broadcast.

        Raises ValueError for n outside 1..max_tokens where a vector has no slope.
        """
        n = np.asarray(tokens, dtype=np.int64)
        b = np.asarray(sequences, dtype=np.float64)
        hidden = self.at(self.overhead_s, self.overhead_slope_s, n)
        compute = (
            self.at(self.compute_s, self.compute_slope_s, n)
            + self.pair_s * np.asarray(pairs)
            + self.window_pair_s * np.asarray(window_pairs)
        )
        memory = (
            self.at(self.memory_s, self.memory_slope_s, n)
            + self.kv_token_s * np.asarray(kv_tokens)
            + self.window_kv_token_s * np.asarray(window_kv_tokens)
            + self.state_s * b
        )
        return (
            hidden + self.sequence_s * b + self.decode_s * np.asarray(decoding) + np.maximum(compute, memory)
        )

    def at(self, vector: Floats, slope: float, n: NDArray[np.int64]) -> Floats:
        """A vector of the form at n tokens, going on with its slope beyond its end."""
        last = len(vector) - 1
        if n.size and n.min() < 1:
            raise ValueError(f"a step has at least one token (got {n.min()})")
        if n.size and n.max() > last and np.isnan(slope):
            raise ValueError(f"a step of {n.max()} tokens is longer than the step-time table of {last}")
        inside = vector[np.minimum(n, last)]
        return inside + np.where(n > last, (n - last) * (0.0 if np.isnan(slope) else slope), 0.0)


def affine(t_fixed_s: float, prefill_s_per_token: float, decode_s_per_sequence: float) -> StepTime:
    """t_fixed + c_prefill·prompt tokens + c_decode·decoding sequences; exact at every n.

    >>> float(affine(0.005, 2e-5, 5e-4).step_s(tokens=103, sequences=4, decoding=3, kv_tokens=0, pairs=0))
    0.0085
    """
    zero = np.zeros(2)
    return StepTime(
        overhead_s=np.array([0.0, t_fixed_s + prefill_s_per_token]),
        compute_s=zero,
        memory_s=zero,
        decode_s=decode_s_per_sequence - prefill_s_per_token,
        overhead_slope_s=prefill_s_per_token,
        compute_slope_s=0.0,
        memory_slope_s=0.0,
    )


def linear(
    overhead_s: float,
    compute_s_per_token: float,
    weights_s: float,
    compute_s_per_query_key_pair: float,
    kv_s_per_token: float,
    sequence_s: float,
) -> StepTime:
    """O constant, C[n] = compute_s_per_token·n, M[n] = weights_s, then c, m and σ: a dense model's whole-step roofline."""
    return StepTime(
        overhead_s=np.array([0.0, overhead_s]),
        compute_s=np.array([0.0, compute_s_per_token]),
        memory_s=np.array([0.0, weights_s]),
        sequence_s=sequence_s,
        pair_s=compute_s_per_query_key_pair,
        kv_token_s=kv_s_per_token,
        overhead_slope_s=0.0,
        compute_slope_s=compute_s_per_token,
        memory_slope_s=0.0,
    )


def table(
    tokens: ArrayLike,
    step_s: ArrayLike,
    kv_tokens: ArrayLike | None = None,
    sequence_s: float = 0.0,
) -> StepTime:
    """Step times that were measured, interpolated in n; rows (n, R, dt) in any order.

    Between two measured n the time is linear; past the largest n it may not go. Where rows give R, the KV slope m [s/token] common to
    all rows is fitted by least squares beside one level per n. Raises `ValueError` when n = 1 was not measured, when two rows without R
    contradict each other, or when the slope cannot be told apart from the levels.

    >>> float(table([1, 5], [0.010, 0.014]).step_s(tokens=3, sequences=3, decoding=3, kv_tokens=99, pairs=99))
    0.012
    """
    n = np.asarray(tokens, dtype=np.int64)
    dt = np.asarray(step_s, dtype=np.float64)
    if n.ndim != 1 or dt.shape != n.shape or n.size == 0:
        raise ValueError(f"tokens and step_s are lists of one length (got {n.shape} and {dt.shape})")
    if not np.isfinite(dt).all() or dt.min() <= 0:
        raise ValueError("every measured step time is a number above 0")
    levels, row_of = np.unique(n, return_inverse=True)
    if levels[0] != 1:
        raise ValueError(f"the table starts at {levels[0]} tokens; measure a step of 1 token too")
    if kv_tokens is None:
        if len(levels) < len(n):
            raise ValueError("a number of tokens is given twice; give kv_tokens, or one time for each")
        value = np.empty(len(levels))
        value[row_of] = dt
        slope = 0.0
    else:
        value, slope = _levels_and_slope(row_of, len(levels), np.asarray(kv_tokens, dtype=np.float64), dt)
    overhead = np.interp(np.arange(levels[-1] + 1), levels, value)
    overhead[0] = 0.0
    zero = np.zeros(2)
    return StepTime(
        overhead_s=overhead,
        compute_s=zero,
        memory_s=zero,
        sequence_s=sequence_s,
        kv_token_s=slope,
        compute_slope_s=0.0,
        memory_slope_s=0.0,
    )


def _levels_and_slope(row_of: NDArray[np.intp], levels: int, kv: Floats, dt: Floats) -> tuple[Floats, float]:
    """Least squares of dt = level[n] + m·R."""
    if kv.shape != dt.shape:
        raise ValueError(f"kv_tokens is as long as step_s (got {kv.shape} and {dt.shape})")
    count = np.bincount(row_of, minlength=levels)
    kv_mean = np.bincount(row_of, kv, levels) / count
    dt_mean = np.bincount(row_of, dt, levels) / count
    centred = kv - kv_mean[row_of]
    if not (centred**2).sum() > 0:
        raise ValueError("kv_tokens does not vary at any number of tokens: its slope cannot be fitted")
    slope = float((centred * (dt - dt_mean[row_of])).sum() / (centred**2).sum())
    value = dt_mean - slope * kv_mean
    if slope < 0 or value.min() < 0:
        raise ValueError(
            f"the rows give a KV slope of {slope:.3g} s a token and a smallest level of {value.min():.3g} s"
        )
    return value, slope


def _no_part(stage: StepTime, step: StepTime) -> str | None:
    """Why a stage's time cannot be part of a step's: every coefficient of both roofs must be, so that no step is shorter than its stage.

    A roof here is what no roof hides and the roof: O + C and O + M. The sends make a step longer than its stages, so there is no upper limit.
    """
    if stage.stages > 1:
        return "a stage has no stages of its own"
    if stage.window_tokens != step.window_tokens:
        return f"its window is {stage.window_tokens} tokens, the step's {step.window_tokens}"
    last = max(len(v) - 1 for each in (stage, step) for v in (each.overhead_s, each.compute_s, each.memory_s))
    try:
        n = np.arange(1, last + 1)
        mine, whole = _roofs(stage, n), _roofs(step, n)
    except ValueError as error:
        return str(error)
    pairs: dict[str, tuple[ArrayLike, ArrayLike]] = {
        "O + C": (mine[0], whole[0]),
        "O + M": (mine[1], whole[1]),
        "slope of O + C": (
            stage.overhead_slope_s + stage.compute_slope_s,
            step.overhead_slope_s + step.compute_slope_s,
        ),
        "slope of O + M": (
            stage.overhead_slope_s + stage.memory_slope_s,
            step.overhead_slope_s + step.memory_slope_s,
        ),
        "σ": (stage.sequence_s, step.sequence_s),
        "σ + δ": (stage.sequence_s + stage.decode_s, step.sequence_s + step.decode_s),
        "c": (stage.pair_s, step.pair_s),
        "c_w": (stage.window_pair_s, step.window_pair_s),
        "m": (stage.kv_token_s, step.kv_token_s),
        "m_w": (stage.window_kv_token_s, step.window_kv_token_s),
        "m_s": (stage.state_s, step.state_s),
    }
    for name, both in pairs.items():
        part, of = (np.atleast_1d(np.asarray(side, dtype=np.float64)) for side in both)
        above = np.flatnonzero(part > of * (1 + _SLACK) + _SLACK_S)
        if above.size:
            k = int(above[0])
            at = f" at {k + 1} tokens" if part.size > 1 else ""
            return f"its {name}{at} is {part[k]:.6g} s, the whole step's {of[k]:.6g} s: a stage is part of a step"
    return None


def _roofs(step: StepTime, n: NDArray[np.int64]) -> tuple[Floats, Floats]:
    hidden = step.at(step.overhead_s, step.overhead_slope_s, n)
    return (
        hidden + step.at(step.compute_s, step.compute_slope_s, n),
        hidden + step.at(step.memory_s, step.memory_slope_s, n),
    )
