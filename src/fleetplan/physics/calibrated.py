"""The calibrated step time: a sum of per-operator rooflines and engine overheads, each term switchable by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from fleetplan.catalog import Gpu
from fleetplan.errors import InputError, unknown_name
from fleetplan.physics.architecture import Architecture
from fleetplan.physics.constants import Calibration, calibration, load
from fleetplan.physics.form import Floats, StepTime
from fleetplan.physics.nodes import Nodes, nodes_of
from fleetplan.physics.pipeline import pipeline
from fleetplan.physics.roofline import checked_layout, checked_stages, replica_work
from fleetplan.physics.steptime_file import from_document
from fleetplan.physics.terms import OVERHEAD_UNITS, SWITCHES, TERMS, Slopes, slopes, token_rows
from fleetplan.physics.work import Work

SWITCHABLE = (*TERMS, *SWITCHES, "client")
_HOST = frozenset({"step", "decoding_sequences", "prompt_sequences"})


@dataclass(frozen=True, eq=False)
class Calibrated:
    """A replica's step time with its evidence."""

    step: StepTime
    calibration: Calibration
    work: Work
    overhead_terms_s: dict[str, Floats]
    """O[n] by term, n = 0..N [s]."""
    client_s: float
    """What a client's TTFT has on top: API, network [s]."""
    client_token_s: float
    """The same a prompt token: tokenisation and transfer [s]."""
    client_concurrent_s: float
    """The same a request in flight: the API server and its stream handling are shared."""
    context_classes: tuple[str, str]


def calibrated(
    architecture: Architecture,
    gpu: Gpu,
    *,
    weights: str,
    kv_cache: str,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: int = 1,
    engine: str = "vllm",
    without: Iterable[str] = (),
    max_tokens: int = 8192,
    calibration_file: str | Path | None = None,
) -> StepTime:
    """The step time of one replica by the fitted constants of its engine, GPU and model; see `calibrate_step` for the evidence.

    O[n] sums matmuls, experts, collectives and overheads at n tokens; σ and δ are the engine's time a sequence; c, m, m_w and m_s read attention
    FLOPs, KV and state. Beyond `max_tokens` O goes on with its last slope. Raises InputError for an unknown engine, precision or term.
    """
    return calibrate_step(
        architecture,
        gpu,
        weights=weights,
        kv_cache=kv_cache,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        expert_parallel=expert_parallel,
        engine=engine,
        without=without,
        max_tokens=max_tokens,
        calibration_file=calibration_file,
    ).step


def calibrate_step(
    architecture: Architecture,
    gpu: Gpu,
    *,
    weights: str,
    kv_cache: str,
    tensor_parallel: int = 1,
    pipeline_parallel: int = 1,
    data_parallel: int = 1,
    expert_parallel: int = 1,
    engine: str = "vllm",
    without: Iterable[str] = (),
    max_tokens: int = 8192,
    calibration_file: str | Path | None = None,
    release: str = "",
    node_gpus: int | None = None,
    network_bytes_per_s: float | None = None,
) -> Calibrated:
    """The calibrated step time, which calibration it stands on, its error band, and O[n] by term; `release` takes a measured release's own factors.

    `node_gpus` and `network_bytes_per_s` (one GPU, one direction) replace the catalogue's node. Of a pipeline, the times of the stages add up
    to the step's but for the sends.
    """
    off = frozenset(without)
    unknown = sorted(off - set(SWITCHABLE))
    if unknown:
        raise InputError(*(f"without: {unknown_name('term', name, SWITCHABLE)}" for name in unknown))
    layout = checked_layout(tensor_parallel, pipeline_parallel, data_parallel, expert_parallel)
    chosen = calibration(architecture, gpu, engine, weights, calibration_file, release)
    k = chosen.constants
    work = replica_work(architecture, gpu, weights=weights, kv_cache=kv_cache, layout=layout)
    document = load(calibration_file)
    if "steptime" in document:
        # A model fitted to one deployment's own request log: nothing of ours is added to it.
        given = from_document(document["steptime"], str(calibration_file))
        return Calibrated(
            checked_pipeline(given, layout.pipeline_parallel, str(calibration_file)),
            chosen,
            work,
            {},
            0.0,
            0.0,
            0.0,
            ("kv", "kv"),
        )
    place = nodes_of(gpu, node_gpus, network_bytes_per_s)
    step, terms, classes = _step(work, gpu, engine, k, off, max_tokens, place)
    if layout.pipeline_parallel > 1:
        stages = checked_stages(architecture, layout)
        # What the host does for a step is one process's, whatever is divided: it counts in the last stage, where tokens are sampled.
        busy = replace(layout, pipeline_parallel=1)
        each = {
            stage: _step(
                replica_work(
                    stage, gpu, weights=weights, kv_cache=kv_cache, layout=busy, whole=architecture
                ),
                gpu, engine, k, off if stage is stages[-1] else off | _HOST, max_tokens, place, classes,
            )[0]
            for stage in stages
        }  # fmt: skip
        step = pipeline(step, [each[stage] for stage in stages])
    client = 0.0 if "client" in off else 1.0
    return Calibrated(
        step=step,
        calibration=chosen,
        work=work,
        overhead_terms_s=terms,
        client_s=client * OVERHEAD_UNITS["client"] * k["client"],
        client_token_s=client * OVERHEAD_UNITS["client_token"] * k["client_token"],
        client_concurrent_s=client * OVERHEAD_UNITS["client_concurrent"] * k["client_concurrent"],
        context_classes=classes,
    )


def checked_pipeline(step: StepTime, pipeline_parallel: int, where: str) -> StepTime:
    """A given step time, or `InputError` where it is not of so many stages: nothing tells how long a stage of another pipeline takes."""
    if step.stages == pipeline_parallel:
        return step
    right = (
        f"state stages: {pipeline_parallel} and the longest stage there"
        if pipeline_parallel > 1
        else "plan it with the pipeline_parallel that it is of"
    )
    raise InputError(
        f"{where}: its step time is of {step.stages} {'stage' if step.stages == 1 else 'stages'} "
        f"(got pipeline_parallel {pipeline_parallel}), {right}"
    )


def _step(
    work: Work,
    gpu: Gpu,
    engine: str,
    k: Mapping[str, float],
    off: frozenset[str],
    max_tokens: int,
    place: Nodes,
    classes: tuple[str, str] | None = None,
) -> tuple[StepTime, dict[str, Floats], tuple[str, str]]:
    """The step of a model or of one stage, O[n] by term, and what limits context: of a stage what limits that of the model (`classes`)."""
    grid = _grid(max_tokens)
    rows = token_rows(work, gpu, engine, grid, off, place)
    exact = token_rows(
        work,
        gpu,
        engine,
        grid,
        off | {"routing_correlation", "imbalance", "token_efficiency", "shard_efficiency"},
        place,
    )
    terms: dict[str, Floats] = {}
    every = np.arange(max_tokens + 1)
    for index, term in enumerate(rows.term):
        value = np.maximum(
            rows.left[index] * k[rows.left_class[index]], rows.right[index] * k[rows.right_class[index]]
        )
        # Whatever routing is fitted, no step beats the bytes of independently routed experts at full bandwidth.
        if term in ("matmul", "experts", "head"):
            value = np.maximum(value, np.maximum(exact.left[index], exact.right[index]))
        full = np.interp(every, grid, value)
        full[0] = 0.0
        terms[term] = terms[term] + full if term in terms else full
    overhead = np.sum(list(terms.values()), axis=0) if terms else np.zeros(max_tokens + 1)
    slope = slopes(work, gpu, off)
    ranks = work.layout.data_parallel
    prompt = (
        0.0 if "prompt_sequences" in off else OVERHEAD_UNITS["prompt_sequence"] * k["prompt_sequence"] / ranks
    )
    decode = (
        0.0
        if "decoding_sequences" in off
        else OVERHEAD_UNITS["decoding_sequence"] * k["decoding_sequence"] / ranks
    )
    head = slope.head_s * k[slope.head_class]
    read, window_read = _context(slope, k, classes)
    made = StepTime(
        overhead_s=overhead,
        compute_s=np.zeros(2),
        memory_s=np.zeros(2),
        sequence_s=prompt + head,
        decode_s=decode - prompt,
        pair_s=slope.pair_s * k["attention"],
        window_pair_s=slope.window_pair_s * k["attention"],
        kv_token_s=read[1],
        window_kv_token_s=window_read[1],
        state_s=slope.state_s * k["kv"],
        window_tokens=work.window_tokens,
        overhead_slope_s=float(overhead[-1] - overhead[-2]),
        compute_slope_s=0.0,
        memory_slope_s=0.0,
    )
    return made, terms, (read[0], window_read[0])


def explain(
    made: Calibrated, batch: int, context_tokens: int, prompt_tokens: int = 0
) -> list[tuple[str, float]]:
    """Terms of one step [s], longest first: `batch` sequences that decode at `context_tokens` each, and one prompt beside them.

    The terms add up to `step_s` of the same step: of attention and KV the greater is shown, as only it takes time.
    """
    step = made.step
    n = batch + prompt_tokens
    if n < 1:
        raise InputError("a step has at least one token: give --batch or --prompt")
    if not made.overhead_terms_s:
        read = batch * context_tokens + prompt_tokens
        pairs = batch * context_tokens + prompt_tokens * (prompt_tokens + 1) / 2
        return [("step", float(step.step_s(n, batch + (prompt_tokens > 0), batch, read, pairs)))]
    if n > step.max_tokens:
        raise InputError(
            f"a step of {n} tokens is longer than the table of {step.max_tokens}; give --max-tokens {n}"
        )
    sequences = batch + (1 if prompt_tokens else 0)
    out = {term: float(values[n]) for term, values in made.overhead_terms_s.items()}
    window = step.window_tokens or context_tokens
    seen = min(context_tokens, window)
    prompt_pairs = prompt_tokens * (prompt_tokens + 1) / 2
    ramp = min(prompt_tokens, window)
    prompt_window_pairs = ramp * (ramp + 1) / 2 + (prompt_tokens - ramp) * ramp
    prompt_seen = min(prompt_tokens, window + prompt_tokens - 1) if step.window_tokens else prompt_tokens
    compute = step.pair_s * (batch * context_tokens + prompt_pairs) + step.window_pair_s * (
        batch * seen + prompt_window_pairs
    )
    memory = (
        step.kv_token_s * (batch * context_tokens + prompt_tokens)
        + step.window_kv_token_s * (batch * seen + prompt_seen)
        + step.state_s * sequences
    )
    out["attention" if compute > memory else "kv_read"] = max(compute, memory)
    per_prompt = step.sequence_s
    per_decode = step.sequence_s + step.decode_s
    out["decoding_sequences"] = per_decode * batch
    if prompt_tokens:
        out["prompt_sequences"] = per_prompt
    return sorted(((term, value) for term, value in out.items() if value > 0), key=lambda pair: -pair[1])


def _context(
    slope: Slopes, k: Mapping[str, float], classes: tuple[str, str] | None
) -> tuple[tuple[str, float], tuple[str, float]]:
    """(which limit, seconds a context token) for full and for windowed layers: KV bytes, or MLA's absorbed compute where that is longer.

    `classes`: the limits that are known already.
    """
    pairs = []
    for index, (read, mla) in enumerate(((slope.kv_s, slope.mla_s), (slope.window_kv_s, slope.window_mla_s))):
        by = {"kv": read * k["kv"], "mla": mla * k["mla"]}
        limit = classes[index] if classes is not None else "mla" if by["mla"] > by["kv"] else "kv"
        pairs.append((limit, by[limit]))
    return pairs[0], pairs[1]


def _grid(max_tokens: int) -> Floats:
    """Token counts at which the operators are evaluated: all to 256, then some 48 an octave; between them O[n] is linear."""
    dense = np.arange(1, min(max_tokens, 256) + 1)
    if max_tokens <= 256:
        return dense.astype(np.float64)
    sparse = np.unique(
        np.round(np.geomspace(256, max_tokens, int(24 * np.log2(max_tokens / 256)) + 2)).astype(np.int64)
    )
    return np.unique(np.concatenate([dense, sparse])).astype(np.float64)
