"""The time of one engine step, in the one form that every cost model takes.

    dt = O[n] + σ·B + δ·D + max(C[n] + c·X + c_w·X_w,  M[n] + m·R + m_w·R_w + m_s·B)

n tokens are computed by B sequences, D of which decode; R = Σ(c_i + n_i) KV tokens are read and
X = Σ(n_i·c_i + n_i(n_i + 1)/2) query-key pairs computed; R_w and X_w are the same with each context cut at the window.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


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
        hidden = self._at(self.overhead_s, self.overhead_slope_s, n)
        compute = (
            self._at(self.compute_s, self.compute_slope_s, n)
            + self.pair_s * np.asarray(pairs)
            + self.window_pair_s * np.asarray(window_pairs)
        )
        memory = (
            self._at(self.memory_s, self.memory_slope_s, n)
            + self.kv_token_s * np.asarray(kv_tokens)
            + self.window_kv_token_s * np.asarray(window_kv_tokens)
            + self.state_s * b
        )
        return (
            hidden + self.sequence_s * b + self.decode_s * np.asarray(decoding) + np.maximum(compute, memory)
        )

    def _at(self, vector: Floats, slope: float, n: NDArray[np.int64]) -> Floats:
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
