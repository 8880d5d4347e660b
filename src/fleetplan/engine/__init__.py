"""The serving engine: exact simulation of schedulers, KV blocks and replicas, step by step or skipping to events."""

from fleetplan.engine.config import ROUTERS, SCHEDULERS, EngineConfig, PrefixCache, blocks_for
from fleetplan.engine.handoff import Handoff, Link, Pool
from fleetplan.engine.histogram import Histogram
from fleetplan.engine.load import ClosedLoop, Outage, rolling_restart, starting
from fleetplan.engine.outcome import FINISHED, OUTCOMES, REASONS, REJECTED, TIMED_OUT, UNFINISHED
from fleetplan.engine.pools import simulate_pools
from fleetplan.engine.result import Promise, Result, Series, Stability
from fleetplan.engine.run import simulate
from fleetplan.engine.speculate import Speculation

__all__ = [
    "FINISHED",
    "OUTCOMES",
    "REASONS",
    "REJECTED",
    "ROUTERS",
    "SCHEDULERS",
    "TIMED_OUT",
    "UNFINISHED",
    "ClosedLoop",
    "EngineConfig",
    "Handoff",
    "Histogram",
    "Link",
    "Outage",
    "Pool",
    "PrefixCache",
    "Promise",
    "Result",
    "Series",
    "Speculation",
    "Stability",
    "blocks_for",
    "rolling_restart",
    "simulate",
    "simulate_pools",
    "starting",
]
