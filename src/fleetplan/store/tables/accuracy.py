"""Tables of `validate-model`: predicted and measured points, the errors of points left out, and what each term buys."""

from fleetplan.store.tables.dictionary import Column, Table, integer, number, text

_SET = text("scenario", "name of the set of points: public for the project's own, else the file's")


def _metric(name: str, what: str, unit: str) -> tuple[Column, ...]:
    ending = "" if name.endswith("per_s") else "_s"

    def named(kind: str) -> str:
        return f"{kind}_{name}{ending}"

    return (
        number(named("measured"), f"{what}, as published", unit),
        number(named("predicted"), f"{what}, by the shipped constants", unit),
        number(named("low"), "low end of the prediction's 80% band", unit),
        number(named("high"), "high end of the prediction's 80% band", unit),
        number(f"{name}_error", "predicted over measured, less 1"),
    )


ACCURACY = Table(
    "accuracy",
    "validate-model",
    "Measured closed-loop points, each with what the shipped constants predict",
    (
        _SET,
        integer("point", "line of the file of points, its header being 1"),
        text("model", "name of the model"),
        text("gpu", "name of the GPU"),
        text("engine", "serving engine"),
        text("engine_version", "its version as published; empty where it is not"),
        text("weights", "precision as published or as the checkpoint is stored"),
        integer("gpus", "GPUs of the replica", "GPU"),
        integer("tensor_parallel", "GPUs that split every layer"),
        integer("data_parallel", "attention replicas inside the replica"),
        integer("expert_parallel", "ranks over which experts are spread"),
        integer("prompt_tokens", "nominal prompt length", "token"),
        integer("output_tokens", "nominal output length", "token"),
        integer("concurrency", "clients of the closed loop"),
        text("regime", "dense or moe; low, medium or high concurrency a GPU"),
        text("flag", "what is doubtful about the row; empty where nothing is"),
        text("calibration", "what the constants stand on: deployment, pair or nearest"),
        *_metric("tpot", "time per output token", "s"),
        *_metric("ttft", "time to first token", "s"),
        *_metric("output_tokens_per_s", "output tokens per second of the replica", "token/s"),
    ),
    ("scenario", "point"),
)

ERRORS = Table(
    "accuracy_held_out",
    "validate-model",
    "Errors of points that the constants never saw: |predicted over measured − 1|",
    (
        _SET,
        text(
            "left_out",
            "deployment: single points; pair: whole (model, GPU, engine) groups; nearest: whole (GPU, engine) pairs",
        ),
        text("points_of", "all, unflagged, dense or moe"),
        text("metric", "tpot, ttft or output_tokens_per_s"),
        integer("points", "points predicted"),
        number("error_median", "median of the absolute relative error"),
        number("error_mean", "its mean"),
        number("error_p90", "its 90th percentile"),
        number("band_80_share", "share of points inside the 80% band; all points only", nullable=True),
    ),
    ("scenario", "left_out", "points_of", "metric"),
)

ABLATION = Table(
    "accuracy_ablation",
    "validate-model",
    "Errors of points left out when one term, level of constants or habit of the fit is taken away and all else is fitted anew",
    (
        _SET,
        text("without", "what is taken away; nothing: the whole model"),
        text("left_out", "deployment: single points; pair: whole (model, GPU, engine) groups"),
        number("tpot_error_median", "median of the absolute relative error of TPOT"),
        number("tpot_error_mean", "its mean"),
        number("tpot_error_p90", "its 90th percentile"),
        number("ttft_error_median", "median of the absolute relative error of TTFT"),
        number(
            "output_tokens_per_s_error_median", "median of the absolute relative error of output tokens/s"
        ),
    ),
    ("scenario", "without", "left_out"),
)

TABLES = (ACCURACY, ERRORS, ABLATION)
