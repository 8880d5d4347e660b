"""Rows of the stage `speculation`: where speculative decoding pays for every candidate that can run, and where it stops."""

from __future__ import annotations

import dataclasses
from typing import Any

from fleetplan import catalog
from fleetplan.errors import InputError
from fleetplan.sizing.candidates import Candidate, expand
from fleetplan.sizing.machine import machine
from fleetplan.spec.candidates import Speculation
from fleetplan.spec.scenario import Asked, Scenario
from fleetplan.speculation.experiment import settings_table
from fleetplan.speculation.measured import measured, method, methods
from fleetplan.speculation.payoff import Draft
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
    for candidate in expand(scenario):
        # How fast the target steps has nothing to do with who drafts.
        alone = dataclasses.replace(candidate, speculation="none")
        built = machine(alone, scenario, model, 1, 1)
        if built.step is None:
            continue
        gpu = catalog.gpu(candidate.gpu)
        power = None if gpu.tdp_w is None else gpu.tdp_w * candidate.gpus_per_replica
        given = candidate.drafts
        if given is None:
            name, draft = "eagle3", _head(model, "eagle3")
            curves = [("what if", (level,) * WHAT_IF_DRAFTS) for level in LEVELS]
        else:
            name, draft = given.draft, _draft(given, alone, scenario, model)
            curves = [_curve(given)]
        for basis, by_position in curves:
            sweep += speculation_rows(
                candidate.candidate_id, built.step, name, draft, by_position, basis,
                gpus=candidate.gpus_per_replica, power_w=power,
            )  # fmt: skip
            if given is not None or by_position[0] == LEVELS[len(LEVELS) // 2]:
                choices += choice_rows(candidate.candidate_id, built.step, draft, by_position, basis)
    return {
        "speculation": sweep,
        "speculation_choices": choices,
        "sampling_acceptance": settings_table(),
        "measured_acceptance": measured_rows(),
    }


def _curve(given: Speculation) -> tuple[str, tuple[float, ...]]:

    if given.by_position is not None:
        return "stated", given.by_position
    assert given.acceptance_from is not None
    row = measured(given.acceptance_from)
    return f"measured: {row.name}", row.by_position(given.tokens)


def _draft(given: Speculation, candidate: Candidate, scenario: Scenario, model: catalog.Model) -> Draft:

    known = methods()
    if (
        given.draft in known
        or given.draft.replace("-", "_") in known
        or given.draft.replace("_", "-") in known
    ):
        way = method(given.draft)
        if given.draft_cost is not None:
            return Draft(way.passes, cost=given.draft_cost)
        if way.passes == "none":
            return Draft("none")
        if way.weights == "model":
            raise InputError(
                f"candidates.speculation: {given.draft} needs its cost (got none), give draft_cost, or name the draft model "
                "itself, like draft: llama-3.2-1b"
            )
        return _head(model, way.name)
    if given.draft_cost is not None:
        return Draft("each", cost=given.draft_cost)
    try:
        small = catalog.model(given.draft)
    except InputError as error:
        raise InputError(
            *error.lines, f"candidates.speculation.draft: methods are {', '.join(known)}"
        ) from None
    built = machine(candidate, scenario, small, 1, 1)
    if built.step is None:
        raise InputError(
            f"candidates.speculation.draft: {given.draft} cannot run on this candidate: {built.reason}"
        )
    return Draft("each", steptime=built.step)


def _head(model: catalog.Model, name: str) -> Draft:
    """A head's step over the target's, by the parameters that each reads for one token."""

    way, shape = method(name), model.architecture
    last = shape.layers[-1]
    layer = sum(t.size * t.active_count for t in last.tensors(shape.d)) if way.weights == "layer" else 0
    read = layer + shape.vocabulary * shape.d + way.extra_d2 * shape.d**2
    return Draft(way.passes, cost=float(read / shape.parameters_active))
