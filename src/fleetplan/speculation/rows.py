"""Rows of the stage `speculation` from plain figures: the sweep, the best choices, sampling settings, measured acceptance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import brentq

from fleetplan.physics.steptime import StepTime
from fleetplan.speculation.measured import measured_table
from fleetplan.speculation.payoff import Draft, Payoff, adaptive_verification, payoff
from fleetplan.speculation.theory import (
    acceptance_from_survival,
    expected_tokens,
    expected_tokens_by_position,
    geometric_survival,
    survival,
)

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (512, 2048, 8192, 32768)
CONTEXT = 2048
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)


def equal_acceptance(by_position: Sequence[float]) -> float:
    """The α that, equal at every position, gives the same tokens per pass.

    >>> round(equal_acceptance([0.75, 0.70, 0.66]), 4)
    0.7225
    """
    wanted = expected_tokens_by_position(by_position)
    if wanted >= len(by_position) + 1:
        return 1.0
    return round(
        float(brentq(lambda a: expected_tokens(a, len(by_position)) - wanted, 0.0, 1.0, xtol=1e-12)), 9
    )


def speculation_rows(
    candidate_id: str,
    target: StepTime,
    draft_name: str,
    draft: Draft,
    by_position: Sequence[float],
    basis: str,
    *,
    gpus: int = 1,
    power_w: float | None = None,
    batches: Sequence[int] = BATCHES,
    context_tokens: float = CONTEXT,
) -> list[dict[str, Any]]:
    """Rows of the table `speculation`: 1..K drafts at each batch, at one context and one curve of acceptance."""
    sweep = payoff(target, draft, by_position, batches, context_tokens)
    level = equal_acceptance(by_position)
    energy = None if power_w is None else sweep.energy_wh_per_million_tokens(power_w)
    rows = []
    for k in range(1, len(by_position) + 1):
        for j, batch in enumerate(sweep.batches.tolist()):
            cost = float(sweep.draft_s[k, j] / k / sweep.target_s[j])
            speedup = float(sweep.speedup[k, j])
            rows.append(
                {
                    "candidate_id": candidate_id,
                    "drafts": k,
                    "acceptance": level,
                    "batch": batch,
                    "basis": basis,
                    "draft": draft_name,
                    "draft_cost": cost,
                    "context_tokens": float(context_tokens),
                    "expected_output_tokens": float(sweep.expected_tokens[k]),
                    "speedup": speedup,
                    "speedup_textbook": float(sweep.expected_tokens[k]) / (1 + k * cost),
                    "throughput_tokens_per_s_per_gpu": float(sweep.tokens_per_s[k, j]) / gpus,
                    "energy_wh_per_million_tokens": None if energy is None else float(energy[k, j]),
                    "pays": speedup > 1,
                }
            )
    return rows


def choice_rows(
    candidate_id: str,
    target: StepTime,
    draft: Draft,
    by_position: Sequence[float],
    basis: str,
    *,
    batches: Sequence[int] = BATCHES,
    contexts: Sequence[int] = CONTEXTS,
) -> list[dict[str, Any]]:
    """Rows of the table `speculation_choices`: best length, switch-off and adaptive verification by context and batch."""
    level = equal_acceptance(by_position)
    rows = []
    for context in contexts:
        every = payoff(target, draft, by_position, np.arange(1, max(batches) + 1), context)
        off = _switch_off(every)
        for batch in batches:
            best = int(every.best_drafts[batch - 1])
            slots = adaptive_verification(
                target,
                np.tile(survival(by_position), (batch, 1)),
                float(every.draft_s[-1, batch - 1]),
                context,
            )
            plain = batch / float(every.target_s[batch - 1])
            rows.append(
                {
                    "candidate_id": candidate_id,
                    "basis": basis,
                    "acceptance": level,
                    "context_tokens": float(context),
                    "batch": batch,
                    "best_drafts": best,
                    "best_speedup": float(every.speedup[best, batch - 1]),
                    "switch_off_batch": off,
                    "adaptive_slots": slots.slots,
                    "adaptive_speedup": slots.tokens_per_s / plain,
                }
            )
    return rows


def measured_rows() -> list[dict[str, Any]]:
    """Rows of the table `measured_acceptance`, from the shipped table."""
    rows = []
    for curve in measured_table().values():
        s = curve.survival
        a = acceptance_from_survival(s)
        geometric = geometric_survival(float(s[0]), len(s))
        rows += [
            {
                "name": curve.name,
                "position": i + 1,
                "survival": float(s[i]),
                "acceptance": float(a[i]),
                "geometric_survival": float(geometric[i]),
                "source": curve.source,
            }
            for i in range(len(s))
        ]
    return rows


def _switch_off(every: Payoff) -> int | None:
    best = every.best_drafts
    pays = np.flatnonzero(best > 0)
    if not len(pays):
        return int(every.batches[0])
    return None if pays[-1] == len(best) - 1 else int(every.batches[pays[-1] + 1])
