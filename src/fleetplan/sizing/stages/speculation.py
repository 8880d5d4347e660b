"""Rows of the stage `speculation`: where speculative decoding pays for every candidate that can run, and where it stops."""

from __future__ import annotations

import dataclasses
from typing import Any

from fleetplan import catalog, progress
from fleetplan.errors import InputError
from fleetplan.sizing.candidates import expand
from fleetplan.sizing.drafting import check_together, curve, drafter, head
from fleetplan.sizing.machine import machine
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.speculation.experiment import settings_table
from fleetplan.speculation.rows import LEVELS, choice_rows, measured_rows, speculation_rows

WHAT_IF_DRAFTS = 5

Rows = dict[str, list[dict[str, Any]]]


def rows(scenario: Asked) -> Rows:
    """The stage's tables; nothing here looks at the traffic, the promises or the seed."""
    if not isinstance(scenario, Scenario):  # an endpoint has no tokens to draft
        empty = ("speculation", "speculation_choices", "sampling_acceptance", "measured_acceptance")
        return {name: [] for name in empty}
    model = catalog.model(scenario.model_reference)
    sweep, choices = [], []
    for candidate in progress.each(expand(scenario), "candidate", lambda candidate: candidate.label):
        # How fast the target steps has nothing to do with who drafts.
        alone = dataclasses.replace(candidate.decode, speculation="none")
        if alone.pipeline_parallel > 1:
            continue  # drafts are not simulated in a pipeline
        built = machine(alone, scenario, model, 1, 1)
        if built.step is None:
            continue
        gpu = catalog.gpu(candidate.gpu)
        power = None if gpu.tdp_w is None else gpu.tdp_w * alone.gpus_per_engine_group
        given = candidate.drafts
        if given is None:
            name, draft = "eagle3", head(model, "eagle3")
            curves = [("what if", (level,) * WHAT_IF_DRAFTS) for level in LEVELS]
        else:
            try:
                check_together(given, model, 1)
                name, draft = given.draft, drafter(given, alone, scenario, model)
            except InputError:
                continue  # it cannot run, with this as its reason in the table of candidates
            curves = [curve(given)]
        for basis, by_position in curves:
            sweep += speculation_rows(
                candidate.candidate_id, built.step, name, draft, by_position, basis,
                gpus=alone.gpus_per_engine_group, power_w=power,
            )  # fmt: skip
            if given is not None or by_position[0] == LEVELS[len(LEVELS) // 2]:
                choices += choice_rows(candidate.candidate_id, built.step, draft, by_position, basis)
    return {
        "speculation": sweep,
        "speculation_choices": choices,
        "sampling_acceptance": settings_table(),
        "measured_acceptance": measured_rows(),
    }
