"""Priorities: which of the waiting goes first, and the twin's queue that keeps them apart by level."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import NANOSECOND, EngineConfig
from fleetplan.engine.plain_sequence import Sequence
from fleetplan.errors import InputError
from fleetplan.traffic.requests import Requests


@dataclass(frozen=True, eq=False)
class Levels:
    """The priorities of a run: level 0 is the most urgent."""

    of_request: NDArray[np.int64]
    """Level of each request; shape (n,)."""
    weights: tuple[float, ...]
    """One a level: turns of a level among those that wait; all 1 where urgency alone counts."""
    weighted: bool
    max_wait_s: float

    @property
    def count(self) -> int:
        """Levels."""
        return len(self.weights)


def levels_of(requests: Requests, config: EngineConfig) -> Levels:
    """The levels of these requests' priorities; one where they do not count. Raises InputError where a priority has no weight."""
    if config.priority == "none" or not len(requests):
        return Levels(np.zeros(len(requests), dtype=np.int64), (1.0,), False, math.inf)
    known, level = np.unique(requests.priority, return_inverse=True)
    weighted = config.priority == "weighted"
    if weighted and known[-1] >= len(config.priority_weights):
        raise InputError(
            f"priority_weights: one for each priority from 0 on is needed (got {len(config.priority_weights)} and a request of "
            f"priority {known[-1]})"
        )
    weights = tuple(config.priority_weights[k] if weighted else 1.0 for k in known.tolist())
    if len(weights) > 1 and (requests.answers.max() > 1 or requests.adapter_id.max() >= 0):
        raise InputError(
            "priority: is not simulated together with several answers or with LoRA adapters, take priority none, or drop those"
        )
    return Levels(level.astype(np.int64), weights, weighted, config.max_wait_s)


class Lines:
    """The twin's queue by level: as a deque, but its first is the one whose turn it is at `now_s`."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        self.lines: list[deque[Sequence]] = [deque() for _ in levels.weights]
        self.turns = [0.0] * levels.count
        """Weighted: a level's admissions over its weight; the least goes next."""
        self.turn = 0.0
        """That of the level which went last: who has had nobody waiting does not save up turns."""
        self.now_s = 0.0

    def __len__(self) -> int:
        return sum(map(len, self.lines))

    def __iter__(self) -> Iterator[Sequence]:
        for line in self.lines:
            yield from line

    def __getitem__(self, index: int) -> Sequence:
        assert index == 0
        return self.lines[self._next()][0]

    def popleft(self) -> Sequence:
        level = self._next()
        self.turn = self.turns[level]
        self.turns[level] += 1.0 / self.levels.weights[level]
        return self.lines[level].popleft()

    def append(self, s: Sequence) -> None:
        self._line(s).append(s)

    def appendleft(self, s: Sequence) -> None:
        self._line(s).appendleft(s)

    def remove(self, s: Sequence) -> None:
        self.lines[s.level].remove(s)

    def clear(self) -> None:
        for line in self.lines:
            line.clear()

    def _line(self, s: Sequence) -> deque[Sequence]:
        if not self.lines[s.level]:
            self.turns[s.level] = max(self.turns[s.level], self.turn)
        return self.lines[s.level]

    def _next(self) -> int:
        """Who arrived longest ago of the heads that are overdue, else the level whose turn it is, else the most urgent one."""
        waiting = [k for k, line in enumerate(self.lines) if line]
        overdue = [
            k
            for k in waiting
            if self.lines[k][0].arrival_s + self.levels.max_wait_s <= self.now_s + NANOSECOND
        ]
        if overdue:
            return min(overdue, key=lambda k: self.lines[k][0].arrival_s)
        return min(waiting, key=lambda k: self.turns[k]) if self.levels.weighted else waiting[0]
