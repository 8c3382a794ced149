"""The part of JSON Schema that `mapper/report/schema.json` uses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mapper

SCHEMA = json.loads((Path(mapper.__file__).parent / "report" / "schema.json").read_text("utf-8"))
_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}
_KNOWN = {
    "$schema",
    "title",
    "description",
    "type",
    "additionalProperties",
    "required",
    "properties",
    "items",
    "enum",
    "minimum",
}


def violations(value: Any, schema: dict[str, Any] = SCHEMA, at: str = "$") -> list[str]:
    """Where `value` breaks the schema."""
    assert set(schema) <= _KNOWN, f"this validator does not know {set(schema) - _KNOWN}"
    found = []
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if types and not any(isinstance(value, _TYPES[name]) and not isinstance(value, bool) for name in types):
        return [f"{at}: {value!r} is not {' or '.join(types)}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r} is not one of {schema['enum']}")
    if "minimum" in schema and value < schema["minimum"]:
        found.append(f"{at}: {value} is below {schema['minimum']}")
    if isinstance(value, dict):
        found += _object(value, schema, at)
    if isinstance(value, list):
        for index, item in enumerate(value):
            found += violations(item, schema.get("items", {}), f"{at}[{index}]")
    return found


def _object(value: dict[str, Any], schema: dict[str, Any], at: str) -> list[str]:
    found = [f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value]
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", {})
    for name, item in value.items():
        if name in properties:
            found += violations(item, properties[name], f"{at}.{name}")
        elif others is False:
            found.append(f"{at}: {name} is not in the schema")
        else:
            found += violations(item, others, f"{at}.{name}")
    return found
