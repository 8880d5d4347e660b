"""Speculative decoding: theory, measured acceptance, where it pays in the step-time model, exactness by experiment."""

from fleetplan.speculation.theory import (
    acceptance,
    acceptance_from_survival,
    best_drafts_textbook,
    expected_tokens,
    expected_tokens_by_position,
    geometric_overstatement,
    geometric_survival,
    speedup_textbook,
    survival,
    survival_from_lengths,
)

__all__ = [
    "acceptance",
    "acceptance_from_survival",
    "best_drafts_textbook",
    "expected_tokens",
    "expected_tokens_by_position",
    "geometric_overstatement",
    "geometric_survival",
    "speedup_textbook",
    "survival",
    "survival_from_lengths",
]
