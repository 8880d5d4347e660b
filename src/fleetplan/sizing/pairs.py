"""The cheapest pair of prefill and decode replicas that passes, searched with as few simulations as its proof takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from fleetplan.sizing import buying
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.cost import Prices
from fleetplan.sizing.counting import ceil_ratio
from fleetplan.sizing.search import Found, Pools
from fleetplan.sizing.verdict import Verdict
from fleetplan.spec.policy import Policy

Pair = tuple[int, int]
"""(prefill, decode) replicas."""
BOTH_FROM = 7
"""Steps of the climb from which on both pools grow, whatever fails."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """The fleets of one candidate whose two counts are searched."""

    built: Apart
    """With the rates of its pools."""
    policy: Policy
    usd: Prices
    start: Pair
    """The least of each pool by its bounds."""

    @classmethod
    def of(
        cls, built: Apart, policy: Policy, usd: Prices, bound: Pair, rate_per_s: float, most_per_s: float
    ) -> Pairs:
        """`bound` is the least pair by least work; `rate_per_s` must be sustained within the cap, `most_per_s` at all."""
        assert built.rates is not None
        start = [
            max(
                least,
                ceil_ratio(rate_per_s / each, policy.max_utilisation),
                ceil_ratio(most_per_s / each, 1.0),
            )
            for least, each in zip(bound, (built.rates.prefill, built.rates.decode), strict=True)
        ]
        return cls(built, policy, usd, (start[0], start[1]))

    def machine(self, pair: Pair) -> Apart:
        """The machine whose fleets are on the way through the pair."""
        return self.built.paired(*pair)

    def cost(self, pair: Pair) -> float:
        """USD/h of the fleet, spares and rounding included."""
        candidate = self.built.candidate.paired(*pair)
        return buying.fleet_of(self.policy, candidate, sum(pair), self.usd).usd_per_hour

    def allowed(self, pair: Pair) -> bool:
        """Whether max_replicas, of both pools together, and the stock allow it."""
        candidate = self.built.candidate.paired(*pair)
        if sum(pair) > self.policy.max_replicas:
            return False
        stock = buying.stock_of(self.policy, candidate)
        return not stock or buying.within(stock)(buying.gpus_of(self.policy, candidate, sum(pair)))

    @property
    def most_replicas(self) -> int:
        """Of both pools of any allowed pair."""
        if not buying.stock_of(self.policy, self.built.candidate):
            return self.policy.max_replicas
        p, d = self.start
        found = 0
        while (deepest := _most(lambda n, p=p: self.allowed((p, n)), d)) is not None:  # type: ignore[misc]
            found, p = max(found, p + deepest), p + 1
        return found

    def least_above(self, usd_per_hour: float) -> Pair | None:
        """The cheapest allowed pair that costs more than this: a bound where all that do not have failed."""
        found = [(self.cost(pair), pair) for pair in self._above(usd_per_hour) if self.allowed(pair)]
        return min(found)[1] if found else None

    def _above(self, usd_per_hour: float) -> Iterator[Pair]:
        p, d = self.start
        while True:
            below = _most(lambda n, p=p: self.cost((p, n)) <= usd_per_hour * (1 + 1e-9), d)  # type: ignore[misc]
            yield p, d if below is None else below + 1
            if below is None:
                return
            p += 1

    def search(
        self,
        verdict: Callable[[Pair], Verdict],
        ceiling: float | None = None,
        seen: dict[Pools, Verdict] | None = None,
    ) -> Found:
        """The cheapest pair that passes, up to this cost [USD/h]."""

        def allowed(pair: Pair) -> bool:
            return self.allowed(pair) and (ceiling is None or self.cost(pair) <= ceiling * (1 + 1e-9))

        found = cheapest_pair(verdict, self.cost, allowed, self.start, seen)
        if found.pair is None:
            return Found(None, {}, found.verdicts)
        count = sum(found.pair)
        return Found(count, {count: found.verdicts[found.pair]}, found.verdicts)


@dataclass(frozen=True)
class FoundPair:
    """What the search saw."""

    pair: Pair | None
    """None: no allowed pair passes."""
    verdicts: dict[Pools, Verdict] = field(default_factory=dict)
    """Every pair that was simulated."""


def cheapest_pair(
    verdict: Callable[[Pair], Verdict],
    cost: Callable[[Pair], float],
    allowed: Callable[[Pair], bool],
    start: Pair,
    seen: dict[Pools, Verdict] | None = None,
) -> FoundPair:
    """The pair of least cost that passes, of those with at least `start` of each pool that are allowed.

    More replicas of either pool never hurt, never cost less, and are never allowed where fewer are not: all three are taken as monotone.
    The search climbs to a pair that passes and shrinks it to one of which neither pool can lose a replica. What may be cheaper still is
    then ruled out by columns: where (p, the most decode replicas that any of the columns a..p could have and still be cheaper) fails, all of
    them do; where it passes, the columns are halved. Both neighbours of what comes back were simulated and failed. `seen` are verdicts
    that are known.

    >>> from types import SimpleNamespace as S
    >>> passes = lambda pair: pair[0] >= 3 and pair[1] >= 2 and pair[0] + 2 * pair[1] >= 9
    >>> found = cheapest_pair(lambda p: S(passes=passes(p), outcomes=()), lambda p: 2 * p[0] + p[1], lambda p: sum(p) < 99, (1, 1))
    >>> found.pair, found.verdicts[2, 3].passes, found.verdicts[3, 2].passes
    ((3, 3), False, False)
    """
    search = _Search(verdict, cost, allowed, start, {} if seen is None else dict(seen))
    best = search.climbed()
    while True:
        if best is not None:
            best = search.shrunk(best)
        cheaper = search.cheaper(best)
        if cheaper is None:
            cheaper = search.neighbour(best)
        if cheaper is None:
            return FoundPair(best, search.seen)
        best = cheaper


@dataclass(eq=False)
class _Search:
    verdict: Callable[[Pair], Verdict]
    cost: Callable[[Pair], float]
    allowed: Callable[[Pair], bool]
    start: Pair
    seen: dict[Pools, Verdict]

    def passes(self, pair: Pair) -> bool:
        """By its own verdict, or by one of a pair with no more, or no fewer, of both."""
        if pair not in self.seen:
            for (p, d), known in self.seen.items():
                if known.passes and p <= pair[0] and d <= pair[1]:
                    return True
                if not known.passes and p >= pair[0] and d >= pair[1]:
                    return False
        return self.simulated(pair)

    def simulated(self, pair: Pair) -> bool:
        if pair not in self.seen:
            self.seen[pair] = self.verdict(pair)
        return self.seen[pair].passes

    def climbed(self) -> Pair | None:
        """Some pair that passes; None: the climb left what is allowed."""
        (p, d), stride = self.start, 1
        for step in range(1, 64):
            if not self.allowed((p, d)):
                return None
            if self.simulated((p, d)):
                return p, d
            grow_p, grow_d = _wanted(self.seen[p, d]) if step < BOTH_FROM else (True, True)
            p, d = p + stride * grow_p, d + stride * grow_d
            stride *= 2
        return None

    def shrunk(self, pair: Pair) -> Pair:
        """The same with fewer of each pool, until neither can lose one: the fewest of one, then of the other."""
        p, d = pair
        p = _least(lambda n: self.passes((n, d)), self.start[0], p)
        d = _least(lambda n: self.passes((p, n)), self.start[1], d)
        return p, d

    def cheaper(self, best: Pair | None) -> Pair | None:
        """A pair that passes and costs less than `best` (None: is allowed at all); None: there is none."""
        most = None if best is None else self.cost(best) * (1 - 1e-12)

        def within(pair: Pair) -> bool:
            return self.allowed(pair) and (most is None or self.cost(pair) < most)

        first, fewest = self.start
        last = _most(lambda p: within((p, fewest)), first)
        return self._in_columns(first, last, within) if last is not None else None

    def _in_columns(self, first: int, last: int, within: Callable[[Pair], bool]) -> Pair | None:
        deepest = _most(lambda d: within((first, d)), self.start[1])
        if deepest is None or not self.passes((last, deepest)):
            return None
        if first == last:
            return first, deepest
        middle = (first + last) // 2
        return self._in_columns(first, middle, within) or self._in_columns(middle + 1, last, within)

    def neighbour(self, best: Pair | None) -> Pair | None:
        """One replica of either pool fewer, by its own simulation; None: both fail, or there is no such pair."""
        if best is None:
            return None
        p, d = best
        fewer = [pair for pair in ((p - 1, d), (p, d - 1)) if min(pair) >= 1]
        return next((pair for pair in fewer if self.simulated(pair)), None)


def _wanted(verdict: Verdict) -> tuple[bool, bool]:
    """Which pools' promises fail, by what each has to do with: the first token with prefill, the pace with decode."""
    metrics = {outcome.limit.metric for outcome in verdict.outcomes if not outcome.holds}
    if metrics and metrics <= {"ttft"}:
        return True, False
    if metrics and metrics <= {"tpot", "itl"}:
        return False, True
    return True, True


def _least(passes: Callable[[int], bool], low: int, high: int) -> int:
    """Least n in [low, high] that passes, where `high` does."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if passes(middle) else (middle + 1, high)
    return high


def _most(holds: Callable[[int], bool], first: int) -> int | None:
    """Most n from `first` on that holds; None: not even the first."""
    if not holds(first):
        return None
    low, high = first, first + 1
    while holds(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


__all__ = ["FoundPair", "Pair", "Pairs", "cheapest_pair"]
