"""The plain twin's clients, who send again what was refused or timed out."""

from __future__ import annotations

import math

from fleetplan.engine.config import GRID_PER_S, EngineConfig
from fleetplan.engine.outcome import UNFINISHED, Reason
from fleetplan.engine.plain_sequence import Sequence
from fleetplan.engine.speculate import draw


class Clients:
    """What a client does when an attempt is over without an answer."""

    config: EngineConfig
    seed: int
    random: list[list[int]]
    places: int
    """Replicas that a random router draws from."""

    def expect(self, s: Sequence, when_s: float) -> None:
        """This request arrives then."""
        raise NotImplementedError

    def may_retry(self, s: Sequence) -> bool:
        """Whether it is sent again if this attempt fails."""
        return 0 < s.attempts <= self.config.retries

    def send_again(self, s: Sequence, ended_s: float, free_s: float) -> None:
        """The attempt ended then: the next one arrives after its backoff, and not before it has left its batch."""
        s.outcome, s.reason, s.leaving = UNFINISHED, Reason.NONE, False
        s.first_scheduled_s = s.finish_s = math.nan
        s.deadline_s = math.inf
        self.random[s.row] = [int(draw(self.seed, s.row, mark) * self.places) for mark in marks(s.attempts)]
        self.expect(s, on_grid(max(ended_s + self.config.backoffs_s[s.attempts - 1], free_s)))

    def left(self, gone: list[Sequence], now_s: float) -> None:
        """These have left their batch: those that timed out in it may be sent again."""
        for s in gone:
            if s.leaving:
                self.send_again(s, s.finish_s, now_s)


def marks(attempts: int) -> tuple[int, int]:
    """What the two draws of the attempt after so many hang on, beside seed and row; far from the numbers of tokens that drafts take."""
    return (1 << 40) + 2 * attempts, (1 << 40) + 2 * attempts + 1


def on_grid(when_s: float) -> float:
    """A time [s] that follows from another, to 2^-32 s: finishes at equal times are followed by arrivals at equal times."""
    return math.floor(when_s * GRID_PER_S + 0.5) / GRID_PER_S
