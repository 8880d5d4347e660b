"""The random streams of a class: one for each thing that is drawn, so that none disturbs another."""

from __future__ import annotations

import numpy as np

# The number of a class's random stream; a new one goes to the end, so that old seeds keep their traffic.
_STREAMS = (
    "arrivals",
    "prompt",
    "output",
    "reasoning",
    "prefix",
    "turns",
    "gaps",
    "cache",
    "retries",
    "adapters",
    "stops",
)


class Streams:
    """The random streams of one class, by name."""

    def __init__(self, seed: int, index: int) -> None:
        self.seed, self.index = seed, index

    def seeds(self, name: str) -> np.random.SeedSequence:
        return np.random.SeedSequence(self.seed, spawn_key=(self.index, _STREAMS.index(name)))

    def rng(self, name: str) -> np.random.Generator:
        return np.random.default_rng(self.seeds(name))
