"""The door to disaggregated serving: `simulate_pools`, a prefill pool, a decode pool and the link between them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fleetplan.engine.handoff import Handoff, Link, Pool, check_pools
from fleetplan.engine.histogram import from_bins, from_values
from fleetplan.engine.load import ClosedLoop
from fleetplan.engine.result import Result
from fleetplan.engine.run import check_requests, check_seed, check_step
from fleetplan.errors import InputError
from fleetplan.traffic.requests import Requests

if TYPE_CHECKING:
    from fleetplan.engine.plain_pools import PlainPools
    from fleetplan.engine.pools_state import Pools


def simulate_pools(
    requests: Requests,
    prefill: Pool,
    decode: Pool,
    link: Link | None = None,
    *,
    bypass_tokens: int = 0,
    first_token: str = "prefill",
    seed: int = 0,
    until_s: float = np.inf,
    closed_loop: ClosedLoop | None = None,
    plain: bool = False,
) -> Result:
    """Simulate disaggregated serving (`docs/engine.md`), exactly, to the last token or to `until_s`.

    A request's prompt is computed in the prefill pool, which emits token 1. Its KV stays in prefill memory, outside of any slot, until
    the decode replica that the decode router chose then has its blocks free: ⌈(S + G − 1)/block⌉ with the `continuous` scheduler,
    ⌈S/block⌉ with the others, which grow and may preempt (what is preempted is computed again at its decode replica). They are reserved,
    and the KV of S tokens crosses the `link`, first in first out. Where it lands, prefill memory is freed, and the sequence decodes from
    the next step on that has a slot for it. Prompts of at most `bypass_tokens` go to the decode pool at once and are computed there.
    Each decode replica takes on handoffs and such prompts first come first served. `first_token` is one of FIRST_TOKEN_AT: where TTFT ends.

    `Result.replica` and `busy_s` number the prefill replicas first, then the decode ones; `Result.handoff` has the rest.
    Raises InputError for what cannot be, or not together.

    >>> from fleetplan.engine import EngineConfig, Link, Pool
    >>> from fleetplan.physics.steptime import affine
    >>> pool = Pool(affine(0.005, 2e-5, 5e-4), EngineConfig("continuous"))
    >>> run = simulate_pools(Requests.of([0.0], 100, 3), pool, pool, Link(1e9, 1e5, 1e-3), plain=True)
    >>> [round(float(t), 6) for t in (run.first_token_s[0], run.handoff.landed_s[0], run.finish_s[0])], run.steps
    ([0.007, 0.018, 0.029], 3)
    """
    link = link or Link()
    faults = check_pools(prefill, decode, bypass_tokens, first_token)
    if len(requests) and requests.answers.max() > 1:
        faults.append(f"requests: answers above 1 are not simulated in pools (got {requests.answers.max()})")
    faults += [
        f"{name}: a pipeline is not simulated in pools yet (got {pool.steptime.stages} stages), take a step time of one stage"
        for name, pool in (("prefill", prefill), ("decode", decode))
        if pool.steptime.stages > 1
    ]
    if faults:
        raise InputError(*faults)
    check_seed(seed)
    for pool in (prefill, decode):
        check_step(requests, pool.steptime, pool.config)
        check_requests(requests, pool.config, pool.replicas, pool.router, closed_loop)
    at_landing = first_token == "landing"
    if plain:
        from fleetplan.engine.plain_pools import PlainPools

        twin = PlainPools(
            requests, prefill, decode, link, bypass_tokens, at_landing, seed, until_s, closed_loop
        )
        twin.run()
        return _of_twin(requests, twin, until_s)
    from fleetplan.engine.pools_kernel import run_pools
    from fleetplan.engine.pools_state import make_pools

    pools = make_pools(requests, prefill, decode, link, bypass_tokens, at_landing, seed, until_s, closed_loop)
    run_pools(*pools)
    for pool, state in ((prefill, pools.prefill), (decode, pools.decode)):
        if state.p["fault_tokens"][0]:
            raise InputError(
                f"steptime: a step of {state.p['fault_tokens'][0]} tokens is longer than the step-time table "
                f"(got {pool.steptime.max_tokens} entries), give more entries or a slope"
            )
    return _of_kernel(requests, pools, until_s)


def _of_twin(requests: Requests, twin: PlainPools, until_s: float) -> Result:
    rows, stages = twin.sequences, twin.stage
    replicas = (*twin.prefill.replicas, *twin.decode.replicas)
    gaps = np.array([gap for _, gap in twin.prefill.gaps], dtype=np.float64)
    owner = np.array([index for index, _ in twin.prefill.gaps], dtype=np.int64)
    floats: dict[str, Any] = {
        name: np.array([getattr(s, name) for s in rows], dtype=np.float64)
        for name in ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
    }
    times = {
        name: np.array([getattr(s, name) for s in stages], dtype=np.float64)
        for name in ("prefilled_s", "reserved_s", "sent_s", "landed_s")
    }
    prefill = np.array([s.prefill for s in stages], dtype=np.int32)
    decode = np.array([s.decode for s in stages], dtype=np.int32)
    waiting = np.array([s.replica for s in rows], dtype=np.int32)
    return Result(
        requests=requests,
        **floats,
        preemptions=np.array([s.preemptions for s in rows], dtype=np.int32),
        replica=_served_by(decode, waiting, len(twin.prefill.replicas)),
        outcome=np.array([s.outcome for s in rows], dtype=np.int8),
        reason=np.array([s.reason for s in rows], dtype=np.int8),
        steps=sum(r.steps for r in replicas),
        busy_s=np.array([r.busy_s for r in replicas]),
        itl=tuple(from_values(gaps[owner == k]) for k in range(len(requests.classes))),
        visible_s=np.array([s.first_visible_s for s in rows]) if (requests.hidden_tokens > 0).any() else None,
        handoff=_handoff(prefill, decode, times, until_s),
    )


def _of_kernel(requests: Requests, pools: Pools, until_s: float) -> Result:
    rows, way = pools.prefill.request, pools.way
    changed = bool(pools.decode.p["dynamic"][0])
    times = {name: way[name].copy() for name in ("prefilled_s", "reserved_s", "sent_s", "landed_s")}
    return Result(
        requests=requests,
        arrival_s=pools.decode.extra["actual_s"].copy() if changed else requests.arrival_s,
        first_scheduled_s=rows["scheduled_s"].copy(),
        first_token_s=rows["first_token_s"].copy(),
        finish_s=np.where(rows["outcome"] == 0, np.nan, rows["finish_s"]),
        preemptions=rows["preemptions"].copy(),
        replica=_served_by(way["decode"], rows["served_by"], len(pools.prefill.replica)),
        outcome=rows["outcome"].copy(),
        reason=rows["reason"].copy(),
        steps=int(pools.prefill.replica["steps"].sum() + pools.decode.replica["steps"].sum()),
        busy_s=np.concatenate([pools.prefill.replica["busy_s"], pools.decode.replica["busy_s"]]),
        itl=tuple(from_bins(gaps["weight"], gaps["weighted_s"]) for gaps in pools.prefill.gaps),
        visible_s=pools.decode.hidden["visible_s"].copy() if pools.decode.p["hides"][0] else None,
        handoff=_handoff(way["prefill"].copy(), way["decode"].copy(), times, until_s),
    )


def _served_by(decode: Any, owner: Any, prefill_replicas: int) -> Any:
    """Replica that served last, decode ones numbered behind those of prefill; −1: none."""
    return np.where(decode >= 0, decode + prefill_replicas, np.maximum(owner, -1)).astype(np.int32)


def _handoff(prefill: Any, decode: Any, times: dict[str, Any], until_s: float) -> Handoff:
    """The record of each handoff; what the link would have done after `until_s` did not happen."""
    for name in ("sent_s", "landed_s"):
        times[name] = np.where(times[name] > until_s, np.nan, times[name])
    return Handoff(prefill, decode, **times)
