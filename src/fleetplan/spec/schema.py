"""JSON Schemas of the spec files for editors, generated from the models."""

from __future__ import annotations

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from fleetplan.spec.base import Model
from fleetplan.spec.endpoint import EndpointScenario
from fleetplan.spec.fleet import SharedFleet
from fleetplan.spec.scenario import Scenario

SCHEMAS: dict[str, type[Model]] = {
    "scenario.v1.json": Scenario,
    "endpoint.v1.json": EndpointScenario,
    "fleet.v1.json": SharedFleet,
}
"""File name to model."""


def schemas() -> dict[str, str]:
    """Text of every schema by its file name."""
    return {name: json.dumps(schema(name), indent=2, ensure_ascii=False) + "\n" for name in SCHEMAS}


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one kind of file."""
    body = SCHEMAS[name].model_json_schema(schema_generator=_Generator)
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fleetplan:schema:{name.removesuffix('.json')}",
    }
    return head | body


class _Generator(GenerateJsonSchema):
    """Without a title for each property, and with defaults of quantities as they would be written."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])  # a key is left out, never null

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        body = super().default_schema(schema)
        default = _without_nulls(body.pop("default", None))
        if default is None or default == {}:
            return body
        body["default"] = default
        if (unit := body.get("x-unit")) and isinstance(default, float):
            body["default"] = f"{default:g} {unit}"
        return body


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: inner for key, given in value.items() if (inner := _without_nulls(given)) is not None}
    if isinstance(value, (list, tuple)):
        return [_without_nulls(item) for item in value]
    return value
