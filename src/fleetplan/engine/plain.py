"""The plain twin: every step of every replica, one at a time, in readable Python; the oracle of the compiled kernels."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from fleetplan.engine.config import NANOSECOND, EngineConfig, blocks_for
from fleetplan.engine.outcome import FINISHED, REJECTED, TIMED_OUT, UNFINISHED, Reason
from fleetplan.errors import InputError
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

COMMIT, ARRIVAL, BEGIN = 0, 1, 2


@dataclass(eq=False)
class Sequence:
    """One request on its way: what is known, what is computed, what it holds."""

    row: int
    prompt: int
    output: int
    arrival_s: float
    deadline_s: float
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    chunk: int = 0
    preemptions: int = 0
    replica: int = -1
    first_scheduled_s: float = math.nan
    first_token_s: float = math.nan
    last_token_s: float = math.nan
    finish_s: float = math.nan
    outcome: int = UNFINISHED
    reason: int = Reason.NONE

    @property
    def known(self) -> int:
        """Tokens whose KV the next token needs: prompt and generated."""
        return self.prompt + self.generated

    @property
    def left(self) -> int:
        """Tokens still to compute before the next one is emitted."""
        return self.known - self.computed


@dataclass(eq=False)
class Replica:
    """One engine: its queue, its running sequences in order of admission, its free blocks, the step under way."""

    index: int
    waiting: deque[Sequence]
    free_blocks: float
    running: list[Sequence] = field(default_factory=list)
    scheduled: list[Sequence] = field(default_factory=list)
    step_end_s: float = math.inf
    begin_at_s: float = math.inf
    free_at_s: float = 0.0
    outstanding: int = 0
    steps: int = 0
    busy_s: float = 0.0


class Plain:
    """A fleet of like replicas behind a router, stepped one iteration at a time."""

    def __init__(
        self,
        requests: Requests,
        steptime: StepTime,
        config: EngineConfig,
        replicas: int,
        router: str,
        seed: int,
    ) -> None:
        self.config = config
        self.router = router
        self.cost = scalar_cost(steptime)
        self.window = steptime.window_tokens
        self.total_blocks = math.inf if config.kv_blocks is None else config.kv_blocks
        shared: deque[Sequence] = deque()
        central = router == "central_queue"
        self.replicas = [
            Replica(i, shared if central else deque(), self.total_blocks) for i in range(replicas)
        ]
        self.sequences = [
            Sequence(row, int(s), int(g), float(a), float(a) + float(timeout))
            for row, (s, g, a, timeout) in enumerate(
                zip(
                    requests.prompt_tokens,
                    requests.output_tokens,
                    requests.arrival_s,
                    requests.timeout_s,
                    strict=True,
                )
            )
        ]
        self.class_index = requests.class_index
        self.random = np.random.default_rng(seed).integers(0, max(replicas, 1), (len(requests), 2)).tolist()
        self.events: list[tuple[float, int, int]] = []
        self.gaps: list[tuple[int, float]] = []
        self.routed = 0

    def run(self) -> None:
        """Simulate to the end: a step's end, then arrivals, then the start of a step, by time and to the nanosecond."""
        for s in self.sequences:
            heapq.heappush(self.events, (s.arrival_s, ARRIVAL, s.row))
        while self.events:
            key, kind, index = heapq.heappop(self.events)
            if kind == ARRIVAL:
                self.arrive(self.sequences[index], key)
            elif kind == COMMIT:
                self.commit(self.replicas[index])
            else:
                self.begin(self.replicas[index])

    # arrivals and routing

    def arrive(self, s: Sequence, now_s: float) -> None:
        """Route an arrival, refuse it, or put it in a queue and wake its replica."""
        replica = self.route(s)
        s.replica = replica.index
        config = self.config
        if blocks_for(s.prompt + s.output - 1, config.block_size) > self.total_blocks:
            self.refuse(s, Reason.NEVER_FITS, now_s)
            return
        limit, tokens = config.max_queued_requests, config.max_queued_tokens
        if limit is not None and len(replica.waiting) >= limit:
            self.refuse(s, Reason.QUEUE_FULL, now_s)
            return
        if tokens is not None and sum(w.prompt for w in replica.waiting) + s.prompt > tokens:
            self.refuse(s, Reason.QUEUE_TOKENS, now_s)
            return
        replica.waiting.append(s)
        replica.outstanding += 1
        if self.router == "central_queue":
            for other in self.replicas:
                self.wake(other, now_s)
        else:
            self.wake(replica, now_s)

    def refuse(self, s: Sequence, reason: int, now_s: float) -> None:
        s.outcome, s.reason = REJECTED, reason

    def route(self, s: Sequence) -> Replica:
        """The replica of this arrival; ties go to the lowest."""
        fleet, turn = self.replicas, self.routed
        self.routed += 1
        if self.router == "round_robin":
            return fleet[turn % len(fleet)]
        if self.router == "random":
            return fleet[self.random[s.row][0]]
        if self.router == "least_outstanding":
            return min(fleet, key=lambda r: r.outstanding)
        if self.router == "power_of_two":
            first, second = (fleet[i] for i in sorted(self.random[s.row]))
            return second if second.outstanding < first.outstanding else first
        if self.router == "least_kv":
            return min(fleet, key=lambda r: self.total_blocks - r.free_blocks)
        return fleet[0]  # one central queue: the replica is known when a step takes the request

    def wake(self, replica: Replica, now_s: float) -> None:
        """Let an idle replica begin a step now."""
        if replica.step_end_s == math.inf and replica.begin_at_s == math.inf:
            replica.begin_at_s = max(now_s, replica.free_at_s)
            heapq.heappush(self.events, (replica.begin_at_s + NANOSECOND, BEGIN, replica.index))

    # one step

    def begin(self, replica: Replica) -> None:
        """Choose the sequences of the step that starts now, and when it ends."""
        now_s, replica.begin_at_s = replica.begin_at_s, math.inf
        self.drop_expired(replica, now_s)
        replica.scheduled = []
        policy: Callable[[Replica], None] = getattr(self, f"schedule_{self.config.scheduler}")
        policy(replica)
        if not replica.scheduled:
            return
        n = b = d = r = x = r_w = x_w = 0
        for s in replica.scheduled:
            b += 1
            n += s.chunk
            d += s.generated > 0 and s.chunk == 1
            context = s.computed + s.chunk
            r += context
            x += s.chunk * s.computed + s.chunk * (s.chunk + 1) // 2
            if self.window:
                r_w += min(context, self.window)
                x_w += window_pairs(s.computed, s.chunk, self.window)
            if math.isnan(s.first_scheduled_s):
                s.first_scheduled_s = now_s
        step_s = self.cost(n, b, d, r, x, r_w, x_w)
        replica.steps += 1
        replica.busy_s += step_s
        replica.step_end_s = now_s + step_s
        heapq.heappush(self.events, (replica.step_end_s - NANOSECOND, COMMIT, replica.index))

    def commit(self, replica: Replica) -> None:
        """End the step: count what was computed, emit tokens, let the finished go, and be ready for the next."""
        now_s, replica.step_end_s = replica.step_end_s, math.inf
        replica.free_at_s = now_s
        static = self.config.scheduler == "static"
        for s in replica.scheduled:
            if s.outcome == FINISHED or s.outcome == TIMED_OUT:
                continue  # static: the slot of a finished member only costs time
            s.computed += s.chunk
            if s.computed == s.known:
                self.emit(replica, s, now_s)
        if static and all(s.outcome != UNFINISHED for s in replica.running):
            for s in replica.running:
                self.release(replica, s)
            replica.running = []
        if not static:
            replica.running = [s for s in replica.running if s.outcome == UNFINISHED]
        if replica.running or replica.waiting:
            self.wake(replica, now_s)

    def emit(self, replica: Replica, s: Sequence, now_s: float) -> None:
        """One more token of this sequence; at its last it finishes, and a first one that comes too late is not wanted."""
        if s.generated == 0:
            if now_s > s.deadline_s + NANOSECOND:
                self.leave(replica, s, s.deadline_s, TIMED_OUT)
                return
            s.first_token_s = now_s
        else:
            self.gaps.append((int(self.class_index[s.row]), now_s - s.last_token_s))
        s.last_token_s = now_s
        s.generated += 1
        if s.generated == s.output:
            self.leave(replica, s, now_s, FINISHED)

    def leave(self, replica: Replica, s: Sequence, now_s: float, outcome: int) -> None:
        s.outcome, s.finish_s = outcome, now_s
        replica.outstanding -= 1
        if self.config.scheduler != "static":
            self.release(replica, s)

    def release(self, replica: Replica, s: Sequence) -> None:
        replica.free_blocks += s.blocks
        s.blocks = 0

    def drop_expired(self, replica: Replica, now_s: float) -> None:
        """Requests that gave up before this step leave the queue and, while no token was emitted, the batch."""

        def expired(s: Sequence) -> bool:
            return s.generated == 0 and s.deadline_s + NANOSECOND < now_s

        if not any(map(expired, replica.waiting)) and not any(map(expired, replica.running)):
            return
        for s in [s for s in (*replica.waiting, *replica.running) if expired(s)]:
            self.leave(replica, s, s.deadline_s, TIMED_OUT)
        kept = [s for s in replica.waiting if s.outcome == UNFINISHED]
        replica.waiting.clear()
        replica.waiting.extend(kept)
        if self.config.scheduler != "static":
            replica.running = [s for s in replica.running if s.outcome == UNFINISHED]

    # schedulers: each fills replica.scheduled and sets every member's chunk

    def admit(self, replica: Replica, blocks: int, chunk: int) -> None:
        """The head of the queue runs from this step on."""
        s = replica.waiting.popleft()
        s.replica = replica.index
        replica.running.append(s)
        self.grow(replica, s, blocks)
        self.plan(replica, s, chunk)

    def plan(self, replica: Replica, s: Sequence, chunk: int) -> None:
        s.chunk = chunk
        replica.scheduled.append(s)

    def grow(self, replica: Replica, s: Sequence, blocks: int) -> None:
        replica.free_blocks -= blocks - s.blocks
        s.blocks = blocks

    def schedule_static(self, replica: Replica) -> None:
        if replica.running:  # every slot decodes, a finished one at its last context
            for s in replica.running:
                if s.outcome == FINISHED:
                    s.computed = max(s.prompt + s.output - 2, 0)
                self.plan(replica, s, 1)
            return
        while replica.waiting and len(replica.running) < self.config.max_num_seqs:
            head = replica.waiting[0]
            life = blocks_for(head.prompt + head.output - 1, self.config.block_size)
            if life > replica.free_blocks:
                break
            self.admit(replica, life, head.prompt)

    def schedule_continuous(self, replica: Replica) -> None:
        for s in replica.running:
            self.plan(replica, s, 1)
        while replica.waiting and len(replica.running) < self.config.max_num_seqs:
            head = replica.waiting[0]
            life = blocks_for(head.prompt + head.output - 1, self.config.block_size)
            if life > replica.free_blocks:
                break
            self.admit(replica, life, head.prompt)

    def schedule_chunked(self, replica: Replica) -> None:
        size = self.config.block_size
        left = self.config.max_num_batched_tokens
        left, preempted = self.schedule_running(replica, left)
        while (
            not preempted and left > 0 and replica.waiting and len(replica.running) < self.config.max_num_seqs
        ):
            head = replica.waiting[0]
            chunk = min(head.left, left)
            need = blocks_for(chunk, size)
            if need > replica.free_blocks:
                break
            self.admit(replica, need, chunk)
            left -= chunk

    def schedule_prefill_first(self, replica: Replica) -> None:
        left = self.config.max_num_batched_tokens
        while replica.waiting and len(replica.running) < self.config.max_num_seqs:
            head = replica.waiting[0]
            need = blocks_for(head.left, self.config.block_size)
            if need > replica.free_blocks or (replica.scheduled and head.left > left):
                break
            left -= head.left
            self.admit(replica, need, head.left)
        if not replica.scheduled:
            self.schedule_running(replica, len(replica.running))

    def schedule_running(self, replica: Replica, left: int) -> tuple[int, bool]:
        """Running sequences in order of admission, the most recent ones giving way to those that lack a block."""
        preempted = False
        position = 0
        while position < len(replica.running) and left > 0:
            s = replica.running[position]
            chunk = min(s.left, left)
            need = blocks_for(s.computed + chunk, self.config.block_size)
            while need - s.blocks > replica.free_blocks:
                victim = replica.running.pop()
                self.preempt(replica, victim)
                preempted = True
                if victim is s:
                    return left, preempted
            self.grow(replica, s, need)
            self.plan(replica, s, chunk)
            left -= chunk
            position += 1
        return left, preempted

    def preempt(self, replica: Replica, victim: Sequence) -> None:
        """Its blocks are freed, all of it is computed again, and it waits in front."""
        self.release(replica, victim)
        victim.computed = 0
        victim.preemptions += 1
        replica.waiting.appendleft(victim)


def window_pairs(cached: int, new: int, window: int) -> int:
    """Query-key pairs of `new` tokens after `cached` ones, each context cut at the window.

    >>> window_pairs(0, 4, 2), window_pairs(10, 3, 4), window_pairs(0, 3, 9)
    (7, 12, 6)
    """
    growing = min(max(window - cached, 0), new)
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


def scalar_cost(steptime: StepTime) -> Callable[..., float]:
    """The time of one step [s] as a function of n, B, D, R, X, R_w, X_w; raises InputError beyond the table."""
    o, c, m = (v.tolist() for v in (steptime.overhead_s, steptime.compute_s, steptime.memory_s))
    slopes = (steptime.overhead_slope_s, steptime.compute_slope_s, steptime.memory_slope_s)
    last = [len(v) - 1 for v in (o, c, m)]

    def at(vector: list[float], end: int, slope: float, n: int) -> float:
        if n <= end:
            return vector[n]
        if math.isnan(slope):
            raise InputError(
                f"steptime: a step of {n} tokens is longer than the step-time table (got {end} entries), "
                "give more entries or a slope"
            )
        return vector[end] + (n - end) * slope

    def cost(n: int, b: int, d: int, r: int, x: int, r_w: int, x_w: int) -> float:
        hidden = at(o, last[0], slopes[0], n)
        compute = at(c, last[1], slopes[1], n) + steptime.pair_s * x + steptime.window_pair_s * x_w
        memory = (
            at(m, last[2], slopes[2], n)
            + steptime.kv_token_s * r
            + steptime.window_kv_token_s * r_w
            + steptime.state_s * b
        )
        return hidden + steptime.sequence_s * b + steptime.decode_s * d + max(compute, memory)

    return cost
