"""Speculation in a step: how many drafts a sequence keeps, drawn so that no order of events matters, and what drafting costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetplan.errors import InputError
from fleetplan.physics.form import StepTime

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of splitmix64: Steele, Lea and Flood, Fast splittable pseudorandom number generators, OOPSLA 2014."""
UNIT = 2.0**-53
MOST_DRAFTS = 32
"""Most drafts of a sequence and step, as in a spec."""
MOST_COST = 1e6
"""Largest cost of a draft step over one of the target: beyond it a step would last longer than any run."""


@dataclass(frozen=True, eq=False)
class Speculation:
    """K drafts a decoding sequence and step, of which the first few are kept. Raises InputError where a value cannot be.

    A decoding sequence adds K + 1 tokens to the step (as many as the budget has left), and emits 1 + accepted ones, cut at the end
    of its output. Rejected drafts are computed and hold no KV. Before it, the draft takes its own steps, over the sequences that
    decode in the step: one token each, at their context.
    """

    survival: tuple[float, ...]
    """S_1..S_K: chance that the first i drafts are all accepted, never rising."""
    draft_cost: float | None = None
    """c: one draft step over one decode step of the target, at the same batch and context."""
    draft_step: StepTime | None = None
    """The draft's own step time, instead."""
    passes: int | None = None
    """Draft steps of one step of the target; None: one a draft."""
    off_above: int | None = None
    """A step in which more sequences than this decode drafts nothing; None: every step drafts."""

    def __post_init__(self) -> None:
        faults = []
        if not self.survival:
            faults.append("survival: needs one value a draft (got none)")
        if len(self.survival) > MOST_DRAFTS:
            faults.append(f"survival: at most {MOST_DRAFTS} drafts a step (got {len(self.survival)})")
        for i, (one, before) in enumerate(zip(self.survival, (1.0, *self.survival), strict=False), start=1):
            if not 0 <= one <= before:
                faults.append(
                    f"survival: position {i} must be in 0..1 and at most that before it (got {one} after {before})"
                )
        if (self.draft_cost is None) == (self.draft_step is None):
            faults.append(
                "draft: needs its cost (0 where drafting costs nothing) or its own step time (got none or two)"
            )
        if self.draft_cost is not None and not 0 <= self.draft_cost <= MOST_COST:
            faults.append(f"draft_cost: must be a number from 0 to {MOST_COST:g} (got {self.draft_cost})")
        if self.passes is not None and not 0 <= self.passes <= len(self.survival):
            faults.append(f"passes: must be from 0 to the {len(self.survival)} drafts (got {self.passes})")
        if self.off_above is not None and self.off_above < 0:
            faults.append(f"off_above: must be at least 0, or None for never (got {self.off_above})")
        if faults:
            raise InputError(*faults)

    @classmethod
    def of(cls, acceptance: Sequence[float], drafts: int | None = None, **others: object) -> Speculation:
        """From acceptance by position, each given that the drafts before it were accepted; one value is that of all `drafts`.

        >>> [round(s, 4) for s in Speculation.of([0.75, 0.70, 0.66], draft_cost=0.1).survival]
        [0.75, 0.525, 0.3465]
        >>> Speculation.of([0.5], 3, draft_cost=0.0).survival
        (0.5, 0.25, 0.125)
        """
        count = len(acceptance) if drafts is None else drafts
        if count > MOST_DRAFTS:
            raise InputError(f"drafts: at most {MOST_DRAFTS} a step (got {count})")
        if len(acceptance) not in (1, count) or count < 1:
            raise InputError(
                f"acceptance: {len(acceptance)} values for {count} drafts, give 1 (the same at each) or one a draft"
            )
        a = list(acceptance) * (count if len(acceptance) == 1 else 1)
        bad = [x for x in a if not 0 <= x <= 1]
        if bad:
            raise InputError(f"acceptance: each must be in 0..1 (got {bad[0]})")
        made: list[float] = []
        for x in a:
            made.append(x * (made[-1] if made else 1.0))
        return cls(tuple(made), **others)  # type: ignore[arg-type]

    @property
    def drafts(self) -> int:
        """K."""
        return len(self.survival)

    @property
    def draft_steps(self) -> int:
        """Draft steps of one step of the target."""
        return self.drafts if self.passes is None else self.passes

    def drafts_at(self, decoding: int) -> int:
        """Drafts a sequence in a step at whose start this many decode."""
        return 0 if self.off_above is not None and decoding > self.off_above else self.drafts


def mix(x: int) -> int:
    """The finaliser of splitmix64, on 64 bits."""
    x = ((x ^ (x >> 30)) * FIRST) & MASK
    x = ((x ^ (x >> 27)) * SECOND) & MASK
    return x ^ (x >> 31)


def draw(seed: int, row: int, generated: int) -> float:
    """A uniform number in [0, 1) that hangs on these three alone: the draw of request `row` with `generated` tokens out.

    >>> draw(0, 7, 12) == draw(0, 7, 12), 0 <= draw(1, 7, 12) < 1, draw(0, 7, 12) == draw(0, 12, 7)
    (True, True, False)
    """
    x = mix(((seed & MASK) + GOLDEN) & MASK)
    x = mix((x + row * GOLDEN) & MASK)
    x = mix((x + (generated + 1) * GOLDEN) & MASK)
    return (x >> 11) * UNIT


def accepted(survival: Sequence[float], drafts: int, uniform: float) -> int:
    """How many of the first `drafts` drafts are accepted: at least i where the draw is below S_i.

    >>> [accepted((0.75, 0.5, 0.25), 3, u) for u in (0.8, 0.6, 0.3, 0.1)], accepted((0.75, 0.5, 0.25), 1, 0.1)
    ([0, 1, 2, 3], 1)
    """
    return sum(uniform < s for s in survival[:drafts])
