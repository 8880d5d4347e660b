"""From a pydantic error to one line for a person: file, line, column, dotted path, what was found, what would be right."""

from __future__ import annotations

import types
import typing
from typing import Any, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic.fields import FieldInfo

from fleetplan.errors import near_names
from fleetplan.spec.document import Document, Loc, Place
from fleetplan.spec.units import shown


def faults(error: ValidationError, root: type[BaseModel], document: Document) -> list[tuple[Place, Loc, str]]:
    """Place, path and sentence of every fault of a validation."""
    empty = {loc for _, loc, _ in document.faults}
    found = []
    for item in error.errors(include_url=False):
        raw: Loc = item["loc"]
        loc = tuple(part for part in raw if not _is_tag(part))
        is_key = bool(loc) and loc[-1] == "[key]"
        if is_key:
            loc = loc[:-1]
        loc += tuple(item.get("ctx", {}).get("at", ()))
        if any(loc[:end] in empty for end in range(len(loc) + 1)):
            continue  # said already
        at_key = is_key or item["type"] == "extra_forbidden"
        if item["type"] == "fault" and len(loc) < len(raw) and raw and _is_tag(raw[-1]):
            at_key = False
        written = _written(document.value, loc, item["input"])
        found.append((document.place(loc, key=at_key), loc, _sentence(item, raw, root, written)))
    return found


def _written(value: Any, loc: Any, otherwise: Any) -> Any:
    """What the file has at a path; pydantic's input may be converted already."""
    for part in loc:
        if (isinstance(value, dict) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        ):
            value = value[part]
        else:
            return otherwise
    return value


def _is_tag(part: str | int) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _sentence(item: Any, raw: Loc, root: type[BaseModel], written: Any) -> str:
    kind, got, context = item["type"], shown(written), item.get("ctx", {})
    if kind == "fault":
        return str(item["msg"])
    if kind == "missing":
        info = _field(root, raw)
        what = f" ({_first(info.description)})" if info is not None and info.description else ""
        return f"is missing (got no such key), add it{what}"
    if kind == "extra_forbidden":
        return _unknown_key(str(raw[-1]), _fields(root, raw[:-1]))
    if kind == "literal_error":
        allowed = [a.strip(" '") for a in str(context.get("expected", "")).replace(" or ", ", ").split(",")]
        near = near_names(str(item["input"]), allowed, most=1)
        hint = f"perhaps {near[0]}; " if near else ""
        return f"is not taken (got {got}), {hint}one of: {', '.join(allowed)}"
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        fields = _fields(root, raw)
        keys = f" with {', '.join(list(fields)[:6])}" if fields else ""
        return f"must be a mapping{keys} (got {got}), write its keys indented below it"
    if kind in ("tuple_type", "list_type"):
        example = f"[{item['input']}]" if isinstance(item["input"], (str, int, float)) else "[first, second]"
        return f"must be a list (got {got}), write it like {example}"
    if kind == "bool_type":
        return f"must be true or false (got {got}), write true or false without quotes"
    for name, words in _COMPARISONS.items():
        if kind == name:
            limit = context.get(_LIMITS[name])
            return f"must be {words} {limit:,.12g} (got {got})" + _advice(name, context)
    return f"{str(item['msg'])[:1].lower()}{str(item['msg'])[1:]} (got {got})"


_COMPARISONS = {
    "greater_than": "more than",
    "greater_than_equal": "at least",
    "less_than": "below",
    "less_than_equal": "at most",
}
_LIMITS = {"greater_than": "gt", "greater_than_equal": "ge", "less_than": "lt", "less_than_equal": "le"}


def _advice(kind: str, context: dict[str, Any]) -> str:
    if kind.startswith("less") and context.get("le", context.get("lt")) == 1:
        return ", a share is written like 0.8, not 80"
    return ", give " + {"greater": "a larger", "less_th": "a smaller"}[kind[:7]] + " one"


def _first(description: str) -> str:
    return description.strip().split("\n")[0].rstrip(".")


def _unknown_key(key: str, fields: dict[str, FieldInfo]) -> str:
    known = list(fields)
    near = near_names(key, known, most=3)
    if key == "<<":
        return "is no key (got <<), merge keys are not part of YAML 1.2; repeat the keys, or use an anchor for one value"
    hint = f"near names: {', '.join(near)}" if near else f"known keys: {', '.join(known) or 'none'}"
    return f"is no key here (got {key}), {hint}"


def _field(root: Any, raw: Loc) -> FieldInfo | None:
    return _fields(root, raw[:-1]).get(str(raw[-1])) if raw else None


def _fields(root: Any, raw: Loc) -> dict[str, FieldInfo]:
    """Fields by written key of the model that the path leads to; empty where it leads to none."""
    here: Any = root
    for part in raw:
        here = _step(_bare(here), part)
    here = _model(here)
    return {info.alias or name: info for name, info in here.model_fields.items()} if here is not None else {}


def _model(annotation: Any) -> type[BaseModel] | None:
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            return option
    return None


def _bare(annotation: Any) -> Any:
    while get_origin(annotation) is typing.Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def _options(annotation: Any) -> list[Any]:
    bare = _bare(annotation)
    if get_origin(bare) in (typing.Union, types.UnionType):
        return [found for option in get_args(bare) for found in _options(option)]
    return [bare]


def _step(annotation: Any, part: str | int) -> Any:
    """The annotation one path element further down; a tag picks its member of the union."""
    if _is_tag(part):
        return _tagged(annotation, str(part))
    for option in _options(annotation):
        if isinstance(option, type) and issubclass(option, BaseModel):
            for name, info in option.model_fields.items():
                if (info.alias or name) == part:
                    return info.annotation
        elif get_origin(option) is tuple and isinstance(part, int):
            return get_args(option)[0]
        elif get_origin(option) is dict:
            return get_args(option)[1]
    return None


def _tagged(annotation: Any, tag: str) -> Any:
    if get_origin(annotation) is typing.Annotated:
        if any(isinstance(m, Tag) and m.tag == tag for m in get_args(annotation)[1:]):
            return get_args(annotation)[0]
        return _tagged(get_args(annotation)[0], tag)
    for option in get_args(annotation):
        if (found := _tagged(option, tag)) is not None:
            return found
    return None
