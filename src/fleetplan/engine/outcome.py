"""How a request can end, and why one is refused."""

from __future__ import annotations

from enum import IntEnum

UNFINISHED, FINISHED, REJECTED, TIMED_OUT = 0, 1, 2, 3
OUTCOMES = ("unfinished", "finished", "rejected", "timed_out")
"""Name of each outcome code."""


class Reason(IntEnum):
    """Why a request was refused."""

    NONE = 0
    NEVER_FITS = 1
    QUEUE_FULL = 2
    QUEUE_TOKENS = 3
    NO_REPLICA = 4
    TOO_MANY_ANSWERS = 5


REASONS = (
    "",
    "its ceil((prompt + output − 1)/block_size) blocks are more than the replica has",
    "the queue held max_queued_requests requests",
    "the queue would have held more than max_queued_tokens prompt tokens",
    "no replica was up, and none comes back",
    "its answers are more than may run at once, or than a step has tokens",
)
"""One sentence for each reason code."""
