"""The serving engine: exact simulation of schedulers, KV blocks and replicas, step by step or skipping to events."""

from fleetplan.engine.config import ROUTERS, SCHEDULERS, EngineConfig, blocks_for
from fleetplan.engine.histogram import Histogram
from fleetplan.engine.outcome import FINISHED, OUTCOMES, REASONS, REJECTED, TIMED_OUT, UNFINISHED
from fleetplan.engine.result import Promise, Result, Series, Stability
from fleetplan.engine.run import simulate

__all__ = [
    "FINISHED",
    "OUTCOMES",
    "REASONS",
    "REJECTED",
    "ROUTERS",
    "SCHEDULERS",
    "TIMED_OUT",
    "UNFINISHED",
    "EngineConfig",
    "Histogram",
    "Promise",
    "Result",
    "Series",
    "Stability",
    "blocks_for",
    "simulate",
]
