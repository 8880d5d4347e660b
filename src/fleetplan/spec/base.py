"""What every model of a spec shares: strict scalars, names with units, and unions that yield one error."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Union

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from fleetplan.spec.units import Quantity, shown

# Longest first: a stored name ends in its unit, the written key does not.
_UNIT_ENDINGS = (
    "_usd_per_token", "_usd_per_hour", "_usd_per_kwh", "_bytes_per_s", "_flop_per_s", "_s_per_sequence",
    "_s_per_token", "_tokens_per_s", "_g_per_kwh", "_bytes", "_per_s", "_usd", "_w", "_s",
)  # fmt: skip


def written_key(name: str) -> str:
    """The key that a user writes for a stored name: without the unit that the value brings along.

    >>> written_key("think_time_s"), written_key("rate_per_s"), written_key("prompt_tokens")
    ('think_time', 'rate', 'prompt_tokens')
    """
    for ending in _UNIT_ENDINGS:
        if name.endswith(ending):
            return name.removesuffix(ending)
    return name


class Model(BaseModel):
    """A mapping of a spec: frozen, without unknown keys, described by the docstrings of its attributes."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        alias_generator=written_key,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        defer_build=True,
        protected_namespaces=(),
    )


def fault(sentence: str, *at: str | int) -> PydanticCustomError:
    """An error whose message is this sentence, as it stands, told at this path below what is checked."""
    return PydanticCustomError("fault", "{sentence}", {"sentence": sentence, "at": list(at)})


_PERCENT = re.compile(r"([-+]?\d+(?:\.\d+)?)\s*%")


def _integral(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = ", without quotes or unit" if isinstance(value, str) else ""
        raise fault(f"must be a whole number (got {shown(value)}), write it like 8{hint}")
    if isinstance(value, float):
        if not math.isfinite(value) or value != int(value):
            raise fault(f"must be a whole number (got {value!r}), write it like 8")
        return int(value)
    return value


def _number(value: Any) -> Any:
    if isinstance(value, str) and (percent := _PERCENT.fullmatch(value.strip())):
        share = float(percent[1]) / 100
        raise fault(f"must be a number, no percentage (got {shown(value)}), write it like {share:g}")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        hint = ", without quotes or unit" if isinstance(value, str) else ""
        raise fault(f"must be a number (got {shown(value)}), write it like 0.8{hint}")
    if not math.isfinite(value):
        raise fault(f"must be a finite number (got {shown(value)}), write it like 0.8")
    return float(value)


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise fault(f"must be text (got {shown(value)}), put it in quotes if it is meant as text")
    return value


_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


def _name(value: Any) -> Any:
    value = _text(value)
    if not _NAME.fullmatch(value) or len(value) > 80:
        raise fault(
            f"must be a short name (got {shown(value)}), of lower-case letters, digits and - _ . , like 'support-chat'"
        )
    return value


Text = Annotated[str, BeforeValidator(_text)]
Name = Annotated[str, BeforeValidator(_name), Field(json_schema_extra={"pattern": f"^{_NAME.pattern}$"})]
Count = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(_integral)]
Sequences = Annotated[int, Field(ge=1, le=100_000), BeforeValidator(_integral)]
Degree = Annotated[int, Field(ge=1, le=4096), BeforeValidator(_integral)]
"""GPUs, or what else of one replica works together."""
Many = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(_integral)]
"""Replicas, users, GPUs that are bought: more are a slip."""
ManyOrNone = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(_integral)]
Tokens = Annotated[int, Field(ge=1, le=10**9), BeforeValidator(_integral)]
TokensOrNone = Annotated[int, Field(ge=0, le=10**9), BeforeValidator(_integral)]
Whole = Annotated[int, Field(ge=0, le=2**63 - 1), BeforeValidator(_integral)]
Number = Annotated[float, BeforeValidator(_number)]
Positive = Annotated[float, Field(gt=0), BeforeValidator(_number)]
NotNegative = Annotated[float, Field(ge=0), BeforeValidator(_number)]
Factor = Annotated[float, Field(gt=0, le=1e6), BeforeValidator(_number)]
FactorOrZero = Annotated[float, Field(ge=0, le=1e6), BeforeValidator(_number)]
MeanTokens = Annotated[float, Field(gt=0, le=1e9), BeforeValidator(_number)]
Cv = Annotated[float, Field(ge=0, le=100), BeforeValidator(_number)]
"""Coefficient of variation of gaps, lengths and times: measured traffic has up to some tens."""
PositiveCv = Annotated[float, Field(gt=0, le=100), BeforeValidator(_number)]
Unknown = Annotated[float, Field(ge=0, le=10), BeforeValidator(_number)]
"""Coefficient of variation of what is not known well: at 10 it is known to no order of magnitude."""
Share = Annotated[float, Field(ge=0, le=1), BeforeValidator(_number)]
OpenShare = Annotated[float, Field(gt=0, lt=1), BeforeValidator(_number)]
PositiveShare = Annotated[float, Field(gt=0, le=1), BeforeValidator(_number)]
Exponent = Annotated[float, Field(ge=0, le=20), BeforeValidator(_number)]
"""Of a popularity by Zipf's law."""

Seconds = Annotated[float, Quantity("time")]
SecondsOrZero = Annotated[float, Quantity("time", zero=True)]
RequestRate = Annotated[float, Quantity("request rate")]
TokenRate = Annotated[float, Quantity("token rate")]
Bytes = Annotated[float, Quantity("size")]
BytesOrZero = Annotated[float, Quantity("size", zero=True)]
BytesPerSecond = Annotated[float, Quantity("bandwidth")]
SecondsPerToken = Annotated[float, Quantity("time per token", zero=True)]
SecondsPerSequence = Annotated[float, Quantity("time per sequence", zero=True)]
UsdPerHour = Annotated[float, Quantity("cost rate")]
UsdPerToken = Annotated[float, Quantity("price per token")]
Usd = Annotated[float, Quantity("money")]
UsdPerKwh = Annotated[float, Quantity("energy price")]
Watts = Annotated[float, Quantity("power")]
GramsPerKwh = Annotated[float, Quantity("carbon intensity", zero=True)]


def _not_empty(values: Any) -> Any:
    if not values:
        raise fault("must not be empty (got an empty list), give at least one entry")
    return values


# After the entries' own checks, so that a list whose entries all fail is not called empty as well.
NotEmpty = (AfterValidator(_not_empty), Field(json_schema_extra={"minItems": 1}))


def forms(choose: Callable[[Any], str], **members: Any) -> Any:
    """A union whose member `choose` picks by looking at what was written, so that one error comes out, not one a member.

    `choose` returns a key of `members` or raises `fault`. Tags are in angle brackets, so that they are never taken for keys.
    """

    def check(value: Any) -> Any:
        choose(value)
        return value

    def pick(value: Any) -> str:
        return f"<{choose(value)}>"

    tagged = tuple(Annotated[member, Tag(f"<{name}>")] for name, member in members.items())
    return Annotated[Union[tagged], Discriminator(pick), BeforeValidator(check)]  # noqa: UP007


def one_key(what: str, keys: tuple[str, ...], also: str = "") -> Callable[[dict[str, Any]], str]:
    """A chooser for `{key: parameters}`: the one of `keys` that the mapping has."""
    listed = ", ".join(keys)

    def choose(value: dict[str, Any]) -> str:
        found = [key for key in value if key in keys]
        if len(found) != 1:
            from fleetplan.errors import near_names

            near = [n for key in value if (n := near_names(str(key), keys, most=1))]
            hint = f"perhaps {near[0][0]}; " if near and not found else ""
            count = "none" if not found else "more than one"
            raise fault(
                f"has {count} of the forms of {what} (got {shown(value)}), {hint}give one of: {listed}{also}"
            )
        return found[0]

    return choose
