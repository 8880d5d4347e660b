"""`fleetplan capacity`: what a given fleet holds of a scenario's traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fleetplan.sizing.capacity import Capacity, Held
    from fleetplan.sizing.options import Plan


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--gpus", "gpus", multiple=True, metavar="KIND=COUNT", help="The fleet, like h100-sxm=16; again for another kind. Left out: that of SPEC, else one node of each kind in the grid.")  # fmt: skip
@click.option("--parts", type=click.Path(path_type=Path, file_okay=False), help="Write the tables capacity and capacity_promises to this folder of parts, for the fleet that SPEC names; empty where it names none.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(spec: Path, gpus: tuple[str, ...], parts: Path | None, as_json: bool) -> None:
    """The highest rate, the tightest promises and the longest context that a given fleet holds, by candidate of SPEC."""
    from fleetplan.errors import InputError
    from fleetplan.spec import load
    from fleetplan.spec.scenario import Scenario

    scenario = load(spec)
    named = scenario.capacity if isinstance(scenario, Scenario) else None
    fleet = _fleet(gpus) or dict(named or {})
    if parts is not None and not fleet:
        _write(parts, scenario, {"capacity": [], "capacity_promises": []})
        click.echo(f"{scenario.scenario}: names no fleet under capacity")
        return
    if not isinstance(scenario, Scenario):
        raise InputError(
            scenario.line(
                ("endpoint",),
                "capacity is told of LLMs (got an endpoint), whose rate at a given fleet is servers / service time; see `fleetplan sizing`",
            )
        )
    from fleetplan.sizing.capacity import capacity
    from fleetplan.sizing.decide import plan
    from fleetplan.sizing.stages.capacity import rows

    subject = plan(scenario)
    found = capacity(subject, fleet or _a_node_each(subject))
    if parts is not None:
        _write(parts, scenario, rows(found))
    if as_json:
        click.echo(json.dumps(document(found), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(told(found))


def document(found: Capacity) -> dict[str, Any]:
    """The whole answer as strict JSON; rates in requests/s, times in s."""
    best = found.best
    return {
        "scenario": found.plan.scenario.scenario,
        "fleet": found.fleet,
        "planned_requests_per_s": found.plan.traffic.rate_per_s,
        "verdict": "holds some" if best else "infeasible",
        "holds_today": any(held.today is not None and held.today.passes for held in found.held),
        "best": best.machine.candidate.candidate_id if best else None,
        "reason": None if best else _reasons(found),
        "candidates": [_entry(held) for held in found.held],
    }


def told(found: Capacity) -> str:
    """The answer for people."""
    from tabulate import tabulate

    fleet = " + ".join(f"{count} × {gpu}" for gpu, count in found.fleet.items())
    planned = found.plan.traffic.rate_per_s
    head = f"{found.plan.scenario.scenario}: {fleet}, planned {planned:.4g} requests/s"
    best = found.best
    if best is None:
        return f"{head}\ninfeasible: {_reasons(found)}"
    assert best.factor is not None
    assert best.rate_per_s is not None
    word = (
        f"{best.factor:.2f} × today's"
        if best.factor >= 1
        else f"{best.factor:.2f} × today's: too small for it"
    )
    lines = [
        head,
        f"holds {best.rate_per_s:.4g} requests/s ({word}) with {best.machine.candidate.label}: "
        f"{best.fleet} replicas; binds: {best.binding}",
        *(
            f"tightest {t.limit.name} at today's traffic: "
            + (f"{t.tightest_s:.4g} s" if t.tightest_s is not None else f"none, {t.reason}")
            for t in best.tightest
        ),
        "",
        tabulate(
            [_row(held) for held in found.held],
            headers=[
                "candidate",
                "replicas",
                "requests/s",
                "× today",
                "longest context",
                "binds, or why not",
            ],
            tablefmt="simple",
            disable_numparse=True,
        ),
    ]
    return "\n".join(lines)


def _write(parts: Path, scenario: Any, tables: dict[str, list[dict[str, Any]]]) -> None:
    from fleetplan.store.meaning import part_meta
    from fleetplan.store.parts import write_part

    meta = part_meta(scenario, "capacity")
    for table, made in tables.items():
        write_part(parts, scenario.scenario, table, made, meta)


def _fleet(written: tuple[str, ...]) -> dict[str, int]:
    from fleetplan.errors import InputError

    made: dict[str, int] = {}
    for text in written:
        kind, equals, count = text.partition("=")
        if not equals or not kind or not count.isascii() or not count.isdigit() or int(count) < 1:
            raise InputError(
                f"--gpus: is a kind and a count of at least 1 (got {text!r}), write it like h100-sxm=16"
            )
        if kind in made:
            raise InputError(f"--gpus: names {kind} twice (got {text!r}), give each kind once")
        made[kind] = int(count)
    return made


def _a_node_each(subject: Plan) -> dict[str, int]:
    """Of every kind that a candidate, or a pool of one, runs on."""
    from fleetplan import catalog

    sides = (side for built in subject.machines.values() for side in built.candidate.sides)
    return {side.gpu: catalog.gpu(side.gpu).gpus_per_node for side in sides}


def _reasons(found: Capacity) -> str:
    first = found.held[0]
    more = f" (and {len(found.held) - 1} more candidates)" if len(found.held) > 1 else ""
    return f"{first.machine.candidate.label}: {first.reason}{more}"


def _entry(held: Held) -> dict[str, Any]:
    candidate = held.machine.candidate
    return {
        "candidate_id": candidate.candidate_id,
        "candidate": candidate.label,
        "gpus": held.gpus,
        "gpus_per_replica": candidate.gpus_per_replica,
        "replicas": held.replicas,
        "prefill_replicas": held.pools[0],
        "decode_replicas": held.pools[1],
        "highest_requests_per_s": held.rate_per_s,
        "highest_factor": held.factor,
        "lowest_failing_factor": held.failing_factor,
        "reason": held.reason,
        "binding_limit": held.binding,
        "holds_today": held.today.passes if held.today else None,
        "fails_today": list(held.today.failures) if held.today else None,
        "utilisation_today": held.today.utilisation if held.today else None,
        "saturated_requests_per_s": held.sustainable_per_s,
        "tightest": [
            {
                "class": t.limit.class_name,
                "metric": t.limit.metric,
                "percentile": t.limit.percentile,
                "promised_s": t.limit.limit_s,
                "promised_share": t.limit.share,
                "met_share_today": t.met_share,
                "tightest_s": t.tightest_s,
                "reason": t.reason,
            }
            for t in held.tightest
        ],
        "longest_context_tokens": held.longest_context_tokens,
        "longest_prompt_tokens": held.longest_prompt_tokens,
    }


def _row(held: Held) -> list[str]:
    factor = f"{held.factor:.2f}" if held.factor is not None else "—"
    rate = f"{held.rate_per_s:.4g}" if held.rate_per_s is not None else "—"
    context = f"{held.longest_context_tokens:,}" if held.longest_context_tokens else "—"
    return [
        held.machine.candidate.label, held.fleet, rate, factor, context, held.reason or held.binding or ""
    ]  # fmt: skip
