"""The plain twin: every step of every replica, one at a time, in readable Python; the oracle of the compiled kernels."""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable

import numpy as np

from fleetplan.engine.config import NANOSECOND, EngineConfig, widest
from fleetplan.engine.load import COMES_UP, DRAINS, GOES_DOWN, ClosedLoop, Outage
from fleetplan.engine.outcome import FINISHED, REJECTED, TIMED_OUT, UNFINISHED, Reason
from fleetplan.engine.plain_cache import Cache, common_keys, turns_before
from fleetplan.engine.plain_cost import scalar_cost, work_of
from fleetplan.engine.plain_retries import Clients, on_grid
from fleetplan.engine.plain_schedulers import Schedulers
from fleetplan.engine.plain_sequence import Replica, Sequence
from fleetplan.engine.priority import Lines, levels_of
from fleetplan.physics.steptime import StepTime
from fleetplan.traffic.requests import Requests

COMMIT, OUTAGE, ARRIVAL, EXPIRY, BEGIN = range(5)
"""What comes first at equal times."""


class Plain(Schedulers, Clients):
    """A fleet of like replicas behind a router, stepped one iteration at a time."""

    def __init__(
        self,
        requests: Requests,
        steptime: StepTime,
        config: EngineConfig,
        replicas: int,
        router: str,
        seed: int,
        until_s: float = math.inf,
        closed_loop: ClosedLoop | None = None,
        outages: tuple[Outage, ...] = (),
    ) -> None:
        self.config = config
        self.router = router
        self.cost = scalar_cost(steptime)
        self.set_drafting(config, steptime, seed)
        self.window = steptime.window_tokens
        self.until_s = until_s
        self.closed_loop = closed_loop
        self.total_blocks = math.inf if config.kv_blocks is None else config.kv_blocks
        self.levels = levels_of(requests, config)

        def waiting() -> deque[Sequence] | Lines:
            return Lines(self.levels) if self.levels.count > 1 else deque()

        shared = waiting()
        self.central = router == "central_queue"
        self.replicas = [
            Replica(i, shared if self.central else waiting(), self.total_blocks) for i in range(replicas)
        ]
        columns = (
            requests.prompt_tokens,
            requests.output_tokens,
            requests.arrival_s,
            requests.timeout_s,
            requests.gap_s,
            requests.hidden_tokens,
            self.levels.of_request,
        )
        self.sequences = [
            Sequence(
                row,
                int(s),
                int(g),
                float(a),
                float(timeout),
                float(gap),
                hidden=int(hidden),
                level=int(level),
            )
            for row, (s, g, a, timeout, gap, hidden, level) in enumerate(zip(*columns, strict=True))
        ]
        self.class_index = requests.class_index
        for s, answers, adapter in zip(
            self.sequences, requests.answers.tolist(), requests.adapter_id.tolist(), strict=True
        ):
            s.answers, s.adapter = answers, adapter
        if config.prefix_cache is not None:
            for replica in self.replicas:
                replica.cache = Cache(config.prefix_cache)
            for s, keys, (before, history) in zip(
                self.sequences,
                common_keys(requests, config.block_size),
                turns_before(requests),
                strict=True,
            ):
                s.common, s.history = keys, history
                s.previous = self.sequences[before] if before >= 0 else None
        self.affinity = np.where(requests.session_id >= 0, requests.session_id, requests.prefix_id).tolist()
        self.seed, self.places = seed, replicas
        self.random = np.random.default_rng(seed).integers(0, replicas, (len(requests), 2)).tolist()
        self.events: list[tuple[float, int, int]] = []
        self.gaps: list[tuple[int, float]] = []
        self.emissions_s: list[float] = []
        self.spans: list[tuple[float, float, int, float]] = []
        """Start and end of each step, sequences that run in it, blocks held."""
        self.routed = 0
        self.door: list[Sequence] = []
        self.outages = sorted(
            (time_s, order, o.replica, kind)
            for order, o in enumerate(outages)
            for time_s, kind in ((o.down_s, DRAINS if o.drain else GOES_DOWN), (o.up_s, COMES_UP))
            if time_s < math.inf
        )
        self._first_arrivals(requests)

    def _first_arrivals(self, requests: Requests) -> None:
        if self.closed_loop is not None:
            self.unsent = deque(self.sequences)
            for s in self.sequences:
                s.arrival_s = math.nan
            for _ in range(min(self.closed_loop.concurrency, len(self.sequences))):
                self.expect(self.unsent.popleft(), 0.0)
            return
        last: dict[int, Sequence] = {}
        for s, session in zip(self.sequences, requests.session_id.tolist(), strict=True):
            if math.isnan(s.gap_s):
                self.expect(s, s.arrival_s)
            else:
                s.arrival_s = math.nan
                last[session].successor = s
            if session >= 0:
                last[session] = s

    def expect(self, s: Sequence, when_s: float) -> None:
        """This request arrives then."""
        s.arrival_s = when_s
        heapq.heappush(self.events, (when_s, ARRIVAL, s.row))

    def over(self, s: Sequence, when_s: float) -> None:
        """A request is over: the session's next turn, or the user's next request, follows."""
        if self.closed_loop is not None:
            if self.unsent:
                self.expect(self.unsent.popleft(), on_grid(when_s + self.closed_loop.think_s))
        elif s.successor is not None:
            self.expect(s.successor, on_grid(when_s + s.successor.gap_s))

    def run(self) -> None:
        """Simulate to the end: a step's end, outages, arrivals, deadlines, the start of a step, by time and to the nanosecond."""
        for number, (time_s, *_) in enumerate(self.outages):
            heapq.heappush(self.events, (time_s, OUTAGE, number))
        while self.events:
            if all(kind == OUTAGE for _, kind, _ in self.events) and not self.door:
                break
            key, kind, index = heapq.heappop(self.events)
            if key > self.until_s:
                for replica in self.replicas:
                    self.break_off(replica, self.until_s)
                break
            if kind == COMMIT:
                self.end(index)
            elif kind == OUTAGE:
                self.outage(*self.outages[index])
            elif kind == ARRIVAL:
                s = self.sequences[index]
                s.attempts += 1
                if s.attempts == 1:
                    s.first_arrival_s = key
                self.expect_expiry(s, key + s.timeout_s)
                self.arrive(s, key)
            elif kind == EXPIRY:
                self.expire(self.sequences[index], key)
            elif self.replicas[index].begin_at_s + NANOSECOND == key:
                self.start(self.replicas[index], key)

    def end(self, ticket: int) -> None:
        """The step of this ticket ends, unless its replica went down since."""
        replica = self.replicas[ticket % len(self.replicas)]
        if ticket == self.ticket(replica):
            self.commit(replica)

    def ticket(self, replica: Replica) -> int:
        """What the end of the step under way is known by."""
        return replica.index + replica.incarnation * len(self.replicas)

    def start(self, replica: Replica, key_s: float) -> None:
        """A step starts now at this replica, or before it at a lower one."""
        first = self.first_of_equals(replica, key_s)
        if first is not replica:
            heapq.heappush(self.events, (key_s, BEGIN, replica.index))
        self.begin(first)

    def first_of_equals(self, replica: Replica, key_s: float) -> Replica:
        """Of replicas that take from one queue at the same time, to the nanosecond, the lowest goes first."""
        if not self.central:
            return replica
        return next(
            r for r in self.replicas if r is replica or r.begin_at_s + NANOSECOND <= key_s + NANOSECOND
        )

    def expect_expiry(self, s: Sequence, when_s: float) -> None:
        """This attempt gives up then, unless it has a token."""
        s.deadline_s = when_s + 2 * NANOSECOND
        if when_s < math.inf:
            heapq.heappush(self.events, (s.deadline_s, EXPIRY, s.row))

    # arrivals and routing

    def arrive(self, s: Sequence, now_s: float) -> None:
        """Route an arrival, refuse it, or put it in a queue and wake its replica."""
        replica = self.route(s)
        if replica is None:
            s.replica = -1
            self.door.append(s)
            return
        s.replica = -1 if self.central else replica.index
        config = self.config
        limit, tokens = config.max_queued_requests, config.max_queued_tokens
        if s.life(config.block_size) > self.total_blocks:
            self.refuse(s, Reason.NEVER_FITS, now_s)
        elif s.answers > widest(config):
            self.refuse(s, Reason.TOO_MANY_ANSWERS, now_s)
        elif limit is not None and len(replica.waiting) >= limit:
            self.refuse(s, Reason.QUEUE_FULL, now_s)
        elif tokens is not None and sum(w.prompt for w in replica.waiting) + s.prompt > tokens:
            self.refuse(s, Reason.QUEUE_TOKENS, now_s)
        else:
            replica.waiting.append(s)
            replica.outstanding += 1
            self.wake_all(replica, now_s)

    def refuse(self, s: Sequence, reason: int, now_s: float) -> None:
        s.refusals += 1
        if reason in (Reason.QUEUE_FULL, Reason.QUEUE_TOKENS) and self.may_retry(s):
            self.send_again(s, now_s, now_s)
            return
        s.outcome, s.reason = REJECTED, reason
        self.over(s, now_s)

    def route(self, s: Sequence) -> Replica | None:
        """The replica of this arrival among those that are up; ties go to the lowest; None: none is up."""
        fleet = [r for r in self.replicas if r.up]
        if not fleet:
            return None
        first, second = sorted(draw % len(fleet) for draw in self.random[s.row])
        if self.router == "round_robin":
            self.routed += 1
            return fleet[(self.routed - 1) % len(fleet)]
        if self.router == "random":
            return fleet[self.random[s.row][0] % len(fleet)]
        if self.router == "power_of_two":
            return fleet[second if fleet[second].outstanding < fleet[first].outstanding else first]
        if self.router == "least_kv":
            return min(fleet, key=lambda r: self.total_blocks - r.free_blocks)
        if self.router == "prefix_affine" and self.affinity[s.row] >= 0:
            return fleet[self.affinity[s.row] % len(fleet)]
        if self.central:
            return fleet[0]  # the replica is known when a step takes the request
        return min(fleet, key=lambda r: r.outstanding)

    def expire(self, s: Sequence, key_s: float) -> None:
        """A request without a token has waited as long as it will: it leaves the queue now, the batch at the end of the step."""
        if s.outcome != UNFINISHED or s.generated > 0 or key_s != s.deadline_s:
            return
        s.outcome, s.finish_s = TIMED_OUT, key_s - 2 * NANOSECOND
        again = self.may_retry(s)
        if not again:
            self.over(s, s.finish_s)
        if s in self.door:
            self.door.remove(s)
            if again:
                self.send_again(s, s.finish_s, s.finish_s)
            return
        owner = self.replicas[max(s.replica, 0)]
        owner.outstanding -= 1
        if s in owner.waiting:
            owner.waiting.remove(s)
            owner.swapped -= s.held(s.swapped, self.config.block_size)
            s.swapped = 0
            self.wake_all(owner, key_s)
            if again:
                self.send_again(s, s.finish_s, s.finish_s)
        else:
            s.leaving = again

    def outage(self, now_s: float, order: int, index: int, kind: int) -> None:
        """A replica goes down and loses what it had, stops taking new requests, or comes up."""
        replica = self.replicas[index]
        if kind == COMES_UP:
            replica.up = replica.open = True
            if replica.cache is not None:
                replica.cache.forget()
            door, self.door = self.door, []
            for s in door:
                self.arrive(s, now_s)
            self.wake(replica, now_s)
            return
        replica.up = False
        replica.open = not self.central
        if kind == DRAINS:
            return
        for s in self.lose(replica, now_s):
            s.computed = s.generated = s.blocks = 0
            s.emitting = False
            s.whole, s.swapped = [], 0
            s.first_token_s = s.first_visible_s = math.nan
            s.restarts += 1
            self.expect_expiry(s, max(s.arrival_s + s.timeout_s, now_s))
            self.arrive(s, now_s)

    def lose(self, replica: Replica, now_s: float) -> list[Sequence]:
        """Everything leaves a replica; returns those that were not over: running ones, then waiting ones."""
        lost = [s for s in replica.running if s.outcome == UNFINISHED]
        self.left([s for s in replica.running if s.outcome == TIMED_OUT], now_s)
        if not self.central:
            lost += replica.waiting
            replica.waiting.clear()
        self.break_off(replica, now_s)
        replica.running, replica.scheduled = [], []
        replica.outstanding, replica.free_blocks = 0, self.total_blocks
        replica.adapters, replica.idle, replica.swapped = {}, {}, 0
        replica.step_end_s = replica.begin_at_s = math.inf
        replica.free_at_s = now_s
        replica.incarnation += 1
        if self.config.prefix_cache is not None:
            replica.cache = Cache(self.config.prefix_cache)
            for s in self.sequences:
                s.seated = -1 if s.seated == replica.index else s.seated
        return lost

    def wake_all(self, replica: Replica, now_s: float) -> None:
        """Let whoever takes from this replica's queue look at it."""
        for other in self.replicas if self.central else [replica]:
            self.wake(other, now_s)

    def wake(self, replica: Replica, now_s: float) -> None:
        """Let an idle replica begin a step now."""
        if not replica.running and not (replica.waiting and replica.open):
            return
        if replica.step_end_s == math.inf and replica.begin_at_s == math.inf:
            replica.begin_at_s = max(now_s, replica.free_at_s)
            heapq.heappush(self.events, (replica.begin_at_s + NANOSECOND, BEGIN, replica.index))

    # one step

    def begin(self, replica: Replica) -> None:
        """Choose the sequences of the step that starts now, and when it ends."""
        now_s, replica.begin_at_s = replica.begin_at_s, math.inf
        replica.begun_at_s = now_s
        replica.scheduled, replica.extra_s = [], 0.0
        static = self.config.scheduler == "static"
        if not static:
            late = [s for s in replica.running if s.outcome == TIMED_OUT]
            for s in late:
                self.drop(replica, s)
            self.left(late, now_s + 2 * NANOSECOND)
        if isinstance(replica.waiting, Lines):
            replica.waiting.now_s = now_s
        self.choose_drafts(replica, static)
        policy: Callable[[Replica], None] = getattr(self, f"schedule_{self.config.scheduler}")
        policy(replica)
        self.check_blocks(replica)
        if not replica.scheduled:
            return
        for s in replica.scheduled:
            if math.isnan(s.first_scheduled_s):
                s.first_scheduled_s = now_s
        replica.work = work_of(replica.scheduled, self.window)
        step_s = self.cost(*replica.work) + self.draft_s(replica) + replica.extra_s
        replica.steps += 1
        replica.step_end_s = now_s + step_s
        heapq.heappush(self.events, (replica.step_end_s - NANOSECOND, COMMIT, self.ticket(replica)))

    def break_off(self, replica: Replica, now_s: float) -> None:
        """The step under way does not come to its end: its time until now counts, its tokens do not."""
        if replica.step_end_s < math.inf:
            self.count_time(replica, now_s)

    def count_time(self, replica: Replica, now_s: float) -> None:
        """The replica ran the step under way until now."""
        replica.busy_s += now_s - replica.begun_at_s
        held = 0 if self.config.kv_blocks is None else self.total_blocks - replica.free_blocks
        self.spans.append((replica.begun_at_s, now_s, replica.width, held))

    def commit(self, replica: Replica) -> None:
        """End the step: count what was computed, emit tokens, let the finished go, and be ready for the next."""
        now_s, replica.step_end_s = replica.step_end_s, math.inf
        replica.free_at_s = now_s
        self.count_time(replica, now_s)
        static = self.config.scheduler == "static"
        for s in replica.scheduled:
            if s.outcome == FINISHED:
                continue  # static: the slot of a finished member only costs time
            s.computed += s.kept or s.chunk
            if s.outcome == TIMED_OUT:
                if not static:
                    self.drop(replica, s)
                    self.left([s], now_s)
            elif s.kept or s.computed == s.known:
                self.emit(replica, s, s.kept or 1, now_s)
        if static and all(s.outcome != UNFINISHED for s in replica.running):
            for s in replica.running:
                self.release(replica, s)
            self.left(replica.running, now_s)
            replica.running = []
        self.wake(replica, now_s)

    def emit(self, replica: Replica, s: Sequence, tokens: int, now_s: float) -> None:
        """So many more tokens of this sequence, all at once; at its last it finishes."""
        if not s.emitting and s.answers > 1:
            s.computed = s.prompt + s.generated
        s.emitting = True
        for _ in range(tokens):
            if s.generated == 0:
                s.first_token_s = now_s
            else:
                self.gaps += [(int(self.class_index[s.row]), now_s - s.last_token_s)] * s.answers
            s.last_token_s = now_s
            s.generated += 1
            if s.generated == s.hidden + 1:
                s.first_visible_s = now_s
            self.emissions_s += [now_s] * s.answers
        if s.generated == s.output:
            s.outcome, s.finish_s = FINISHED, now_s
            replica.outstanding -= 1
            self.over(s, now_s)
            if self.config.scheduler != "static":
                self.drop(replica, s)
