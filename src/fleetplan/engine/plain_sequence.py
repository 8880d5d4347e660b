"""The plain twin's sequences and replicas."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fleetplan.engine.config import blocks_for
from fleetplan.engine.outcome import UNFINISHED, Reason

if TYPE_CHECKING:
    from fleetplan.engine.priority import Lines
from fleetplan.engine.plain_cache import Cache, Key


@dataclass(eq=False)
class Sequence:
    """One request on its way: what is known, what is computed, what it holds."""

    row: int
    prompt: int
    output: int
    arrival_s: float
    timeout_s: float
    gap_s: float
    answers: int = 1
    adapter: int = -1
    swapped: int = 0
    """Tokens whose KV waits on the host."""
    computed: int = 0
    generated: int = 0
    blocks: int = 0
    chunk: int = 0
    decodes: bool = False
    """Whether this step's one token, drafts aside, comes after an emitted one; static: or its slot costs as if."""
    emitting: bool = False
    """It emitted a token when it last ran, so that its next step has one token to compute, and drafts."""
    kept: int = 0
    """Tokens that this step emits for a decoding sequence: one, and the drafts accepted, cut at the output's end."""
    preemptions: int = 0
    restarts: int = 0
    attempts: int = 0
    """Times that it was sent."""
    refusals: int = 0
    """Attempts that were refused."""
    leaving: bool = False
    """It timed out in a batch, and is sent again once it has left it."""
    deadline_s: float = math.inf
    """Key of the event at which this attempt gives up."""
    first_arrival_s: float = math.nan
    successor: Sequence | None = None
    replica: int = -1
    first_scheduled_s: float = math.nan
    hidden: int = 0
    level: int = 0
    """Of its priority, 0 the most urgent."""
    first_token_s: float = math.nan
    first_visible_s: float = math.nan
    last_token_s: float = math.nan
    finish_s: float = math.nan
    outcome: int = UNFINISHED
    reason: int = Reason.NONE
    common: list[Key] = field(default_factory=list)
    """Contents of its first blocks, where others may have them too."""
    previous: Sequence | None = None
    """The session's turn before, of which `history` prompt tokens are."""
    history: int = 0
    keys: list[Key] = field(default_factory=list)
    """Contents of the blocks that it found cached when it was last admitted, and of its common ones; beyond, they are its own."""
    own_from: int = 0
    """Leading blocks of it that are common ones of somebody."""
    whole: list[Key] = field(default_factory=list)
    """Contents of the whole blocks that it holds."""
    seated: int = -1
    """Replica that it was last admitted at, whose cache may still have it."""
    hit_tokens: int = 0
    """Prompt tokens that it found cached when it was first admitted."""

    @property
    def known(self) -> int:
        """Tokens whose KV the next token needs: the prompt, and what each answer has."""
        return self.prompt + self.generated * self.answers

    def held(self, computed: int, size: int) -> int:
        """Blocks that it holds with so many tokens computed; the prompt's whole blocks are held once, the rest by each answer."""
        if self.answers == 1:
            return blocks_for(computed, size)
        if not self.emitting:
            if computed < self.prompt or (computed == self.prompt and self.generated):
                return blocks_for(computed, size)
            computed = self.prompt + self.generated
        shared = self.prompt // size
        return shared + self.answers * (blocks_for(computed, size) - shared)

    def life(self, size: int) -> int:
        """Blocks of its whole life."""
        shared, end = self.prompt // size, blocks_for(self.prompt + self.output - 1, size)
        return shared + self.answers * (end - shared) if self.answers > 1 else end

    def pieces(self) -> list[tuple[int, int]]:
        """What the step computes of it: tokens cached and new of each sequence, one an answer once they are apart."""
        if self.answers == 1 or (self.generated == 0 and self.outcome == UNFINISHED):
            return [(self.computed, self.chunk)]
        if self.kept or self.outcome != UNFINISHED:
            return [(self.computed, self.chunk)] * self.answers
        found, end = [], self.computed + self.chunk
        if self.computed < self.prompt:
            found.append((self.computed, min(end, self.prompt) - self.computed))
        for answer in range(self.answers):
            first = self.prompt + answer * self.generated
            low, high = max(self.computed, first), min(end, first + self.generated)
            if low < high:
                found.append((self.prompt + low - first, high - low))
        return found

    def key(self, block: int) -> Key:
        """Content of its block of this number."""
        return self.keys[block] if block < len(self.keys) else (self.row, block)

    @property
    def left(self) -> int:
        """Tokens still to compute before the next one is emitted."""
        return self.known - self.computed


@dataclass(eq=False)
class Replica:
    """One engine: its queue, its running sequences in order of admission, its free blocks, the step under way."""

    index: int
    waiting: deque[Sequence] | Lines
    free_blocks: float
    running: list[Sequence] = field(default_factory=list)
    scheduled: list[Sequence] = field(default_factory=list)
    work: tuple[int, ...] = ()
    """What the step under way computes: n, B, D, R, X, R_w, X_w."""
    step_end_s: float = math.inf
    begin_at_s: float = math.inf
    begun_at_s: float = 0.0
    free_at_s: float = 0.0
    outstanding: int = 0
    steps: int = 0
    busy_s: float = 0.0
    up: bool = True
    open: bool = True
    incarnation: int = 0
    cache: Cache | None = None
    extra_s: float = 0.0
    """Time [s] that the step under way waits for blocks and adapters to come, or blocks to go."""
    adapters: dict[int, int] = field(default_factory=dict)
    """Resident adapters that running sequences use, and how many do."""
    idle: dict[int, None] = field(default_factory=dict)
    """Resident adapters that none uses, the one idle for longest first."""
    swapped: int = 0
    """Blocks on the host."""

    @property
    def width(self) -> int:
        """Sequences that run, every answer counted."""
        return sum(s.answers for s in self.running)
