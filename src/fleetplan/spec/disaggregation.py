"""Prefill and decode in pools of their own: what each runs on, their ratio, and the link between them."""

from __future__ import annotations

import re
from math import gcd
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fleetplan.spec.base import (
    BytesPerSecond,
    Degree,
    Model,
    NotEmpty,
    SecondsOrZero,
    Sequences,
    Text,
    Tokens,
    TokensOrNone,
    fault,
    forms,
)
from fleetplan.spec.units import shown

_RATIO = re.compile(r"([1-9]\d{0,2}) *: *([1-9]\d{0,2})")


def _ratio(value: Any) -> str:
    # YAML reads 1:2 as text, and some editors as a mapping or a time.
    match = _RATIO.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise fault(
            f"must be prefill to decode replicas (got {shown(value)}), like '1:2' for one prefill replica to two that decode"
        )
    p, d = int(match[1]), int(match[2])
    return f"{p // gcd(p, d)}:{d // gcd(p, d)}"


def _once(values: tuple[str, ...]) -> tuple[str, ...]:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise fault(f"names the ratio {value} twice, each once")
    return values


Ratio = Annotated[str, BeforeValidator(_ratio), Field(json_schema_extra={"pattern": r"^[1-9]\d{0,2} *: *[1-9]\d{0,2}$"})]  # fmt: skip


def _ratio_form(value: Any) -> str:
    if isinstance(value, str):
        if value != "search":
            raise fault(
                f"must be search or a list of ratios (got {shown(value)}), like ['{value if _RATIO.fullmatch(value) else '1:2'}']"
            )
        return "search"
    return "listed"


Ratios: Any = forms(
    _ratio_form,
    search=Literal["search"],
    listed=Annotated[tuple[Ratio, ...], *NotEmpty, AfterValidator(_once)],
)


class PoolSide(Model):
    """What one pool has of its own; what is left out is as the candidate's."""

    gpu: Text | None = None
    """A GPU of data/gpus.yaml, by name or alias."""
    tensor_parallel: Degree | None = None
    """GPUs that split every layer."""
    expert_parallel: Degree | None = None
    """Ranks over which the experts of a MoE are spread."""
    policy: Literal["continuous", "chunked", "prefill_first"] | None = None
    """Scheduler of the pool. At decode `continuous` reserves a sequence's whole life, so that it is never preempted."""
    max_num_seqs: Sequences | None = None
    """Most sequences in a step."""
    max_num_batched_tokens: Tokens | None = None
    """Token budget of a step, for chunked and prefill_first."""


class Disaggregation(Model):
    """A prefill pool that hands each prompt's KV cache over a shared link to a decode pool."""

    prefill: PoolSide = PoolSide()
    """Where prompts are computed."""
    decode: PoolSide = PoolSide()
    """Where answers are generated."""
    ratio: Ratios = "search"
    """`search`: the count of each pool is found on its own. Or prefill to decode replicas, each a candidate whose fleets are whole multiples."""
    link_bytes_per_s: BytesPerSecond
    """Bandwidth of the one link that all KV crosses, first in first out, however many replicas there are."""
    link_latency_s: SecondsOrZero = 0.0
    """Time that every crossing takes besides; it occupies nothing."""
    bypass_tokens: TokensOrNone = 0
    """Prompts of at most this many tokens are computed by the decode pool."""
    first_token: Literal["prefill", "landing"] = "prefill"
    """Where TTFT ends: when prefill emits token 1, or when its KV has landed at decode."""

    @model_validator(mode="after")
    def _budgets(self) -> Self:
        for name in ("prefill", "decode"):
            side: PoolSide = getattr(self, name)
            if side.policy == "continuous" and side.max_num_batched_tokens is not None:
                raise fault(
                    f"gives max_num_batched_tokens to the {name} pool's continuous (got {side.max_num_batched_tokens}), which has "
                    "no token budget; drop it, or use chunked",
                    name,
                    "max_num_batched_tokens",
                )
        return self

    @property
    def ratios(self) -> tuple[tuple[int, int] | None, ...]:
        """(prefill, decode) replicas of each ratio, in lowest terms; None: both counts are searched."""
        if self.ratio == "search":
            return (None,)
        return tuple((int(p), int(d)) for p, d in (ratio.split(":") for ratio in self.ratio))


def disaggregation_form(value: Any) -> str:
    """Which form an entry of `disaggregated` has."""
    if isinstance(value, (dict, Disaggregation)):
        return "disaggregation"
    if value != "none":
        raise fault(
            f"must be none or a mapping (got {shown(value)}), like {{prefill: {{tensor_parallel: 2}}, ratio: ['1:2'], link: 50 GB/s}}"
        )
    return "none"
