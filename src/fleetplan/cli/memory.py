"""`fleetplan memory`: what fits on one GPU."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from fleetplan.physics.memory import Memory

ONE = click.IntRange(min=1)

TERMS = (
    ("weights", "weights_bytes"),
    ("weights that ranks repeat", "replicated_weights_bytes"),
    ("encoders of images or sound", "vision_bytes"),
    ("draft model", "draft_bytes"),
    ("adapters", "adapters_bytes"),
    ("activations of one step", "activation_bytes"),
    ("runtime", "runtime_bytes"),
    ("CUDA graphs", "graph_bytes"),
    ("windows during prefill", "prefill_window_bytes"),
)


@click.command("memory")
@click.option("--model", "model_name", required=True, help="Catalogue name, config.json or its folder.")
@click.option("--gpu", "gpu_name", required=True, help="GPU of the catalogue.")
@click.option("--tensor-parallel", type=ONE, default=1, show_default=True)
@click.option("--pipeline-parallel", type=ONE, default=1, show_default=True)
@click.option("--data-parallel", type=ONE, default=1, show_default=True)
@click.option("--expert-parallel", type=ONE, default=1, show_default=True)
@click.option("--weights", default="bf16", show_default=True, help="Precision scheme, or `stored`.")
@click.option("--kv-cache", default="bf16", show_default=True, help="bf16, fp8, int8 or int4.")
@click.option("--context", type=ONE, help="Longest sequence, prompt and output [tokens].")
@click.option("--mean", type=ONE, help="Mean sequence [tokens].")
@click.option("--engine", default="vllm", show_default=True, help="Memory policy of the engine.")
@click.option("--gpu-memory-utilization", type=float, default=0.9, show_default=True)
@click.option("--block-size", type=ONE, default=16, show_default=True, help="Tokens a KV block.")
@click.option("--max-num-batched-tokens", type=ONE, default=8192, show_default=True)
@click.option("--max-num-seqs", type=ONE, default=256, show_default=True)
@click.option("--draft", help="Draft model of speculative decoding.")
@click.option("--draft-weights", default="bf16", show_default=True)
@click.option("--mtp", is_flag=True, help="Hold the model's own multi-token-prediction layers.")
@click.option("--adapters", type=click.IntRange(min=0), default=0, help="Resident LoRA adapters.")
@click.option("--adapter-rank", type=ONE, default=16, show_default=True)
@click.option("--adapter-targets", default="q,k,v,o", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print strict JSON.")
def command(
    model_name: str,
    gpu_name: str,
    tensor_parallel: int,
    pipeline_parallel: int,
    data_parallel: int,
    expert_parallel: int,
    weights: str,
    kv_cache: str,
    context: int | None,
    mean: int | None,
    engine: str,
    gpu_memory_utilization: float,
    block_size: int,
    max_num_batched_tokens: int,
    max_num_seqs: int,
    draft: str | None,
    draft_weights: str,
    mtp: bool,
    adapters: int,
    adapter_rank: int,
    adapter_targets: str,
    as_json: bool,
) -> None:
    """What one GPU holds: weights, what the engine takes, what is left for KV, and how many sequences that is."""
    from fleetplan.catalog import gpu, model
    from fleetplan.physics.memory import Adapters, memory

    targets = tuple(part.strip() for part in adapter_targets.split(","))
    found = memory(
        model(model_name).architecture,
        gpu(gpu_name),
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        expert_parallel=expert_parallel,
        weights=weights,
        kv_cache=kv_cache,
        context_tokens=context,
        mean_tokens=mean,
        engine=engine,
        gpu_memory_utilization=gpu_memory_utilization,
        block_size=block_size,
        max_num_batched_tokens=max_num_batched_tokens,
        max_num_seqs=max_num_seqs,
        draft=model(draft).architecture if draft else None,
        draft_weights=draft_weights,
        mtp=mtp,
        adapters=Adapters(adapter_rank, adapters, targets) if adapters else None,
    )
    if as_json:
        click.echo(json.dumps(found.to_dict(), indent=2, allow_nan=False))
    else:
        click.echo("\n".join(lines(found)))


def lines(m: Memory) -> Iterable[str]:
    """The account of one GPU, in bytes and GiB."""
    from tabulate import tabulate

    yield (
        f"{m.model} on {m.gpu}: tensor {m.tensor_parallel} × pipeline {m.pipeline_parallel} × data {m.data_parallel},"
        f" experts over {m.expert_parallel}; {m.weights} weights, {m.kv_cache} KV; memory rule of {m.engine}"
    )
    rows = [["datasheet", *_sizes(m.memory_bytes)], ["usable", *_sizes(m.usable_bytes)]]
    rows += [[title, *_sizes(getattr(m, field))] for title, field in TERMS if getattr(m, field)]
    rows.append([f"left for KV at utilisation {m.gpu_memory_utilization:g}", *_sizes(m.left_bytes)])
    rows.append(["KV of one token, short sequence", *_sizes(m.kv_bytes_per_token)])
    if m.state_bytes_per_sequence:
        rows.append(["state of one sequence", *_sizes(m.state_bytes_per_sequence)])
    if m.sequence_bytes_theory is not None and m.sequence_bytes_engine is not None:
        rows.append([f"sequence of {m.context_tokens:,} tokens, theory", *_sizes(m.sequence_bytes_theory)])
        rows.append(["the same as the engine gives it out", *_sizes(m.sequence_bytes_engine)])
    align = ("left", "right", "right")
    yield tabulate(
        rows, ["one GPU", "bytes", "GiB"], tablefmt="simple", colalign=align, disable_numparse=True
    )
    yield f"KV tokens of one pool {m.kv_tokens:,}; blocks of {m.block_size}: {m.kv_blocks:,}"
    if m.longest_sequence_tokens is not None:
        yield f"longest single sequence {m.longest_sequence_tokens:,} tokens"
    if m.sequences_at_context is not None:
        yield f"sequences of {m.context_tokens:,} tokens, all pools: {m.sequences_at_context:,}"
    if m.sequences_at_mean is not None:
        yield f"sequences of {m.mean_tokens:,} tokens, all pools: {m.sequences_at_mean:,}"
    yield m.verdict
    for note in m.notes:
        yield f"note: {note}"


def _sizes(size: float) -> tuple[str, str]:
    return f"{size:,.0f}", f"{size / 2**30:,.4f}"
