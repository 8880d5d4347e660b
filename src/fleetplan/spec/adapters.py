"""What a user may say of LoRA adapters: which a class of requests uses, how popular each is, and how large they are."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from fleetplan.spec.base import Count, Exponent, Model, Name, NotEmpty, PositiveShare, Text, fault

MOST_RANK = 4096
MOST_DIFFERENT = 100_000


class Adapters(Model):
    """LoRA adapters of a class: so many by popularity, or each by name; the turns of a session use one."""

    count: Annotated[Count, Field(le=MOST_DIFFERENT)] | None = None
    """Different adapters, of this class alone."""
    zipf: Exponent | None = None
    """With `count`: Zipf exponent of their popularity; left out, or 0: all alike."""
    share: PositiveShare | None = None
    """With `count`: share of the requests that use one; left out: all. The others use the model as it is."""
    shares: dict[Name, PositiveShare] | None = None
    """Instead: share of the class's requests by adapter, at most 1 in all. One that two classes name is the same."""
    rank: Annotated[Count, Field(le=MOST_RANK)]
    """Largest rank among them: the engine holds every resident one at the largest rank and all matrices of any class."""
    targets: Annotated[tuple[Text, ...], *NotEmpty] | None = None
    """Matrices that they change, as `fleetplan model` names them, like [q, v]; left out: all of attention and dense feed-forward layers,
    for which engines keep room unless told otherwise."""

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.count is None) == (self.shares is None):
            got = "neither" if self.count is None else "both"
            raise fault(
                f"takes count or shares (got {got}), give one, like {{count: 200, zipf: 1.1, rank: 16}}"
            )
        if self.shares is not None:
            if not self.shares:
                raise fault("has no adapter in shares (got an empty mapping), name at least one", "shares")
            if self.zipf is not None or self.share is not None:
                other = "zipf" if self.zipf is not None else "share"
                raise fault(
                    f"has shares and {other} (got both), but shares say all of it; drop {other}", other
                )
            if (total := sum(self.shares.values())) > 1 + 1e-9:
                raise fault(
                    f"has shares that sum to {total:g} (got {', '.join(self.shares)}), at most 1 in all",
                    "shares",
                )
        return self

    def popularity(self) -> tuple[float, ...]:
        """Share of the class's requests that use each adapter; what is left of 1 uses the model as it is."""
        if self.shares is not None:
            return tuple(self.shares.values())
        assert self.count is not None
        weights = [float(k) ** -(self.zipf or 0.0) for k in range(1, self.count + 1)]
        total = sum(weights)
        whole = 1.0 if self.share is None else self.share
        return tuple(whole * weight / total for weight in weights)
