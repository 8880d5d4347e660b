"""Published serving points: one row a measurement, read strictly, with what is left out and why."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fleetplan import catalog
from fleetplan.catalog import Gpu
from fleetplan.errors import InputError, read_text
from fleetplan.physics import precision as schemes
from fleetplan.physics.architecture import Architecture, LatentAttention
from fleetplan.physics.constants import gpu_key, keys, model_key, precision_key
from fleetplan.physics.work import Layout

REQUIRED = (
    "model_path",
    "system",
    "backend",
    "mode",
    "isl",
    "osl",
    "concurrency",
    "silicon_ttft_ms",
    "silicon_tpot_ms",
)
EXAMPLE = {
    "model_path": "meta-llama/Llama-3.1-8B-Instruct", "system": "h100_sxm", "backend": "vllm", "mode": "agg", "isl": "1024",
    "osl": "1024", "concurrency": "16", "silicon_ttft_ms": "61.3", "silicon_tpot_ms": "7.24", "tp_size": "1", "pp_size": "1",
    "attention_dp_size": "1", "moe_tp_size": "1", "moe_ep_size": "1", "n_gpus": "1", "engine": "vllm", "model": "Llama-3.1-8B-Instruct",
    "gpu": "h100_sxm", "tp": "1", "weight_dtype": "bf16", "kv_dtype": "bf16", "load_kind": "request_rate", "load_value": "4",
    "metric": "ttft_ms_mean", "value": "61.3",
}  # fmt: skip
"""What a cell of each column looks like."""
_SCHEMES = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
    "fp4": "nvfp4",
    "nvfp4": "nvfp4",
    "int4": "int4",
    "mxfp4": "mxfp4",
}


_SUFFIX = re.compile(
    r"[-_](nvfp4|fp8|fp4|mxfp4|bf16|int4|awq|gptq|instruct|chat|thinking|base|preview|kv|dynamic|block|tp|hf|v\d|\d{4})$",
    re.IGNORECASE,
)
"""Endings of a checkpoint's name that change its precision or training, not its shape."""


@dataclass(frozen=True)
class Point:
    """One measured closed-loop run of one replica."""

    row: int
    """Line of the file, the header being 1."""
    model: str
    """The catalogue's name of the model."""
    model_path: str
    architecture: Architecture
    gpu: Gpu
    engine: str
    engine_version: str
    precision: str
    weights: str
    kv_cache: str
    layout: Layout
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    ttft_s: float
    tpot_s: float
    flag: str
    measured: str = ""
    """Date of the run, ISO; empty where none is published."""

    @property
    def keys(self) -> dict[str, str]:
        """What its constants are kept by, at each level of the hierarchy."""
        return keys(
            model_key(self.architecture),
            gpu_key(self.gpu),
            self.engine,
            precision_key(self.weights, self.architecture),
            self.release,
            "fp4" in self.gpu.flop_per_s,
        )

    @property
    def release(self) -> str:
        """The engine's release, as constants are kept by."""
        return release(self.engine_version, self.measured)

    @property
    def group(self) -> tuple[str, str, str]:
        """What is left out together: model (by shape), GPU and engine."""
        return model_key(self.architecture), gpu_key(self.gpu), self.engine

    @property
    def pair(self) -> tuple[str, str]:
        """GPU and engine."""
        return gpu_key(self.gpu), self.engine

    @property
    def output_tokens_per_s(self) -> float:
        """concurrency·osl/(TTFT + (osl − 1)·TPOT), as derived from measured figures."""
        return output_tokens_per_s(self.concurrency, self.output_tokens, self.ttft_s, self.tpot_s)

    @property
    def regime(self) -> str:
        """Architecture and batch: dense or MoE, low (≤ 8), medium (≤ 64) or high concurrency a GPU."""
        each = self.concurrency / self.layout.gpus
        load = "low" if each <= 4 else "medium" if each <= 32 else "high"
        return f"{'moe' if self.architecture.is_moe else 'dense'} {load}"


def output_tokens_per_s(concurrency: float, output_tokens: float, ttft_s: float, tpot_s: float) -> float:
    """Throughput of a closed loop [tokens/s]: each client makes `output_tokens` in TTFT + (G − 1)·TPOT."""
    return concurrency * output_tokens / (ttft_s + (output_tokens - 1) * tpot_s)


def release(version: str, measured: str) -> str:
    """Major and minor number of an engine's version, with the release candidate where it is one; else the month of the run.

    >>> release("1.2.0rc6.post3", "2026-02-05"), release("0.19.0", ""), release("nightly-dev", "2026-03-20")
    ('1.2', '0.19', '2026-03')
    """
    found = re.match(r"\d+\.\d+", version)
    return found.group() if found else measured[:7]


def read_rows(path: Path, required: Sequence[str]) -> list[dict[str, str]]:
    """The rows of a CSV that has these columns, each once; a cell that a short row lacks is empty. Raises InputError."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path, "a CSV of measured points")), restval="")
        names = reader.fieldnames or []
        missing = [name for name in required if name not in names]
        if missing:
            raise InputError(
                f"{path}:1: columns missing: {', '.join(missing)} (got {', '.join(names) or 'none'}); add them, like "
                + ", ".join(f"{name} {EXAMPLE[name]}" for name in missing)
            )
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise InputError(
                f"{path}:1: columns given twice: {', '.join(twice)} (got {', '.join(names)}); keep one of each"
            )
        return list(reader)
    except csv.Error as error:
        raise InputError(f"{path}: is no CSV ({error}), a CSV of measured points is needed") from error


def read_points(path: Path) -> tuple[list[Point], Counter[str]]:
    """Points of a CSV with the columns of the public table, and how many rows each rule leaves out.

    Raises `InputError` when a column is missing or a cell is no number. A row of a model, GPU or engine that the catalogue does not know is
    left out and counted, as are disaggregated runs and rows without a measurement.
    """
    rows = read_rows(path, REQUIRED)
    excluded: Counter[str] = Counter()
    points = []
    for line, row in enumerate(rows, start=2):
        made = _point(row, line, f"{path}:{line}")
        if isinstance(made, str):
            excluded[made] += 1
        else:
            points.append(made)
    if not rows:
        example = ", ".join(f"{name} {EXAMPLE[name]}" for name in REQUIRED)
        raise InputError(
            f"{path}:2: no rows (got the header alone), give at least one measurement, like {example}"
        )
    return points, excluded


def find_model(path: str) -> catalog.Model:
    """The catalogue's model of a Hub path, tried whole, then without its owner, then without a precision's suffix."""
    last: InputError | None = None
    name = path.split("/")[-1]
    bare = [name]
    # Nested suffixes come off one by one: Llama-3.1-70B-Instruct-FP8, Qwen3-235B-A22B-Instruct-2507-FP8.
    while (shorter := _SUFFIX.sub("", bare[-1])) != bare[-1]:
        bare.append(shorter)
    for candidate in dict.fromkeys((path, *bare)):
        try:
            return catalog.model(candidate)
        except InputError as error:
            last = last or error
    assert last is not None
    raise last


def weights_of(precision: str, architecture: Architecture, model_path: str) -> tuple[str, Architecture]:
    """Scheme of a row's precision, and the architecture with what that checkpoint leaves in bf16.

    Blank follows the checkpoint. Checkpoints in NVFP4 of MLA models keep attention in bf16, and gpt-oss is MXFP4 whatever the row says.
    """
    if "gpt-oss" in model_path.lower() or architecture.stored_weights == "mxfp4":
        return "stored", architecture
    wanted = precision.strip().lower()
    if not wanted:
        lower = model_path.lower()
        wanted = (
            "fp4" if "fp4" in lower else "fp8" if "fp8" in lower else architecture.stored_weights or "bf16"
        )
    scheme = _SCHEMES.get(wanted, wanted)
    if scheme == "nvfp4" and any(isinstance(g.mixer, LatentAttention) for g in architecture.layers):
        return scheme, dataclasses.replace(architecture, stored_weights="nvfp4", unquantised=("attention",))
    return scheme, architecture


def layout_of(row: dict[str, str], where: str = "row") -> Layout:
    """How a row's GPUs share the model; GPU counts that contradict the degrees follow the experts' own. Raises InputError for no number."""
    tp, dp = _whole(row, "tp_size", 1, where), _whole(row, "attention_dp_size", 1, where)
    moe_tp, moe_ep = _whole(row, "moe_tp_size", 1, where), _whole(row, "moe_ep_size", 1, where)
    pp, stated = _whole(row, "pp_size", 1, where), _whole(row, "n_gpus", 0, where)
    gpus = tp * dp
    if stated and gpus > stated * 1.5:
        # Attention-DP rows whose degree was multiplied in twice.
        tp = max(stated // dp, 1)
        gpus = tp * dp
    if (
        moe_tp * moe_ep > gpus
        and (not stated or moe_tp * moe_ep <= max(stated, 8))
        and not row.get("attention_dp_size")
    ):
        dp = max(moe_tp * moe_ep // tp, 1)
        gpus = tp * dp
    ep = moe_ep if gpus % moe_ep == 0 else 1
    return Layout(tp, pp, dp, min(ep, gpus))


def kv_dtype(engine: str, precision: str, gpu: Gpu) -> str:
    """KV dtype that published runs keep: fp8 beside quantised weights in TensorRT-LLM and on GPUs with fp4 units, else bf16.

    vLLM and SGLang keep bf16 unless asked otherwise; the published recipes for the Blackwell generation ask for fp8.
    """
    quantised = precision not in ("", "bf16", "fp16")
    return "fp8" if quantised and (engine == "trtllm" or "fp4" in gpu.flop_per_s) else "bf16"


def _point(row: dict[str, str], line: int, where: str) -> Point | str:
    mode = (row.get("mode") or "").strip().lower()
    if mode.startswith("disagg"):
        return "disaggregated serving"
    if mode not in ("agg", "aggregated", "static", ""):
        return f"mode {mode}"
    ttft, tpot = _number(row, "silicon_ttft_ms", where), _number(row, "silicon_tpot_ms", where)
    if ttft is None or tpot is None or ttft <= 0 or tpot <= 0:
        return "no measured TTFT or TPOT"
    sizes = [_number(row, name, where) for name in ("isl", "osl", "concurrency")]
    if any(size is None or size < 1 for size in sizes):
        return "no isl, osl or concurrency"
    isl, osl, concurrency = (int(size) for size in sizes if size is not None)
    if osl < 2:
        return "one output token has no TPOT"
    engine = engine_name(row["backend"])
    if engine is None:
        return f"engine {row['backend']} not in data/engines.yaml"
    try:
        model = find_model(row["model_path"])
    except InputError:
        return f"model {row['model_path']} not in the catalogue"
    try:
        gpu = catalog.gpu(row["system"])
    except InputError:
        return f"GPU {row['system']} not in the catalogue"
    precision = (row.get("precision") or "").strip().lower()
    weights, architecture = weights_of(precision, model.architecture, row["model_path"])
    try:
        schemes.scheme(weights, architecture)
    except InputError:
        return f"precision {precision} not known"
    return Point(
        row=line,
        model=model.name,
        model_path=row["model_path"],
        architecture=architecture,
        gpu=gpu,
        engine=engine,
        engine_version=row.get("backend_version") or "",
        precision=precision or ("fp8" if weights == "fp8" else "fp4" if weights == "nvfp4" else "bf16"),
        weights=weights,
        kv_cache=kv_dtype(engine, precision, gpu),
        layout=layout_of(row, where),
        prompt_tokens=isl,
        output_tokens=osl,
        concurrency=concurrency,
        ttft_s=ttft / 1e3,
        tpot_s=tpot / 1e3,
        flag=(row.get("flag") or "").strip(),
        measured=(row.get("measured") or "").strip(),
    )


def engine_name(text: str) -> str | None:
    """vllm, sglang or trtllm, by any spelling; None for an engine that has no calibration."""
    name = text.lower().replace("-", "").replace("_", "").replace(" ", "")
    for key, engine in (("vllm", "vllm"), ("sglang", "sglang"), ("trtllm", "trtllm"), ("tensorrt", "trtllm")):
        if key in name:
            return engine
    return None


def _number(row: dict[str, str], name: str, where: str) -> float | None:
    text = (row.get(name) or "").strip()
    if not text:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{where}: column {name}: must be a number (got {text!r}), like {EXAMPLE[name]}")
    return value


def _whole(row: dict[str, str], name: str, default: int, where: str) -> int:
    value = _number(row, name, where)
    return default if value is None else max(int(value), 1)
