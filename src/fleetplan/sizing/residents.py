"""What shares a candidate's memory with its KV cache or takes it in when it overflows: LoRA adapters, and the host that sequences are swapped to."""

from __future__ import annotations

import json
from typing import Any

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.physics.memory import Memory
from fleetplan.physics.weights import Adapters, adapter_bytes, adapter_matrices
from fleetplan.sizing.candidates import Candidate
from fleetplan.spec.adapters import Adapters as Named
from fleetplan.spec.scenario import Scenario


def named(scenario: Scenario) -> tuple[Named, ...]:
    """The adapters of every class that has some."""
    workload = scenario.workload
    each = [c.adapters for c in getattr(workload, "classes", ())] or [getattr(workload, "adapters", None)]
    return tuple(one for one in each if one is not None)


def different(scenario: Scenario) -> int:
    """How many adapters the traffic may use: of one name in two classes, one."""
    given = named(scenario)
    return sum(one.count or 0 for one in given) + len({name for one in given for name in one.shares or ()})


def resident(candidate: Candidate, scenario: Scenario, model: catalog.Model) -> Adapters | None:
    """What memory is charged: every place holds the largest rank and all matrices of any class, as engines keep them. None: no class has any.

    Raises InputError where the traffic has adapters and the candidate does not say how many are resident.
    """
    given = named(scenario)
    if not given:
        return None
    if candidate.max_adapters is None:
        raise InputError(
            "the traffic has LoRA adapters, and its scheduler does not say how many are resident; give max_adapters"
        )
    targets: dict[str, None] = {}
    for one in given:
        targets |= dict.fromkeys(one.targets or adapter_matrices(model.architecture))
    return Adapters(max(one.rank for one in given), candidate.max_adapters, tuple(targets))


def adapter_settings(candidate: Candidate, adapters: Adapters | None, model: catalog.Model) -> dict[str, Any]:
    """The engine's settings of adapters: how many are resident, and the time [s] to load one."""
    if adapters is None:
        return {}
    load_s = candidate.adapter_load_s
    if load_s is None:
        assert candidate.adapter_link_bytes_per_s is not None
        # Every GPU loads its own part over a link of its own.
        own = (
            adapter_bytes(model.architecture, adapters, candidate.tensor_parallel)
            / candidate.pipeline_parallel
        )
        load_s = own / adapters.resident / candidate.adapter_link_bytes_per_s
    return {"max_adapters": adapters.resident, "adapter_load_s": load_s}


def swap_settings(candidate: Candidate, made: Memory) -> dict[str, Any]:
    """The engine's settings of preemption; a block is that of all GPUs of one engine. Raises InputError where the host holds none."""
    if not candidate.preemption:
        return {}
    given = json.loads(candidate.preemption)
    block = block_bytes(candidate, made)
    blocks = int(given["swap_bytes"] // block)
    if not blocks:
        raise InputError(
            f"preemption swaps to {given['swap_bytes'] / 1e6:.3g} MB of the host, which hold no KV block of {block / 1e6:.3g} MB; give more, "
            "or take recompute"
        )
    return {"preemption": "swap", "swap_blocks": blocks, "swap_block_s": block / given["link_bytes_per_s"]}


def block_bytes(candidate: Candidate, made: Memory) -> float:
    """Bytes of one KV block on all GPUs of one engine."""
    return (
        made.kv_bytes_per_token
        * candidate.block_size
        * candidate.tensor_parallel
        * candidate.pipeline_parallel
    )
