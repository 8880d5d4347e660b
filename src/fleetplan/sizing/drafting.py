"""Who drafts in a candidate: what a draft step costs, what the draft takes of memory, and which acceptance the spec gives it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from fleetplan import catalog
from fleetplan.engine import Speculation as Drafts
from fleetplan.errors import InputError
from fleetplan.physics.weights import draft_split
from fleetplan.sizing.candidates import Candidate
from fleetplan.sizing.step import is_given, step_of
from fleetplan.spec.candidates import Speculation
from fleetplan.spec.scenario import Scenario
from fleetplan.speculation.measured import Method, measured, measured_table, method, methods
from fleetplan.speculation.payoff import Draft
from fleetplan.speculation.theory import survival

ASSUMED_TOKENS = 3
"""Drafts a step of a speculation that nobody stated."""
HEAD_BYTES = 2.0
"""Bytes of a number in a head's own projections: bf16."""


@dataclass(frozen=True, eq=False)
class Drafting:
    """The speculation of a candidate, ready to simulate."""

    drafts: Drafts
    memory: dict[str, Any]
    """Arguments of `physics.memory.memory` that charge the draft."""


def drafting(
    given: Speculation, candidate: Candidate, scenario: Scenario, model: catalog.Model, longest_tokens: int
) -> Drafting:
    """What the engine needs of a candidate's speculation, for sequences of up to `longest_tokens`.

    Raises InputError where its cost or memory is not known, or its draft does not go with the target.
    """
    check_together(given, model, longest_tokens)
    draft = drafter(given, candidate, scenario, model)
    _, by_position = curve(given)
    steps = {"each": given.tokens, "one": 1, "none": 0}[draft.passes]
    drafts = Drafts(
        tuple(survival(by_position).tolist()),
        draft_cost=0.0 if draft.passes == "none" else draft.cost,
        draft_step=None if draft.passes == "none" else draft.steptime,
        passes=steps,
        off_above=given.off_above,
    )
    return Drafting(drafts, _memory(given, candidate, model))


def check_together(given: Speculation, model: catalog.Model, longest_tokens: int) -> None:
    """Raise InputError where a draft model has another vocabulary than the target, or reads less than the longest sequence.

    A draft's tokens are verified as they are, by number: engines refuse other sizes (vLLM's draft models, by both vocabularies' sizes).
    """
    if _method(given.draft) is not None:
        return
    small, target = catalog.model(given.draft).architecture, model.architecture
    if small.vocabulary != target.vocabulary:
        raise InputError(
            f"candidates.speculation: the draft {given.draft} has a vocabulary of {small.vocabulary:,} tokens and {model.name} one of "
            f"{target.vocabulary:,}, which must be the same; take a draft of the same family"
        )
    if small.max_context_tokens is not None and small.max_context_tokens < longest_tokens:
        raise InputError(
            f"candidates.speculation: the draft {given.draft} reads at most {small.max_context_tokens:,} tokens, and the longest request "
            f"of the traffic has {longest_tokens:,}; take a draft of a longer context, or shorter requests"
        )


def assumed(model: catalog.Model) -> Speculation:
    """Speculation for a model of which none is stated: its MTP head where it has one, else EAGLE-3, with the least acceptance measured.

    Rows of the model itself go before those of others.
    """
    name = "mtp" if model.architecture.mtp else "eagle3"
    rows = [r for r in measured_table().values() if r.method == name and len(r.survival) >= ASSUMED_TOKENS]
    own = [row for row in rows if row.model.startswith(model.name)]
    least = min(own or rows, key=lambda row: (sum(survival(row.by_position(ASSUMED_TOKENS))), row.name))
    return Speculation(draft=name, tokens=ASSUMED_TOKENS, acceptance_from=least.name)


def curve(given: Speculation) -> tuple[str, tuple[float, ...]]:
    """(where it comes from, acceptance by position): the spec's own, or a row of the measured table."""
    if given.by_position is not None:
        return "stated", given.by_position
    assert given.acceptance_from is not None
    row = measured(given.acceptance_from)
    return f"measured: {row.name}", row.by_position(given.tokens)


def drafter(given: Speculation, candidate: Candidate, scenario: Scenario, model: catalog.Model) -> Draft:
    """A method of the table, or a catalogue model that runs as the candidate does, one copy for each of its engines.

    Raises InputError where a cost is needed and not given.
    """
    way = _method(given.draft)
    if way is not None:
        if given.draft_cost is not None:
            return Draft(way.passes, cost=given.draft_cost)
        if way.passes == "none":
            return Draft("none")
        if way.weights == "model":
            raise InputError(
                f"candidates.speculation: {given.draft} needs its cost (got none), give draft_cost, or name the draft model "
                "itself, like draft: llama-3.2-1b"
            )
        return head(model, way.name)
    small = catalog.model(given.draft)
    if given.draft_cost is not None:
        return Draft("each", cost=given.draft_cost)
    if is_given(scenario):
        raise InputError(
            f"candidates.speculation: the scenario gives the step time of {model.name} alone, give the draft_cost of {given.draft} too"
        )
    split = draft_split(small.architecture, candidate.tensor_parallel)
    alone = replace(candidate, tensor_parallel=split, pipeline_parallel=1, data_parallel=1, expert_parallel=1)
    return Draft("each", steptime=step_of(alone, scenario, small)[0])


def head(model: catalog.Model, name: str) -> Draft:
    """A head's step over the target's, by the parameters that each reads for one token."""
    way, shape = method(name), model.architecture
    last = shape.layers[-1]
    layer = sum(t.size * t.active_count for t in last.tensors(shape.d)) if way.weights == "layer" else 0
    read = layer + shape.vocabulary * shape.d + way.extra_d2 * shape.d**2
    return Draft(way.passes, cost=float(read / shape.parameters_active))


def _memory(given: Speculation, candidate: Candidate, model: catalog.Model) -> dict[str, Any]:
    """Weights and KV of the draft: a model's own, or one layer like the target's last and the head's projections."""
    if given.draft_memory_bytes is not None:
        return {"draft_extra_bytes": given.draft_memory_bytes}
    way, shape = _method(given.draft), model.architecture
    if way is None:
        return {"draft": catalog.model(given.draft).architecture, "draft_weights": candidate.weights}
    if way.weights == "model":
        raise InputError(
            f"candidates.speculation: {given.draft} needs its memory (got none), give draft_memory, or name the draft model itself, "
            "like draft: llama-3.2-1b"
        )
    copies = given.tokens if way.passes == "one" and way.weights == "none" else 1
    extra = {"draft_extra_bytes": copies * way.extra_d2 * shape.d**2 * HEAD_BYTES}
    if way.weights == "none":
        return extra
    # Embedding and output head are the target's own; the layer and its KV are the draft's.
    layer = replace(
        shape, name=f"{shape.name} {way.name}", layers=(replace(shape.layers[-1], count=1),), extra=(), mtp=(), vision=(),
        final_norm_parameters=0, holds_embedding=False, holds_head=False,
    )  # fmt: skip
    weights = candidate.weights if way.precision == "target" else way.precision
    return {
        **extra,
        "draft": layer,
        "draft_weights": weights,
        "draft_expert_parallel": candidate.expert_parallel,
    }


def _method(name: str) -> Method | None:
    known = methods()
    found = {name, name.replace("-", "_"), name.replace("_", "-")} & known.keys()
    return known[found.pop()] if found else None
