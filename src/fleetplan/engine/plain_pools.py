"""The plain twin of two pools: every step of every prefill and decode replica, and every crossing of the link, one at a time."""

from __future__ import annotations

import heapq
import math
from collections import deque
from dataclasses import dataclass, field

from fleetplan.engine.config import NANOSECOND, blocks_for
from fleetplan.engine.handoff import Link, Pool
from fleetplan.engine.load import ClosedLoop
from fleetplan.engine.outcome import REJECTED, TIMED_OUT, UNFINISHED, Reason
from fleetplan.engine.plain import ARRIVAL, BEGIN, COMMIT, Plain
from fleetplan.engine.plain_sequence import Replica, Sequence
from fleetplan.traffic.requests import Requests

LANDING = COMMIT + 1
"""Between the ends of steps and the arrivals of the same time."""


@dataclass(eq=False)
class Stage:
    """What a request's handoff needs to remember."""

    answer: int
    """Tokens that it generates in all; to its prefill replica it is a request of one."""
    bypasses: bool = False
    prefill: int = -1
    decode: int = -1
    held: int = 0
    """Blocks that its KV holds in prefill memory."""
    prefilled_s: float = math.nan
    reserved_s: float = math.nan
    sent_s: float = math.nan
    landed_s: float = math.nan


@dataclass(eq=False)
class Berth:
    """What stands before a decode replica: its line, first come first served, and sequences whose KV has come."""

    line: deque[Sequence] = field(default_factory=deque)
    landed: deque[Sequence] = field(default_factory=deque)


class PlainPools:
    """A prefill pool, a decode pool and the link between them, stepped one iteration at a time."""

    def __init__(
        self,
        requests: Requests,
        prefill: Pool,
        decode: Pool,
        link: Link,
        bypass_tokens: int,
        at_landing: bool,
        seed: int,
        until_s: float,
        closed_loop: ClosedLoop | None,
    ) -> None:
        self.link, self.bypass_tokens, self.at_landing = link, bypass_tokens, at_landing
        self.until_s = until_s
        self.prefill = PrefillPool(
            requests,
            prefill.steptime,
            prefill.config,
            prefill.replicas,
            prefill.router,
            seed,
            until_s,
            closed_loop,
        )
        self.decode = DecodePool(
            requests, decode.steptime, decode.config, decode.replicas, decode.router, seed + 1, until_s
        )
        self.prefill.pools = self.decode.pools = self
        self.sequences = self.decode.sequences = self.prefill.sequences
        self.decode.events.clear()
        self.decode.over = self.prefill.over  # type: ignore[method-assign]
        self.decode.gaps = self.prefill.gaps
        self.stage = [Stage(s.output) for s in self.sequences]
        for s in self.sequences:
            s.output = 1
        self.berths = [Berth() for _ in self.decode.replicas]
        self.link_free_s = 0.0
        self.crossing: deque[Sequence] = deque()

    def run(self) -> None:
        """Simulate to the end. Of the same kind at the same time, to the nanosecond, prefill goes before decode and the lowest replica first."""
        pools = (self.prefill, self.decode)
        while True:
            heads = [(*pool.events[0][:2], number) for number, pool in enumerate(pools) if pool.events]
            if self.crossing:
                heads.append((self.stage[self.crossing[0].row].landed_s - NANOSECOND, LANDING, -1))
            if not heads:
                break
            key_s, kind, number = min(heads)
            if key_s > self.until_s:
                for pool in pools:
                    for replica in pool.replicas:
                        pool.break_off(replica, self.until_s)
                break
            if kind == LANDING:
                self.land(self.crossing.popleft(), key_s)
                continue
            if kind in (COMMIT, BEGIN):
                number, event = min(
                    (number, e)
                    for number, pool in enumerate(pools)
                    for e in (
                        (e[2], e[0]) for e in pool.events if e[1] == kind and e[0] <= key_s + NANOSECOND
                    )
                )
                index, when_s = event
                pools[number].events.remove((when_s, kind, index))
                heapq.heapify(pools[number].events)
                if kind == COMMIT:
                    pools[number].commit(pools[number].replicas[index])
                elif pools[number].replicas[index].begin_at_s + NANOSECOND == when_s:
                    pools[number].begin(pools[number].replicas[index])
                continue
            _, _, row = heapq.heappop(pools[number].events)
            if kind == ARRIVAL:
                s = self.sequences[row]
                self.prefill.expect_expiry(s, key_s + s.timeout_s)
                self.arrive(s, key_s)
            else:
                self.expire(self.sequences[row], key_s)

    def arrive(self, s: Sequence, now_s: float) -> None:
        """A short prompt goes to decode, another to prefill; what would never have its blocks at either is refused."""
        stage = self.stage[s.row]
        config = self.decode.config
        if blocks_for(s.prompt + stage.answer - 1, config.block_size) > self.decode.total_blocks:
            s.outcome, s.reason = REJECTED, Reason.NEVER_FITS
            self.prefill.over(s, now_s)
        elif s.prompt <= self.bypass_tokens:
            stage.bypasses = True
            s.output = stage.answer
            self.queue_at_decode(s, now_s)
        else:
            self.prefill.arrive(s, now_s)

    def hand_off(self, s: Sequence, replica: Replica, now_s: float) -> None:
        """Token 1 is out: the KV stays in prefill memory, and a decode replica is chosen."""
        stage = self.stage[s.row]
        stage.prefill, stage.prefilled_s = replica.index, now_s
        stage.held, s.blocks = s.blocks, 0
        s.output = stage.answer
        if self.at_landing:
            s.first_token_s = math.nan
        self.queue_at_decode(s, now_s)

    def queue_at_decode(self, s: Sequence, now_s: float) -> None:
        """It joins the line of the decode replica that the router chooses."""
        replica = self.decode.route(s)
        assert replica is not None
        s.replica = self.stage[s.row].decode = replica.index
        replica.outstanding += 1
        self.berths[replica.index].line.append(s)
        self.advance(replica, now_s)

    def advance(self, replica: Replica, now_s: float) -> None:
        """First come first served: a prompt waits for a step, a handoff for its blocks, which it reserves before it crosses the link."""
        line = self.berths[replica.index].line
        while line:
            s = line[0]
            stage = self.stage[s.row]
            if stage.bypasses:
                replica.waiting.append(line.popleft())
                self.decode.wake(replica, now_s)
                continue
            whole = self.decode.config.scheduler == "continuous"
            need = blocks_for(s.prompt + (s.output - 1 if whole else 0), self.decode.config.block_size)
            if replica.waiting or need > replica.free_blocks:
                return
            line.popleft()
            self.decode.grow(replica, s, need)
            stage.reserved_s = now_s
            stage.sent_s = max(now_s, self.link_free_s)
            self.link_free_s = stage.sent_s + self.link.crossing_s(s.prompt)
            stage.landed_s = self.link_free_s + self.link.latency_s
            self.crossing.append(s)

    def land(self, s: Sequence, key_s: float) -> None:
        """The KV is there: prefill memory is free of it, and the sequence decodes from its replica's next step on."""
        stage = self.stage[s.row]
        now_s = stage.landed_s
        if self.at_landing:
            s.first_token_s = s.last_token_s = now_s
        owner = self.prefill.replicas[stage.prefill]
        owner.free_blocks += stage.held
        stage.held = 0
        self.prefill.wake(owner, now_s)
        self.berths[stage.decode].landed.append(s)
        self.decode.wake(self.decode.replicas[stage.decode], now_s)

    def expire(self, s: Sequence, key_s: float) -> None:
        """A request without a token has waited as long as it will."""
        if s.outcome != UNFINISHED or s.generated > 0:
            return
        if not self.stage[s.row].bypasses:
            self.prefill.expire(s, key_s)
            return
        replica = self.decode.replicas[s.replica]
        line = self.berths[replica.index].line
        if s in line:
            s.outcome, s.finish_s = TIMED_OUT, key_s - 2 * NANOSECOND
            replica.outstanding -= 1
            line.remove(s)
            self.prefill.over(s, s.finish_s)
        else:
            self.decode.expire(s, key_s)
        self.advance(replica, key_s)


class PrefillPool(Plain):
    """Replicas that compute prompts: with token 1 a request leaves its slot, and its KV stays."""

    pools: PlainPools

    def emit(self, replica: Replica, s: Sequence, tokens: int, now_s: float) -> None:
        """Token 1: the answer of one token is over, another is handed off."""
        if self.pools.stage[s.row].answer == 1:
            self.pools.stage[s.row].prefill = replica.index
            super().emit(replica, s, tokens, now_s)
            return
        s.first_token_s = s.last_token_s = now_s
        s.generated = 1
        replica.outstanding -= 1
        replica.running.remove(s)
        self.pools.hand_off(s, replica, now_s)

    def check_blocks(self, replica: Replica) -> None:
        """As any replica's, with the KV that waits here or crosses the link."""
        waits = sum(stage.held for stage in self.pools.stage if stage.prefill == replica.index)
        check(self, replica, waits)


class DecodePool(Plain):
    """Replicas that decode what landed, and compute the prompts that bypassed prefill or were preempted."""

    pools: PlainPools

    def begin(self, replica: Replica) -> None:
        """Sequences whose KV has come take free slots first, before a prompt under way; then the scheduler has its turn."""
        now_s = replica.begin_at_s
        landed = self.pools.berths[replica.index].landed
        most = self.config.max_num_seqs
        if self.config.scheduler == "chunked":
            most = min(most, self.config.max_num_batched_tokens)
        while landed and len(replica.running) < most:
            s = landed.popleft()
            s.computed = s.prompt
            s.emitting = True
            under_way = bool(replica.running) and not replica.running[-1].emitting
            replica.running.insert(len(replica.running) - under_way, s)
        super().begin(replica)
        self.pools.advance(replica, now_s)
        if landed and not replica.scheduled:
            self.wake(replica, now_s)

    def commit(self, replica: Replica) -> None:
        """As any replica's; what it frees may let the line advance."""
        now_s = replica.step_end_s
        super().commit(replica)
        self.pools.advance(replica, now_s)

    def wake(self, replica: Replica, now_s: float) -> None:
        """Let an idle replica begin a step now, for what landed too."""
        if self.pools.berths[replica.index].landed and not replica.running and not replica.waiting:
            if replica.step_end_s == math.inf and replica.begin_at_s == math.inf:
                replica.begin_at_s = max(now_s, replica.free_at_s)
                heapq.heappush(self.events, (replica.begin_at_s + NANOSECOND, BEGIN, replica.index))
            return
        super().wake(replica, now_s)

    def check_blocks(self, replica: Replica) -> None:
        """As any replica's, with what is reserved for KV that crosses the link or has landed."""
        coming = [s for s in self.pools.crossing if s.replica == replica.index]
        check(self, replica, sum(s.blocks for s in (*coming, *self.pools.berths[replica.index].landed)))


def check(pool: Plain, replica: Replica, beside: int) -> None:
    """Free blocks, those of running sequences, and those held beside them are all there are."""
    if pool.config.kv_blocks is not None:
        assert replica.free_blocks + beside + sum(s.blocks for s in replica.running) == pool.config.kv_blocks
