"""How firm a decision stands, in words: whether noise is excluded at N and at N − 1, at which level, by how many replications."""

from __future__ import annotations

from dataclasses import dataclass

from fleetplan.sizing.search import Found
from fleetplan.sizing.verdict import Outcome, Verdict


@dataclass(frozen=True)
class Certificate:
    """Both sides of N."""

    decided: bool
    """Whether sampling noise is excluded at N and at N − 1."""
    words: str


def certificate_of(found: Found, level: float) -> Certificate:
    """What the verdicts at the count found and one fewer (of two pools, of either) say, at the level of the whole sequential test."""
    sides = [found.at, *found.fewer]
    words = "; ".join(_side(verdict, level) for verdict in sides)
    if len(sides) == 1:
        words += (
            "; one replica of each pool is the least there is"
            if found.at.pools
            else "; one replica is the least there is"
        )
    return Certificate(all(verdict.decided for verdict in sides), words)


def _side(verdict: Verdict, level: float) -> str:
    one = verdict.replicas == 1 and not verdict.pools
    what = f"{verdict.counted} {'hold' if verdict.passes else 'fail'}{'s' if one else ''}"
    if verdict.exact:
        return f"{what}: the traffic is one recording, there is no noise"
    runs = f"{verdict.replications} replication{'' if verdict.replications == 1 else 's'}"
    if not verdict.within_cap or verdict.shortfalls:
        return f"{what}: {verdict.failures[0]}, whatever the noise"
    nearest = _nearest(verdict)
    if nearest is None:
        return f"{what}, by {runs}"
    if not verdict.decided:
        return (
            f"{what} by {_said(nearest)}, yet noise is not excluded at {level:.0%} after {runs}; "
            "simulation.replications asks for more"
        )
    return f"{what} at {level:.0%}: {_said(nearest)}, {runs}"


def _nearest(verdict: Verdict) -> Outcome | None:
    """The outcome that the verdict hangs on: of a failure the clearest miss, of a pass the narrowest one."""
    missed = [o for o in verdict.outcomes if not o.holds]
    if missed:
        return min(missed, key=lambda o: o.high_share - o.limit.share)
    return min(verdict.outcomes, key=lambda o: o.low_share - o.limit.share, default=None)


def _said(outcome: Outcome) -> str:
    low, high = max(outcome.low_share, 0.0), min(outcome.high_share, 1.0)
    return f"{outcome.limit.name} met by {outcome.met_share:.2%} ({low:.2%} to {high:.2%}) where {outcome.limit.share * 100:.6g}% must"
