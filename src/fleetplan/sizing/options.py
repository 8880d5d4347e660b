"""What a decision is made of: the plan that every stage starts from, what became of each candidate, and the one that was chosen."""

from __future__ import annotations

from dataclasses import dataclass, field

from fleetplan import catalog, prices
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import Offered
from fleetplan.sizing.search import Found
from fleetplan.sizing.verdict import Verdict
from fleetplan.spec.scenario import Asked


@dataclass(frozen=True, eq=False)
class Plan:
    """A scenario with its model, traffic, machines and prices: what every stage starts from."""

    scenario: Asked
    model: catalog.Model | None
    """None: an endpoint that is no LLM."""
    traffic: Offered
    machines: dict[str, Machine]
    """By candidate id, in the order of the grid."""


@dataclass(frozen=True, eq=False)
class Option:
    """What became of one candidate."""

    machine: Machine
    status: str
    """chosen, dearer, pruned, infeasible or cannot run."""
    reason: str
    found: Found | None = None
    fleet: Fleet | None = None
    """Of the count found, or, where pruned, of the lower bound."""
    lower_bound: int | None = None
    sustainable_per_s: float | None = None
    """Of one replica."""
    spares_reason: str | None = None
    """What the spares are for, once the option is settled."""
    remedy: str | None = None
    """What would make it feasible, where settling it found that it is not."""

    @property
    def mean_per_s(self) -> float | None:
        """Requests/s that a replica of the fleet sustains; where both pools' counts are searched, the mean one of this pair."""
        if self.sustainable_per_s is None or self.fleet is None or not self.machine.candidate.searched:
            return self.sustainable_per_s
        count = self.fleet.replicas
        return self.machine.sustains(self.sustainable_per_s, count) / count


@dataclass(frozen=True, eq=False)
class Decision:
    """The chosen option, if any, and all of them in order of cost."""

    plan: Plan
    chosen: Option | None
    options: tuple[Option, ...]
    prices: prices.PriceList
    saturation: dict[str, float] = field(default_factory=dict)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict at the decided count."""
        if self.chosen is None or self.chosen.found is None or self.chosen.found.replicas is None:
            return None
        return self.chosen.found.at
