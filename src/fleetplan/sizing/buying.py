"""What is bought for a number of replicas: nodes packed and rounded up, spares, stock limits, and the price of a GPU."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fleetplan import catalog
from fleetplan.physics.nodes import link_domain_gpus
from fleetplan.prices import PriceList
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.cost import Fleet, Lot, Prices
from fleetplan.sizing.counting import complete, replica_availability, round_up, spares_for_availability
from fleetplan.spec.policy import Policy


@dataclass(frozen=True)
class Packing:
    """How replicas of one candidate lie in what is bought."""

    gpus_per_replica: int
    unit_gpus: int
    """GPUs bought at a time; 1: any number."""
    replicas_per_unit: int
    """Whole replicas that one unit holds; 0: a replica spans several, or GPUs are bought singly."""
    units_per_replica: int
    """Units that one replica spans where it is larger than one."""

    def gpus(self, replicas: int) -> int:
        """GPUs to buy for this many replicas.

        >>> Packing(6, 8, 1, 1).gpus(3), Packing(4, 8, 2, 1).gpus(3), Packing(16, 8, 0, 2).gpus(3), Packing(4, 1, 0, 4).gpus(3)
        (24, 16, 48, 12)
        """
        if self.unit_gpus == 1:
            return replicas * self.gpus_per_replica
        if self.replicas_per_unit:
            return round_up(replicas, self.replicas_per_unit) // self.replicas_per_unit * self.unit_gpus
        return replicas * self.units_per_replica * self.unit_gpus

    @property
    def block_gpus(self) -> int:
        """GPUs that lie together: a unit, or the units of one replica."""
        return self.unit_gpus if self.replicas_per_unit else self.gpus(1)


def packing(policy: Policy, side: Candidate) -> Packing:
    """A replica lies within one unit where it fits; a larger one fills whole units, its tensor-parallel groups unbroken.

    Of two pools each is packed by itself: `side` is one replica of one of them.
    """
    unit, size = unit_gpus(policy, side.gpu), side.gpus_per_engine_group
    if unit == 1:
        return Packing(size, 1, 0, size)
    if size <= unit:
        return Packing(size, unit, unit // size, 1)
    groups = max(unit // side.tensor_parallel, 1)
    split = -(-side.tensor_parallel // unit)
    return Packing(size, unit, 0, -(-side.pipeline_parallel * side.data_parallel // groups) * split)


def unit_gpus(policy: Policy, gpu: str) -> int:
    """GPUs of this kind that are bought at a time."""
    for instance in policy.instances:
        if catalog.gpu(instance.gpu).name == gpu:
            return instance.gpus
    return catalog.gpu(gpu).gpus_per_node if policy.buy_unit == "node" else int(policy.buy_unit)


def node_gpus(policy: Policy, gpu: str) -> int:
    """GPUs of this kind that one fast link joins: the unit that is bought, else the catalogue's node, or rack where that is one domain."""
    unit, kind = unit_gpus(policy, gpu), catalog.gpu(gpu)
    domain = link_domain_gpus(kind)
    return domain if unit == 1 or domain > kind.gpus_per_node else unit


def usd_per_gpu_hour(policy: Policy, gpu: str, sheet: PriceList) -> float | None:
    """Price of one GPU [USD/h]: its share of the instance's, else the price list's median; None where neither has one."""
    for instance in policy.instances:
        if catalog.gpu(instance.gpu).name == gpu and instance.price_usd_per_hour is not None:
            return instance.price_usd_per_hour / instance.gpus
    price = sheet.of(gpu)
    return None if price is None else price.median


def prices_of(policy: Policy, candidate: Candidate, sheet: PriceList) -> dict[str, float | None]:
    """USD/h of a GPU of each kind that the candidate runs on; None where there is no price."""
    return {side.gpu: usd_per_gpu_hour(policy, side.gpu, sheet) for side in candidate.sides}


def refused(policy: Policy, candidate: Candidate) -> str | None:
    """Why the candidate cannot be built of what is bought, or its fleet not be planned as the policy asks; None: it can."""
    if candidate.split is not None:
        for key in ("outages", "autoscaling"):
            if getattr(policy, key) is not None:
                return (
                    f"policy.{key} is not simulated for prefill and decode pools; drop it, or plan one pool"
                )
    return next((why for side in candidate.sides if (why := _refused(policy, side)) is not None), None)


def _refused(policy: Policy, candidate: Candidate) -> str | None:
    """Why one pool's replica cannot be built of what is bought.

    A tensor-parallel group stays within one node: the unit that is bought, else the node of the catalogue; where a rack is one NVLink
    domain, within the rack.
    """
    node = node_gpus(policy, candidate.gpu)
    if candidate.tensor_parallel > node:
        return (
            f"TP {candidate.tensor_parallel} does not fit within one node of {node} GPUs; "
            "larger nodes are stated by policy.buy_unit or policy.instances"
        )
    return None


def spares(policy: Policy, candidate: Candidate, replicas: int) -> tuple[int, ...]:
    """Spare replicas of each pool: those of the policy, or as many as the availability takes, whichever is more.

    A node fails as a whole and with it all replicas in it, so spares are whole nodes where nodes are bought; with GPUs bought one by
    one each replica is taken to lie in a node of its own. Least s with P(Binomial(n + s, A) ≥ n) ≥ target, A = 1/(1 + failures · repair),
    to the power of the nodes that a replica spans. Of two pools, whose nodes are their own, the fewest GPUs with which both are complete
    at the target: P(prefill is) · P(decode is).
    """
    given = policy.availability
    if given is None:
        return (policy.spare_replicas,) * len(candidate.sides)
    available = replica_availability(given.failures_per_node_day, given.repair_s / 3600)
    needed = _needed(
        tuple(
            _Failing.of(packing(policy, side), catalog.gpu(side.gpu).gpus_per_node, available)
            for side in candidate.sides
        ),
        candidate.pools(replicas),
        given.target,
    )
    return tuple(max(policy.spare_replicas, each) for each in needed)


@dataclass(frozen=True)
class _Failing:
    """What of one pool fails as a whole: a node of replicas, or a replica."""

    replicas: int
    """Replicas that go together."""
    gpus: int
    availability: float

    @classmethod
    def of(cls, packed: Packing, node_gpus: int, availability: float) -> _Failing:
        if packed.replicas_per_unit:
            return cls(packed.replicas_per_unit, packed.unit_gpus, availability)
        size = packed.gpus_per_replica
        spanned = packed.units_per_replica if packed.unit_gpus > 1 else -(-size // node_gpus)
        return cls(1, packed.gpus(1), availability**spanned)

    def units(self, replicas: int) -> int:
        return -(-replicas // self.replicas)

    def spare_replicas(self, replicas: int, spare_units: int) -> int:
        """The room that is left in the last unit counts."""
        whole = (self.units(replicas) + spare_units) * self.replicas - replicas
        return max(whole, 0) if spare_units else 0

    def complete(self, replicas: int, spare_units: int) -> float:
        return complete(self.units(replicas), spare_units, self.availability)


@functools.cache
def _needed(pools: tuple[_Failing, ...], counts: tuple[int, ...], target: float) -> tuple[int, ...]:
    """Spare replicas of each pool."""
    least = [
        spares_for_availability(pool.units(n), pool.availability, target)
        for pool, n in zip(pools, counts, strict=True)
    ]
    if len(pools) == 1:
        return (pools[0].spare_replicas(counts[0], least[0]),)
    first, second = pools
    best: tuple[int, int, int] | None = None
    other, before = least[1], least[0]
    while True:  # each spare of the first pool more spares the second some, until it has its own least
        mine = first.complete(counts[0], before)
        other = least[1]
        while mine * second.complete(counts[1], other) < target and (
            best is None or before * first.gpus + other * second.gpus < best[0]
        ):
            other += 1
        if mine * second.complete(counts[1], other) >= target:
            gpus = before * first.gpus + other * second.gpus
            if best is None or gpus < best[0]:
                best = gpus, before, other
        if best is not None and (before + 1) * first.gpus + least[1] * second.gpus >= best[0]:
            break
        before += 1
    return first.spare_replicas(counts[0], best[1]), second.spare_replicas(counts[1], best[2])


def gpus_of(
    policy: Policy, candidate: Candidate, replicas: int, spare: tuple[int, ...] | None = None
) -> dict[str, int]:
    """GPUs to buy, by kind, for this many serving replicas and their spares (None: those of the policy), rounding included."""
    if spare is None:
        spare = spares(policy, candidate, replicas)
    found: dict[str, int] = {}
    for side, count, more in zip(candidate.sides, candidate.pools(replicas), spare, strict=True):
        found[side.gpu] = found.get(side.gpu, 0) + packing(policy, side).gpus(count + more)
    return found


def fleet_of(
    policy: Policy, candidate: Candidate, replicas: int, usd: Prices, least_spares: tuple[int, ...] = ()
) -> Fleet:
    """The fleet that holds this many serving replicas: spares, at least so many of each pool, and rounding included."""
    extra = spares(policy, candidate, replicas)
    if least_spares:
        extra = tuple(max(pair) for pair in zip(extra, least_spares, strict=True))
    gpus = gpus_of(policy, candidate, replicas, extra)
    return Fleet(replicas, extra, tuple(Lot(gpu, count, usd[gpu]) for gpu, count in gpus.items()))


def most_replicas(policy: Policy, candidate: Candidate, fits: Callable[[dict[str, int]], bool]) -> int:
    """Most serving replicas, up to max_replicas, whose GPUs by kind fit: bisection, since GPUs rise with replicas. 0: none do."""

    def holds(replicas: int) -> bool:
        return fits(gpus_of(policy, candidate, replicas))

    low, high = 0, candidate.least_replicas
    while high <= policy.max_replicas and holds(high):
        low, high = high, 2 * high
    high = min(high, policy.max_replicas + 1)
    while high - low > 1 and high > candidate.least_replicas:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def within(stock: Mapping[str, int]) -> Callable[[dict[str, int]], bool]:
    """Whether GPUs by kind are in the stock; of what it does not name there are as many as wanted.

    >>> within({"h100-sxm": 8})({"h100-sxm": 8, "h200-sxm": 99}), within({"h100-sxm": 8})({"h100-sxm": 9})
    (True, False)
    """
    return lambda gpus: all(count <= stock.get(gpu, count) for gpu, count in gpus.items())


def stock_of(policy: Policy, candidate: Candidate) -> dict[str, int]:
    """GPUs of each of the candidate's kinds that replicas can be made of; a kind without a limit is not there.

    By region only whole units count, or whole replicas where those are larger, since neither straddles regions.
    """
    found: dict[str, int] = {}
    for side in candidate.sides:
        stock = _stock(policy, side.gpu)
        if isinstance(stock, dict):
            block = max(packing(policy, each).block_gpus for each in candidate.sides if each.gpu == side.gpu)
            stock = sum(gpus // block * block for gpus in stock.values())
        if stock is not None:
            found[side.gpu] = stock
    return found


def limit(policy: Policy, candidate: Candidate) -> int:
    """Most serving replicas that policy and stock allow."""
    stock = stock_of(policy, candidate)
    return policy.max_replicas if not stock else most_replicas(policy, candidate, within(stock))


def beyond(policy: Policy, candidate: Candidate, replicas: int) -> str:
    """Why a fleet with this many serving replicas is not to be had."""
    short = shortest(policy, candidate, gpus_of(policy, candidate, replicas))
    if short is None or replicas > policy.max_replicas:
        return f"needs more than max_replicas {policy.max_replicas}"
    gpu, needs, stock = short
    by_region = isinstance(_stock(policy, gpu), dict)
    usable = f"{stock} in whole units by region" if by_region else str(stock)
    return f"needs at least {needs} GPUs and the stock of {gpu} is {usable}: short by {needs - stock}"


def shortest(policy: Policy, candidate: Candidate, gpus: Mapping[str, int]) -> tuple[str, int, int] | None:
    """(kind, GPUs needed, GPUs in stock) of the kind of which most is missing, or least is left; None: no stock limits them."""
    stock = stock_of(policy, candidate)
    limited = [(gpu, gpus[gpu], stock[gpu]) for gpu in gpus if gpu in stock]
    return max(limited, key=lambda each: each[1] - each[2], default=None)


def _stock(policy: Policy, gpu: str) -> int | dict[str, int] | None:
    """As the policy has it: GPUs, or GPUs by region."""
    found: dict[str, int | dict[str, int]] = {
        catalog.gpu(name).name: each for name, each in (policy.stock or {}).items()
    }
    return found.get(gpu)
