"""The options of `fleetplan simulate --scheduler disaggregated`, and the run that they ask for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from fleetplan.cli.seconds import Seconds

if TYPE_CHECKING:
    from fleetplan.engine import ClosedLoop, EngineConfig, Result
    from fleetplan.traffic.requests import Requests

DISAGGREGATED = "disaggregated"
_OPTIONS = (
    click.option("--prefill-replicas", type=int, help="disaggregated: replicas that compute prompts (default 1)"),
    click.option("--decode-replicas", type=int, help="disaggregated: replicas that decode (default 1)"),
    click.option("--prefill-scheduler", help="disaggregated: continuous, chunked (default) or prefill_first"),
    click.option(
        "--decode-scheduler",
        help="disaggregated: continuous (default: whole lives are reserved), chunked or prefill_first",
    ),
    click.option("--decode-steptime", help="disaggregated: the decode pool's own step times (default: --steptime)"),
    click.option("--decode-router", help="disaggregated: how handoffs are spread (default: as --router)"),
    click.option("--decode-max-num-seqs", type=int, help="disaggregated: default as --max-num-seqs"),
    click.option(
        "--decode-max-num-batched-tokens", type=int, help="disaggregated: default as --max-num-batched-tokens"
    ),
    click.option("--decode-kv-blocks", type=int, help="disaggregated: default as --kv-blocks"),
    click.option("--link", help='disaggregated: bandwidth that all KV shares, like "50 GB/s" (default: no limit)'),
    click.option("--link-latency-s", type=Seconds(), help="disaggregated: added to every crossing (default 0)"),
    click.option("--kv-bytes-per-token", type=float, help="disaggregated: KV of one token, of the whole model"),
    click.option("--bypass-tokens", type=int, help="disaggregated: prompts up to this long go to decode at once"),
    click.option("--first-token", help="disaggregated: TTFT ends at prefill (default) or at the KV's landing"),
)  # fmt: skip
NAMES = (
    "prefill_replicas", "decode_replicas", "prefill_scheduler", "decode_scheduler", "decode_steptime", "decode_router",
    "decode_max_num_seqs", "decode_max_num_batched_tokens", "decode_kv_blocks", "link", "link_latency_s",
    "kv_bytes_per_token", "bypass_tokens", "first_token",
)  # fmt: skip


def pool_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of two pools to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def refuse_pool_options(options: dict[str, Any]) -> None:
    """Raise InputError where an option of two pools is given to one."""
    from fleetplan.errors import InputError

    given = [f"--{name.replace('_', '-')}" for name in NAMES if options[name] is not None]
    if given:
        raise InputError(
            f"{', '.join(given)}: only for --scheduler disaggregated (got {options['scheduler']}), drop it or take that scheduler"
        )


def run_pools(
    requests: Requests, config: EngineConfig, options: dict[str, Any], closed_loop: ClosedLoop | None
) -> Result:
    """Simulate prefill and decode pools as the options say. Raises InputError for what does not go together."""
    from dataclasses import replace

    import numpy as np

    from fleetplan.engine import Link, Pool, simulate_pools
    from fleetplan.errors import InputError
    from fleetplan.physics.steptime_file import from_json

    if options["replicas"] != 1:
        raise InputError(
            f"--replicas: disaggregated has two pools (got {options['replicas']}), --prefill-replicas and --decode-replicas would be right"
        )
    if options["start_up_s"]:
        raise InputError("--start-up-s: not simulated for disaggregated pools, drop it")
    step = from_json(options["steptime_path"])

    def own(name: str) -> Any:
        value = options[f"decode_{name}"]
        return options[name] if value is None else value

    def given(name: str, default: Any) -> Any:
        return default if options[name] is None else options[name]

    prefill = replace(config, scheduler=given("prefill_scheduler", "chunked"), speculation=None)
    decode = replace(
        config,
        scheduler=given("decode_scheduler", "continuous"),
        max_num_seqs=own("max_num_seqs"),
        max_num_batched_tokens=own("max_num_batched_tokens"),
        kv_blocks=own("kv_blocks"),
        max_queued_requests=None,
        max_queued_tokens=None,
    )
    decode_step = step if options["decode_steptime"] is None else from_json(options["decode_steptime"])
    return simulate_pools(
        requests,
        Pool(step, prefill, given("prefill_replicas", 1), options["router"]),
        Pool(decode_step, decode, given("decode_replicas", 1), own("router")),
        Link(_bandwidth(options["link"]), given("kv_bytes_per_token", 0.0), given("link_latency_s", 0.0)),
        bypass_tokens=given("bypass_tokens", 0),
        first_token=given("first_token", "prefill"),
        seed=options["seed"],
        until_s=np.inf if options["until_s"] is None else options["until_s"],
        closed_loop=closed_loop,
        plain=options["plain"],
    )


def handoff_figures(result: Result) -> dict[str, Any]:
    """How many handoffs landed, and how long they took from token 1 to the KV's landing [s]."""
    import numpy as np

    from fleetplan.engine.summary import nearest_rank

    assert result.handoff is not None
    took = result.handoff.landed_s - result.handoff.prefilled_s
    took = took[np.isfinite(took)]
    return {
        "handoffs": len(took),
        "handoff_mean_s": float(took.mean()) if len(took) else None,
        "handoff_p99_s": nearest_rank(took, 99),
    }


def _bandwidth(written: str | None) -> float:
    import math

    from pydantic_core import PydanticCustomError

    from fleetplan.errors import InputError
    from fleetplan.spec.units import Quantity

    if written is None:
        return math.inf
    try:
        return Quantity("bandwidth").read(written)
    except PydanticCustomError as error:
        raise InputError(f"--link: {error.message()}") from error
