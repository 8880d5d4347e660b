"""The plain twin's schedulers: whom a step computes, and by how many tokens."""

from __future__ import annotations

from fleetplan.engine.config import EngineConfig, blocks_for
from fleetplan.engine.outcome import FINISHED, TIMED_OUT, UNFINISHED
from fleetplan.engine.plain_drafting import Drafting
from fleetplan.engine.plain_sequence import Replica, Sequence


class Schedulers(Drafting):
    """Each scheduler fills replica.scheduled and sets every member's chunk."""

    config: EngineConfig
    central: bool
    replicas: list[Replica]

    def wake(self, replica: Replica, now_s: float) -> None:
        """Let an idle replica begin a step now."""
        raise NotImplementedError

    def can_admit(self, replica: Replica) -> bool:
        """Whether somebody waits and a slot is free."""
        return bool(replica.waiting) and replica.open and len(replica.running) < self.config.max_num_seqs

    def admit(self, replica: Replica, blocks: int, chunk: int) -> None:
        """The head of the queue runs from this step on."""
        s = replica.waiting.popleft()
        s.replica = replica.index
        replica.running.append(s)
        self.grow(replica, s, blocks)
        self.plan(replica, s, chunk)

    def plan(self, replica: Replica, s: Sequence, chunk: int, kept: int = 0) -> None:
        s.chunk, s.kept = chunk, kept
        s.decodes = s.generated > 0 and (chunk == 1 or kept > 0)
        replica.scheduled.append(s)

    def grow(self, replica: Replica, s: Sequence, blocks: int) -> None:
        replica.free_blocks -= blocks - s.blocks
        s.blocks = blocks

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
            head = replica.waiting[0]
            life = blocks_for(head.prompt + head.output - 1, self.config.block_size)
            if life > replica.free_blocks:
                break
            self.admit(replica, life, head.prompt)

    def schedule_continuous(self, replica: Replica) -> None:
        for s in replica.running:
            self.plan(replica, s, 1 + self.drafts, self.keeps(s, self.drafts))
        while self.can_admit(replica):
            head = replica.waiting[0]
            life = blocks_for(head.prompt + head.output - 1, self.config.block_size)
            if life > replica.free_blocks:
                break
            self.admit(replica, life, head.prompt)

    def schedule_chunked(self, replica: Replica) -> None:
        size = self.config.block_size
        left = self.config.max_num_batched_tokens
        left, preempted = self.schedule_running(replica, left)
        while not preempted and left > 0 and self.can_admit(replica):
            head = replica.waiting[0]
            chunk = min(head.left, left)
            need = blocks_for(chunk, size)
            if need > replica.free_blocks:
                break
            self.admit(replica, need, chunk)
            left -= chunk

    def schedule_prefill_first(self, replica: Replica) -> None:
        left = self.config.max_num_batched_tokens
        while self.can_admit(replica):
            head = replica.waiting[0]
            need = blocks_for(head.left, self.config.block_size)
            if need > replica.free_blocks or (replica.scheduled and head.left > left):
                break
            left -= head.left
            self.admit(replica, need, head.left)
        if not replica.scheduled:
            self.schedule_running(replica, len(replica.running) * (1 + self.drafts))

    def schedule_running(self, replica: Replica, left: int) -> tuple[int, bool]:
        """Running sequences in order of admission, the most recent ones giving way to those that lack a block."""
        preempted = False
        position = 0
        while position < len(replica.running) and left > 0:
            s = replica.running[position]
            chunk = min(1 + self.drafts if s.emitting else s.left, left)
            kept = self.keeps(s, chunk - 1) if s.emitting else 0
            need = blocks_for(s.computed + (kept or chunk), self.config.block_size)
            while need - s.blocks > replica.free_blocks:
                victim = replica.running.pop()
                self.preempt(replica, victim)
                preempted = True
                if victim is s:
                    return left, preempted
            self.grow(replica, s, need)
            self.plan(replica, s, chunk, kept)
            left -= chunk
            position += 1
        return left, preempted

    def preempt(self, replica: Replica, victim: Sequence) -> None:
        """Its blocks are freed, all of it is computed again, and it waits in front."""
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
        replica.free_blocks += s.blocks
        s.blocks = 0
