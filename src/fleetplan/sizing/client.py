"""The client's part of TTFT: API, tokenisation and network, which no engine's own clock sees."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetplan.engine.result import Result


class ClientTime(NamedTuple):
    """Seconds that a client's TTFT has on top of the engine's."""

    fixed_s: float
    """A request."""
    token_s: float
    """A prompt token."""
    concurrent_s: float
    """A request in flight at the same replica."""

    def of(self, prompt_tokens: Any, in_flight: float = 1.0) -> Any:
        """The part [s] of requests with these prompts while so many are in flight at their replica."""
        return self.fixed_s + self.token_s * prompt_tokens + self.concurrent_s * in_flight


NO_CLIENT = ClientTime(0.0, 0.0, 0.0)


def in_flight(result: Result) -> float:
    """Mean requests in the system of one replica while the run lasts: Σ residence over makespan and replicas (Little)."""
    span = result.makespan_s
    if not span:
        return 0.0
    stayed = result.finish_s - result.arrival_s
    return float(np.nansum(np.where(np.isfinite(stayed), stayed, 0.0))) / span / max(len(result.busy_s), 1)
