"""`fleetplan simulate`: requests of a file on a step-time model of a file, exactly."""

from __future__ import annotations

from typing import Any

import click

from fleetplan.cli.memory_options import memory_options, memory_settings
from fleetplan.cli.pool_options import (
    DISAGGREGATED,
    handoff_figures,
    pool_options,
    refuse_pool_options,
    run_pools,
)
from fleetplan.cli.seconds import Seconds


@click.command()
@click.option(
    "--requests",
    "requests_path",
    required=True,
    help="CSV: arrival_s,prompt_tokens,output_tokens; or any trace",
)
@click.option(
    "--steptime", "steptime_path", required=True, help="JSON: model affine, linear, vectors or table"
)
@click.option("--stages", type=int, help="a pipeline: steps in flight at once, of --steptime each")
@click.option("--stage-steptime", help="JSON: the longest stage's step time, for --stages")
@click.option(
    "--scheduler",
    default="chunked",
    show_default=True,
    help="static, continuous, chunked, prefill_first or disaggregated",
)
@click.option(
    "--max-num-seqs", type=int, default=256, show_default=True, help="most sequences that run at once"
)
@click.option(
    "--max-num-batched-tokens", type=int, default=8192, show_default=True, help="token budget of a step"
)
@click.option("--kv-blocks", type=int, help="KV blocks of a replica (default: no limit)")
@click.option("--block-size", type=int, default=16, show_default=True, help="tokens of a block")
@click.option("--replicas", type=int, default=1, show_default=True)
@click.option(
    "--router", default="round_robin", show_default=True, help="how arrivals are spread over replicas"
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="of the random routers and of the acceptance of drafts",
)
@click.option("--max-queued-requests", type=int, help="an arrival that finds this many waiting is rejected")
@click.option("--max-queued-tokens", type=int, help="most prompt tokens that may wait at a replica")
@click.option(
    "--timeout-s", type=Seconds(never=True), help="every request without a token after this long gives up"
)
@click.option(
    "--retries",
    type=int,
    default=0,
    show_default=True,
    help="times that a request is sent again which found the queue full or timed out",
)
@click.option("--retry-backoff-s", type=Seconds(), help="pause before the first retry (default: 1)")
@click.option("--retry-growth", type=float, help="each further pause is this many times longer (default: 2)")
@click.option("--concurrency", type=int, help="closed loop: this many users, each waiting for its answer")
@click.option(
    "--think-s",
    type=Seconds(),
    default=0.0,
    show_default=True,
    help="closed loop: pause before a user's next",
)
@click.option(
    "--start-up-s", type=Seconds(), default=0.0, show_default=True, help="replicas serve from this time on"
)
@click.option(
    "--priority",
    help="of waiting requests: none, strict or weighted (default: strict where their priorities differ)",
)
@click.option("--priority-weights", help="weighted: turns of priority 0, 1, …, by comma")
@click.option(
    "--max-wait-s", type=Seconds(), help="who arrived longer ago than this goes first, whatever its priority"
)
@click.option("--drafts", type=int, help="speculation: drafted tokens of every decoding sequence and step, K")
@click.option(
    "--acceptance", help="chance of draft i given those before it: K values by comma, or one for all of them"
)
@click.option(
    "--draft-cost",
    type=float,
    help="one draft step over one decode step of the target, c (0: drafting is free)",
)
@click.option("--draft-steptime", help="JSON: the draft's own step times, instead of --draft-cost")
@click.option("--draft-passes", type=int, help="draft steps of one step of the target (default: one a draft)")
@click.option("--drafts-off-above", type=int, help="steps in which more sequences decode draft nothing")
@memory_options
@pool_options
@click.option("--until-s", type=Seconds(never=True), help="stop here; what runs then is unfinished")
@click.option("--plain", is_flag=True, help="step every iteration in Python (slow; the engine's own check)")
@click.option("--out", type=click.Path(dir_okay=False), help="a row a request, to .csv or .parquet")
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(**options: Any) -> None:
    """Simulate requests from a file on a step-time model from a file."""
    import json

    from fleetplan.engine.files import write_records
    from fleetplan.errors import InputError

    try:
        result, order = _run(options)
    except InputError as error:
        raise InputError(*(_by_flag(line, options) for line in error.lines)) from None
    if options["scheduler"] == DISAGGREGATED and options["link"] is None:
        wait = "after its latency" if options["link_latency_s"] else "at once"
        click.echo(f"link: none given, KV is at decode {wait}, whatever its bytes", err=True)
    if options["out"]:
        write_records(result, order, options["out"])
    document = _document(result)
    if options["as_json"]:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    for name, value in document.items():
        if name not in ("reasons", "classes"):
            shown = document["reasons"].get(name, "–") if value is None else value
            click.echo(f"{name:24} {shown:.6g}" if isinstance(shown, float) else f"{name:24} {shown}")


def _run(options: dict[str, Any]) -> tuple[Any, Any]:
    from dataclasses import replace

    import numpy as np

    from fleetplan.engine import ClosedLoop, EngineConfig, simulate, starting
    from fleetplan.errors import InputError

    requests, order = _requests(options["requests_path"])
    if options["timeout_s"] is not None:
        if not options["timeout_s"] > 0:
            raise InputError(f"--timeout-s: must be above 0 (got {options['timeout_s']})")
        requests = replace(requests, timeout_s=np.full(len(requests), options["timeout_s"]))
    config = EngineConfig(
        options["scheduler"],
        max_num_seqs=options["max_num_seqs"],
        max_num_batched_tokens=options["max_num_batched_tokens"],
        kv_blocks=options["kv_blocks"],
        block_size=options["block_size"],
        max_queued_requests=options["max_queued_requests"],
        max_queued_tokens=options["max_queued_tokens"],
        retries=options["retries"],
        **{k: options[k] for k in ("retry_backoff_s", "retry_growth") if options[k] is not None},
        priority=_priority(options["priority"], requests),
        priority_weights=_weights(options["priority_weights"]),
        max_wait_s=np.inf if options["max_wait_s"] is None else options["max_wait_s"],
        speculation=_speculation(options),
        **memory_settings(options),
    )
    closed = (
        None if options["concurrency"] is None else ClosedLoop(options["concurrency"], options["think_s"])
    )
    if options["scheduler"] == DISAGGREGATED:
        if options["stages"] is not None or options["stage_steptime"] is not None:
            raise InputError("--stages, --stage-steptime: not simulated for disaggregated pools, drop them")
        return run_pools(requests, config, options, closed), order
    refuse_pool_options(options)
    result = simulate(
        requests,
        _step(options),
        config,
        replicas=options["replicas"],
        router=options["router"],
        seed=options["seed"],
        until_s=np.inf if options["until_s"] is None else options["until_s"],
        closed_loop=closed,
        outages=starting(options["replicas"], options["start_up_s"]),
        plain=options["plain"],
    )
    return result, order


def _step(options: dict[str, Any]) -> Any:
    """The step time of the file, or of a pipeline whose longest stage has a file of its own."""
    from dataclasses import replace

    from fleetplan.errors import InputError
    from fleetplan.physics.steptime_file import from_json

    step = from_json(options["steptime_path"])
    stages, path = options["stages"], options["stage_steptime"]
    if stages is None and path is None:
        return step
    if step.stages > 1:
        raise InputError(
            f"--stages, --stage-steptime: {options['steptime_path']} says its stages itself (got {step.stages}), drop them"
        )
    if stages is None or path is None:
        raise InputError(
            f"--stages, --stage-steptime: a pipeline takes both (got {f'--stages {stages}' if path is None else 'the latter alone'}), "
            "give both or neither"
        )
    try:
        return replace(step, stages=stages, stage=from_json(path))
    except ValueError as error:
        raise InputError(f"{path}: {error}") from error


_FLAGS = {"survival": "--acceptance", "passes": "--draft-passes", "off_above": "--drafts-off-above"}
"""Options of settings that have another name in the engine."""


def _by_flag(line: str, options: dict[str, Any]) -> str:
    """A fault of one of the engine's settings, told by the option that gave it.

    >>> _by_flag("max_num_seqs: must be at least 1 (got 0)", {"max_num_seqs": 0})
    '--max-num-seqs: must be at least 1 (got 0)'
    """
    where, colon, sentence = line.partition(": ")
    names = where.split(", ")
    if not colon or any(name not in options and name not in _FLAGS for name in names):
        return line
    return f"{', '.join(_FLAGS.get(name, '--' + name.replace('_', '-')) for name in names)}: {sentence}"


def _priority(given: str | None, requests: Any) -> str:
    """As a scenario has it: the most urgent first, where some are more urgent than others."""
    if given is not None:
        return given
    differ = len(requests) > 0 and requests.priority.min() != requests.priority.max()
    return "strict" if differ else "none"


def _weights(given: str | None) -> tuple[float, ...]:
    from fleetplan.errors import InputError

    try:
        return tuple(float(cell) for cell in given.split(",")) if given else ()
    except ValueError:
        raise InputError(
            f"--priority-weights: is no list of numbers (got {given!r}), like 8,2,1 would be right"
        ) from None


def _speculation(options: dict[str, Any]) -> Any:
    from fleetplan.engine import Speculation
    from fleetplan.errors import InputError
    from fleetplan.physics.steptime_file import from_json

    names = ("acceptance", "draft_cost", "draft_steptime", "draft_passes", "drafts_off_above")
    if options["drafts"] is None:
        given = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
        if given:
            raise InputError(
                f"{given[0]}: says how to speculate (got no --drafts), give --drafts K, or drop it"
            )
        return None
    if options["acceptance"] is None:
        raise InputError(
            "--acceptance: must be given with --drafts (got none), like 0.75,0.70,0.66; it is never assumed"
        )
    try:
        acceptance = [float(cell) for cell in options["acceptance"].split(",")]
    except ValueError:
        raise InputError(
            f"--acceptance: is no list of numbers (got {options['acceptance']!r}), like 0.75,0.70,0.66 would be right"
        ) from None
    if (options["draft_cost"] is None) == (options["draft_steptime"] is None):
        got = "neither" if options["draft_cost"] is None else "both"
        raise InputError(
            f"--draft-cost: give it or --draft-steptime with --drafts (got {got}), like --draft-cost 0.1, or 0 where drafting costs nothing"
        )
    return Speculation.of(
        acceptance,
        options["drafts"],
        draft_cost=options["draft_cost"],
        draft_step=None if options["draft_steptime"] is None else from_json(options["draft_steptime"]),
        passes=options["draft_passes"],
        off_above=options["drafts_off_above"],
    )


def _requests(path: str) -> tuple[Any, Any]:
    """Our own CSV, strictly; another known trace as `fleetplan trace` reads it."""
    from pathlib import Path

    import numpy as np

    from fleetplan.engine.files import NEEDED, read_requests
    from fleetplan.errors import InputError
    from fleetplan.traffic.requests import Requests
    from fleetplan.traffic.traces import read

    file = Path(path)
    if not file.is_file():
        raise InputError(f"{path}: no such file, a CSV with {','.join(NEEDED)} would be right")
    with file.open("rb") as opened:
        first = opened.readline().decode("utf-8", "replace").lstrip("\ufeff")
    if file.suffix == ".csv" and any(name in first for name in NEEDED):
        return read_requests(file)
    trace = read(file)
    if trace.arrival_s is None:
        raise InputError(f"{path}: has no time of arrival (got a trace of format {trace.format})")
    shared: dict[str, Any] = {}
    if trace.session_id is not None:
        shared["session_id"] = trace.session_id
    if trace.block_hashes is not None:
        shared |= {
            name: getattr(trace, name) for name in ("block_offsets", "block_hashes", "hash_block_tokens")
        }
    requests = Requests.of(trace.arrival_s, trace.prompt_tokens, trace.output_tokens, **shared)
    return requests, np.argsort(trace.arrival_s, kind="stable")


def _document(result: Any) -> dict[str, Any]:
    summary = result.summary()
    keys = (
        "requests", "finished", "rejected", "timed_out", "unfinished", "steps", "makespan_s", "output_tokens",
        "output_tokens_per_s", "total_tokens_per_s", "ttft_mean_s", "ttft_p50_s", "ttft_p90_s", "ttft_p99_s",
        "tpot_mean_s", "tpot_p50_s", "tpot_p95_s", "tpot_p99_s", "itl_mean_s", "itl_p99_s", "e2e_mean_s", "e2e_p50_s",
        "e2e_p99_s", "preemptions", "stable", "stability",
    )  # fmt: skip
    document = {key: summary[key] for key in keys}
    if result.prefix_hit_tokens is not None:
        document |= {key: summary[key] for key in ("prefix_hit_tokens", "prefix_hit_share")}
    if result.attempts is not None:
        document |= {key: summary[key] for key in ("retries", "fast_rejects")}
    if result.handoff is not None:
        document |= handoff_figures(result)
    document["reasons"] = {k: v for k, v in summary["reasons"].items() if k in document}
    for key, why in _UNSAID.items():
        if key in document and document[key] is None:
            document["reasons"][key] = why
    return document


_UNSAID = {
    **dict.fromkeys(("makespan_s", "output_tokens_per_s", "total_tokens_per_s"), "no request finished"),
    "prefix_hit_share": "no request was admitted",
    **dict.fromkeys(("handoff_mean_s", "handoff_p99_s"), "no KV crossed the link"),
}
"""Why a figure that `summary` gives no reason for is missing."""
