"""The limit that binds: what makes N the least count, and which resource a saturated engine runs out of."""

from __future__ import annotations

import numpy as np

from fleetplan.physics.pipeline import micro_batch
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.verdict import Verdict


def binding_limit(built: Machine, fewer: tuple[Verdict, ...]) -> tuple[str, str]:
    """(limit, sentence): what makes N the least count, read off the failure with one replica fewer, of two pools of either."""
    if not fewer:
        split = built.candidate.split
        if split is not None and split.searched:
            return "one replica", "one replica of each pool is the least there is; nothing binds"
        if split is not None:
            return "one replica", (
                f"once {split.ratio} is the least there is of this ratio; smaller fleets are other ratios, in the table plans"
            )
        return "one replica", "one replica is the least there is; nothing binds"
    each = [_binding(built, below) for below in fewer]
    return ", ".join(dict.fromkeys(limit for limit, _ in each)), "; ".join(words for _, words in each)


def _binding(built: Machine, below: Verdict) -> tuple[str, str]:
    failures = below.failures
    named = below.counted if below.pools else f"{below.replicas} replicas"
    first = failures[0] if failures else "none"
    if first == "saturated" or first == "queue grows":
        resource = resource_bound(built)
        return resource, f"{named} cannot sustain the traffic ({first}): {resource} binds"
    if first == "utilisation cap":
        others = ", ".join(failures[1:])
        return "utilisation cap", (
            f"{named} would run at {below.utilisation:.0%}, above the cap of {below.max_utilisation:.0%}"
            + (f"; also fails {others}" if others else "; its promises would hold")
        )
    return first, f"with {named} fails: {', '.join(failures)}"


def resource_bound(built: Machine) -> str:
    """Which resource a saturated engine runs out of: KV memory where it caps the batch below max_num_seqs, else compute or bandwidth.

    Of two pools: the one with more to do for a mean request, and, where it is decode, its resource.
    """
    if built.prefill is not None and _prefill_share(built, built.prefill) > 0.5:
        return "prefill pool"
    if built.prefill is not None:
        return f"decode pool: {_resource(built)}"
    return _resource(built)


def _prefill_share(built: Machine, prefill: Machine) -> float:
    """Of the replica-seconds that a mean request takes in both pools, those at prefill: full chunks there, full batches at decode."""
    split = built.candidate.split
    assert split is not None
    assert prefill.memory is not None
    assert prefill.step is not None
    assert prefill.config is not None
    assert built.memory is not None
    assert built.step is not None
    prompt, whole = prefill.memory.mean_tokens or 1, built.memory.mean_tokens or 1
    chunk = prefill.config.max_num_batched_tokens
    batch = _batch(built)
    context = batch * whole
    before = float(prefill.step.step_s(chunk, 1, 0, chunk, chunk * (chunk + 1) / 2)) / chunk * prompt
    after = float(built.step.step_s(batch, batch, batch, context, context)) / batch * max(whole - prompt, 0)
    before, after = before / split.prefill_replicas, after / split.decode_replicas
    return before / (before + after)


def _batch(built: Machine) -> int:
    """Sequences of a full batch: as many as memory holds, up to the cap."""
    assert built.config is not None
    assert built.memory is not None
    held = built.memory.sequences_at_mean or 1
    return min(built.config.max_num_seqs, max(held // built.engines_per_replica, 1))


def _resource(built: Machine) -> str:
    assert built.step is not None
    assert built.config is not None
    if built.memory is None:
        return "servers"
    roof, config = built.roof or built.step, built.config
    batch = _batch(built)
    # A step of a pipeline holds one micro-batch, which reads the weights for itself alone.
    n = np.array([micro_batch(built.step, batch)])
    read = batch / built.step.stages * (built.memory.mean_tokens or 1)
    compute = float(roof.at(roof.compute_s, roof.compute_slope_s, n)[0]) + roof.pair_s * read
    memory = float(roof.at(roof.memory_s, roof.memory_slope_s, n)[0]) + roof.kv_token_s * read
    if batch < config.max_num_seqs and memory > compute:
        return "KV memory"
    return "compute" if compute >= memory else "bandwidth"
