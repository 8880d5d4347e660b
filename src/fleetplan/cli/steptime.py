"""`fleetplan steptime`: the time of one engine step, term by term, or the model of all steps as a JSON file."""

from __future__ import annotations

from typing import Any

import click


@click.command()
@click.option("--model", required=True, help="catalogue name, or path of a config.json")
@click.option("--gpu", required=True, help="catalogue name")
@click.option("--tensor-parallel", "--tp", type=int, default=1, show_default=True)
@click.option(
    "--pipeline-parallel", "--pp", type=int, default=1, show_default=True, help="stages that split the layers"
)
@click.option(
    "--data-parallel", type=int, default=1, show_default=True, help="attention data parallel inside a replica"
)
@click.option("--expert-parallel", type=int, default=1, show_default=True)
@click.option(
    "--weights", default="stored", show_default=True, help="precision scheme; stored: as the checkpoint is"
)
@click.option("--kv-cache", default="bf16", show_default=True, help="KV cache dtype")
@click.option("--engine", default="vllm", show_default=True, help="vllm, sglang or trtllm")
@click.option(
    "--cost-model", type=click.Choice(["calibrated", "roofline"]), default="calibrated", show_default=True
)
@click.option("--efficiency", type=float, help="share of the peak, of the roofline model (default 1)")
@click.option(
    "--calibration", type=click.Path(dir_okay=False), help="calibration file that `fleetplan calibrate` wrote"
)
@click.option("--batch", type=int, default=1, show_default=True, help="decoding sequences")
@click.option("--context", type=int, default=1024, show_default=True, help="tokens that each of them reads")
@click.option("--prompt", type=int, default=0, show_default=True, help="prompt tokens computed beside them")
@click.option(
    "--max-tokens",
    type=click.IntRange(1, 1 << 24),
    default=8192,
    show_default=True,
    help="longest step of the table",
)
@click.option("--without", multiple=True, help="switch off a term by name (repeatable)")
@click.option("--explain", is_flag=True, help="the terms in microseconds, with their shares")
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    help="write the whole model as JSON for `fleetplan simulate --steptime`",
)
@click.option("--json", "as_json", is_flag=True, help="machine-readable")
def command(**options: Any) -> None:
    """The time of one engine step of a model on a GPU, and what it is made of."""
    import json

    document = _document(options)
    if options["as_json"]:
        click.echo(json.dumps(document, indent=2, allow_nan=False))
        return
    click.echo(
        f"{document['step_us'] / 1e3:.3f} ms  {options['batch']} sequences at {options['context']} tokens",
        nl=False,
    )
    click.echo(f", and a prompt of {options['prompt']} tokens" if options["prompt"] else "")
    if "beat_us" in document:
        click.echo(
            f"{document['beat_us'] / 1e3:.3f} ms  the longest of its {options['pipeline_parallel']} stages: the next step may start then"
        )
    if options["explain"]:
        for term in document["terms"]:
            click.echo(f"{term['us']:12.1f} µs  {term['share']:6.1%}  {term['term']}: {term['what']}")
    if "calibration" in document:
        band = document["step_band_us"]
        click.echo(
            f"80% band {band['low'] / 1e3:.3f} to {band['high'] / 1e3:.3f} ms; {document['calibration']['named']}"
        )
    if "wrote" in document:
        click.echo(f"wrote {document['wrote']}")


def _document(options: dict[str, Any]) -> dict[str, Any]:
    from fleetplan import catalog
    from fleetplan.errors import InputError
    from fleetplan.physics import calibrated as physics
    from fleetplan.physics.kv import check_tensor_parallel
    from fleetplan.physics.roofline import checked_layout, roofline
    from fleetplan.physics.steptime import StepTime, to_json
    from fleetplan.physics.terms import TERMS

    batch, context, prompt = options["batch"], options["context"], options["prompt"]
    faults = [
        f"--{name}: at least {low} is needed (got {value})"
        for name, value, low in (("batch", batch, 0), ("context", context, 1), ("prompt", prompt, 0))
        if value < low
    ]
    if batch + prompt < 1 and not faults:
        faults.append("--batch 0 without --prompt: a step has at least one token")
    if options["cost_model"] == "calibrated" and options["efficiency"] is not None:
        faults.append("--efficiency belongs to --cost-model roofline")
    if options["cost_model"] == "roofline" and (options["calibration"] or options["without"]):
        faults.append("--calibration and --without belong to --cost-model calibrated")
    if faults:
        raise InputError(*faults)
    model, gpu = catalog.model(options["model"]), catalog.gpu(options["gpu"])
    layout = {
        name: options[name]
        for name in ("tensor_parallel", "pipeline_parallel", "data_parallel", "expert_parallel")
    }
    checked_layout(**layout)
    check_tensor_parallel(model.architecture, layout["tensor_parallel"])
    document: dict[str, Any] = {
        "model": model.name,
        "gpu": gpu.name,
        "cost_model": options["cost_model"],
        "weights": options["weights"],
        "kv_cache": options["kv_cache"],
        **layout,
        "batch": batch,
        "context_tokens": context,
        "prompt_tokens": prompt,
    }
    step: StepTime
    if options["cost_model"] == "roofline":
        step = roofline(
            model.architecture,
            gpu,
            weights=options["weights"],
            kv_cache=options["kv_cache"],
            efficiency=1.0 if options["efficiency"] is None else options["efficiency"],
            attention_flops=True,
            max_tokens=options["max_tokens"],
            **layout,
        )
        total = _step_s(step, batch, context, prompt)
        n = batch + prompt
        reads = batch * context + prompt
        parts = [
            ("compute", step.compute_slope_s * n),
            ("weights", float(step.memory_s[min(n, len(step.memory_s) - 1)])),
            ("kv_read", step.kv_token_s * reads),
        ]
        document["step_us"] = total * 1e6
        document["terms"] = [
            {
                "term": name,
                "us": value * 1e6,
                "share": value / total,
                "what": "the greater of compute and (weights + KV) takes time",
            }
            for name, value in parts
        ]
    else:
        made = physics.calibrate_step(
            model.architecture,
            gpu,
            weights=options["weights"],
            kv_cache=options["kv_cache"],
            engine=options["engine"],
            without=options["without"],
            max_tokens=options["max_tokens"],
            calibration_file=options["calibration"],
            **layout,
        )
        step = made.step
        terms = physics.explain(made, batch, context, prompt)
        total = sum(value for _, value in terms)
        document["engine"] = options["engine"]
        document["step_us"] = total * 1e6
        document["step_band_us"] = {
            "low": total * made.calibration.tpot.low * 1e6,
            "high": total * made.calibration.tpot.high * 1e6,
        }
        document["terms"] = [
            {"term": name, "us": value * 1e6, "share": value / total if total else 0.0, "what": TERMS[name]}
            for name, value in terms
        ]
        document["client_us"] = {
            "fixed": made.client_s * 1e6,
            "per_prompt_token": made.client_token_s * 1e6,
            "per_request_in_flight": made.client_concurrent_s * 1e6,
        }
        document["calibration"] = {"basis": made.calibration.basis, "named": made.calibration.named}
    if step.stage is not None:
        document["beat_us"] = _step_s(step.stage, batch, context, prompt) * 1e6
    if options["out"]:
        to_json(step, options["out"])
        document["wrote"] = options["out"]
    return document


def _step_s(step: Any, batch: int, context: int, prompt: int) -> float:
    window = step.window_tokens or context
    seen = min(context, window)
    return float(
        step.step_s(
            tokens=batch + prompt,
            sequences=batch + (prompt > 0),
            decoding=batch,
            kv_tokens=batch * context + prompt,
            pairs=batch * context + prompt * (prompt + 1) / 2,
            window_kv_tokens=batch * seen + prompt,
            window_pairs=batch * seen + min(prompt, window) * prompt,
        )
    )
