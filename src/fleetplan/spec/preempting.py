"""What a user may say of preemption: computed again, or swapped to the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from fleetplan.spec.base import Bytes, BytesPerSecond, Model, fault, forms
from fleetplan.spec.units import shown


class Swap(Model):
    """The KV cache of a preempted sequence goes to the host's memory and comes back; where that is full it is computed again."""

    swap_bytes: Bytes
    """Memory of the host that one engine has for it."""
    link_bytes_per_s: BytesPerSecond
    """Bandwidth between the host and the engine's GPUs together, in each direction."""


def _form(value: Any) -> str:
    if isinstance(value, (dict, Swap)):
        return "swap"
    if value != "recompute":
        raise fault(
            f"must be recompute or a mapping (got {shown(value)}), like {{swap: 64 GB, link: 25 GB/s}}"
        )
    return "recompute"


if TYPE_CHECKING:
    Preemption = Literal["recompute"] | Swap
else:
    Preemption = forms(_form, recompute=Literal["recompute"], swap=Swap)
