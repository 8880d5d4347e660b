"""`fleetplan queueing`: the closed forms of every candidate that can run, beside the simulations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fleetplan.sizing.decide import Plan

REPLAYED_REQUESTS = 1500


@click.command()
@click.argument("spec", type=click.Path(path_type=Path))
@click.option("--parts", type=click.Path(path_type=Path, file_okay=False), default=Path("results/parts"), show_default=True, help="The folder of Parquet parts.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the rows too, as JSON by table.")
def command(spec: Path, parts: Path, as_json: bool) -> None:
    """Closed forms of waiting, TTFT and TPOT by replicas; their error against the engine; goodput by batch cap."""
    from fleetplan.sizing.decide import plan
    from fleetplan.spec import load
    from fleetplan.store.meaning import part_meta
    from fleetplan.store.parts import write_part

    scenario = load(spec)
    made = tables(plan(scenario))
    for name, rows in made.items():
        write_part(parts, scenario.scenario, name, rows, part_meta(scenario, "queueing"))
    if as_json:
        click.echo(json.dumps(made, indent=2, ensure_ascii=False, allow_nan=False))
        return
    click.echo(
        f"{scenario.scenario}: " + ", ".join(f"{len(rows)} rows of {name}" for name, rows in made.items())
    )


def tables(subject: Plan) -> dict[str, list[dict[str, Any]]]:
    """The stage's tables; the chain's error and the goodput curve are those of the first candidate that can run."""
    from fleetplan.queueing.goodput import caps_to, goodput_curve
    from fleetplan.queueing.rows import Shape, chain, chain_error_rows, goodput_rows, queueing_rows

    traffic = subject.traffic
    shape = Shape.of(traffic.requests(), traffic.rate_per_s)
    runnable = [m for m in subject.machines.values() if m.step is not None and m.config is not None]
    rows, errors, curve = [], [], []
    for machine in runnable:
        assert machine.step is not None
        assert machine.config is not None
        rows += queueing_rows(
            machine.candidate.candidate_id, shape, machine.step, machine.config, machine.engines_per_replica
        )
    if runnable:
        first = runnable[0]
        step, config, name = first.step, first.config, first.candidate.candidate_id
        assert step is not None
        assert config is not None
        errors = chain_error_rows(name, shape, step, config, seed=traffic.seed)
        limits = {
            limit.metric: limit.limit_s
            for limit in reversed(traffic.limits)
            if limit.metric in ("ttft", "tpot") and limit.limit_s is not None
        }
        result = chain(shape, step, config, 1e-9)
        rate = 0.7 * result.capacity_per_s
        if len(limits) == 2:
            few = traffic.burst(REPLAYED_REQUESTS)
            requests = _poisson(few, rate, traffic.seed)
            points = goodput_curve(
                requests, step, config, caps_to(config.max_num_seqs, 10),
                ttft_at_most_s=limits["ttft"], tpot_at_most_s=limits["tpot"],
            )  # fmt: skip
            curve = goodput_rows(name, rate, points)
    return {"queueing": rows, "chain_errors": errors, "goodput": curve}


def _poisson(requests: Any, rate_per_s: float, seed: int) -> Any:
    import numpy as np

    from fleetplan.traffic.requests import Requests

    gaps = np.random.default_rng(seed).exponential(1 / rate_per_s, len(requests))
    return Requests.of(np.cumsum(gaps), requests.prompt_tokens, requests.output_tokens, classes=requests.classes, class_index=requests.class_index)  # fmt: skip
