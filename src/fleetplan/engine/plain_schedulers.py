"""The plain twin's schedulers: whom a step computes, and by how many tokens."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fleetplan.engine.config import EngineConfig, widest
from fleetplan.engine.outcome import FINISHED, TIMED_OUT, UNFINISHED
from fleetplan.engine.plain_cache import Key
from fleetplan.engine.plain_drafting import Drafting
from fleetplan.engine.plain_sequence import Replica, Sequence
from fleetplan.engine.priority import Levels


@dataclass(frozen=True)
class Offer:
    """What a waiting request would run with in the step that is being planned."""

    hit: int
    """Tokens that it finds cached."""
    chunk: int
    blocks: int
    """Blocks that it would hold."""
    taken: float
    """Of them, those that nobody holds now; NaN: it waits for a place of its adapter, whatever is free."""
    found: list[Key]
    run: int
    """Leading blocks of `found` that are cached."""
    own_from: int


class Schedulers(Drafting):
    """Each scheduler fills replica.scheduled and sets every member's chunk."""

    config: EngineConfig
    central: bool
    replicas: list[Replica]
    levels: Levels

    def wake(self, replica: Replica, now_s: float) -> None:
        """Let an idle replica begin a step now."""
        raise NotImplementedError

    def can_admit(self, replica: Replica) -> bool:
        """Whether somebody waits and a slot is free."""
        if not replica.waiting or not replica.open:
            return False
        return replica.width + replica.waiting[0].answers <= widest(self.config)

    def offer(self, replica: Replica, left: float, whole_life: bool = False) -> Offer:
        """What the head of the queue would run with: what it finds cached, the tokens that it adds, its blocks."""
        s, size = replica.waiting[0], self.config.block_size
        found, own_from, hit = s.common, 0, 0
        run = 0
        if replica.cache is not None:
            found, run, own_from = self.look(replica, s)
            hit = min(run, (s.known - 1) // size) * size
        hit = s.swapped or hit
        chunk = int(min(s.known - hit, left))
        blocks = max(s.life(size) if whole_life else s.held(hit + chunk, size), run)
        taken = blocks - run + (replica.cache.unheld(found[:run]) if replica.cache is not None else 0)
        resident = len(replica.adapters) + (s.adapter not in replica.adapters)
        waits = s.adapter >= 0 and resident > (self.config.max_adapters or 0)
        return Offer(hit, chunk, blocks, math.nan if waits else taken, found, run, own_from)

    def look(self, replica: Replica, s: Sequence) -> tuple[list[Key], int, int]:
        """The contents that it follows, how many of them are cached, and how many are common: its own, a turn's, or its common ones."""
        assert replica.cache is not None
        size = self.config.block_size
        most = (s.known - 1) // size
        turn: Sequence | None = s
        if s.seated != replica.index:
            turn, most = s.previous, min(s.history // size, most)
            while turn is not None and turn.seated != replica.index:
                most = min(most, turn.history // size)
                turn = turn.previous
        run_of_common = replica.cache.run(s.common)
        if turn is not None:
            keys = [turn.key(b) for b in range(most)]
            run = replica.cache.run(keys)
            if run > turn.own_from and (turn is s or run > run_of_common):
                return keys[:run], run, turn.own_from
        return s.common, run_of_common, len(s.common)

    def admit(self, replica: Replica, offer: Offer) -> None:
        """The head of the queue runs from this step on."""
        s = replica.waiting.popleft()
        s.replica = replica.index
        replica.running.append(s)
        s.computed = offer.hit
        if s.swapped:
            replica.extra_s += s.held(s.swapped, self.config.block_size) * self.config.swap_block_s
            replica.swapped -= s.held(s.swapped, self.config.block_size)
            s.swapped = 0
        if s.adapter >= 0:
            self.pick_up(replica, s.adapter)
        if math.isnan(s.first_scheduled_s):
            s.hit_tokens = offer.hit
        if replica.cache is not None:
            s.seated, s.keys, s.own_from = replica.index, offer.found, offer.own_from
            s.whole = offer.found[: offer.run]
            replica.free_blocks -= replica.cache.unheld(s.whole)
            replica.extra_s += sum(replica.cache.hold(key) for key in s.whole)
            s.blocks = offer.run
        self.grow(replica, s, offer.blocks)
        self.plan(replica, s, offer.chunk)

    def pick_up(self, replica: Replica, adapter: int) -> None:
        """A sequence that uses this adapter runs; one that is not resident is loaded in the place of the longest idle one."""
        if adapter not in replica.adapters:
            replica.adapters[adapter] = 0
            if adapter in replica.idle:
                del replica.idle[adapter]
            else:
                replica.extra_s += self.config.adapter_load_s
                if len(replica.adapters) + len(replica.idle) > (self.config.max_adapters or 0):
                    del replica.idle[next(iter(replica.idle))]
        replica.adapters[adapter] += 1

    def put_down(self, replica: Replica, adapter: int) -> None:
        """A sequence that used this adapter is gone."""
        replica.adapters[adapter] -= 1
        if not replica.adapters[adapter]:
            del replica.adapters[adapter]
            replica.idle[adapter] = None

    def plan(self, replica: Replica, s: Sequence, chunk: int, kept: int = 0) -> None:
        s.chunk, s.kept = chunk, kept
        s.decodes = s.generated > 0 and (chunk == 1 or kept > 0)
        replica.scheduled.append(s)
        if replica.cache is not None:
            tokens = s.computed + (kept or chunk)
            if s.answers > 1:
                tokens = min(tokens, s.prompt)
            for block in range(len(s.whole), tokens // self.config.block_size):
                assert not replica.cache.run([s.key(block)]), "a block is held once"
                replica.cache.hold(s.key(block))
                s.whole.append(s.key(block))

    def grow(self, replica: Replica, s: Sequence, blocks: int) -> None:
        replica.free_blocks -= blocks - s.blocks
        s.blocks = blocks
        if replica.cache is not None:
            replica.cache.evict_to(replica.free_blocks)

    def schedule_static(self, replica: Replica) -> None:
        if replica.running:  # every slot decodes, a finished one at its last context
            for s in replica.running:
                if s.outcome == FINISHED:
                    s.computed = s.prompt + s.output - 2
                elif s.outcome == TIMED_OUT:
                    s.computed = s.prompt - 1
                kept = self.keeps(s, self.drafts) if s.outcome == UNFINISHED else 0
                self.plan(replica, s, 1 + self.drafts, kept)
                s.decodes = True
            return
        while self.can_admit(replica):
            offer = self.offer(replica, math.inf, whole_life=True)
            if not offer.taken <= replica.free_blocks:
                break
            self.admit(replica, offer)

    def schedule_continuous(self, replica: Replica) -> None:
        for s in replica.running:
            self.plan(replica, s, 1 + self.drafts, self.keeps(s, self.drafts))
        while self.can_admit(replica):
            offer = self.offer(replica, math.inf, whole_life=True)
            if not offer.taken <= replica.free_blocks:
                break
            self.admit(replica, offer)

    def schedule_chunked(self, replica: Replica) -> None:
        left = self.config.max_num_batched_tokens
        left, preempted = self.schedule_running(replica, left)
        while not preempted and left > 0 and self.can_admit(replica):
            offer = self.offer(replica, left)
            if not offer.taken <= replica.free_blocks:
                break
            self.admit(replica, offer)
            left -= offer.chunk

    def schedule_prefill_first(self, replica: Replica) -> None:
        left = self.config.max_num_batched_tokens
        while self.can_admit(replica):
            offer = self.offer(replica, math.inf)
            if not offer.taken <= replica.free_blocks or (replica.scheduled and offer.chunk > left):
                break
            left -= offer.chunk
            self.admit(replica, offer)
        if not replica.scheduled:
            self.schedule_running(replica, replica.width * (1 + self.drafts))

    def schedule_running(self, replica: Replica, left: int) -> tuple[int, bool]:
        """Running sequences in order of admission, the most recent ones giving way to those that lack a block."""
        preempted = self.levels.count > 1 and self.make_room(replica, left)
        position = 0
        while position < len(replica.running) and left > 0:
            s = replica.running[position]
            chunk, kept, need = self.share(s, left)
            while need - s.blocks > replica.free_blocks:
                victim = replica.running.pop()
                self.preempt(replica, victim)
                preempted = True
                if victim is s:
                    return left, preempted
            self.grow(replica, s, need)
            self.plan(replica, s, chunk, kept)
            left -= chunk * s.answers if s.emitting else chunk
            position += 1
        return left, preempted

    def share(self, s: Sequence, left: int) -> tuple[int, int, int]:
        """Tokens that a running sequence adds of the `left` ones, those that it keeps of a draft, and the blocks that it then holds."""
        chunk = min(1 + self.drafts if s.emitting else s.left, left)
        kept = self.keeps(s, chunk - 1) if s.emitting else 0
        return chunk, kept, max(s.held(s.computed + (kept or chunk), self.config.block_size), s.blocks)

    def make_room(self, replica: Replica, budget: int) -> bool:
        """Preempt the latest of the least urgent until all that the budget reaches have their blocks; whether any was preempted."""
        preempted = False
        while True:
            need, left = 0, budget
            for s in replica.running:
                if left <= 0:
                    break
                chunk, _, blocks = self.share(s, left)
                need += blocks - s.blocks
                left -= chunk
            if need <= replica.free_blocks:
                return preempted
            _, _, victim = max((s.level, at, s) for at, s in enumerate(replica.running))
            replica.running.remove(victim)
            self.preempt(replica, victim)
            preempted = True

    def preempt(self, replica: Replica, victim: Sequence) -> None:
        """Its blocks are freed, it waits in front, and all of it is computed again unless the host takes its KV."""
        held, config = victim.blocks, self.config
        if config.preemption == "swap" and replica.swapped + held <= config.swap_blocks:
            replica.swapped += held
            replica.extra_s += held * config.swap_block_s
            victim.swapped = victim.computed
        self.release(replica, victim)
        victim.computed = 0
        victim.emitting = False
        victim.preemptions += 1
        replica.waiting.appendleft(victim)
        if self.central:
            for other in self.replicas:
                if other is not replica:
                    self.wake(other, replica.begun_at_s)

    def drop(self, replica: Replica, s: Sequence) -> None:
        replica.running.remove(s)
        self.release(replica, s)

    def release(self, replica: Replica, s: Sequence) -> None:
        if s.adapter >= 0:
            self.put_down(replica, s.adapter)
        if replica.cache is None:
            replica.free_blocks += s.blocks
        else:
            replica.free_blocks += s.blocks - len(s.whole) + replica.cache.let_go(s.whole)
        s.blocks, s.whole = 0, []

    def check_blocks(self, replica: Replica) -> None:
        """Free and held-once blocks are all there are, and the evictable ones are free."""
        held = sum(s.blocks for s in replica.running)
        if replica.cache is not None:
            held += len(replica.cache.held) - sum(len(s.whole) for s in replica.running)
            assert sum(replica.cache.held.values()) == sum(len(s.whole) for s in replica.running)
            assert len(replica.cache.tiers[0]) <= replica.free_blocks
            assert all(len(replica.cache.tiers[k + 1]) <= replica.cache.room[k] for k in (0, 1))
        if self.config.kv_blocks is not None:
            assert replica.free_blocks + held == self.config.kv_blocks
            assert replica.free_blocks >= 0
