"""Many models, one fleet: each scenario gets one of its sized plans, at least cost under stock limits and a budget, exactly."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import optimize, sparse

from fleetplan import progress
from fleetplan.sizing.decide import Option, decide, plan
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.settle import settle
from fleetplan.spec.scenario import Asked


@dataclass(frozen=True)
class Choice:
    """One way to serve one scenario."""

    scenario: str
    candidate_id: str
    label: str
    gpu: str
    replicas: int
    gpus: int
    usd_per_hour: float


@dataclass(frozen=True)
class Assignment:
    """One choice a scenario, or why there is none."""

    chosen: tuple[Choice, ...]
    """In the order of the scenarios; empty where infeasible."""
    reason: str | None = None
    """Why it is infeasible: which stock is short by how much, or the budget."""
    short_gpus: Mapping[str, int] | None = None
    """Fewest GPUs, by kind, that would have to be added to the stock."""
    short_usd_per_hour: float | None = None
    """Least that would have to be added to the budget."""

    @property
    def feasible(self) -> bool:
        """Whether every scenario has its plan."""
        return self.reason is None

    @property
    def usd_per_hour(self) -> float | None:
        """Cost of all [USD/h]; None where infeasible."""
        return sum(choice.usd_per_hour for choice in self.chosen) if self.feasible else None

    @property
    def gpus(self) -> dict[str, int]:
        """GPUs taken, by kind."""
        return _taken(self.chosen)


@dataclass(frozen=True, eq=False)
class Sized:
    """The cheapest plan of one scenario on each GPU kind of its grid."""

    scenario: str
    choices: tuple[Choice, ...]
    refused: Mapping[str, str]
    """GPU kind → why no plan of the scenario runs on it."""


def size(scenario: Asked) -> Sized:
    """The scenario's cheapest plan on each of its GPU kinds.

    On one kind every plan of a scenario pays the same for a GPU, so the cheapest takes the fewest GPUs of the stock too: no other plan
    on that kind can be part of a better assignment.
    """
    subject = plan(scenario)
    kinds = dict.fromkeys(built.candidate.gpu for built in subject.machines.values())
    choices, refused = [], {}
    for kind in progress.each(list(kinds), f"{scenario.scenario} on GPU kind"):
        machines = {
            key: built
            for key, built in subject.machines.items()
            if built.candidate.gpu == kind and not built.candidate.mixed
        }
        decision = decide(replace(subject, machines=machines), settle=functools.partial(settle, subject))
        if decision.chosen is None:
            refused[kind] = nearest_change(decision)[0]
            progress.say(refused[kind])
        else:
            choices.append(_choice(scenario.scenario, decision.chosen))
            progress.say(f"{choices[-1].gpus} GPUs, {choices[-1].usd_per_hour:.2f} USD/h")
    return Sized(scenario.scenario, tuple(choices), refused)


def assign(
    options: Mapping[str, Sequence[Choice]],
    stock: Mapping[str, int],
    budget_usd_per_hour: float | None = None,
) -> Assignment:
    """One choice for each scenario at least cost; among the cheapest, the one with the fewest GPUs.

    A 0/1 program, solved to the optimum by HiGHS: min Σ usd·x with Σ x = 1 a scenario, Σ gpus·x ≤ stock a kind, Σ usd·x ≤ budget.

    >>> a, b = Choice("a", "1", "", "h100", 1, 8, 24.0), Choice("a", "2", "", "l40s", 4, 16, 16.0)
    >>> found = assign({"a": [a, b]}, {"l40s": 12})
    >>> found.usd_per_hour, found.gpus
    (24.0, {'h100': 8})
    """
    bare = [name for name, choices in options.items() if not choices]
    if bare:
        return Assignment(
            (), f"no plan of {', '.join(bare)} keeps its promises, whatever the stock and the budget"
        )
    choices = [choice for given in options.values() for choice in given]
    program = _Program(choices, list(options), stock)
    cheapest = program.solve(program.usd)
    if cheapest is None:
        return _short_of_stock(program, choices, budget_usd_per_hour)
    least = float(program.usd @ cheapest)
    if budget_usd_per_hour is not None and least > budget_usd_per_hour * (1 + 1e-9):
        short = least - budget_usd_per_hour
        return Assignment(
            (),
            f"the cheapest assignment {'within the stock ' if stock else ''}costs {least:.2f} USD/h and the budget is "
            f"{budget_usd_per_hour:.2f}: short by {short:.2f} USD/h",
            short_usd_per_hour=short,
        )
    fewest = program.solve(program.gpus, most_usd=least * (1 + 1e-12) + 1e-9)
    assert fewest is not None
    return Assignment(tuple(choice for choice, taken in zip(choices, fewest, strict=True) if taken))


class _Program:
    """The 0/1 program of `assign`; its columns are the choices, in order."""

    def __init__(self, choices: Sequence[Choice], scenarios: Sequence[str], stock: Mapping[str, int]) -> None:
        self.usd = np.array([choice.usd_per_hour for choice in choices])
        self.gpus = np.array([choice.gpus for choice in choices], dtype=np.float64)
        self.stock = stock
        self._one = np.array(
            [[choice.scenario == name for choice in choices] for name in scenarios], dtype=float
        )
        self._kinds = np.array(
            [[choice.gpus * (choice.gpu == kind) for choice in choices] for kind in stock], dtype=float
        ).reshape(len(stock), len(choices))

    def solve(self, goal: np.ndarray, most_usd: float | None = None) -> np.ndarray | None:
        """The choices taken (bool) that minimise the goal; None where there are none."""
        rows = [optimize.LinearConstraint(sparse.csr_array(self._one), 1, 1)]
        if len(self.stock):
            most = np.array(list(self.stock.values()), dtype=float)
            rows.append(optimize.LinearConstraint(sparse.csr_array(self._kinds), -np.inf, most))
        if most_usd is not None:
            rows.append(optimize.LinearConstraint(self.usd[None, :], -np.inf, most_usd))
        return _solved(goal, rows, len(self.usd))

    def fewest_short(self) -> np.ndarray:
        """GPUs missing by kind, in the order of the stock, the fewest in total that suffice."""
        n, kinds = len(self.usd), len(self.stock)
        goal = np.concatenate([np.zeros(n), np.ones(kinds)])
        one = np.hstack([self._one, np.zeros((len(self._one), kinds))])
        more = np.hstack([self._kinds, -np.eye(kinds)])
        most = np.array(list(self.stock.values()), dtype=float)
        rows = [optimize.LinearConstraint(one, 1, 1), optimize.LinearConstraint(more, -np.inf, most)]
        upper = np.concatenate([np.ones(n), np.full(kinds, np.inf)])
        found = optimize.milp(
            goal, constraints=rows, integrality=np.ones(n + kinds, dtype=np.int64), bounds=optimize.Bounds(0, upper), options={"mip_rel_gap": 0}
        )  # fmt: skip
        if not found.success:
            raise RuntimeError(f"the assignment's shortfall was not solved: {found.message}")
        return np.rint(found.x[n:]).astype(np.int64)


def _solved(goal: np.ndarray, rows: list[optimize.LinearConstraint], n: int) -> np.ndarray | None:
    found = optimize.milp(
        goal, constraints=rows, integrality=np.ones(n, dtype=np.int64), bounds=optimize.Bounds(0, 1), options={"mip_rel_gap": 0}
    )  # fmt: skip
    if found.status == 2:
        return None
    if not found.success:
        raise RuntimeError(f"the assignment was not solved to the optimum: {found.message}")
    return found.x > 0.5


def _short_of_stock(
    program: _Program, choices: Sequence[Choice], budget_usd_per_hour: float | None
) -> Assignment:
    missing = {
        kind: int(count) for kind, count in zip(program.stock, program.fewest_short(), strict=True) if count
    }
    words = [f"{count} more {kind} (the stock is {program.stock[kind]})" for kind, count in missing.items()]
    reason = f"the stock is too small: it takes at least {' and '.join(words)}"
    short = None
    if budget_usd_per_hour is not None:
        free = _Program(choices, list(dict.fromkeys(choice.scenario for choice in choices)), {})
        taken = free.solve(free.usd)
        assert taken is not None
        least = float(free.usd @ taken)
        if least > budget_usd_per_hour * (1 + 1e-9):
            short = least - budget_usd_per_hour
            reason += f"; and with any stock the cheapest costs {least:.2f} USD/h, {short:.2f} USD/h over the budget"
    return Assignment((), reason, missing, short)


def _choice(scenario: str, option: Option) -> Choice:
    assert option.fleet is not None
    candidate = option.machine.candidate
    return Choice(
        scenario,
        candidate.candidate_id,
        candidate.label,
        candidate.gpu,
        option.fleet.replicas,
        option.fleet.gpus,
        option.fleet.usd_per_hour,
    )


def _taken(chosen: Sequence[Choice]) -> dict[str, int]:
    taken: dict[str, int] = {}
    for choice in chosen:
        taken[choice.gpu] = taken.get(choice.gpu, 0) + choice.gpus
    return taken


__all__ = ["Assignment", "Choice", "Sized", "assign", "size"]
