"""What a user may say of a prefix cache: on or off, and the tiers below HBM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import model_validator

from fleetplan.spec.base import Bytes, BytesPerSecond, Model, fault, forms
from fleetplan.spec.units import shown


class PrefixCaching(Model):
    """Common beginnings of prompts stay in the KV cache and are shared; what HBM has no room for moves to these tiers of one engine."""

    host_bytes: Bytes | None = None
    """Memory of the host that keeps evicted blocks; left out: they are lost."""
    host_link_bytes_per_s: BytesPerSecond | None = None
    """Bandwidth from the host to the engine's GPUs together."""
    disk_bytes: Bytes | None = None
    """Disk that keeps what the host evicts."""
    disk_link_bytes_per_s: BytesPerSecond | None = None
    """Bandwidth from the disk."""
    router: Literal["least_outstanding", "prefix_affine"] = "least_outstanding"
    """How requests find their engine: the least busy one, or the one of their session, else of their prefix."""

    @model_validator(mode="after")
    def _tiers(self) -> Self:
        for tier in ("host", "disk"):
            if (getattr(self, f"{tier}_bytes") is None) != (
                getattr(self, f"{tier}_link_bytes_per_s") is None
            ):
                raise fault(
                    f"needs {tier} and {tier}_link together (got one), like {tier}: 200 GB, {tier}_link: 25 GB/s"
                )
        if self.disk_bytes is not None and self.host_bytes is None:
            raise fault(
                "has a disk and no host (got disk), blocks reach the disk through the host; give host too",
                "disk",
            )
        return self


def _form(value: Any) -> str:
    if isinstance(value, (dict, PrefixCaching)):
        return "tiers"
    if not isinstance(value, bool):
        raise fault(
            f"must be true, false or a mapping (got {shown(value)}), like {{host: 200 GB, host_link: 25 GB/s}}"
        )
    return "switch"


if TYPE_CHECKING:
    PrefixCachingChoice = bool | PrefixCaching
else:
    PrefixCachingChoice = forms(_form, switch=bool, tiers=PrefixCaching)
