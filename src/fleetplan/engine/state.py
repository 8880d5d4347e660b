"""The compiled engine's state: flat arrays, one record a replica, one slot a running sequence."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fleetplan.engine.config import EngineConfig, widest
from fleetplan.engine.content import content_of
from fleetplan.engine.histogram import BINS
from fleetplan.engine.priority import levels_of
from fleetplan.engine.speculate import MASK, Speculation
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

IDLE, BUSY, READY = 0, 1, 2
STRETCH, MIXED, DRAFTED = 0, 1, 2
STATIC, CONTINUOUS, CHUNKED, PREFILL_FIRST = 0, 1, 2, 3
UNLIMITED = 1 << 60
MOST_SEGMENTS = 1 << 27
"""Most entries of all replicas' prefix caches: some GB."""
SLOT_BITS = 22
"""A heap entry is counter << SLOT_BITS | slot."""

PARAMETERS = np.dtype(
    [
        ("scheduler", "i8"), ("max_num_seqs", "i8"), ("budget", "i8"), ("limited", "i8"), ("paged", "i8"), ("total_blocks", "i8"),
        ("block_size", "i8"), ("block_shift", "i8"), ("max_queued_requests", "i8"), ("max_queued_tokens", "i8"),
        ("router", "i8"), ("central", "i8"), ("replicas", "i8"), ("classes", "i8"), ("dynamic", "i8"), ("closed", "i8"),
        ("expiring", "i8"), ("until_s", "f8"), ("resolution_s", "f8"), ("think_s", "f8"),
        ("sequence_s", "f8"), ("decode_s", "f8"), ("pair_s", "f8"), ("window_pair_s", "f8"), ("kv_token_s", "f8"),
        ("window_kv_token_s", "f8"), ("state_s", "f8"), ("window", "i8"),
        ("overhead_slope_s", "f8"), ("compute_slope_s", "f8"), ("memory_slope_s", "f8"),
        ("caching", "i8"), ("nodes", "i8"), ("host_blocks", "i8"), ("disk_blocks", "i8"), ("host_block_s", "f8"), ("disk_block_s", "f8"),
        ("most_answers", "i8"), ("adapters", "i8"), ("adapter_s", "f8"), ("swap_blocks", "i8"), ("swap_block_s", "f8"),
        # what the run keeps of itself
        ("next_row", "i8"), ("arrivals_ahead", "i8"), ("expiries", "i8"), ("routed", "i8"), ("fault_tokens", "i8"),
        ("up", "i8"), ("next_outage", "i8"), ("drafts", "i8"), ("hides", "i8"),
        ("levels", "i8"), ("weighted", "i8"), ("max_wait_s", "f8"), ("retries", "i8"), ("stages", "i8"),
    ]
)  # fmt: skip
DRAFT = np.dtype(
    [
        ("off_above", "i8"), ("seed", "i8"), ("factor", "f8"),
        ("sequence_s", "f8"), ("decode_s", "f8"), ("pair_s", "f8"), ("window_pair_s", "f8"), ("kv_token_s", "f8"),
        ("window_kv_token_s", "f8"), ("state_s", "f8"), ("window", "i8"),
        ("overhead_slope_s", "f8"), ("compute_slope_s", "f8"), ("memory_slope_s", "f8"),
    ]
)  # fmt: skip
"""Speculation: when it is off, the seed of its draws (and of those for retries), draft steps times their cost, and the coefficients of a draft step."""
WORK = np.dtype(
    [
        ("tokens", "i8"), ("sequences", "i8"), ("decoding", "i8"), ("kv_read", "i8"), ("pairs", "i8"),
        ("window_read", "i8"), ("window_pairs", "i8"), ("drafted", "i8"), ("draft_read", "i8"), ("draft_window_read", "i8"),
    ]
)  # fmt: skip
"""Sums over the sequences of the step that is being made up."""
REPLICA = np.dtype(
    [
        ("status", "i8"), ("key_s", "f8"), ("now_s", "f8"), ("end_s", "f8"), ("kind", "i8"), ("ahead", "i8"),
        # decoding sequences: how many, how many of them grow, KV tokens that the next step reads, within the window
        ("counter", "i8"), ("decoding", "i8"), ("growing", "i8"), ("kv_read", "i8"),
        ("window_growing", "i8"), ("window_read", "i8"),
        ("running", "i8"), ("first", "i8"), ("last", "i8"), ("new", "i8"), ("partial", "i8"), ("free", "i8"),
        ("heap", "i8"), ("crossings", "i8"), ("visibles", "i8"), ("free_slots", "i8"),
        ("fresh", "i8"), ("fresh_first", "i8"), ("last_decode_s", "f8"),
        ("outstanding", "i8"), ("steps", "i8"), ("busy_s", "f8"),
        # the stretch under way: step i lasts hidden + (lead + lead_slope·i until `turn`, then tail + tail_slope·i)
        ("hidden_s", "f8"), ("lead_s", "f8"), ("lead_slope_s", "f8"), ("tail_s", "f8"), ("tail_slope_s", "f8"),
        ("turn", "i8"), ("up", "i8"), ("most", "i8"), ("admitted", "i8"),
        # what the cache has of the head of the queue; time that the step to come waits for blocks
        ("found", "i8"), ("depth", "i8"), ("unpinned", "i8"), ("pull_s", "f8"), ("extra_s", "f8"), ("idle_count", "i8"), ("swapped", "i8"),
        # the queue that it takes from; a lane: time since its last step ended, until it starts the next
        ("queue", "i8"), ("wait_s", "f8"),
    ]
)  # fmt: skip
QUEUE = np.dtype(
    [
        ("first", "i8"), ("last", "i8"), ("length", "i8"), ("tokens", "i8"),
        ("turns", "f8"), ("weight", "f8"), ("turn", "f8"), ("now_s", "f8"),
    ]
)  # fmt: skip
"""One level's line; that of level 0 keeps the whole queue's length and tokens, the turn that was had last, and the time of choosing."""


REQUEST = np.dtype(
    [
        ("arrival_s", "f8"), ("scheduled_s", "f8"), ("first_token_s", "f8"), ("finish_s", "f8"),
        ("prompt", "i4"), ("output", "i4"), ("klass", "i4"), ("generated", "i4"), ("behind", "i4"), ("served_by", "i4"),
        ("preemptions", "i4"), ("outcome", "i1"), ("reason", "i1"), ("answers", "i2"),
    ]
)  # fmt: skip
"""One cache line a request: what the kernel reads and records; `behind` is who stands behind it in its queue."""
EXTRA = np.dtype(
    [
        ("timeout_s", "f8"), ("gap_s", "f8"), ("actual_s", "f8"), ("affinity", "i8"),
        ("successor", "i4"), ("draw_0", "i4"), ("draw_1", "i4"), ("restarts", "i4"),
    ]
)  # fmt: skip
SLOT = np.dtype(
    [
        ("row", "i4"), ("before", "i4"), ("after", "i4"), ("kept", "i2"), ("answers", "i2"), ("order", "i8"),
        ("computed", "i8"), ("chunk", "i8"), ("due", "i8"), ("crossing", "i8"), ("emitted_s", "f8"), ("visible", "i8"),
    ]
)  # fmt: skip
"""A running sequence: `order` is its number among those admitted, `due` is the counter at which it finishes, −1 while it does not decode; with drafts
`kept` is what it emits; `visible` is the counter at which its first visible token is out, −1 where none is to come."""
HIDDEN = np.dtype([("tokens", "i8"), ("visible_s", "f8")])
"""Tokens that a request hides, and when the first visible one is out."""
AGAIN = np.dtype(
    [("deadline_s", "f8"), ("first_s", "f8"), ("attempts", "i4"), ("refusals", "i4"), ("leaving", "i8")]
)
"""A request of a run with retries: when this attempt gives up, when the first one arrived, how often it was sent and refused, and
whether it timed out in a batch that it has yet to leave."""
CONTENT = np.dtype(
    [
        ("leaf", "i4"), ("depth", "i4"), ("previous", "i4"), ("history", "i4"),
        ("slot", "i4"), ("seated", "i4"), ("acquired", "i4"), ("hit", "i4"),
    ]
)  # fmt: skip
"""A request of a run with a prefix cache: see `fleetplan.engine.content`; its slot, the replica whose cache may have it, the blocks
that it was admitted with, the prompt tokens that it found at first."""
SEGMENT = np.dtype([("parent", "i4"), ("start", "i4"), ("size", "i4"), ("refs", "i4")])
TIER = np.dtype([("first", "i8"), ("last", "i8"), ("held", "i8")])
RESIDENT = np.dtype([("adapter", "i8"), ("refs", "i8"), ("idle_since", "i8")])
"""A place of an adapter: how many running sequences use it, and since when none does, as a count."""
EVENT = np.dtype([("time_s", "f8"), ("row", "i8")])
OUTAGE = np.dtype([("time_s", "f8"), ("replica", "i8"), ("kind", "i8")])
SAMPLE = np.dtype([("running", "i8"), ("kv_blocks", "i8"), ("tokens", "i8")])
"""At one time: sequences that run, blocks that they hold, tokens emitted since the time before."""
GAPS = np.dtype([("weight", "f8"), ("weighted_s", "f8")])


class State(NamedTuple):
    """Arrays by replica r, slot (r, k), request i."""

    p: NDArray[Any]
    replica: NDArray[Any]
    queue: NDArray[Any]
    overhead: NDArray[np.float64]
    compute: NDArray[np.float64]
    memory: NDArray[np.float64]
    request: NDArray[Any]
    extra: NDArray[Any]
    slot: NDArray[Any]
    free_slot: NDArray[np.int32]
    heap: NDArray[np.int64]
    crossing_heap: NDArray[np.int64]
    residues: NDArray[np.int64]
    by_class: NDArray[np.int64]
    ahead: NDArray[Any]
    expiry: NDArray[Any]
    outage: NDArray[Any]
    door: NDArray[np.int64]
    series: NDArray[Any]
    gaps: NDArray[Any]
    """By class and bin."""
    draft: NDArray[Any]
    survival: NDArray[np.float64]
    draft_overhead: NDArray[np.float64]
    draft_compute: NDArray[np.float64]
    draft_memory: NDArray[np.float64]
    work: NDArray[Any]
    level: NDArray[np.int64]
    """Level of priority of each request."""
    hidden: NDArray[Any]
    visible_heap: NDArray[np.int64]

    content: NDArray[Any]
    segment: NDArray[Any]
    kept: NDArray[np.int32]
    """By segment and tier, as the next two: blocks that are there."""
    older: NDArray[np.int32]
    newer: NDArray[np.int32]
    tier: NDArray[Any]
    """By replica and tier."""
    adapter: NDArray[np.int64]
    """By request; −1: none."""
    resident: NDArray[Any]
    """By replica and place."""
    again: NDArray[Any]
    backoff: NDArray[np.float64]
    """Time [s] before each retry."""
    swapped: NDArray[np.int32]
    """By request: tokens whose KV waits on the host."""


COEFFICIENTS = (
    "sequence_s", "decode_s", "pair_s", "window_pair_s", "kv_token_s", "window_kv_token_s", "state_s",
    "overhead_slope_s", "compute_slope_s", "memory_slope_s",
)  # fmt: skip


def make_state(
    requests: Requests,
    steptime: StepTime,
    config: EngineConfig,
    replicas: int,
    router: int,
    seed: int,
    until_s: float = np.inf,
    closed: tuple[int, float] | None = None,
    outages: NDArray[Any] | None = None,
    resolution_s: float = 0.0,
    samples: int = 0,
) -> State:
    """Everything that the kernel reads and writes, at time 0."""
    n = len(requests)
    central = router == 6
    limited = config.kv_blocks is not None
    scheduler = ("static", "continuous", "chunked", "prefill_first").index(config.scheduler)
    slots = min(config.max_num_seqs, max(int(requests.answers.sum()), 1))
    if limited and config.prefix_cache is None and not (n and requests.answers.max() > 1):
        slots = min(slots, config.kv_blocks or 1)
    if scheduler == CHUNKED:
        slots = min(slots, config.max_num_batched_tokens)
    if slots >= 1 << SLOT_BITS:
        raise InputError(
            f"max_num_seqs: at most {(1 << SLOT_BITS) - 1} sequences can run at once (got {slots})"
        )
    if n and max(requests.prompt_tokens.max(), requests.output_tokens.max()) >= 1 << 31:
        raise InputError("requests: a length must be below 2^31 tokens")
    expiring = bool(np.isfinite(requests.timeout_s).any())
    turns = bool((~np.isnan(requests.gap_s)).any())
    dynamic = turns or closed is not None or config.retries > 0
    hides = bool((requests.hidden_tokens > 0).any())
    p = np.zeros(1, PARAMETERS)
    values: dict[str, Any] = {
        "scheduler": scheduler, "max_num_seqs": slots, "limited": limited,
        "paged": limited and scheduler in (CHUNKED, PREFILL_FIRST),
        "budget": config.max_num_batched_tokens if scheduler in (CHUNKED, PREFILL_FIRST) else UNLIMITED,
        "total_blocks": config.kv_blocks if limited else UNLIMITED, "block_size": config.block_size,
        "block_shift": config.block_size.bit_length() - 1 if config.block_size.bit_count() == 1 else -1,
        "max_queued_requests": _or_unlimited(config.max_queued_requests),
        "max_queued_tokens": _or_unlimited(config.max_queued_tokens),
        "router": router, "central": central, "replicas": replicas, "up": replicas, "classes": len(requests.classes),
        "expiring": expiring, "dynamic": dynamic, "closed": closed is not None, "hides": hides, "until_s": until_s, "retries": config.retries,
        "window": steptime.window_tokens, "resolution_s": resolution_s, "most_answers": widest(config),
        "adapters": config.max_adapters or 0, "adapter_s": config.adapter_load_s,
        "swap_blocks": config.swap_blocks if config.preemption == "swap" else 0, "swap_block_s": config.swap_block_s,
    }  # fmt: skip
    for name, value in values.items():
        p[name] = value
    for name in COEFFICIENTS:
        p[name] = getattr(steptime, name)
    drafter, draft, survival = _speculation(config.speculation, steptime, seed)
    p["drafts"] = len(survival)
    replica = np.zeros(replicas, REPLICA)
    replica["key_s"] = np.inf
    replica["free"] = p["total_blocks"][0]
    replica["free_slots"] = replica["most"] = slots
    replica["up"] = 1
    for name in ("first", "last", "new", "partial", "fresh_first"):
        replica[name] = -1
    levels = levels_of(requests, config)
    p["levels"], p["weighted"], p["max_wait_s"] = levels.count, levels.weighted, levels.max_wait_s
    replica["queue"] = 0 if central else np.arange(replicas) * levels.count
    queue = np.zeros((1 if central else replicas) * levels.count, QUEUE)
    queue["first"] = queue["last"] = -1
    queue["weight"] = np.tile(levels.weights, 1 if central else replicas)
    heaps = (replicas, 2 * slots + 2)
    resident = np.zeros((replicas, max(config.max_adapters or 0, 1)), RESIDENT)
    resident["adapter"] = -1
    slot = np.zeros((replicas, slots), SLOT)
    slot["due"] = slot["crossing"] = slot["visible"] = -1
    state = State(
        p=p, replica=replica, queue=queue,
        overhead=np.ascontiguousarray(steptime.overhead_s), compute=np.ascontiguousarray(steptime.compute_s),
        memory=np.ascontiguousarray(steptime.memory_s),
        request=_request_rows(requests),
        extra=_extra_rows(requests, router, replicas, seed, turns)
        if expiring or dynamic or router in (1, 4, 5) or outages is not None
        else np.zeros(1, EXTRA),
        slot=slot, free_slot=np.tile(np.arange(slots - 1, -1, -1, dtype=np.int32), (replicas, 1)),
        heap=np.zeros(heaps, np.int64),
        crossing_heap=np.zeros(heaps if steptime.window_tokens else (replicas, 1), np.int64),
        residues=np.zeros((replicas, config.block_size if limited else 1), np.int64),
        by_class=np.zeros((replicas, len(requests.classes)), np.int64),
        ahead=np.zeros(n if dynamic else 1, EVENT),
        expiry=np.zeros(n * (1 + config.retries + len(outages if outages is not None else ())) if expiring else 1, EVENT),
        outage=np.zeros(0, OUTAGE) if outages is None else outages,
        door=np.full(2, -1, np.int64), series=np.zeros(max(samples, 1), SAMPLE), gaps=np.zeros((len(requests.classes), BINS), GAPS),
        draft=draft, survival=survival, draft_overhead=np.ascontiguousarray(drafter.overhead_s),
        draft_compute=np.ascontiguousarray(drafter.compute_s),
        draft_memory=np.ascontiguousarray(drafter.memory_s), work=np.zeros(1, WORK),
        level=levels.of_request, hidden=_hidden_rows(requests) if hides else np.zeros(1, HIDDEN),
        visible_heap=np.zeros(heaps if hides else (replicas, 1), np.int64),
        adapter=np.ascontiguousarray(requests.adapter_id) if config.max_adapters else np.zeros(1, np.int64), resident=resident,
        again=np.zeros(n if config.retries else 1, AGAIN), backoff=np.array(config.backoffs_s),
        swapped=np.zeros(n if config.preemption == "swap" else 1, np.int32),
        **_cache(requests, config, replicas, p),
    )  # fmt: skip
    if closed is not None:
        users, think_s = closed
        first = min(users, n)
        state.extra["gap_s"] = think_s
        state.extra["actual_s"] = np.nan
        state.extra["actual_s"][:first] = 0.0
        state.ahead["row"][:first] = np.arange(first)
        p["arrivals_ahead"] = p["next_row"] = first
    return state


def _speculation(
    given: Speculation | None, target: StepTime, seed: int
) -> tuple[StepTime, NDArray[Any], NDArray[np.float64]]:
    """Whose step a draft step is like, its record, and survival by position: empty without speculation."""
    draft = np.zeros(1, DRAFT)
    draft["seed"] = np.uint64(seed & MASK).astype(np.int64)
    if given is None:
        return target, draft, np.zeros(0)
    step = target if given.draft_step is None else given.draft_step
    draft["off_above"] = _or_unlimited(given.off_above)
    draft["factor"] = given.draft_steps * (1.0 if given.draft_cost is None else given.draft_cost)
    draft["window"] = step.window_tokens
    for name in COEFFICIENTS:
        draft[name] = getattr(step, name)
    return step, draft, np.array(given.survival)


def _cache(
    requests: Requests, config: EngineConfig, replicas: int, p: NDArray[Any]
) -> dict[str, NDArray[Any]]:
    """The arrays of the prefix cache, next to empty without one; see `fleetplan.engine.cache`."""
    n, settings = len(requests), config.prefix_cache
    nodes = 0
    rows = np.zeros(1, CONTENT)
    if settings is not None:
        found = content_of(requests, config.block_size)
        nodes = len(found.parent)
        p["caching"], p["nodes"] = 1, nodes
        for name in ("host_blocks", "disk_blocks", "host_block_s", "disk_block_s"):
            p[name] = getattr(settings, name)
        rows = np.zeros(n, CONTENT)
        for name in ("leaf", "depth", "previous", "history"):
            rows[name] = getattr(found, name)
        rows["slot"] = rows["seated"] = -1
    count = 2 * n + replicas * nodes if settings is not None else 1
    if count >= MOST_SEGMENTS:
        raise InputError(
            f"prefix_cache: {replicas} replicas of {nodes} common runs of blocks and {n} requests are more than {MOST_SEGMENTS} entries, "
            "give fewer replicas or requests"
        )
    segment = np.zeros(count, SEGMENT)
    segment["parent"] = -1
    if nodes:
        common = segment[2 * n :].reshape(replicas, nodes)
        first = 2 * n + np.arange(replicas)[:, None] * nodes
        common["start"], common["size"] = found.start, found.size
        common["parent"] = np.where(found.parent < 0, -1, found.parent + first)
    tier = np.zeros((replicas, 3), TIER)
    tier["first"] = tier["last"] = -1
    links = {name: np.full((count, 3), -1, np.int32) for name in ("older", "newer")}
    return {
        "content": rows,
        "segment": segment,
        "kept": np.zeros((count, 3), np.int32),
        "tier": tier,
        **links,
    }


def _or_unlimited(limit: int | None) -> int:
    return UNLIMITED if limit is None else limit


def _request_rows(requests: Requests) -> NDArray[Any]:
    rows = np.zeros(len(requests), REQUEST)
    rows["arrival_s"] = requests.arrival_s
    rows["prompt"], rows["output"] = requests.prompt_tokens, requests.output_tokens
    rows["klass"], rows["answers"] = requests.class_index, requests.answers
    for name in ("scheduled_s", "first_token_s", "finish_s"):
        rows[name] = np.nan
    rows["behind"] = rows["served_by"] = -1
    return rows


def _hidden_rows(requests: Requests) -> NDArray[Any]:
    rows = np.zeros(len(requests), HIDDEN)
    rows["tokens"], rows["visible_s"] = requests.hidden_tokens, np.nan
    return rows


def _extra_rows(requests: Requests, router: int, replicas: int, seed: int, turns: bool) -> NDArray[Any]:
    n = len(requests)
    rows = np.zeros(n, EXTRA)
    rows["timeout_s"], rows["gap_s"] = requests.timeout_s, requests.gap_s
    rows["actual_s"] = np.where(np.isnan(requests.gap_s), requests.arrival_s, np.nan)
    rows["affinity"] = np.where(requests.session_id >= 0, requests.session_id, requests.prefix_id)
    if router in (1, 5):
        draws = np.random.default_rng(seed).integers(0, replicas, (n, 2))
        rows["draw_0"], rows["draw_1"] = draws[:, 0], draws[:, 1]
    rows["successor"] = successors(requests) if turns else -1
    return rows


def successors(requests: Requests) -> NDArray[np.int64]:
    """The next turn of each request's session, whose gap is known; −1: none. Turns are in order of row.

    >>> r = Requests.of([0.0, 0.0, 0.0], 10, 5, session_id=[7, 8, 7], gap_s=[np.nan, np.nan, 1.0])
    >>> successors(r).tolist()
    [2, -1, -1]
    """
    follows = np.full(len(requests), -1, dtype=np.int64)
    rows = np.flatnonzero(requests.session_id >= 0)
    order = rows[np.argsort(requests.session_id[rows], kind="stable")]
    same = requests.session_id[order[1:]] == requests.session_id[order[:-1]]
    later = ~np.isnan(requests.gap_s[order[1:]])
    follows[order[:-1][same & later]] = order[1:][same & later]
    alone = ~np.isnan(requests.gap_s)
    alone[follows[follows >= 0]] = False
    if alone.any():
        row = int(np.flatnonzero(alone)[0])
        raise InputError(
            f"requests: row {row} has a gap_s but no turn before it (session_id {requests.session_id[row]}), "
            "give the first turn NaN as gap_s"
        )
    return follows
