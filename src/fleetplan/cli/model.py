"""`fleetplan model`: parameters and KV cache of one model, line by line."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from fleetplan.catalog import Model
    from fleetplan.physics.architecture import Architecture, Mixer

LENGTHS = (1024, 8192, 32768, 131072)


@click.command("model")
@click.argument("name_or_path")
@click.option("--json", "as_json", is_flag=True, help="Print strict JSON.")
def command(name_or_path: str, as_json: bool) -> None:
    """Parameters and KV cache of NAME_OR_PATH: a catalogue name or alias, a config.json, or its folder."""
    from fleetplan.catalog import model

    found = model(name_or_path)
    if as_json:
        click.echo(json.dumps(summary(found), indent=2, allow_nan=False))
    else:
        click.echo("\n".join(lines(found)))


def summary(model: Model) -> dict[str, Any]:
    """What machines read; sizes in bytes, bf16, one GPU."""
    a = model.architecture
    return {
        "name": model.name,
        "family": a.family,
        "parameters_total": a.parameters_total,
        "parameters_active": a.parameters_active,
        "parameters_mtp": a.parameters_mtp,
        "kv_bytes_per_token": _whole(a.kv_bytes_per_token),
        "kv_bytes_at": {str(length): _whole(a.kv_bytes(length)) for length in LENGTHS},
        "state_bytes_per_sequence": a.state_bytes_per_sequence,
        "layers": a.layer_count,
        "attention_layers": a.attention_layers,
        "windows_tokens": list(a.windows),
        "max_context_tokens": a.max_context_tokens,
        "stored_weights": a.stored_weights,
        "weights_bytes_bf16": 2 * a.parameters_total,
        "notes": list(a.notes),
        "source": model.source,
    }


def lines(model: Model) -> Iterable[str]:
    """The arithmetic: every tensor, then every kind of layer in the cache."""
    from tabulate import tabulate

    a = model.architecture
    yield f"{model.title} ({a.family}): {a.layer_count} layers, hidden size {a.d:,}, vocabulary {a.vocabulary:,}"
    yield f"source: {model.source}"
    yield ""
    rows = []
    for x in a.tensors():
        shape = " × ".join(f"{size:,}" for size in x.shape)
        rows.append([x.name, shape, f"{x.count:,}", f"{x.parameters:,}", *_sizes(2.0 * x.parameters)])
    total, active = a.parameters_total, a.parameters_active
    rows.append(["total", "", "", f"{total:,}", *_sizes(2.0 * total)])
    rows.append(["used by one token", "", "", f"{active:,}", *_sizes(2.0 * active)])
    if a.mtp:
        rows.append(["MTP layers, apart", "", "", f"{a.parameters_mtp:,}", *_sizes(2.0 * a.parameters_mtp)])
    head = ["parameters", "shape", "copies", "count", "bytes (bf16)", "GiB"]
    yield tabulate(rows, head, tablefmt="simple", colalign=("left", *["right"] * 5), disable_numparse=True)
    yield ""
    kv = [[*line] for line in _kv_lines(a)]
    kv.append(["one token of a short sequence", "", "", *_sizes(a.kv_bytes_per_token)])
    kv += [[f"one sequence of {n:,} tokens", "", "", *_sizes(a.kv_bytes(n))] for n in LENGTHS]
    if a.state_bytes_per_sequence:
        kv.append(["constant state of one sequence", "", "", *_sizes(float(a.state_bytes_per_sequence))])
    head = ["KV cache", "layers", "each (bf16)", "bytes", "GiB"]
    yield tabulate(kv, head, tablefmt="simple", colalign=("left", *["right"] * 4), disable_numparse=True)
    for note in a.notes:
        yield f"note: {note}"


def _kv_lines(a: Architecture) -> Iterable[tuple[str, ...]]:
    counts: dict[tuple[str, str, float], int] = {}
    for group in a.layers:
        for kept in _kept(group.mixer):
            counts[kept] = counts.get(kept, 0) + group.count
    for (what, how, each), count in counts.items():
        yield (what, f"{count}", how, *_sizes(count * each))


def _kept(mixer: Mixer) -> Iterable[tuple[str, str, float]]:
    """What a layer keeps of a token: in words, as a product, in bytes."""
    from fleetplan.physics.architecture import CompressedAttention, FullAttention, LatentAttention

    sizes = [size for _, size in mixer.cache(2.0)]
    if isinstance(mixer, FullAttention) and mixer.cached:
        what = "full attention" if mixer.window is None else f"window of {mixer.window:,} tokens"
        yield what, f"{mixer.n_kv_heads} × ({mixer.head_dim} + {mixer.v_dim}) × 2", sizes[0]
    elif isinstance(mixer, LatentAttention):
        how = f"({mixer.kv_lora_rank} + {mixer.qk_rope_head_dim}) × 2"
        if mixer.indexer_bytes_per_token:
            how += f" + {mixer.indexer_bytes_per_token} index"
        yield "latent attention, on every GPU", how, sizes[0]
    elif isinstance(mixer, CompressedAttention):
        yield f"window of {mixer.window:,} tokens, on every GPU", f"{mixer.head_dim} × 2", sizes[0]
        if mixer.ratio:
            index = f" + {mixer.indexer.entry_bytes} index" if mixer.indexer else ""
            how = f"({mixer.head_dim} × 2{index}) / {mixer.ratio}"
            yield f"an entry for {mixer.ratio} tokens, on every GPU", how, sizes[1]


def _sizes(size: float) -> tuple[str, str]:
    return f"{size:,.0f}", f"{size / 2**30:,.4f}"


def _whole(size: float) -> int | float:
    return int(size) if size == int(size) else size
