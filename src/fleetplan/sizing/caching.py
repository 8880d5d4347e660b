"""A candidate's prefix cache in numbers: blocks of each tier and their times, and the least that is left to compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fleetplan.engine import PrefixCache
from fleetplan.engine.content import content_of
from fleetplan.physics.memory import Memory
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.residents import block_bytes
from fleetplan.traffic.requests import Requests


def prefix_cache(candidate: Candidate, made: Memory) -> PrefixCache | None:
    """The engine's prefix cache; a tier's block is that of all GPUs of one engine. None: the candidate has none."""
    given = candidate.caching
    if given is None:
        return None
    block = block_bytes(candidate, made)
    host, disk = (
        (0, 0.0) if size is None or link is None else (int(size // block), block / link)
        for size, link in (
            (given.host_bytes, given.host_link_bytes_per_s),
            (given.disk_bytes, given.disk_link_bytes_per_s),
        )
    )
    return PrefixCache(*host, *disk)


def least_prompts(requests: Requests, block_size: int) -> Requests:
    """The requests with of each prompt what is computed where all that can be cached is: what bounds from below must count."""
    found = content_of(requests, block_size)
    shared = np.maximum(found.depth, found.history) * block_size
    return replace(requests, prompt_tokens=np.maximum(requests.prompt_tokens - shared, 1))
