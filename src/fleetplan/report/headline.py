"""The first screen: how many GPUs, what they cost, each promise with its simulated value, what binds, how near N − 1 came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetplan.report import units
from fleetplan.report.reading import Row, Store

_METRICS = ("ttft", "ttfvt", "tpot", "itl", "e2e")


@dataclass(frozen=True)
class Fact:
    """A figure with its label and a note beneath."""

    label: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Promise:
    """A promise with its simulated value at N: texts, whether it holds, and the value as a share of the promise."""

    name: str
    limit: str
    simulated: str
    holds: bool
    filled: float
    margin: str


@dataclass(frozen=True)
class Headline:
    """All that the first screen says."""

    title: str
    subtitle: str
    feasible: bool
    verdict: str
    gpus: str
    kind: str
    equation: str
    how: tuple[Fact, ...]
    costs: tuple[Fact, ...]
    promises: tuple[Promise, ...]
    cards: tuple[Fact, ...]
    reason: str = ""
    remedy: str = ""


def headline(store: Store, scenario: str) -> Headline:
    """The first screen of a scenario's page."""
    decision = decision_of(store, scenario)
    described = described_of(store, scenario)
    title = title_of(store, scenario)
    subtitle = " · ".join(str(described[key]) for key in ("model", "traffic") if described.get(key))
    if decision["verdict"] != "feasible":
        return _infeasible(store, scenario, decision, title, subtitle)
    candidate = candidate_of(store, scenario, decision["candidate_id"])
    evidence = evidence_of(store, scenario, decision["candidate_id"])
    held = [row for row in evidence if row["replicas"] == decision["replicas"]]
    less = [row for row in evidence if row["replicas"] == decision["replicas"] - 1]
    failing = [row for row in less if not row["holds"]]
    return Headline(
        title=title,
        subtitle=subtitle,
        feasible=True,
        verdict=_verdict(decision, held, failing),
        gpus=units.count(decision["gpus"]),
        kind=gpu_title(decision.get("gpu") or candidate.get("gpu")),
        equation=_equation(decision, candidate),
        how=how_it_runs(candidate),
        costs=_costs(decision),
        promises=tuple(_promise(row) for row in held),
        cards=(
            Fact(
                "The limit that binds",
                decision.get("binding_limit") or "not stated",
                _binding_note(decision, held),
            ),
            _one_less(decision, less, failing),
            _confidence(store, scenario, decision),
        ),
    )


def decision_of(store: Store, scenario: str) -> Row:
    """The decision of a scenario."""
    return store.table("decisions", scenario)[0]


def described_of(store: Store, scenario: str) -> Row:
    """What the scenario says of itself; nothing when the store does not hold it."""
    return (store.table("scenarios", scenario) or [{}])[0]


def title_of(store: Store, scenario: str) -> str:
    """The scenario's title, else its name."""
    return str(described_of(store, scenario).get("title") or scenario)


def candidate_of(store: Store, scenario: str, candidate_id: str | None) -> Row:
    """The candidate of that id; nothing when the table does not hold it."""
    rows = store.table("candidates", scenario)
    return next((row for row in rows if row["candidate_id"] == candidate_id), {})


def evidence_of(store: Store, scenario: str, candidate_id: str | None) -> list[Row]:
    """The simulated verdicts of a candidate, by number of replicas, then promise."""
    rows = [row for row in store.table("evidence", scenario) if row["candidate_id"] == candidate_id]
    return sorted(
        rows,
        key=lambda row: (row["replicas"], row["class"], _METRICS.index(row["metric"]), row["percentile"]),
    )


def gpu_title(name: str | None) -> str:
    """A catalogue name as people write it.

    >>> gpu_title("h100-sxm"), gpu_title("a100-80gb-sxm")
    ('H100 SXM', 'A100 80GB SXM')
    """
    return (name or "GPU").replace("-", " ").replace("_", " ").upper()


def promise_name(row: Row) -> str:
    """A promise in words, as `TTFT p99 of class chat`."""
    percentile = row.get("percentile")
    at = "" if percentile is None else f" p{percentile:g}"
    group = row.get("class")
    return f"{str(row['metric']).upper()}{at}" + (f" of class {group}" if group and group != "*" else "")


def how_it_runs(candidate: Row) -> tuple[Fact, ...]:
    """How one replica of a candidate runs, as figures of the first screen."""
    if not candidate:
        return ()
    degrees = [
        f"{short} {candidate[key]}"
        for key, short in (
            ("tensor_parallel", "TP"),
            ("pipeline_parallel", "PP"),
            ("data_parallel", "DP"),
            ("expert_parallel", "EP"),
        )
        if candidate.get(key) and (candidate[key] > 1 or key == "tensor_parallel")
    ]
    caps = [
        f"{candidate[key]:,} {word}"
        for key, word in (("max_num_seqs", "sequences"), ("max_num_batched_tokens", "tokens a step"))
        if candidate.get(key) is not None
    ]
    facts = [
        Fact("Parallel", ", ".join(degrees)),
        Fact("Weights", str(candidate.get("weights") or "")),
        Fact("KV cache", str(candidate.get("kv_cache") or "")),
        Fact("Scheduler", str(candidate.get("scheduler") or ""), ", ".join(caps)),
        Fact("Speculation", str(candidate.get("speculation") or "none")),
    ]
    if candidate.get("engine"):
        facts.append(Fact("Engine", str(candidate["engine"])))
    return tuple(fact for fact in facts if fact.value)


def _equation(decision: Row, candidate: Row) -> str:
    spare = decision.get("spare_replicas") or 0
    replicas, each, gpus = decision["replicas"], decision["gpus_per_replica"], decision["gpus"]
    serving = f"{replicas} replica{'s' if replicas != 1 else ''}"
    left = f"({replicas} serving + {spare} spare) replicas" if spare else serving
    how = ", ".join(fact.value for fact in how_it_runs(candidate) if fact.label in ("Parallel", "Weights"))
    text = f"= {left} × {each} GPU{'s' if each != 1 else ''}" + (f" ({how})" if how else "")
    bare = (replicas + spare) * each
    return text if gpus == bare else f"{text} = {bare}, rounded up to whole nodes"


def _verdict(decision: Row, held: Sequence[Row], failing: Sequence[Row]) -> str:
    count = decision["replicas"]
    all_hold = bool(held) and all(row["holds"] for row in held)
    first = (
        f"All {len(held)} promises hold by simulation at {count} replica{'s' if count != 1 else ''}"
        if all_hold and len(held) > 1
        else f"The promise holds by simulation at {count} replica{'s' if count != 1 else ''}"
        if all_hold
        else "The store holds no simulated verdict at this count"
        if not held
        else "The store's evidence shows a promise that fails at this count"
    )
    return f"{first}; at {count - 1}, {_misses(worst(failing))}." if failing else f"{first}."


def worst(failing: Sequence[Row]) -> Row:
    """The promise that is missed by most."""
    return max(
        failing,
        key=lambda row: float("inf") if row["simulated_s"] is None else row["simulated_s"] / row["limit_s"],
    )


def _misses(row: Row) -> str:
    if row["simulated_s"] is None:
        return f"{promise_name(row)} is unbounded"
    return f"{promise_name(row)} misses by {units.share(row['simulated_s'] / row['limit_s'] - 1)}"


def _costs(decision: Row) -> tuple[Fact, ...]:
    shown = (
        ("cost_usd_per_hour", "per hour"),
        ("cost_usd_per_month", "per month"),
        ("cost_usd_per_million_output_tokens", "per 1M output tokens"),
        ("cost_usd_per_million_tokens", "per 1M tokens, in and out"),
    )
    facts = [Fact(label, units.usd(decision[key])) for key, label in shown if decision.get(key) is not None]
    return tuple(facts) or (Fact("cost", units.NONE, "no price list was given"),)


def _promise(row: Row) -> Promise:
    value, limit = row["simulated_s"], row["limit_s"]
    ratio = None if value is None else value / limit
    margin = (
        "no bound"
        if ratio is None
        else f"{units.share(1 - ratio)} to spare"
        if row["holds"]
        else f"{units.share(ratio - 1)} over"
    )
    filled = 1.0 if ratio is None else min(ratio, 1.25) / 1.25
    shown = "unbounded" if value is None else units.seconds(value)
    return Promise(promise_name(row), units.seconds(limit), shown, row["holds"], filled, margin)


def _binding_note(decision: Row, held: Sequence[Row]) -> str:
    notes = []
    if decision.get("utilisation") is not None:
        notes.append(
            f"The fleet runs at {units.share(decision['utilisation'])} of the rate it could sustain."
        )
    measured = [row for row in held if row["simulated_s"] is not None]
    if measured:
        near = max(measured, key=lambda row: row["simulated_s"] / row["limit_s"])
        notes.append(
            f"Nearest to its promise: {promise_name(near)}, at {units.share(near['simulated_s'] / near['limit_s'])} of it."
        )
    return " ".join(notes)


def _one_less(decision: Row, less: Sequence[Row], failing: Sequence[Row]) -> Fact:
    label = "One replica fewer"
    if decision["replicas"] == 1:
        return Fact(label, "none left", "One replica is the least that can serve.")
    if not less:
        return Fact(
            label, "not shown", f"The store holds no simulation at {decision['replicas'] - 1} replicas."
        )
    if not failing:
        return Fact(
            label,
            "promises hold",
            f"At {decision['replicas'] - 1} replicas every promise still holds; another limit binds.",
        )
    row = worst(failing)
    others = len(failing) - 1
    value = "unbounded" if row["simulated_s"] is None else units.seconds(row["simulated_s"])
    note = f"At {decision['replicas'] - 1}, {promise_name(row)} is {value} where {units.seconds(row['limit_s'])} was promised"
    note += (
        f"; {others} more promise{'s' if others > 1 else ''} fail{'s' if others == 1 else ''}."
        if others
        else "."
    )
    head = (
        "unbounded"
        if row["simulated_s"] is None
        else f"{units.share(row['simulated_s'] / row['limit_s'] - 1)} over"
    )
    return Fact(label, f"fails: {head}", note)


def _confidence(store: Store, scenario: str, decision: Row) -> Fact:
    label = "How sure"
    if decision.get("replicas_low") is not None and decision.get("replicas_high") is not None:
        level = decision.get("confidence")
        at = f", {units.share(level)}" if level is not None else ""
        chance = decision.get("probability_holds")
        note = (
            ""
            if chance is None
            else f"The chosen count keeps every promise with probability {units.share(chance)}."
        )
        return Fact(
            label,
            f"{decision['replicas']} ({decision['replicas_low']} to {decision['replicas_high']}{at})",
            note,
        )
    return Fact(
        label,
        "by simulation",
        "An interval on the count (traffic forecast, step-time error, prices) was not computed for this version.",
    )


def _infeasible(store: Store, scenario: str, decision: Row, title: str, subtitle: str) -> Headline:
    remedy = decision.get("nearest_change") or ""
    return Headline(
        title=title,
        subtitle=subtitle,
        feasible=False,
        verdict="Infeasible: no fleet of this scenario's candidates keeps every promise.",
        gpus="",
        kind="",
        equation="",
        how=(),
        costs=(),
        promises=(),
        cards=(),
        reason=decision.get("reason") or "The store gives no reason.",
        remedy=remedy,
    )
