"""Where drafting pays in the step-time model: draft length, batch and context against speed-up, rate and energy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.speculation.theory import Floats, survival

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Draft:
    """Who drafts: either a share c of the target's step, or a step-time model of its own."""

    passes: str = "each"
    """each: one draft step a draft; one: all drafts in one step; none: no step."""
    cost: float | None = None
    """c: one draft step over one target step at the same batch and context."""
    steptime: StepTime | None = None
    """The draft's own step times, instead."""

    def __post_init__(self) -> None:
        if self.passes not in ("each", "one", "none"):
            raise InputError(f"passes: must be each, one or none (got {self.passes!r})")
        if self.passes != "none" and (self.cost is None) == (self.steptime is None):
            raise InputError("draft: needs its cost c, or its own step times (got none or two)")
        if self.cost is not None and not (np.isfinite(self.cost) and self.cost >= 0):
            raise InputError(f"draft cost: must be a finite number ≥ 0 (got {self.cost!r})")


@dataclass(frozen=True, eq=False)
class Payoff:
    """Arrays of shape (K + 1, batches): row k is k drafts, row 0 no speculation."""

    batches: Ints
    context_tokens: float
    expected_tokens: Floats
    """Tokens per pass and sequence, shape (K + 1,)."""
    target_s: Floats
    """A plain decode step, shape (batches,) [s]."""
    verify_s: Floats
    """The target's step with k drafts a sequence [s]."""
    draft_s: Floats
    """All draft steps of one pass [s]."""

    @property
    def pass_s(self) -> Floats:
        """Verification and drafting [s]."""
        return self.verify_s + self.draft_s

    @property
    def speedup(self) -> Floats:
        """E·T_target/(T_verify + T_draft) (MODEL 9); 1 in row 0."""
        return self.expected_tokens[:, None] * self.target_s / self.pass_s

    @property
    def tokens_per_s(self) -> Floats:
        """Output tokens per second of the whole replica."""
        return self.batches * self.expected_tokens[:, None] / self.pass_s

    def energy_wh_per_million_tokens(self, power_w: float) -> Floats:
        """At a constant power of the replica [W]: energy falls as tokens per second rise."""
        return power_w / self.tokens_per_s * 1e6 / 3600

    @property
    def best_drafts(self) -> Ints:
        """The draft length of the highest speed-up at each batch, the shortest on ties; 0: off."""
        return np.asarray(np.argmax(np.round(self.speedup, 12), axis=0), dtype=np.int64)

    def switch_off_batch(self, drafts: int) -> int | None:
        """The smallest batch from which on `drafts` drafts never pay; None: they pay up to the last batch looked at."""
        pays = np.flatnonzero(self.speedup[drafts] > 1 + 1e-12)
        if not len(pays):
            return int(self.batches[0])
        return None if pays[-1] == len(self.batches) - 1 else int(self.batches[pays[-1] + 1])


def payoff(
    target: StepTime,
    draft: Draft,
    by_position: ArrayLike | None,
    batches: Sequence[int] | Ints,
    context_tokens: float,
    *,
    drafts: int | None = None,
) -> Payoff:
    """Sweep 0..K drafts over the batches at one context, acceptance by position a_1..a_K (each given those before).

    T_verify holds K + 1 tokens a sequence; the draft steps run one token a sequence. Raises `InputError` where no
    acceptance is given: it is never assumed.
    """
    if by_position is None:
        raise InputError(
            "acceptance: must be given (got none), by position like [0.75, 0.70, 0.66], or a row of the measured table; "
            "it is never assumed"
        )
    a = np.atleast_1d(np.asarray(by_position, dtype=np.float64))
    if drafts is not None:
        if len(a) == 1:
            a = np.repeat(a, drafts)
        elif len(a) < drafts:
            raise InputError(
                f"acceptance: {len(a)} positions given for {drafts} drafts; give one value or {drafts}"
            )
        a = a[:drafts]
    b = np.asarray(batches, dtype=np.int64)
    if not len(b) or b.min() < 1:
        raise InputError("batches: at least one, each ≥ 1")
    k = np.arange(len(a) + 1)[:, None]
    expected = 1 + np.concatenate([[0.0], np.cumsum(survival(a))])
    verify = verify_step_s(target, b, k, context_tokens)
    alone = verify[0]
    steps = {"each": k, "one": np.minimum(k, 1), "none": k * 0}[draft.passes]
    if draft.passes == "none":
        drafting = np.zeros_like(verify)
    elif draft.cost is not None:
        drafting = steps * draft.cost * alone
    else:
        assert draft.steptime is not None
        drafting = steps * verify_step_s(draft.steptime, b, np.zeros((1, 1), dtype=np.int64), context_tokens)
    return Payoff(b, context_tokens, expected, alone, verify, drafting)


def verify_step_s(steptime: StepTime, batch: ArrayLike, drafts: ArrayLike, context_tokens: float) -> Floats:
    """A step of `batch` sequences that each add drafts + 1 tokens to `context_tokens` cached ones [s]; shapes broadcast."""
    b, k = np.broadcast_arrays(np.asarray(batch, dtype=np.int64), np.asarray(drafts, dtype=np.int64))
    new = k + 1
    window = steptime.window_tokens
    read = b * (context_tokens + new)
    pairs = b * (new * context_tokens + new * (new + 1) / 2)
    if not window:
        return steptime.step_s(b * new, b, b, read, pairs)
    return steptime.step_s(
        b * new, b, b, read, pairs, b * np.minimum(context_tokens + new, window),
        b * new * np.minimum(context_tokens + (new + 1) / 2, window),
    )  # fmt: skip


@dataclass(frozen=True)
class Adaptive:
    """Which draft slots of a step are worth verifying."""

    slots: int
    """b: slots verified, the most likely first."""
    drafts_by_sequence: tuple[int, ...]
    expected_tokens: float
    """Tokens of the whole step."""
    pass_s: float
    tokens_per_s: float
    fixed_tokens_per_s: float
    """With every drafted slot verified."""


def adaptive_verification(
    target: StepTime, survived: ArrayLike, draft_s: float, context_tokens: float
) -> Adaptive:
    """Verify the top-b of a step's B·K draft slots by survival probability, b by the highest tokens per second.

    `survived`, shape (B, K), is survival by sequence and position and never rises along a row, so that the top-b slots
    are a prefix of each row. All drafts have been made (`draft_s` is spent); only verification is spared.
    """
    s = np.atleast_2d(np.asarray(survived, dtype=np.float64))
    if (s < 0).any() or (s > 1).any() or (np.diff(s, axis=1) > 1e-12).any():
        raise InputError("survival: each row must lie in 0..1 and never rise with position")
    count, k = s.shape
    order = np.argsort(-s.ravel(), kind="stable")
    tokens = count + np.concatenate([[0.0], np.cumsum(s.ravel()[order])])
    b = np.arange(count * k + 1)
    n = count + b
    # Sequences read their cache once; the pairs of a sequence's later slots differ by a token or two: taken at the mean.
    mean_new = n / count
    time = draft_s + target.step_s(
        n, count, count, count * (context_tokens + mean_new), n * (context_tokens + (mean_new + 1) / 2)
    )
    rate = tokens / time
    best = int(np.argmax(rate))
    taken = np.zeros(count * k, dtype=np.int64)
    taken[order[:best]] = 1
    return Adaptive(
        best,
        tuple(taken.reshape(count, k).sum(axis=1).tolist()),
        float(tokens[best]),
        float(time[best]),
        float(rate[best]),
        float(rate[-1]),
    )
