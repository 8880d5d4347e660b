"""The limit that binds: what makes N the least count, and which resource a saturated engine runs out of."""

from __future__ import annotations

import numpy as np

from fleetplan.sizing.machine import Machine
from fleetplan.sizing.verdict import Verdict


def binding_limit(built: Machine, below: Verdict | None, at: Verdict, lower_bound: int) -> tuple[str, str]:
    """(limit, sentence): what makes N the least count, read off the failure at N − 1."""
    if below is None:
        return "one replica", "one replica is the least there is; nothing binds"
    failures = below.failures
    first = failures[0] if failures else "none"
    if first == "saturated" or first == "queue grows":
        resource = resource_bound(built)
        return resource, f"{below.replicas} replicas cannot sustain the traffic ({first}): {resource} binds"
    if first == "utilisation cap":
        others = ", ".join(failures[1:])
        return "utilisation cap", (
            f"{below.replicas} replicas would run at {below.utilisation:.0%}, above the cap of {below.max_utilisation:.0%}"
            + (f"; also fails {others}" if others else "; its promises would hold")
        )
    return first, f"with {below.replicas} replicas fails: {', '.join(failures)}"


def resource_bound(built: Machine) -> str:
    """Which resource a saturated engine runs out of: KV memory where it caps the batch below max_num_seqs, else compute or bandwidth."""
    assert built.step is not None
    assert built.config is not None
    if built.memory is None:
        return "servers"
    roof, config = built.roof or built.step, built.config
    held = built.memory.sequences_at_mean or 1
    batch = min(config.max_num_seqs, max(held // built.engines_per_replica, 1))
    read = batch * (built.memory.mean_tokens or 1)
    n = np.array([batch])
    compute = float(roof.at(roof.compute_s, roof.compute_slope_s, n)[0]) + roof.pair_s * read
    memory = float(roof.at(roof.memory_s, roof.memory_slope_s, n)[0]) + roof.kv_token_s * read
    if batch < config.max_num_seqs and memory > compute:
        return "KV memory"
    return "compute" if compute >= memory else "bandwidth"
