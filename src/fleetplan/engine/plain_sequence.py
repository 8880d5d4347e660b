"""The plain twin's sequences and replicas."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

from fleetplan.engine.outcome import UNFINISHED, Reason
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
    successor: Sequence | None = None
    replica: int = -1
    first_scheduled_s: float = math.nan
    hidden: int = 0
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
        """Tokens whose KV the next token needs: prompt and generated."""
        return self.prompt + self.generated

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
    waiting: deque[Sequence]
    free_blocks: float
    running: list[Sequence] = field(default_factory=list)
    scheduled: list[Sequence] = field(default_factory=list)
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
    """Time [s] that the step under way waits for blocks to come."""
