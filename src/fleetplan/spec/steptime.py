"""Which model of a step's time a scenario is planned with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from fleetplan.spec.base import (
    Model,
    PositiveShare,
    SecondsOrZero,
    SecondsPerSequence,
    SecondsPerToken,
    Text,
    fault,
    forms,
)
from fleetplan.spec.units import shown


class RooflineParameters(Model):
    """Whole-step roofline with one efficiency on both roofs."""

    efficiency: PositiveShare
    """Share of the peak FLOP/s and of the peak bandwidth that is reached, η."""
    overhead_s: SecondsOrZero = 0.0
    """Time of every step that neither roof hides."""
    attention_flops: bool = Field(True, strict=True)
    """Whether attention's FLOPs count; false: matmuls only, as in textbooks."""


class AffineParameters(Model):
    """Fixed + prefill · prompt tokens + decode · decoding sequences, the same for every candidate."""

    fixed_s: SecondsOrZero
    """Time of any step."""
    prefill_s_per_token: SecondsPerToken
    """Time a prompt token."""
    decode_s_per_sequence: SecondsPerSequence
    """Time a decoding sequence."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if not self.fixed_s and not (self.prefill_s_per_token and self.decode_s_per_sequence):
            raise fault(
                "has steps that take no time (got fixed 0 s and another 0), give fixed, or both others above 0",
                "fixed",
            )
        return self


class Roofline(Model):
    """Bounds from peak rates and one efficiency."""

    roofline: RooflineParameters
    """Its efficiency."""


class Affine(Model):
    """Constants that the user measured."""

    affine: AffineParameters
    """The three constants."""


class Table(Model):
    """Step times that the user measured, interpolated."""

    table: Text
    """Path of the step-time file, from the spec's folder."""


_FORMS = ("roofline", "affine", "table")


def _which(value: Any) -> str:
    if isinstance(value, Model):
        return next(iter(type(value).model_fields))
    if value == "calibrated":
        return "calibrated"
    if isinstance(value, dict):
        found = [key for key in value if key in _FORMS]
        if len(found) == 1:
            return found[0]
    raise fault(
        f"is no step-time model (got {shown(value)}), write calibrated, or one of "
        "{roofline: {efficiency: 0.7}}, {affine: {fixed: 5 ms, prefill: 20 us/token, decode: 500 us/sequence}}, {table: path}"
    )


if TYPE_CHECKING:
    StepTimeChoice = Literal["calibrated"] | Roofline | Affine | Table
else:
    StepTimeChoice = forms(
        _which, calibrated=Literal["calibrated"], roofline=Roofline, affine=Affine, table=Table
    )
