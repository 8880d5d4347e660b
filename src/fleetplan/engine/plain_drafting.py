"""The plain twin's speculation: how many tokens a sequence keeps of a step, and how long the draft takes."""

from __future__ import annotations

from collections.abc import Callable

from fleetplan.engine.config import EngineConfig
from fleetplan.engine.outcome import UNFINISHED
from fleetplan.engine.plain_cost import scalar_cost
from fleetplan.engine.plain_sequence import Replica, Sequence
from fleetplan.engine.speculate import Speculation, accepted, draw
from fleetplan.physics.steptime import StepTime


class Drafting:
    """Every decoding sequence of a step has `drafts` drafts, or as many as the budget leaves it."""

    speculation: Speculation | None
    draft_cost: Callable[..., float]
    draft_window: int
    draft_seed: int
    drafts: int
    """Of the step that is being made up."""

    def set_drafting(self, config: EngineConfig, steptime: StepTime, seed: int) -> None:
        """Who drafts, what one draft step costs, and the seed of the draws."""
        self.speculation, self.draft_seed = config.speculation, seed
        self.drafts = 0
        if config.speculation is not None:
            step = config.speculation.draft_step or steptime
            self.draft_cost, self.draft_window = scalar_cost(step), step.window_tokens

    def choose_drafts(self, replica: Replica, static: bool) -> None:
        """Whether the step that begins drafts: not where more sequences decode than pays."""
        if self.speculation is not None:
            decoding = len(replica.running) if static else sum(s.emitting for s in replica.running)
            self.drafts = self.speculation.drafts_at(decoding)

    def keeps(self, s: Sequence, drafts: int) -> int:
        """Tokens that a decoding sequence with so many drafts emits: those rejected take no block."""
        if self.speculation is None or drafts == 0:
            return 1
        uniform = draw(self.draft_seed, s.row, s.generated)
        return min(1 + accepted(self.speculation.survival, drafts, uniform), s.output - s.generated)

    def draft_s(self, replica: Replica) -> float:
        """The draft's steps [s]: one token of every sequence that decodes in this step, at its context."""
        if self.speculation is None or self.drafts == 0:
            return 0.0
        decoding = [s for s in replica.scheduled if s.decodes and (s.kept or s.outcome != UNFINISHED)]
        if not decoding:
            return 0.0
        b, r = len(decoding), sum(s.computed + 1 for s in decoding)
        r_w = sum(min(s.computed + 1, self.draft_window) for s in decoding)
        share = 1.0 if self.speculation.draft_cost is None else self.speculation.draft_cost
        return self.speculation.draft_steps * share * self.draft_cost(b, b, b, r, r, r_w, r_w)
