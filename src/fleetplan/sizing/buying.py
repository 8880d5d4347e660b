"""What is bought for a number of replicas: nodes packed and rounded up, spares, stock limits, and the price of a GPU."""

from __future__ import annotations

import functools
from dataclasses import dataclass

from fleetplan import catalog
from fleetplan.physics.nodes import link_domain_gpus
from fleetplan.prices import PriceList
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.cost import Fleet
from fleetplan.sizing.counting import replica_availability, round_up, spares_for_availability
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


@dataclass(frozen=True)
class Packings:
    """How the prefill and the decode replicas of a ratio lie in what is bought: each pool in units of its own."""

    parts: tuple[tuple[Packing, int], ...]
    """(packing of one replica, how many of them)."""
    unit_gpus: int
    gpus_per_replica: int
    replicas_per_unit: int = 0

    def gpus(self, replicas: int) -> int:
        """GPUs to buy for so many times the ratio."""
        return sum(packed.gpus(replicas * count) for packed, count in self.parts)

    @property
    def units_per_replica(self) -> int:
        """Units that one ratio touches where units are bought."""
        return sum(count * packed.units_per_replica for packed, count in self.parts)

    @property
    def block_gpus(self) -> int:
        """GPUs that lie together."""
        return max(packed.block_gpus for packed, _ in self.parts)


def packing(policy: Policy, candidate: Candidate) -> Packing | Packings:
    """A replica lies within one unit where it fits; a larger one fills whole units, its tensor-parallel groups unbroken.

    Two pools are packed each by itself.
    """
    if candidate.split is not None:
        return Packings(
            tuple((_packing(policy, part), count) for part, count in candidate.parts),
            unit_gpus(policy, candidate.gpu),
            candidate.gpus_per_replica,
        )
    return _packing(policy, candidate)


def _packing(policy: Policy, candidate: Candidate) -> Packing:
    unit, size = unit_gpus(policy, candidate.gpu), candidate.gpus_per_replica
    if unit == 1:
        return Packing(size, 1, 0, size)
    if size <= unit:
        return Packing(size, unit, unit // size, 1)
    groups = max(unit // candidate.tensor_parallel, 1)
    split = -(-candidate.tensor_parallel // unit)
    return Packing(size, unit, 0, -(-candidate.pipeline_parallel * candidate.data_parallel // groups) * split)


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


def usd_per_gpu_of(policy: Policy, candidate: Candidate, sheet: PriceList) -> float | None:
    """Price of one GPU of the candidate [USD/h]; of pools on two kinds, their mean by the GPUs of the ratio."""
    total = 0.0
    for part, count in candidate.parts:
        usd = usd_per_gpu_hour(policy, part.gpu, sheet)
        if usd is None:
            return None
        if not candidate.mixed:
            return usd
        total += usd * count * part.gpus_per_replica
    return total / candidate.gpus_per_replica


def refused(policy: Policy, candidate: Candidate) -> str | None:
    """Why the candidate cannot be built of what is bought, or its fleet not be planned as the policy asks; None: it can."""
    if candidate.split is not None:
        own = _unplanned(policy, candidate)
        parts = (_refused(policy, part) for part, _ in candidate.parts)
        return own or next((why for why in parts if why is not None), None)
    return _refused(policy, candidate)


def _unplanned(policy: Policy, candidate: Candidate) -> str | None:
    """What of the policy is not planned for two pools."""
    if policy.outages is not None or policy.autoscaling is not None:
        key = "outages" if policy.outages is not None else "autoscaling"
        return f"policy.{key} is not simulated for prefill and decode pools; drop it, or plan one pool"
    if not candidate.mixed:
        return None
    asked = {
        "stock": bool(policy.stock),
        "buy_unit or instances": any(unit_gpus(policy, part.gpu) != 1 for part, _ in candidate.parts),
        "power": policy.power is not None,
        "ownership": policy.ownership is not None,
        "commitments": policy.commitments is not None,
    }
    for key, given in asked.items():
        if given:
            return (
                f"policy.{key} is not planned for pools on two kinds of GPU; drop it, or run both on one kind"
            )
    return None


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
    return _unstaged(policy) if candidate.pipeline_parallel > 1 else None


def _unstaged(policy: Policy) -> str | None:
    """What of the policy is not planned for pipelines: the engine takes no replica of them away in mid-run."""
    for key in ("outages", "autoscaling"):
        if getattr(policy, key) is not None:
            return f"policy.{key} is not simulated for pipelines; drop it, or plan PP 1"
    return None


def spares(policy: Policy, candidate: Candidate, replicas: int) -> int:
    """Spare replicas: those of the policy, or as many as the availability takes, whichever is more.

    A node fails as a whole and with it all replicas in it, so spares are whole nodes where nodes are bought; with GPUs bought one by
    one each replica is taken to lie in a node of its own. Least s with P(Binomial(n + s, A) ≥ n) ≥ target, A = 1/(1 + failures · repair),
    to the power of the nodes that a replica spans.
    """
    given = policy.availability
    if given is None:
        return policy.spare_replicas
    needed = _spares(
        packing(policy, candidate),
        catalog.gpu(candidate.gpu).gpus_per_node,
        replicas,
        replica_availability(given.failures_per_node_day, given.repair_s / 3600),
        given.target,
    )
    return max(policy.spare_replicas, needed)


@functools.cache
def _spares(
    packed: Packing | Packings, node_gpus: int, replicas: int, availability: float, target: float
) -> int:
    if packed.replicas_per_unit:
        nodes = -(-replicas // packed.replicas_per_unit)
        more = spares_for_availability(nodes, availability, target)
        return max((nodes + more) * packed.replicas_per_unit - replicas, 0) if more else 0
    spanned = packed.units_per_replica if packed.unit_gpus > 1 else -(-packed.gpus_per_replica // node_gpus)
    return spares_for_availability(replicas, availability**spanned, target)


def fleet_of(
    policy: Policy, candidate: Candidate, replicas: int, usd_per_gpu: float, least_spares: int = 0
) -> Fleet:
    """The fleet that holds this many serving replicas: spares, at least so many, and rounding included."""
    extra = max(spares(policy, candidate, replicas), least_spares)
    gpus = packing(policy, candidate).gpus(replicas + extra)
    return Fleet(replicas, extra, candidate.gpus_per_replica, gpus, usd_per_gpu)


def most_replicas(policy: Policy, candidate: Candidate, gpus: float) -> int:
    """Most serving replicas, up to max_replicas, whose fleet takes at most this many GPUs: bisection, since GPUs rise with replicas."""

    def fits(replicas: int) -> bool:
        return fleet_of(policy, candidate, replicas, 1.0).gpus <= gpus

    low, high = 0, 1
    while high <= policy.max_replicas and fits(high):
        low, high = high, 2 * high
    high = min(high, policy.max_replicas + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def stock_gpus(policy: Policy, candidate: Candidate) -> int | None:
    """GPUs of the candidate's kind that replicas can be made of; None: no limit.

    By region only whole units count, or whole replicas where those are larger, since neither straddles regions.
    """
    stock = _stock(policy, candidate)
    if not isinstance(stock, dict):
        return stock
    block = packing(policy, candidate).block_gpus
    return sum(gpus // block * block for gpus in stock.values())


def limit(policy: Policy, candidate: Candidate) -> int:
    """Most serving replicas that policy and stock allow."""
    stock = stock_gpus(policy, candidate)
    return policy.max_replicas if stock is None else most_replicas(policy, candidate, stock)


def beyond(policy: Policy, candidate: Candidate, replicas: int) -> str:
    """Why a fleet with this many serving replicas is not to be had."""
    stock = stock_gpus(policy, candidate)
    if stock is None or replicas > policy.max_replicas:
        return f"needs more than max_replicas {policy.max_replicas}"
    needs = fleet_of(policy, candidate, replicas, 1.0).gpus
    by_region = isinstance(_stock(policy, candidate), dict)
    usable = f"{stock} in whole units by region" if by_region else str(stock)
    return (
        f"needs at least {needs} GPUs and the stock of {candidate.gpu} is {usable}: short by {needs - stock}"
    )


def _stock(policy: Policy, candidate: Candidate) -> int | dict[str, int] | None:
    """As the policy has it: GPUs, or GPUs by region."""
    found: dict[str, int | dict[str, int]] = {
        catalog.gpu(name).name: each for name, each in (policy.stock or {}).items()
    }
    return found.get(candidate.gpu)
