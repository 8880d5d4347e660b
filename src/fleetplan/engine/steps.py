"""Compiled: one step of one replica, for the kernels that have other replicas, or lanes, around it."""

from __future__ import annotations

from fleetplan.engine.jit import compiled
from fleetplan.engine.kernel import commit
from fleetplan.engine.schedule import begin
from fleetplan.engine.state import State


@compiled
def begin_step(st: State, r: int) -> None:
    """Start what the scheduler chooses."""
    begin(st, r)


@compiled
def commit_step(st: State, r: int) -> None:
    """End what is under way."""
    commit(st, r)
