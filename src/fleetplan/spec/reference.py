"""The reference of the scenario file, as Markdown tables made from the models."""

from __future__ import annotations

import json
from typing import Any

from fleetplan.spec.schema import schema
from fleetplan.spec.units import KINDS

BEGIN, END = "<!-- generated from the models: begin -->", "<!-- generated from the models: end -->"


def page(text: str) -> str:
    """The page with what stands between its two marks made anew. Raises ValueError where a mark is missing."""
    head, _, rest = text.partition(BEGIN)
    _, found, tail = rest.partition(END)
    if not found:
        raise ValueError(f"the page needs the lines {BEGIN!r} and {END!r}")
    return f"{head}{BEGIN}\n\n{reference()}\n{END}{tail}"


def reference() -> str:
    """A section for every mapping of a scenario, then those that only an endpoint's has, in the order in which they are met, then the units."""
    sections: dict[str, Any] = {}
    for name, file in (("Scenario", "scenario.v1.json"), ("EndpointScenario", "endpoint.v1.json")):
        body = schema(file)
        sections[name] = body
        sections |= {met: body["$defs"][met] for met in _met(body, body["$defs"]) if met not in sections}
    parts = [_section(name, part) for name, part in sections.items()]
    units = ["### Units", "", "| a quantity of | takes | is stored in |", "|---|---|---|"]
    units += [f"| {kind} | {', '.join(taken)} | {unit} |" for kind, (unit, taken) in KINDS.items()]
    return "\n".join(["\n".join(part) for part in [*parts, [*units, ""]]])


def _met(node: Any, definitions: dict[str, Any]) -> list[str]:
    order: list[str] = []

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if "$ref" in value:
                name = value["$ref"].rsplit("/", 1)[-1]
                if name not in order:
                    order.append(name)
                    walk(definitions[name])
            for key, inner in value.items():
                if key != "$defs":
                    walk(inner)
        elif isinstance(value, list):
            for inner in value:
                walk(inner)

    walk(node)
    return order


def _section(name: str, part: dict[str, Any]) -> list[str]:
    needed = set(part.get("required", ()))
    lines = [
        f"### {name}",
        "",
        part["description"],
        "",
        "| key | takes | default | meaning |",
        "|---|---|---|---|",
    ]
    for key, prop in part["properties"].items():
        default = (
            "needed" if key in needed else f"`{_written(prop['default'])}`" if "default" in prop else "—"
        )
        cells = (f"`{key}`", _takes(prop), default, prop.get("description", ""))
        lines.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |")
    return [*lines, ""]


def _takes(prop: dict[str, Any]) -> str:
    if "$ref" in prop:
        name = prop["$ref"].rsplit("/", 1)[-1]
        return f"[{name}](#{name.lower()})"
    for union in ("oneOf", "anyOf"):
        if union in prop:
            return " or ".join(dict.fromkeys(_takes(option) for option in prop[union]))
    if "x-unit" in prop:
        quantity = next(kind for kind, (unit, _) in KINDS.items() if unit == prop["x-unit"])
        return f"{quantity}, like `{prop['examples'][0]}`"
    if "const" in prop:
        return f"`{prop['const']}`"
    if "enum" in prop:
        return ", ".join(f"`{value}`" for value in prop["enum"])
    kind = prop.get("type")
    if kind == "array":
        return f"list of {_takes(prop['items'])}"
    if kind == "object":
        values: Any = prop.get("additionalProperties") or next(
            iter(prop.get("patternProperties", {}).values()), {}
        )
        keys = "percentile (`p50`, `p99.9`)" if "patternProperties" in prop else "name"
        return f"{keys} to {_takes(values)}"
    return {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}[
        str(kind)
    ] + _range(prop)


def _range(prop: dict[str, Any]) -> str:
    low = (
        f"≥ {prop['minimum']:g}"
        if "minimum" in prop
        else f"> {prop['exclusiveMinimum']:g}"
        if "exclusiveMinimum" in prop
        else ""
    )
    high = (
        f"≤ {prop['maximum']:g}"
        if prop.get("maximum", 1e9) < 1e6
        else f"< {prop['exclusiveMaximum']:g}"
        if "exclusiveMaximum" in prop
        else ""
    )
    words = ", ".join(word for word in (low, high) if word)
    return f" {words}" if words else ""


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
