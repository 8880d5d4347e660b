"""What a fleet costs: GPUs with spares, rounded up to what can be bought, by the hour, month, year and token."""

from __future__ import annotations

from dataclasses import dataclass

HOURS_PER_YEAR = 8766.0
"""365.25 days."""
HOURS_PER_MONTH = HOURS_PER_YEAR / 12


@dataclass(frozen=True)
class Fleet:
    """How many GPUs are bought, and what they cost."""

    replicas: int
    spare_replicas: int
    gpus_per_replica: int
    gpus: int
    """(replicas + spares) · GPUs per replica, rounded up to `buy_unit`."""
    usd_per_gpu_hour: float

    @property
    def usd_per_hour(self) -> float:
        """USD/h of every GPU that is bought."""
        return self.gpus * self.usd_per_gpu_hour

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

        >>> round(Fleet(1, 0, 1, 1, 3.6).usd_per_million(1000.0), 6)
        1.0
        """
        return self.usd_per_hour / (3600 * tokens_per_s) * 1e6
