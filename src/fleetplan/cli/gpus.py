"""`fleetplan gpus`: the accelerators of the catalogue."""

from __future__ import annotations

import json

import click


@click.command("gpus")
@click.option("--json", "as_json", is_flag=True, help="Print strict JSON.")
def command(as_json: bool) -> None:
    """List the catalogue's GPUs: memory as the datasheet and as the driver has it, bandwidth, dense peaks, link, power."""
    from tabulate import tabulate

    from fleetplan.catalog import gpus

    if as_json:
        click.echo(json.dumps([gpu.model_dump() for gpu in gpus()], indent=2, allow_nan=False))
        return
    rows = [
        [
            gpu.name,
            f"{gpu.memory_bytes / 2**30:.1f}",
            f"{gpu.memory_usable_bytes / 2**30:.2f}{'' if gpu.usable_measured else ' *'}",
            f"{gpu.bandwidth_bytes_per_s / 1e12:.3f}",
            *(
                f"{gpu.flop_per_s[kind] / 1e12:,.0f}" if kind in gpu.flop_per_s else "–"
                for kind in ("bf16", "fp8", "int8", "fp4")
            ),
            f"{gpu.link.kind}, {gpu.link.bytes_per_s_per_direction / 1e9:.0f}",
            "–" if gpu.tdp_w is None else f"{gpu.tdp_w:.0f}",
        ]
        for gpu in gpus()
    ]
    head = ["name", "GiB", "usable GiB", "TB/s", "bf16", "fp8", "int8", "fp4", "link, GB/s one way", "W"]
    align = ("left", *["right"] * 7, "left", "right")
    click.echo(tabulate(rows, head, tablefmt="simple", colalign=align, disable_numparse=True))
    click.echo("Peaks in dense TFLOP/s (TOP/s for int8). * no reported figure is known: the datasheet's.")
