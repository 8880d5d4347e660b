"""The step time of a candidate by the scenario's choice: calibrated, roofline, or as the spec gives it."""

from __future__ import annotations

from typing import Any

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.physics import steptime
from fleetplan.physics.calibrated import Calibrated, calibrate_step, checked_pipeline
from fleetplan.physics.form import StepTime
from fleetplan.sizing.buying import node_gpus
from fleetplan.sizing.candidates import Candidate
from fleetplan.spec.scenario import Scenario
from fleetplan.spec.steptime import Affine, Roofline, Table

DEFAULT_BUDGET_TOKENS = 8192
"""max_num_batched_tokens where the scheduler has no budget of its own: it sizes activations and the vectors of a step time."""


def step_of(
    candidate: Candidate, scenario: Scenario, model: catalog.Model, most_tokens: int = 0
) -> tuple[StepTime, Calibrated | None]:
    """The step time of a model run as the candidate is, known up to its budget or to `most_tokens`; and its calibration, if it has one."""
    choice = scenario.step_time
    if isinstance(choice, Affine):
        given = choice.affine
        if candidate.pipeline_parallel > 1:
            raise InputError(
                f"step_time.affine: is of one stage (got pipeline_parallel {candidate.pipeline_parallel}), give step_time.table, a file "
                "that states stages and the longest stage"
            )
        return steptime.affine(given.fixed_s, given.prefill_s_per_token, given.decode_s_per_sequence), None
    if isinstance(choice, Table):
        step = steptime.from_json(scenario.folder / choice.table)
        return checked_pipeline(step, candidate.pipeline_parallel, choice.table), None
    gpu = catalog.gpu(candidate.gpu)
    if isinstance(choice, Roofline):
        given_roofline = choice.roofline
        return (
            steptime.roofline(
                model.architecture,
                gpu,
                efficiency=given_roofline.efficiency,
                overhead_s=given_roofline.overhead_s,
                attention_flops=given_roofline.attention_flops,
                **layout(candidate),
            ),
            None,
        )
    most = max(candidate.max_num_batched_tokens or DEFAULT_BUDGET_TOKENS, candidate.max_num_seqs, most_tokens)
    made = calibrate_step(
        model.architecture,
        gpu,
        engine=candidate.engine,
        max_tokens=most,
        calibration_file=scenario.folder / candidate.calibration if candidate.calibration else None,
        node_gpus=node_gpus(scenario.policy, candidate.gpu),
        network_bytes_per_s=scenario.candidates.network_bytes_per_s,
        **layout(candidate),
    )
    return made.step, made


def is_given(scenario: Scenario) -> bool:
    """Whether the spec itself gives the model's step time, so that another model's cannot be derived."""
    return isinstance(scenario.step_time, (Affine, Table))


def layout(candidate: Candidate) -> dict[str, Any]:
    """Precisions and degrees of a candidate, as the physics takes them."""
    return {
        "weights": candidate.weights,
        "kv_cache": candidate.kv_cache,
        "tensor_parallel": candidate.tensor_parallel,
        "pipeline_parallel": candidate.pipeline_parallel,
        "data_parallel": candidate.data_parallel,
        "expert_parallel": candidate.expert_parallel,
    }
