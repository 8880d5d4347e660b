"""What the next change would buy: each lever is one change of the scenario or of the chosen candidate, planned anew."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from fleetplan import catalog, progress
from fleetplan.engine.config import MOST_ADAPTERS
from fleetplan.errors import InputError
from fleetplan.physics.nodes import link_kind
from fleetplan.physics.precision import KV_BYTES, SCHEMES, kv_dtype_bytes, scheme
from fleetplan.sizing import buying
from fleetplan.sizing.apart import build
from fleetplan.sizing.bounds import spoken_s
from fleetplan.sizing.candidates import Candidate, preemption_text, speculation_text, split
from fleetplan.sizing.decide import Decision, Option, Plan, bounded, decide
from fleetplan.sizing.drafting import assumed
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.offered import offered
from fleetplan.sizing.residents import different
from fleetplan.sizing.settle import settle
from fleetplan.sizing.verdict import Limit
from fleetplan.spec.caching import PrefixCaching
from fleetplan.spec.disaggregation import Disaggregation
from fleetplan.spec.preempting import Swap
from fleetplan.spec.scenario import Scenario
from fleetplan.spec.workload import ClassesWorkload

LOOSER = (1.2, 1.5)
"""Factors by which a promise is loosened, one at a time."""
DEARER = 1.5
"""A GPU whose bounds alone make the fleet this many times dearer is no lever."""
SHARES = (0.8, 1.25)
"""Factors on the shares of prompts with a common prefix."""
ASSUMED_LINK = Disaggregation(link="50 GB/s", link_latency="1 ms")
"""Between pools that the scenario does not describe: one network port of 400 Gbit/s."""
ASSUMED_SWAP = Swap(swap="64 GB", link="25 GB/s")
"""Of a host that the scenario does not describe: what PCIe 4.0 x16 gives in practice."""
RIVALS = 1
"""Besides the chosen candidate, so many of the other sized ones are planned again under a changed promise."""


@dataclass(frozen=True)
class Lever:
    """One change and the plan that it leads to."""

    kind: str
    change: str
    decision: Decision | None
    """None: it was not planned; `note` says why."""
    note: str = ""
    dearer: bool = False
    """Not planned because its bounds alone make it much dearer."""

    @property
    def verdict(self) -> str:
        """feasible, infeasible, dearer (by bounds alone) or cannot run."""
        if self.decision is not None:
            return "infeasible" if self.decision.chosen is None else "feasible"
        return "dearer" if self.dearer else "cannot run"


def levers(decision: Decision) -> Iterator[Lever]:
    """Every lever of a feasible decision: precision, KV precision, chunk, TP, GPU (of the price list), speculation, disaggregation,
    prefix shares, promises, caps.

    A lever on how it is run changes the chosen candidate alone; one on promises plans the chosen candidate and the next best again.
    """
    chosen = decision.chosen
    if chosen is None:
        return
    candidate = chosen.machine.candidate
    if chosen.machine.tokens:
        for kind, change, other in (*_run_otherwise(candidate, decision), *_apart(chosen)):
            yield _candidate(decision, kind, change, other)
        yield from _drafts(candidate, decision)
        yield from _shares(chosen, decision)
    pool = [chosen, *(o for o in decision.options if o.status == "dearer")][: RIVALS + 1]
    for limit in decision.plan.traffic.limits:
        for factor in LOOSER:
            change, looser = _looser(limit, factor)
            limits = tuple(looser if each is limit else each for each in decision.plan.traffic.limits)
            traffic = replace(decision.plan.traffic, limits=limits)
            with progress.during(f"lever promise, {change}"):
                made = _replan(replace(decision.plan, traffic=traffic), pool)
            yield Lever("promise", change, made)
    policy = decision.plan.scenario.policy
    if policy.max_utilisation < 0.9:
        yield _policy(
            decision,
            pool,
            "utilisation cap",
            "cap of 90% instead of " + f"{policy.max_utilisation:.0%}",
            max_utilisation=0.9,
        )
    if policy.spare_replicas:
        yield _policy(
            decision, pool, "spares", f"no spare instead of {policy.spare_replicas}", spare_replicas=0
        )


def _run_otherwise(candidate: Candidate, decision: Decision) -> Iterator[tuple[str, str, Candidate]]:
    scenario = decision.plan.scenario
    assert isinstance(scenario, Scenario)
    bits = scheme(candidate.weights).bits
    for name in ("fp8", "int4"):
        if SCHEMES[name].bits < bits:
            yield "weights", f"{name} weights", candidate.everywhere(weights=name)
    if kv_dtype_bytes(candidate.kv_cache) > KV_BYTES["fp8"]:
        yield "KV cache", "fp8 KV cache", candidate.everywhere(kv_cache="fp8")
    for degree in (candidate.tensor_parallel // 2, candidate.tensor_parallel * 2):
        if degree >= 1:
            yield "tensor parallel", f"TP {degree}", candidate.everywhere(tensor_parallel=degree)
    yield from _stages(candidate, scenario)
    if candidate.max_num_batched_tokens is not None:
        for chunk in (candidate.max_num_batched_tokens // 4, candidate.max_num_batched_tokens * 2):
            if chunk >= 1:
                yield (
                    "chunk",
                    f"chunks of {chunk:,} tokens",
                    candidate.everywhere(max_num_batched_tokens=chunk),
                )
    if decision.plan.traffic.repeats and candidate.split is None and candidate.scheduler != "static":
        on = "" if candidate.caching is not None else PrefixCaching().model_dump_json()
        words = "prefix cache" if on else "no prefix cache"
        yield "prefix cache", words, replace(candidate, prefix_caching=on)
    yield from _residents(candidate, decision)
    for choice in scenario.candidates.speculation:
        text = speculation_text(choice)
        if text != candidate.speculation:
            other = replace(candidate, speculation=text)
            drafts = other.drafts
            words = "no speculation" if drafts is None else f"{drafts.draft} × {drafts.tokens}"
            yield "speculation", words, other
    for factor in (0.5, 2.0):
        seqs = int(candidate.max_num_seqs * factor)
        if seqs >= 1:
            yield "batch cap", f"max_num_seqs {seqs}", replace(candidate, max_num_seqs=seqs)
    for gpu in decision.prices.usd_per_gpu_hour:
        if gpu != candidate.gpu:
            yield "GPU", gpu, candidate.everywhere(gpu=gpu)


def _stages(candidate: Candidate, scenario: Scenario) -> Iterator[tuple[str, str, Candidate]]:
    """The same GPUs in twice as many stages of half the width, or the other way round.

    Where the scenario has pipelines, and where a tensor-parallel group has no fast link to itself.
    """
    tensor, stages = candidate.tensor_parallel, candidate.pipeline_parallel
    asked = max(scenario.candidates.pipeline_parallel) > 1 or link_kind(catalog.gpu(candidate.gpu)) == "pcie"
    if candidate.split is not None or not asked:
        return
    layouts = [(tensor // 2, stages * 2)] if tensor % 2 == 0 else []
    layouts += [(tensor * 2, stages // 2)] if stages % 2 == 0 else []
    for t, p in layouts:
        other = replace(candidate, tensor_parallel=t, pipeline_parallel=p)
        yield "pipeline parallel", f"TP {t} × PP {p}", other


def _residents(candidate: Candidate, decision: Decision) -> Iterator[tuple[str, str, Candidate]]:
    """More and fewer adapters resident; and what gives way swapped to the host, where anything does, or computed again."""
    scenario = decision.plan.scenario
    assert isinstance(scenario, Scenario)
    if candidate.max_adapters is not None and (used := different(scenario)):
        counts = (candidate.max_adapters * 2, used, candidate.max_adapters // 2)
        for count in dict.fromkeys(min(n, used, MOST_ADAPTERS) for n in counts):
            if count >= 1 and count != candidate.max_adapters:
                yield "adapters", _resident_words(count), candidate.everywhere(max_adapters=count)
    if candidate.preemption:
        yield "preemption", "computed again, not swapped", candidate.everywhere(preemption="")
    elif (
        candidate.scheduler in ("chunked", "prefill_first")
        and candidate.split is None
        and candidate.caching is None
    ):
        verdict = decision.verdict
        if verdict is not None and verdict.preemptions_per_request > 0:
            swap = next(
                (s.preemption for s in scenario.candidates.scheduler if s.preemption != "recompute"),
                ASSUMED_SWAP,
            )
            words = f"swapped to {swap.swap_bytes / 1e9:g} GB of the host over {swap.link_bytes_per_s / 1e9:g} GB/s"
            yield "preemption", words, candidate.everywhere(preemption=preemption_text(swap))


def _resident_words(count: int) -> str:
    return f"{count} adapter{'s' if count > 1 else ''} resident"


def _drafts(candidate: Candidate, decision: Decision) -> Iterator[Lever]:
    """Speculation as it was measured elsewhere, where the scenario names none."""
    scenario, model = decision.plan.scenario, decision.plan.model
    assert isinstance(scenario, Scenario)
    assert model is not None
    if any(choice != "none" for choice in scenario.candidates.speculation):
        return
    given = assumed(model)
    change = f"{given.draft} × {given.tokens}, acceptance of {given.acceptance_from} assumed"
    yield _candidate(decision, "speculation", change, replace(candidate, speculation=speculation_text(given)))


def _shares(chosen: Option, decision: Decision) -> Iterator[Lever]:
    """More or fewer of the prompts that begin with a common text, where the chosen candidate keeps those."""
    subject = decision.plan
    scenario, model = subject.scenario, subject.model
    assert isinstance(scenario, Scenario)
    assert model is not None
    if chosen.machine.candidate.caching is None or not isinstance(scenario.workload, ClassesWorkload):
        return
    for factor in SHARES:
        told, classes = [], []
        for each in scenario.workload.classes:
            prefix = each.shared_prefix
            if prefix is not None and (share := min(prefix.share * factor, 1.0)) != prefix.share:
                told.append(f"{each.name} {share:.0%} instead of {prefix.share:.0%}")
                each = each.model_copy(update={"shared_prefix": prefix.model_copy(update={"share": share})})
            classes.append(each)
        if not told:
            continue
        workload = scenario.workload.model_copy(update={"classes": tuple(classes)})
        other = scenario.model_copy(update={"workload": workload})
        traffic = offered(other, model.architecture.max_context_tokens)
        built = build(chosen.machine.candidate, other, model, traffic.requests())
        machines = {built.candidate.candidate_id: built}
        made = _planned(replace(subject, scenario=other, traffic=traffic, machines=machines))
        change = "share of prompts with a common prefix: " + ", ".join(told)
        yield Lever("prefix share", change, made, _why(made))


def _apart(chosen: Option) -> Iterator[tuple[str, str, Candidate]]:
    """Prefill in a pool of its own, the counts of both searched; or back in one, or off its listed ratio."""
    candidate = chosen.machine.candidate
    if candidate.split is None:
        change = f"prefill apart over {ASSUMED_LINK.link_bytes_per_s / 1e9:g} GB/s"
        yield "disaggregation", change, split(candidate, ASSUMED_LINK)
        return
    yield "disaggregation", "prefill and decode together", candidate.decode
    if not candidate.searched:
        change = f"the count of each pool on its own instead of {candidate.split.ratio}"
        yield "disaggregation", change, replace(candidate, split=replace(candidate.split, searched=True))


def _candidate(decision: Decision, kind: str, change: str, other: Candidate) -> Lever:
    subject = decision.plan
    assert isinstance(subject.scenario, Scenario)
    assert subject.model is not None
    try:
        built = build(other, subject.scenario, subject.model, subject.traffic.requests())
    except InputError as error:
        return Lever(kind, change, None, "; ".join(error.lines))
    if built.reason is not None:
        return Lever(kind, change, None, built.reason)
    if kind == "GPU" and (dearer := _too_dear(built, decision)):
        return Lever(kind, change, None, dearer, dearer=True)
    with progress.during(f"lever {kind}, {change}"):
        made = _planned(replace(subject, machines={other.candidate_id: built}))
    return Lever(kind, change, made, _why(made))


def _why(made: Decision) -> str:
    """Why nothing of a plan anew will do."""
    return made.options[0].reason if made.chosen is None else ""


def _too_dear(built: Machine, decision: Decision) -> str | None:
    """Why a GPU is not planned: its least count by bounds is already much dearer than the whole plan of today."""
    assert decision.chosen is not None
    assert decision.chosen.fleet is not None
    policy = decision.plan.scenario.policy
    prices = buying.prices_of(policy, built.candidate, decision.prices)
    known = {gpu: price for gpu, price in prices.items() if price is not None}
    if len(known) < len(prices):
        return "it has no price in the list"
    made, least = bounded(built, decision.plan)
    usd = buying.fleet_of(policy, made.candidate, least, known).usd_per_hour
    today = decision.chosen.fleet.usd_per_hour
    if usd <= DEARER * today:
        return None
    return f"needs at least {least} replicas by its bounds, {usd:.2f} USD/h against {today:.2f} today"


def _looser(limit: Limit, factor: float) -> tuple[str, Limit]:
    bounds = tuple((metric, bound * factor, growth * factor) for metric, bound, growth in limit.bounds)
    told = " and ".join(
        f"{metric.upper()} {spoken_s(bound * factor)} instead of {spoken_s(bound)}"
        for metric, bound, _ in limit.bounds
    )
    return f"{limit.name}: {told}", replace(limit, bounds=bounds)


def _policy(decision: Decision, pool: list[Option], kind: str, change: str, **update: object) -> Lever:
    scenario = decision.plan.scenario
    policy = scenario.policy.model_copy(update=update)
    subject = replace(decision.plan, scenario=scenario.model_copy(update={"policy": policy}))
    with progress.during(f"lever {kind}, {change}"):
        return Lever(kind, change, _replan(subject, pool))


def _replan(subject: Plan, pool: list[Option]) -> Decision:
    """Plan again with the candidates of the pool; their saturated rates do not hang on promises or policy."""
    known: dict[str, float] = {
        o.machine.candidate.candidate_id: o.sustainable_per_s for o in pool if o.sustainable_per_s is not None
    }
    machines = {o.machine.candidate.candidate_id: o.machine for o in pool}
    rate: Callable[..., float] = lambda built: known[built.candidate.candidate_id]  # noqa: E731
    return _planned(dataclasses.replace(subject, machines=machines), rate)


def _planned(subject: Plan, rate: Callable[..., float] | None = None) -> Decision:
    once = functools.partial(settle, subject, replications=1)
    return decide(subject, rate, settle=once, replications=1)


__all__ = ["Lever", "levers"]
