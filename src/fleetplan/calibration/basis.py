"""Points as sums that are linear in the constants, so that a fit of hundreds of them takes seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fleetplan.calibration.closedloop import Benchmark, Composition, compose
from fleetplan.calibration.points import Point, read_points
from fleetplan.calibration.recipes import Recipe, default_recipe, recipe
from fleetplan.physics import precision
from fleetplan.physics.form import Floats
from fleetplan.physics.roofline import replica_work
from fleetplan.physics.terms import CLASSES, OVERHEAD_UNITS, Rows, slopes, token_rows
from fleetplan.physics.work import Work

INDEX = {name: k for k, name in enumerate(CLASSES)}
TPOT, TTFT = 0, 1
# Share of a GPU's usable memory that weights and KV may take, and what runtime, graphs and workspace keep of it [bytes].
_MEMORY_SHARE = 0.93
_RESERVED_BYTES = 4e9


@dataclass(frozen=True, eq=False)
class Basis:
    """Sums of k and rows of max(left·k[left_class], right·k[right_class]) that add up to TPOT and TTFT of each point [s]."""

    points: int
    metric: NDArray[np.int64]
    """point · 2 + metric of each row."""
    left: Floats
    right: Floats
    left_class: NDArray[np.int64]
    right_class: NDArray[np.int64]
    sums: Floats
    """(points, 2, classes) seconds of what no other limit can hide."""

    def predict(self, constants: Floats) -> Floats:
        """(points, 2) seconds of TPOT and TTFT from constants (points, classes)."""
        value = self._sides(constants)
        total = np.bincount(self.metric, np.maximum(*value), 2 * self.points)
        total += (self.sums * constants[:, None, :]).sum(axis=2).ravel()
        return np.asarray(total, dtype=np.float64).reshape(-1, 2)

    def gradient(self, constants: Floats) -> tuple[Floats, Floats]:
        """Predictions, and d prediction/d log constant (points, 2, classes)."""
        left, right = self._sides(constants)
        chosen = np.where(left >= right, self.left_class, self.right_class)
        value = np.maximum(left, right)
        flat = np.bincount(self.metric * len(CLASSES) + chosen, value, 2 * self.points * len(CLASSES))
        per_class = np.asarray(flat, dtype=np.float64).reshape(self.points, 2, len(CLASSES))
        per_class += self.sums * constants[:, None, :]
        return np.asarray(per_class.sum(axis=2)), per_class

    def _sides(self, constants: Floats) -> tuple[Floats, Floats]:
        point = self.metric // 2
        return self.left * constants[point, self.left_class], self.right * constants[point, self.right_class]


def basis(
    points: Sequence[Point],
    median_share: float = 0.0,
    without: frozenset[str] = frozenset(),
    recipes: bool = True,
) -> Basis:
    """The points' rows. TTFT is published as a mean or a median: `median_share` of it follows the median request's steps, the rest the mean's.

    `recipes`: whether points are simulated with the settings that their benchmark published, or with the engine's defaults.
    """
    find = recipe if recipes else default_recipe
    blocks = [_rows(point, median_share, without, find(point)) for point in points]
    metric = np.concatenate([block[0] + 2 * index for index, block in enumerate(blocks)])
    left, right, left_class, right_class = (
        np.concatenate([block[column] for block in blocks]) for column in (1, 2, 3, 4)
    )
    # Where one side is nothing or both share their constant, the greater is known before any constant is.
    alone = (left_class == right_class) | (right == 0) | (left == 0)
    value = np.maximum(left, right)[alone]
    of = np.where(left >= right, left_class, right_class)[alone]
    size = 2 * len(points) * len(CLASSES)
    sums = np.asarray(np.bincount(metric[alone] * len(CLASSES) + of, value, size), dtype=np.float64).reshape(
        -1, 2, len(CLASSES)
    )
    rest = ~alone
    return Basis(
        len(points), metric[rest], left[rest], right[rest], left_class[rest], right_class[rest], sums
    )


def usable_points(path: Path) -> tuple[list[Point], Counter[str]]:
    """The points of a file that can be judged, and how many each rule leaves out."""
    points, excluded = read_points(path)
    kept = []
    for point in points:
        if impossible(point):
            excluded["more sequences at once than memory holds, and no wait in TTFT"] += 1
        else:
            kept.append(point)
    return kept, excluded


def kv_tokens(point: Point, work: Work) -> int:
    """Tokens that the replica's KV pools hold, by a simple memory rule; at least 1."""
    free = point.gpu.memory_usable_bytes * _MEMORY_SHARE - _RESERVED_BYTES - _weight_bytes(point)
    each = (work.kv_bytes_per_token + work.window_kv_bytes_per_token * 0.25) * point.layout.data_parallel
    if each <= 0:
        return 0
    return max(int(free / each) * point.layout.data_parallel, 1)


def composition(point: Point, work: Work, settings: Recipe | None = None) -> Composition | None:
    """Steps of the point's closed-loop run, by its recipe or the settings given."""
    settings, ranks = settings or recipe(point), point.layout.data_parallel
    run = Benchmark(
        concurrency=point.concurrency,
        prompt_tokens=point.prompt_tokens,
        output_tokens=point.output_tokens,
        policy=settings.policy,
        max_num_batched_tokens=settings.max_num_batched_tokens * ranks,
        max_num_seqs=settings.max_num_seqs,
        kv_tokens=kv_tokens(point, work),
        life_share=1.0 if point.engine == "trtllm" else 0.6,
        window_tokens=work.window_tokens,
        drafts=settings.drafts,
        tokens_per_step=settings.tokens_per_step,
        wait_steps=settings.wait_steps,
        wait_tokens=settings.wait_tokens * ranks,
        poll_steps=settings.poll_steps,
    )
    return compose(run) or compose(replace(run, kv_tokens=0))


def impossible(point: Point) -> bool:
    """Whether the record contradicts memory: far more sequences than fit at once, and yet no wait in its TTFT.

    Such a concurrency is of several replicas together, whatever the row says.
    """
    work = replica_work(
        point.architecture, point.gpu, weights=point.weights, kv_cache=point.kv_cache, layout=point.layout
    )
    needed = point.concurrency * 0.9 * (point.prompt_tokens + 0.5 * point.output_tokens)
    held = kv_tokens(point, work)
    return held > 0 and needed > 1.5 * held and point.ttft_s < 0.2 * point.output_tokens * point.tpot_s


def _weight_bytes(point: Point) -> float:
    scheme = precision.scheme(point.weights, point.architecture)
    layout = point.layout
    total = 0.0
    for tensor in point.architecture.tensors():
        total += scheme.bytes_of(tensor) / (
            layout.stage_gpus if tensor.shard == "expert" else layout.tensor_parallel
        )
    return total / layout.pipeline_parallel


def _rows(
    point: Point, median_share: float, without: frozenset[str], settings: Recipe
) -> tuple[NDArray[np.int64], Floats, Floats, NDArray[np.int64], NDArray[np.int64]]:
    work = replica_work(
        point.architecture, point.gpu, weights=point.weights, kv_cache=point.kv_cache, layout=point.layout
    )
    made = composition(point, work, settings)
    assert made is not None
    tokens, sequences, decoding, kv, pairs, window_kv, window_pairs = made.steps.T
    rows = token_rows(work, point.gpu, point.engine, np.maximum(tokens, 1), without)
    slope = slopes(work, point.gpu, without)
    ranks = point.layout.data_parallel
    weights = (made.tpot, median_share * made.ttft_median + (1 - median_share) * made.ttft)
    # Drafts come from one more layer each.
    drafting = 1 + settings.drafts / max(work.layers, 1)
    unit = OVERHEAD_UNITS
    dense_kv = slope.kv_s * kv + slope.window_kv_s * window_kv + slope.state_s * sequences
    mla = slope.mla_s * kv + slope.window_mla_s * window_kv
    kv_class, read = ("mla", mla) if mla.sum() * 1.5 > dense_kv.sum() else ("kv", dense_kv)
    extra: list[tuple[str, str, str, Floats, Floats]] = [
        ("attention", "attention", kv_class, slope.pair_s * pairs + slope.window_pair_s * window_pairs, read),
    ]
    if "decoding_sequences" not in without:
        extra.append(
            (
                "decoding_sequences",
                "decoding_sequence",
                "decoding_sequence",
                unit["decoding_sequence"] * decoding / ranks,
                0 * kv,
            )
        )
    if "prompt_sequences" not in without:
        prompt = unit["prompt_sequence"] * (sequences - decoding) / ranks
        extra.append(("prompt_sequences", "prompt_sequence", "prompt_sequence", prompt, 0 * kv))
    extra.append(("head", slope.head_class, slope.head_class, slope.head_s * sequences, 0 * kv))
    rows = Rows(
        rows.term + tuple(e[0] for e in extra),
        rows.left_class + tuple(e[1] for e in extra),
        rows.right_class + tuple(e[2] for e in extra),
        np.concatenate([rows.left, np.array([e[3] for e in extra])]) * drafting,
        np.concatenate([rows.right, np.array([e[4] for e in extra])]) * drafting,
    )
    left_class = np.array([INDEX[name] for name in rows.left_class])
    right_class = np.array([INDEX[name] for name in rows.right_class])
    metric, left, right, lc, rc = [], [], [], [], []
    for which, weight in enumerate(weights):
        used = np.flatnonzero(weight > 0)
        left.append((rows.left[:, used] * weight[used]).ravel())
        right.append((rows.right[:, used] * weight[used]).ravel())
        lc.append(np.repeat(left_class, len(used)))
        rc.append(np.repeat(right_class, len(used)))
        metric.append(np.full(left[-1].size, which))
    if "client" not in without:
        client = np.array(
            [
                unit["client"],
                unit["client_token"] * made.prompt_tokens_mean,
                unit["client_concurrent"] * point.concurrency,
            ]
        )
        names = np.array([INDEX["client"], INDEX["client_token"], INDEX["client_concurrent"]])
        metric.append(np.full(3, TTFT))
        left.append(client)
        right.append(np.zeros(3))
        lc.append(names)
        rc.append(names)
    return (
        np.concatenate(metric),
        np.concatenate(left),
        np.concatenate(right),
        np.concatenate(lc),
        np.concatenate(rc),
    )
