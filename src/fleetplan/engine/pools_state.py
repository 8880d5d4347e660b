"""The compiled state of two pools: one `State` each on common requests, and what lies between them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import ROUTERS
from fleetplan.engine.handoff import Link, Pool
from fleetplan.engine.load import ClosedLoop
from fleetplan.engine.state import State, make_state
from fleetplan.traffic.requests import Requests

AT_PREFILL, IN_LINE, AT_DECODE = 0, 1, 2
"""Where a request is: at prefill; at decode before it was taken on; at decode."""

CROSSING = np.dtype(
    [
        ("link_free_s", "f8"), ("s_per_token", "f8"), ("latency_s", "f8"), ("bypass_tokens", "i8"), ("at_landing", "i8"),
        ("next", "i8"), ("sent", "i8"), ("until_s", "f8"),
    ]
)  # fmt: skip
"""The link: when it is free, and which entries of `order` are on their way, [next, sent)."""
WAY = np.dtype(
    [
        ("prefilled_s", "f8"), ("reserved_s", "f8"), ("sent_s", "f8"), ("landed_s", "f8"),
        ("answer", "i4"), ("prefill", "i4"), ("decode", "i4"), ("behind", "i4"), ("place", "i1"), ("bypasses", "i1"), ("spare", "i2"), ("spare_2", "i4"),
    ]
)  # fmt: skip
"""A request's way: `answer` tokens in all, `behind` who stands behind it in a line or among the landed."""
BERTH = np.dtype([("first", "i8"), ("last", "i8"), ("landed", "i8"), ("landed_last", "i8")])
"""Before a decode replica: its line, and sequences whose KV has come."""


class Pools(NamedTuple):
    """Two pools on one array of requests, and what lies between them."""

    prefill: State
    decode: State
    x: NDArray[Any]
    way: NDArray[Any]
    berth: NDArray[Any]
    order: NDArray[np.int64]
    """Requests in the order in which they were sent."""


def make_pools(
    requests: Requests,
    prefill: Pool,
    decode: Pool,
    link: Link,
    bypass_tokens: int,
    at_landing: bool,
    seed: int,
    until_s: float,
    closed_loop: ClosedLoop | None,
) -> Pools:
    """Everything that the kernel reads and writes, at time 0. The decode state keeps the agenda of arrivals and deadlines."""
    n = len(requests)
    closed = None if closed_loop is None else (closed_loop.concurrency, closed_loop.think_s)
    one_token = replace(requests, output_tokens=np.ones(n, dtype=np.int64))
    first = make_state(
        one_token, prefill.steptime, prefill.config, prefill.replicas, ROUTERS.index(prefill.router), seed
    )
    first.p["dynamic"] = 0
    second = make_state(
        requests,
        decode.steptime,
        decode.config,
        decode.replicas,
        ROUTERS.index(decode.router),
        seed + 1,
        closed=closed,
    )
    second = second._replace(request=first.request, gaps=first.gaps)
    x = np.zeros(1, CROSSING)
    x["s_per_token"], x["latency_s"] = link.s_per_token, link.latency_s
    x["bypass_tokens"], x["at_landing"], x["until_s"] = min(bypass_tokens, 1 << 40), at_landing, until_s
    way = np.zeros(n, WAY)
    way["answer"] = requests.output_tokens
    for name in ("prefilled_s", "reserved_s", "sent_s", "landed_s"):
        way[name] = np.nan
    way["prefill"] = way["decode"] = way["behind"] = -1
    berth = np.zeros(decode.replicas, BERTH)
    berth["first"] = berth["last"] = berth["landed"] = berth["landed_last"] = -1
    return Pools(first, second, x, way, berth, np.zeros(max(n, 1), np.int64))
