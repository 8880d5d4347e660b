"""A user's own calibration: factors for one deployment on top of the shipped constants, or a step-time model from a request log."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fleetplan.calibration import accuracy
from fleetplan.calibration.basis import Basis, basis
from fleetplan.calibration.fit import fit
from fleetplan.calibration.hierarchy import effects, priors
from fleetplan.calibration.points import Point
from fleetplan.calibration.public import LEAST_POINTS, factors
from fleetplan.calibration.reader_checks import Run
from fleetplan.calibration.readers import RequestLog
from fleetplan.calibration.replay import replay_fit
from fleetplan.catalog import Gpu
from fleetplan.errors import InputError
from fleetplan.physics.architecture import Architecture
from fleetplan.physics.constants import GROUPS, calibration, load
from fleetplan.physics.form import Floats
from fleetplan.physics.terms import CLASSES
from fleetplan.physics.work import Layout


def points_of(
    runs: Sequence[Run],
    model: str,
    architecture: Architecture,
    gpu: Gpu,
    engine: str,
    weights: str,
    kv_cache: str,
    layout: Layout,
) -> list[Point]:
    """Runs as closed-loop points; lengths are scaled so that draws in 0.8–1.0 of nominal have the run's means."""
    return [
        Point(
            row=index,
            model=model,
            model_path=model,
            architecture=architecture,
            gpu=gpu,
            engine=engine,
            engine_version="",
            precision=weights,
            weights=weights,
            kv_cache=kv_cache,
            layout=layout,
            prompt_tokens=max(round(run.prompt_tokens / 0.9), 1),
            output_tokens=max(round(run.output_tokens / 0.9), 2),
            concurrency=max(round(run.concurrency), 1),
            ttft_s=run.ttft_s,
            tpot_s=run.tpot_s,
            flag="",
        )
        for index, run in enumerate(runs, 1)
    ]


def fit_runs(points: Sequence[Point], name: str, files: Sequence[Path]) -> dict[str, Any]:
    """The shipped calibration with one deployment's factors fitted to its runs; each run is predicted by the others for the hold-out error.

    Raises InputError for fewer than four runs, with what is predicted and measured, as so few make predictions worse.
    """
    shipped = [calibration(p.architecture, p.gpu, p.engine, p.weights, release=p.release) for p in points]
    known = np.array([[c.constants[k] for k in CLASSES] for c in shipped])
    rows = basis(points)
    predicted = rows.predict(known)
    if len(points) < LEAST_POINTS:
        raise InputError(
            f"{len(points)} runs: fewer than {LEAST_POINTS} make a calibration worse, not better, so nothing is fitted; add runs at other loads",
            *(
                f"run {p.row}: TPOT {1e3 * p.tpot_s:.2f} ms measured, {1e3 * guess[0]:.2f} predicted; TTFT {1e3 * p.ttft_s:.0f} ms measured, {1e3 * guess[1]:.0f} predicted"
                for p, guess in zip(points, predicted, strict=True)
            ),
        )
    used = [p.keys for p in points]
    scaled = _absorb(rows, known, priors(used))
    chosen = effects(used, ("deployment",))
    chosen = [e for e in chosen if e.level == "deployment"]
    truth, pull = accuracy.measured(points), accuracy.weights(points)
    made = fit(scaled, truth, used, chosen, pull)
    after = scaled.predict(made.constants(used))
    held = np.zeros_like(truth)
    for index in range(len(points)):
        left = np.ones(len(points))
        left[index] = 0.0
        one = fit(scaled, truth, used, chosen, pull * left[:, None])
        held[index] = scaled.predict(one.constants(used))[index]
    document = copy.deepcopy(load())
    document["name"] = name
    document["engine"] = points[0].engine
    document["provenance"] = {
        "source": "fleetplan calibrate",
        "files": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files if path.is_file()
        },
        "runs": len(points),
        "on_top_of": load()["name"],
    }
    document["residuals"] = {
        "before": accuracy.error_table(points, predicted),
        "after": accuracy.error_table(points, after),
    }
    document["held_out_error"] = {"deployment": {"all": accuracy.error_table(points, held)}}
    document["bands"]["deployment"] = accuracy.band(points, held)
    added = factors(made)["deployment"]
    for key, values in added.items():
        old = document["effects"].setdefault("deployment", {}).get(key, {})
        document["effects"]["deployment"][key] = _product(old, values)
    return document


def fit_log(log: RequestLog, name: str, path: Path, engine: str = "vllm") -> dict[str, Any]:
    """A calibration that holds the step-time model of one request log."""
    alone = np.median((log.last_token_s - log.first_token_s) / np.maximum(log.output_tokens - 1, 1))
    start = {
        "overhead_s": 0.001,
        "weights_s": 0.4 * float(alone),
        "compute_s_per_token": float(alone) / 300,
        "kv_s_per_token": float(alone) / 200_000,
        "sequence_s": 2e-5,
    }
    made = replay_fit(log, start)
    spread = {
        m: {"low": 1 - 2 * made.held_out_errors[e] - 0.01, "high": 1 + 2 * made.held_out_errors[e] + 0.01}
        for m, e in (("tpot", "tpot"), ("ttft", "ttft"))
    }
    bands = {**spread, "output_tokens_per_s": spread["tpot"]}
    file = path / "requests.jsonl" if path.is_dir() else path
    return {
        "schema": 1,
        "name": name,
        "engine": engine,
        "provenance": {
            "source": "fleetplan calibrate: a request log, replayed",
            "files": {file.name: hashlib.sha256(file.read_bytes()).hexdigest()},
            "requests": made.requests,
            "definition": log.definition,
            "settings": {key: value for key, value in log.settings.items() if value is not None},
        },
        "steptime": {"model": "linear", **made.constants},
        "residuals": {
            "median_relative_error_a_request": made.errors,
            "makespan": made.makespan_error,
            "preemptions": made.preemptions,
        },
        "held_out_error": {"deployment": {"median_relative_error_a_request": made.held_out_errors}},
        "bands": {"deployment": bands, "pair": bands, "nearest": bands},
        "effects": {},
    }


def _absorb(rows: Basis, known: Floats, start: Floats) -> Basis:
    """The basis with what is known of the constants multiplied in, so that a fit from its priors starts there."""
    point, ratio = rows.metric // 2, known / start
    return replace(
        rows,
        left=rows.left * ratio[point, rows.left_class],
        right=rows.right * ratio[point, rows.right_class],
        sums=rows.sums * ratio[:, None, :],
    )


def _product(old: dict[str, float], new: dict[str, float]) -> dict[str, float]:
    assert set(new) <= set(GROUPS) | set(CLASSES)
    return {key: round(old.get(key, 1.0) * new.get(key, 1.0), 4) for key in {**old, **new}}
