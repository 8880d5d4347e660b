"""What a fleet costs: GPUs with spares, rounded up to what can be bought, by the hour, month, year and token."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HOURS_PER_YEAR = 8766.0
"""365.25 days."""
HOURS_PER_MONTH = HOURS_PER_YEAR / 12

Prices = Mapping[str, float]
"""USD/h of one GPU, by catalogue name."""


@dataclass(frozen=True)
class Lot:
    """GPUs of one kind."""

    gpu: str
    """Catalogue name."""
    gpus: int
    usd_per_gpu_hour: float

    @property
    def usd_per_hour(self) -> float:
        """USD/h of all of them."""
        return self.gpus * self.usd_per_gpu_hour


@dataclass(frozen=True)
class Fleet:
    """How many GPUs are bought, and what they cost."""

    replicas: int
    spares: tuple[int, ...]
    """Spare replicas of each pool."""
    lots: tuple[Lot, ...]
    """Serving replicas and spares, rounded up to what is bought at a time; each kind of GPU once."""

    @property
    def spare_replicas(self) -> int:
        """Spare replicas of all pools."""
        return sum(self.spares)

    @property
    def gpus(self) -> int:
        """GPUs of every kind."""
        return sum(lot.gpus for lot in self.lots)

    @property
    def prices(self) -> dict[str, float]:
        """USD/h of one GPU, by kind."""
        return {lot.gpu: lot.usd_per_gpu_hour for lot in self.lots}

    @property
    def usd_per_gpu_hour(self) -> float:
        """Of the mean GPU."""
        return self.lots[0].usd_per_gpu_hour if len(self.lots) == 1 else self.usd_per_hour / self.gpus

    @property
    def usd_per_hour(self) -> float:
        """USD/h of every GPU that is bought."""
        return sum(lot.usd_per_hour for lot in self.lots)

    @property
    def usd_per_month(self) -> float:
        """USD in a twelfth of a year."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def usd_per_year(self) -> float:
        """USD in 365.25 days."""
        return self.usd_per_hour * HOURS_PER_YEAR

    def usd_per_million(self, tokens_per_s: float) -> float:
        """USD per 10^6 tokens at this rate: USD/h / (3600 · tokens/s) · 10^6.

        >>> round(Fleet(1, (0,), (Lot("h100-sxm", 1, 3.6),)).usd_per_million(1000.0), 6)
        1.0
        """
        return self.usd_per_hour / (3600 * tokens_per_s) * 1e6
