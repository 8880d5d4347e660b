"""Rows of the stage `sizing`: the decision and all that stands behind it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from fleetplan import progress
from fleetplan.sizing.apart import Apart
from fleetplan.sizing.binding import binding_limit
from fleetplan.sizing.certificate import certificate_of
from fleetplan.sizing.choice import Choice, choices
from fleetplan.sizing.decide import Decision, Option, Plan, decide, verdict_at
from fleetplan.sizing.levers import levers
from fleetplan.sizing.machine import Machine
from fleetplan.sizing.nearest import nearest_change
from fleetplan.sizing.settle import settle
from fleetplan.sizing.stages import money
from fleetplan.sizing.stages.fleet import fleet_rows
from fleetplan.sizing.stages.money import fleet_money
from fleetplan.sizing.stages.over_time import timeseries
from fleetplan.sizing.stages.traffic import traffic_rows
from fleetplan.sizing.uncertainty import Interval, interval, sources
from fleetplan.sizing.verdict import Limit, Outcome, Verdict
from fleetplan.spec.scenario import Asked, Scenario

Row = dict[str, Any]


def rows(subject: Plan, saturation: Callable[[str], float]) -> dict[str, list[Row]]:
    """Table → rows; `saturation` gives a candidate id's sustainable rate of one replica, as the stage batching found it."""
    decision = decide(
        subject,
        lambda built: saturation(built.candidate.candidate_id),
        settle=functools.partial(settle, subject),
    )
    found = interval(decision)
    chances = choices(decision, found)
    return {
        "scenarios": [_scenario(decision)],
        "settings": list(_settings(subject)),
        **traffic_rows(decision),
        "decisions": [_decision(decision, found, chances)],
        "evidence": list(_evidence(decision)),
        "plans": _plans(decision),
        "timeseries": list(timeseries(decision)),
        "levers": _levers(decision),
        "uncertainty": _uncertainty(found),
        "draws": money.draws(decision, found),
        "choices": money.choices(chances),
        **fleet_rows(decision),
    }


def _scenario(decision: Decision) -> Row:
    scenario, sheet = decision.plan.scenario, decision.prices
    return {
        "title": scenario.title or scenario.scenario,
        "model": decision.plan.model.title if decision.plan.model else "an endpoint that is no LLM",
        "traffic": _traffic_words(decision.plan),
        "step_time": _step_words(scenario),
        "notes": "; ".join(decision.plan.traffic.notes) or None,
        "prices": f"{sheet.name}: {sheet.title}, {sheet.date}; {sheet.source}",
    }


def _traffic_words(subject: Plan) -> str:
    mix = subject.traffic.requests()
    spec = subject.scenario.drawn
    if subject.model is None:
        return f"{', '.join(mix.classes)}, {subject.traffic.rate_per_s:.3g} requests/s"
    name = getattr(spec, "empirical", None) or getattr(spec, "trace", None) or ", ".join(mix.classes)
    return (
        f"{name}, {subject.traffic.rate_per_s:.3g} requests/s, "
        f"{mix.prompt_tokens.mean():,.0f} prompt and {mix.output_tokens.mean():,.0f} output tokens on average"
    )


def _step_words(scenario: Asked) -> str:
    if not isinstance(scenario, Scenario):
        return "service times as the spec gives them, each server one request at a time, all before one queue"
    choice = scenario.step_time
    return choice if isinstance(choice, str) else json.dumps(choice.model_dump(mode="json", by_alias=True))


def _settings(subject: Plan) -> Iterable[Row]:
    def walk(path: str, value: Any) -> Iterable[Row]:
        if isinstance(value, dict) and value:
            for key, inner in value.items():
                yield from walk(f"{path}.{key}" if path else str(key), inner)
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            for index, inner in enumerate(value):
                yield from walk(f"{path}[{index}]", inner)
        else:
            yield {"path": path, "value": json.dumps(value, ensure_ascii=False)}

    yield from walk("", subject.scenario.meaning())


def _decision(decision: Decision, found: Interval | None, chances: tuple[Choice, ...]) -> Row:
    subject, chosen = decision.plan, decision.chosen
    policy = subject.scenario.policy
    row: Row = {
        "candidate_id": None, "verdict": "infeasible", "reason": None, "nearest_change": None, "gpu": None, "replicas": None,
        "spare_replicas": policy.spare_replicas, "gpus_per_replica": None, "prefill_replicas": None, "decode_replicas": None, "gpus": None, "utilisation": None,
        "max_utilisation": policy.max_utilisation, "sustainable_requests_per_s": None, **fleet_money(None, subject),
        "binding_limit": None, "binding_reason": None, "lower_bound_replicas": None, "replications": None,
        "confidence": policy.confidence, "decided": None, "replicas_low": None, "replicas_high": None,
        "interval_level": None, "certificate": None, "spares_reason": None,
        "cost_low_usd_per_hour": None, "cost_high_usd_per_hour": None, "probability_cheapest": None, "probability_holds": None, "step_time_basis": None, "replicas_for_95_percent": None, "uncertain": None,
    }  # fmt: skip
    if chosen is None:
        reason, change = nearest_change(decision)
        return {**row, "reason": reason, "nearest_change": change}
    assert chosen.found is not None
    assert chosen.found.replicas is not None
    assert chosen.fleet is not None
    count, at = chosen.found.replicas, chosen.found.at
    certificate = certificate_of(chosen.found, policy.confidence)
    limit, why = binding_limit(chosen.machine, chosen.found.fewer)
    return {
        **row,
        "candidate_id": chosen.machine.candidate.candidate_id,
        "verdict": "feasible",
        "gpu": chosen.machine.candidate.gpu,
        "replicas": count,
        "spare_replicas": chosen.fleet.spare_replicas,
        "gpus_per_replica": chosen.machine.candidate.gpus_per_replica,
        **_pools(chosen, count),
        "gpus": chosen.fleet.gpus,
        "utilisation": at.utilisation,
        "sustainable_requests_per_s": chosen.machine.sustains(chosen.sustainable_per_s or 0.0, count),
        **fleet_money(chosen.fleet, subject),
        "binding_limit": limit,
        "binding_reason": why,
        "lower_bound_replicas": chosen.lower_bound,
        "replications": at.replications,
        "decided": certificate.decided,
        "certificate": certificate.words,
        "spares_reason": chosen.spares_reason,
        "step_time_basis": chosen.machine.basis,
        "replicas_low": found.low if found else None,
        "replicas_high": found.high if found else None,
        "interval_level": found.level if found else None,
        "probability_holds": found.probability_holds(count) if found else None,
        "replicas_for_95_percent": found.count_for(0.95) if found else None,
        "uncertain": "; ".join(sources(decision)) if found or chances else None,
        **_chances(chosen, chances),
    }


def _chances(chosen: Option, chances: tuple[Choice, ...]) -> Row:
    mine = next((c for c in chances if c.candidate_id == chosen.machine.candidate.candidate_id), None)
    return {
        "cost_low_usd_per_hour": mine.low_usd_per_hour if mine else None,
        "cost_high_usd_per_hour": mine.high_usd_per_hour if mine else None,
        "probability_cheapest": mine.probability_cheapest if mine else None,
    }


def _pools(option: Option, count: int | None) -> Row:
    """Replicas of each pool at this count of their ratio."""
    if option.machine.candidate.split is None or count is None:
        return {"prefill_replicas": None, "decode_replicas": None}
    p, d = option.machine.candidate.pools(count)
    return {"prefill_replicas": p, "decode_replicas": d}


def _levers(decision: Decision) -> list[Row]:
    before = decision.chosen
    if before is None or before.fleet is None:
        return []
    made = []
    for lever in levers(decision):
        after = lever.decision.chosen if lever.decision else None
        fleet = after.fleet if after else None
        came_to = f"{fleet.gpus} GPUs, {fleet.usd_per_hour:.2f} USD/h" if fleet else "infeasible"
        progress.say(f"lever {lever.kind}, {lever.change}: {came_to}")
        made.append(
            {
                "lever": lever.kind,
                "change": lever.change,
                "verdict": lever.verdict,
                "gpu": after.machine.candidate.gpu if after else None,
                "replicas": fleet.replicas if fleet else None,
                "gpus": fleet.gpus if fleet else None,
                "saved_gpus": before.fleet.gpus - fleet.gpus if fleet else None,
                "cost_usd_per_hour": fleet.usd_per_hour if fleet else None,
                "saved_usd_per_hour": before.fleet.usd_per_hour - fleet.usd_per_hour if fleet else None,
                "note": lever.note or (_became(after) if after else None),
            }
        )
    return made


def _became(option: Option) -> str:
    """The plan in words, with its pair where both counts are searched."""
    candidate = option.machine.candidate
    if not candidate.searched or option.found is None:
        return candidate.label
    return f"{option.found.at.counted}: {candidate.label}"


def _uncertainty(found: Interval | None) -> list[Row]:
    if found is None or not found.needed:
        return []
    counts = range(max(min(found.needed) - 1, 1), max(found.needed) + 1)
    return [
        {
            "replicas": count,
            "probability_needed": found.needed.get(count, 0) / found.draws,
            "probability_holds": found.probability_holds(count),
            "draws": found.draws,
        }
        for count in counts
    ]


def _evidence(decision: Decision) -> Iterable[Row]:
    """N − 1, N and N + 1 of the chosen candidate (of two pools one of either fewer and more), and every other count that was simulated."""
    chosen = decision.chosen
    if chosen is None:
        return
    assert chosen.found is not None
    assert chosen.found.replicas is not None
    found = replace(chosen.found, verdicts=dict(chosen.found.verdicts), pairs=dict(chosen.found.pairs))
    rate = chosen.sustainable_per_s or 0.0
    if found.pairs:
        assert isinstance(chosen.machine, Apart)
        p, d = found.at.pools
        for more in ((p + 1, d), (p, d + 1)):
            if more not in found.pairs:
                paired = chosen.machine.paired(*more)
                found.pairs[more] = verdict_at(paired, decision.plan, rate, sum(more))
    else:
        for near in (chosen.found.replicas - 1, chosen.found.replicas + 1):
            if near >= 1 and near not in found.verdicts:
                found.verdicts[near] = verdict_at(chosen.machine, decision.plan, rate, near)
    for verdict in found.every:
        for outcome in verdict.outcomes:
            yield _outcome(chosen.machine, verdict, outcome)
        cap = _cap(chosen.machine, verdict)
        yield cap
        yield from _rates(decision, cap, verdict, rate)


def _fleet(built: Machine, verdict: Verdict) -> Row:
    """What was simulated; of one pool 0 prefill replicas."""
    p, d = verdict.pools or (0, None)
    return {
        "candidate_id": built.candidate.candidate_id,
        "replicas": verdict.replicas,
        "prefill_replicas": p,
        "decode_replicas": d,
    }


def _outcome(built: Machine, verdict: Verdict, outcome: Outcome) -> Row:
    limit: Limit = outcome.limit
    return {
        **_fleet(built, verdict),
        "class": limit.class_name,
        "metric": limit.metric,
        "percentile": round(limit.share * 100, 9),
        "limit_s": limit.limit_s,
        "simulated_s": outcome.value_s,
        "promised_share": limit.share,
        "met_share": outcome.met_share,
        "low_share": max(outcome.low_share, 0.0),
        "high_share": min(outcome.high_share, 1.0),
        "holds": outcome.holds and verdict.stable,
        "decided": verdict.exact or outcome.decided,
        "requests": outcome.requests,
        "replications": verdict.replications,
        "utilisation": verdict.utilisation,
    }


def _cap(built: Machine, verdict: Verdict) -> Row:
    return {
        **_fleet(built, verdict),
        "class": "*",
        "metric": "utilisation",
        "percentile": 100.0,
        "limit_s": None,
        "simulated_s": None,
        "promised_share": verdict.max_utilisation,
        "met_share": verdict.utilisation,
        "low_share": None,
        "high_share": None,
        "holds": verdict.within_cap,
        "decided": True,
        "requests": 0,
        "replications": verdict.replications,
        "utilisation": verdict.utilisation,
    }


def _rates(decision: Decision, cap: Row, verdict: Verdict, rate_per_s: float) -> Iterable[Row]:
    """The promises about rates: each deadline, and the throughput."""
    subject = decision.plan
    scenario = subject.scenario
    alone = len(subject.traffic.requests().classes) == 1
    rest = {"promised_share": 1.0, "percentile": 100.0}
    for name, deadline in scenario.deadlines().items():
        yield (
            cap
            | rest
            | {
                "class": name,
                "metric": "deadline",
                "limit_s": deadline.within_s,
                "simulated_s": verdict.utilisation * deadline.within_s if alone else None,
                "met_share": min(verdict.max_utilisation / verdict.utilisation, 1.0),
            }
        )
    promised = scenario.policy.throughput_tokens_per_s
    if promised is not None:
        assert decision.chosen is not None
        machine = decision.chosen.machine
        if isinstance(machine, Apart) and verdict.pools:
            machine = (
                machine
                if not machine.candidate.searched
                else machine.paired(verdict.pools[0], verdict.pools[1])
            )
        sustained = machine.sustains(rate_per_s, verdict.replicas)
        made = sustained * float(subject.traffic.requests().generated_tokens.mean())
        met = min(made / promised, 1.0)
        yield (
            cap
            | rest
            | {"metric": "throughput", "met_share": met, "holds": "throughput" not in verdict.shortfalls}
        )


def _plans(decision: Decision) -> list[Row]:
    made = [_plan(option, decision) for option in decision.options]
    sized = [row for row in made if row["replicas"] is not None]
    for row in sized:
        row["on_frontier"] = not any(_dominates(other, row) for other in sized)
    return made


def _plan(option: Option, decision: Decision) -> Row:
    count = option.found.replicas if option.found else None
    verdict = option.found.at if option.found and count is not None else None
    latencies = verdict.latencies_s if verdict and option.machine.tokens else {}
    return {
        "candidate_id": option.machine.candidate.candidate_id,
        "status": option.status,
        "reason": option.reason or None,
        "replicas": count,
        "gpus_per_replica": option.machine.candidate.gpus_per_replica,
        **_pools(option, count),
        "gpus": option.fleet.gpus if option.fleet and count is not None else None,
        "lower_bound_replicas": option.lower_bound,
        "sustainable_requests_per_s": option.sustainable_per_s,
        "utilisation": verdict.utilisation if verdict else None,
        **fleet_money(option.fleet if count is not None else None, decision.plan),
        **{
            key: latencies.get(key)
            for key in ("ttft_p50_s", "ttft_p99_s", "ttfvt_p99_s", "tpot_p50_s", "tpot_p95_s")
        },
        "preemptions_per_request": verdict.preemptions_per_request
        if verdict and option.machine.tokens
        else None,
        "attempts_per_request": verdict.attempts_per_request if verdict else None,
        "on_frontier": None,
    }


def _dominates(one: Row, other: Row) -> bool:
    keys = ("cost_usd_per_hour", "ttft_p99_s", "tpot_p95_s")
    a = [np.inf if one[key] is None else one[key] for key in keys]
    b = [np.inf if other[key] is None else other[key] for key in keys]
    return all(x <= y for x, y in zip(a, b, strict=True)) and a != b
