"""The first screen: how many GPUs, what they cost, each promise with its simulated value, what binds, how near N − 1 came."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fleetplan.report import promises, units
from fleetplan.report.reading import Row, Store


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
    badge: str
    tone: str
    """good, unsure or bad."""
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
    held = promises.at_decision(evidence, decision)
    less = promises.one_fewer(evidence, decision)
    failing = [row for row in less if not row["holds"]]
    badge, tone, doubt = _doubt(store, scenario, decision)
    return Headline(
        title=title,
        subtitle=subtitle,
        feasible=True,
        badge=badge,
        tone=tone,
        verdict=f"{_verdict(decision, held, failing)}{doubt}",
        gpus=units.count(decision["gpus"]),
        kind=_kinds(decision, candidate),
        equation=_equation(decision, candidate),
        how=how_it_runs(candidate),
        costs=_costs(decision),
        promises=tuple(_promise(row) for row in held),
        cards=(
            Fact(
                "The limit that binds",
                (decision.get("binding_limit") or "not stated").removesuffix(" of all"),
                _binding_note(decision, held),
            ),
            _one_less(decision, less, failing),
            _confidence(store, scenario, decision, held),
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
    cap = decision_of(store, scenario).get("max_utilisation")
    rows = [
        {**row, "cap": cap}
        for row in store.table("evidence", scenario)
        if row["candidate_id"] == candidate_id
    ]
    return sorted(rows, key=promises.order)


def gpu_title(name: str | None) -> str:
    """A catalogue name as people write it.

    >>> gpu_title("h100-sxm"), gpu_title("a100-80gb-sxm")
    ('H100 SXM', 'A100 80GB SXM')
    """
    return (name or "GPU").replace("-", " ").replace("_", " ").upper()


def _kinds(decision: Row, candidate: Row) -> str:
    """The GPUs that are bought: of two pools on two kinds, both."""
    own, before = decision.get("gpu") or candidate.get("gpu"), candidate.get("prefill_gpu")
    return gpu_title(own) if before in (None, own) else f"{gpu_title(before)} and {gpu_title(own)}"


def how_it_runs(candidate: Row) -> tuple[Fact, ...]:
    """How one replica of a candidate runs, as figures of the first screen."""
    if not candidate:
        return ()
    if candidate.get("engine") == "endpoint":
        return (Fact("Servers", str(candidate.get("label") or "").partition(", ")[2]),)
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
        *_pools(candidate),
        Fact("Parallel", ", ".join(degrees)),
        Fact("Weights", str(candidate.get("weights") or "")),
        Fact("KV cache", str(candidate.get("kv_cache") or "")),
        Fact("Scheduler", str(candidate.get("scheduler") or ""), ", ".join(caps)),
        Fact("Speculation", str(candidate.get("speculation") or "none")),
        *_residents(candidate),
    ]
    if candidate.get("engine"):
        facts.append(Fact("Engine", str(candidate["engine"])))
    return tuple(fact for fact in facts if fact.value)


def _residents(candidate: Row) -> tuple[Fact, ...]:
    """The LoRA adapters that it holds, and where it swaps to."""
    facts = []
    if candidate.get("max_adapters") is not None:
        room = f"{units.quantity('adapters_bytes', candidate.get('adapters_bytes'))} of each GPU"
        load = (
            f"{units.seconds(candidate['adapter_load_s'])} to load another"
            if candidate.get("adapter_load_s")
            else ""
        )
        facts.append(
            Fact(
                "LoRA adapters",
                f"{candidate['max_adapters']} resident",
                ", ".join(filter(None, (room, load))),
            )
        )
    if candidate.get("preemption") == "swap":
        blocks = candidate.get("swap_blocks")
        facts.append(Fact("Preemption", "swap", f"{blocks:,} KV blocks of the host" if blocks else ""))
    return tuple(facts)


def _pools(candidate: Row) -> tuple[Fact, ...]:
    """What one replica of two pools is, and the link between them."""
    if candidate.get("layout") != "disaggregated":
        return ()
    before = f"{gpu_title(candidate['prefill_gpu'])}, TP {candidate['prefill_tensor_parallel']}"
    after = f"{gpu_title(candidate['gpu'])}, TP {candidate['tensor_parallel']}"
    link = f"link of {candidate['link_bytes_per_s'] / 1e9:g} GB/s"
    if candidate["prefill_ratio"] is None:
        return (
            Fact("Pools", f"prefill ({before}) + decode ({after})", f"{link}, each pool with its own count"),
        )
    words = f"{candidate['prefill_ratio']} prefill ({before}) + {candidate['decode_ratio']} decode ({after})"
    return (Fact("Pools", words, f"{link}, counted together as one replica"),)


def _equation(decision: Row, candidate: Row) -> str:
    spare = decision.get("spare_replicas") or 0
    replicas, each, gpus = decision["replicas"], decision["gpus_per_replica"], decision["gpus"]
    serving = f"{replicas} replica{'s' if replicas != 1 else ''}"
    left = f"({replicas} serving + {spare} spare) replicas" if spare else serving
    how = ", ".join(fact.value for fact in how_it_runs(candidate) if fact.label in ("Parallel", "Weights"))
    if decision.get("prefill_replicas") and (spare or candidate.get("prefill_ratio") is None):
        spares = f" and {spare} spare" if spare else ""
        return f"= {promises.fleet(decision)}{spares}"
    if decision.get("prefill_replicas"):
        how = f"{candidate.get('prefill_ratio')} prefill + {candidate.get('decode_ratio')} decode"
    text = f"= {left} × {each} GPU{'s' if each != 1 else ''}" + (f" ({how})" if how else "")
    bare = (replicas + spare) * each
    return text if gpus == bare else f"{text} = {bare}, rounded up to whole nodes"


def _verdict(decision: Row, held: Sequence[Row], failing: Sequence[Row]) -> str:
    at = promises.fleet(decision)
    all_hold = bool(held) and all(row["holds"] for row in held)
    promised = [row for row in held if row["metric"] != "utilisation"]
    first = (
        f"{'Both' if len(promised) == 2 else f'All {len(promised)}'} promises hold by simulation at {at}"
        if all_hold and len(promised) > 1
        else f"The promise holds by simulation at {at}"
        if all_hold
        else "The store holds no simulated verdict at this count"
        if not held
        else "The store's evidence shows a promise that fails at this count"
    )
    return (
        f"{first}; at {_fewer(failing)}, {promises.miss(promises.worst(failing))}."
        if failing
        else f"{first}."
    )


def _fewer(rows: Sequence[Row]) -> str:
    """The fleet of the worst of these verdicts; of one pool just its number."""
    row = promises.worst(rows)
    return promises.fleet(row) if row.get("prefill_replicas") else str(row["replicas"])


def _doubt(store: Store, scenario: str, decision: Row) -> tuple[str, str, str]:
    """(badge, tone, sentence): how sure the decision is of keeping its promises over what is not known, where that was drawn."""
    chance, wanted = decision.get("probability_holds"), decision.get("confidence")
    if chance is None or wanted is None or chance >= wanted:
        return "Feasible", "good", ""
    draws = store.table("draws", scenario)
    said = f" It keeps every promise in {_share_of_draws(chance, len(draws))}"
    surer = decision.get("replicas_for_95_percent")
    said += f"; {surer} serving replicas do in 95\u202f%." if surer is not None else "."
    return f"Feasible, {units.share(chance)} sure", "unsure", said


def _share_of_draws(chance: float, draws: int) -> str:
    """A probability that was counted, as the count: 20 of 20 is no certainty."""
    if not draws:
        return f"{units.share(chance)} of what may come"
    return f"{round(chance * draws)} of {draws} draws of what is not known"


def _costs(decision: Row) -> tuple[Fact, ...]:
    shown: tuple[tuple[str, str], ...] = (
        ("cost_usd_per_hour", "per hour"),
        ("cost_usd_per_month", "per month"),
        ("cost_usd_per_million_output_tokens", "per 1M output tokens"),
        ("cost_usd_per_million_tokens", "per 1M tokens, in and out"),
    )
    if decision.get("cost_usd_per_million_tokens") is None:
        shown = (*shown[:2], ("cost_usd_per_request", "per request"))
    facts = [Fact(label, units.usd(decision[key])) for key, label in shown if decision.get(key) is not None]
    return tuple(facts) or (Fact("cost", units.NONE, "no price list was given"),)


def _promise(row: Row) -> Promise:
    near = promises.ratio(row)
    filled = 1.0 if near is None else min(near, 1.25) / 1.25
    return Promise(
        promises.name(row),
        promises.limit(row),
        promises.simulated(row),
        row["holds"],
        filled,
        promises.margin(row),
    )


def _binding_note(decision: Row, held: Sequence[Row]) -> str:
    notes = []
    if decision.get("utilisation") is not None:
        cap = decision.get("max_utilisation")
        most = f", {units.share(cap)} is allowed" if cap is not None else ""
        notes.append(
            f"The fleet runs at {units.share(decision['utilisation'])} of the rate it could sustain, on average over its traffic{most}."
        )
    if decision.get("lower_bound_replicas") is not None:
        notes.append(f"By load alone {decision['lower_bound_replicas']} would do.")
    measured = [
        (near, row) for row in held if row.get("limit_s") and (near := promises.ratio(row)) is not None
    ]
    if measured:
        near, row = max(measured, key=lambda pair: pair[0])
        notes.append(f"Nearest to its promise: {promises.name(row)}, at {units.share(near)} of it.")
    return " ".join(notes)


def _one_less(decision: Row, less: Sequence[Row], failing: Sequence[Row]) -> Fact:
    label, count = "One replica fewer", decision["replicas"] - 1
    if count == 1 and not less and decision.get("prefill_replicas"):
        return Fact(
            label, "none left", "One replica of each pool is the least that can serve; nothing binds."
        )
    if count == 0:
        return Fact(label, "none left", "One replica is the least that can serve; nothing binds.")
    if not less:
        return Fact(label, "not shown", f"The store holds no simulation at {count} replicas.")
    if not failing:
        binds = decision.get("binding_limit")
        return Fact(
            label,
            "promises hold",
            f"At {count} every promise still holds; what fails is another limit{f': {binds}' if binds else ''}.",
        )
    row = promises.worst(failing)
    others = sum(promises.fleet(each) == promises.fleet(row) for each in failing) - 1
    note = f"At {_fewer(failing)}, {promises.name(row)} is {promises.simulated(row)} where {promises.bound(row)} was promised"
    note += (
        f"; {others} more promise{'s' if others > 1 else ''} fail{'s' if others == 1 else ''}."
        if others
        else "."
    )
    return Fact(
        label, f"fails: {promises.margin(row) if row.get('limit_s') else promises.simulated(row)}", note
    )


def _confidence(store: Store, scenario: str, decision: Row, held: Sequence[Row]) -> Fact:
    label = "How sure"
    sampled = _sampling(held)
    if decision.get("decided") is False and decision.get("certificate"):
        sampled = f"Noise is not excluded: {decision['certificate']}."
    if decision.get("replicas_low") is not None and decision.get("replicas_high") is not None:
        level = decision.get("interval_level")
        at = f", {units.share(level)}" if level is not None else ""
        chance = decision.get("probability_holds")
        note = (
            ""
            if chance is None
            else f"This count keeps every promise in {_share_of_draws(chance, len(store.table('draws', scenario)))}. "
        )
        surer = decision.get("replicas_for_95_percent")
        if surer is not None and surer > decision["replicas"]:
            note += f"{surer} replicas do in 95\u202f%. "
        plural = "s" if decision["replicas"] != 1 else ""
        between = f"{decision['replicas_low']} to {decision['replicas_high']}"
        count = f"{decision['replicas']} replica{plural} ({between}{at})"
        return Fact(label, count, note + sampled)
    unsaid = "An interval on the count (traffic forecast, step-time error, prices) was not computed for this version."
    level = decision.get("confidence")
    clear = "by simulation"
    if decision.get("decided") and level is not None:
        clear = f"beyond noise at {units.share(level)}"
    elif decision.get("decided") is False:
        clear = "within sampling noise"
    return Fact(label, clear, f"{sampled} {unsaid}".strip())


def _sampling(held: Sequence[Row]) -> str:
    rows = [row for row in held if row.get("low_share") is not None and row.get("high_share") is not None]
    if not rows:
        return ""
    row = min(rows, key=lambda row: row["low_share"] - (promises.promised_share(row) or 0))
    count = f" over {row['requests']:,} requests" if row.get("requests") else ""
    runs = row.get("replications")
    return (
        f"{promises.name(row)}: {units.share(row['met_share'])} ({units.share(row['low_share'])} to "
        f"{units.share(row['high_share'])}) meet it where {units.share(promises.promised_share(row))} must{count}"
        + (f" in {runs} replication{'s' if runs != 1 else ''}." if runs else ".")
    )


def _infeasible(store: Store, scenario: str, decision: Row, title: str, subtitle: str) -> Headline:
    remedy = decision.get("nearest_change") or ""
    return Headline(
        title=title,
        subtitle=subtitle,
        feasible=False,
        badge="Infeasible",
        tone="bad",
        verdict="No fleet of this scenario's candidates keeps every promise.",
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
