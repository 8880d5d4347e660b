"""Simulations that were just run, kept for who asks for the same again: a looser promise is judged on the runs of the tighter one."""

from __future__ import annotations

from collections import OrderedDict

from fleetplan.engine.result import Result
from fleetplan.sizing.machine import Machine
from fleetplan.traffic.requests import Requests

MOST_REQUESTS = 2_000_000
"""Of all runs that are kept, some 100 MB; a run of a day's traffic is not kept."""

_kept: OrderedDict[tuple[int, int, int, int], tuple[Machine, Requests, Result]] = OrderedDict()


def run(built: Machine, requests: Requests, engines: int, seed: int) -> Result:
    """`built.run` of these arguments: the very same machine and requests are simulated once while their run is kept."""
    # By identity, which holds as long as what it is the identity of is kept too.
    key = id(built), id(requests), engines, seed
    if key in _kept:
        _kept.move_to_end(key)
        return _kept[key][2]
    result = built.run(requests, engines, seed)
    if len(requests) <= MOST_REQUESTS // 4:
        _kept[key] = built, requests, result
        while sum(len(kept) for _, kept, _ in _kept.values()) > MOST_REQUESTS:
            _kept.popitem(last=False)
    return result
