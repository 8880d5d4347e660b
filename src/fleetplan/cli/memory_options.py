"""The options of `fleetplan simulate` about memory: prefix cache, preemption, LoRA adapters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from fleetplan.cli.seconds import Seconds

_OPTIONS = (
    click.option("--prefix-cache", is_flag=True, help="keep and share the whole blocks of prompts' beginnings"),
    click.option("--host-blocks", type=int, help="prefix cache: evicted blocks that the host keeps"),
    click.option("--host-block-s", type=Seconds(), help="prefix cache: time of one block from the host [s]"),
    click.option("--disk-blocks", type=int, help="prefix cache: blocks evicted from the host that the disk keeps"),
    click.option("--disk-block-s", type=Seconds(), help="prefix cache: time of one block from the disk [s]"),
    click.option("--preemption", help="recompute (default), or swap to the host's memory"),
    click.option("--swap-blocks", type=int, help="preemption swap: blocks that the host keeps"),
    click.option("--swap-block-s", type=Seconds(), help="preemption swap: time of one block in each direction [s]"),
    click.option("--max-adapters", type=int, help="LoRA adapters that are resident at once"),
    click.option("--adapter-load-s", type=Seconds(), help="time to load an adapter that is not resident [s]"),
)  # fmt: skip


def memory_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options about memory to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def memory_settings(options: dict[str, Any]) -> dict[str, Any]:
    """The fields of EngineConfig that these options give. Raises InputError for a tier without a cache."""
    from fleetplan.engine import PrefixCache
    from fleetplan.errors import InputError

    tiers = ("host_blocks", "host_block_s", "disk_blocks", "disk_block_s")
    given = {name: options[name] for name in tiers if options[name] is not None}
    if given and not options["prefix_cache"]:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in given)
        raise InputError(
            f"{flags}: a tier of the prefix cache (got no --prefix-cache), give that too, or drop it"
        )
    names = ("preemption", "swap_blocks", "swap_block_s", "max_adapters", "adapter_load_s")
    settings = {name: options[name] for name in names if options[name] is not None}
    return {"prefix_cache": PrefixCache(**given) if options["prefix_cache"] else None, **settings}
