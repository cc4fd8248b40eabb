"""The JSON Schema of ``stayfast.yaml``, for editors.

What only the reader can see stays with it: zones that are not in the region, counts that no machine has, whole
numbers written as 8.0, durations of nothing where there must be one, and keys written twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stayfast.capacity.spec.fields import FIELDS, LARGEST, Field, FieldType

_TYPES = {
    FieldType.STRING: "string",
    FieldType.DURATION: "string",
    FieldType.SIZE: "string",
    FieldType.NUMBER: "number",
    FieldType.INTEGER: "integer",
    FieldType.BOOLEAN: "boolean",
}
_WORK_WAYS = (["hours"], ["steps", "seconds_per_step"], ["items", "seconds_per_item"])


def json_schema(accelerators: Sequence[str] = ()) -> dict[str, Any]:
    """Draft 07, from the same table that the reader uses."""
    body = _section(FIELDS)
    # Exactly one way of saying how much, and nothing beside it.
    body["properties"]["work"]["oneOf"] = [{"required": way, "maxProperties": len(way)} for way in _WORK_WAYS]
    body |= {"if": {"properties": {"kind": {"const": "serve"}}}, "then": {}, "else": {"required": ["work"]}}
    if accelerators:
        body["properties"]["accelerator"]["properties"]["type"]["enum"] = list(accelerators)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "stayfast workload", **body}


def _section(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in fields if field.required],
        "properties": {field.name: _field(field) for field in fields},
    }


def _field(field: Field) -> dict[str, Any]:
    if field.form == FieldType.SECTION:
        return {"description": field.about, **_section(field.fields)}
    if field.form == FieldType.STRING_LIST:
        items = {"type": "string", "pattern": _pattern(field)}
        return {"description": field.about, "type": "array", "minItems": 1, "items": items}
    row: dict[str, Any] = {"description": field.about, "type": _TYPES[field.form]}
    if field.choices:
        row["enum"] = list(field.choices)
    elif row["type"] == "string":
        row["pattern"] = _pattern(field)
    if field.form == FieldType.INTEGER:
        row |= {"minimum": int(field.low or 0), "exclusiveMaximum": LARGEST}
    if field.form == FieldType.NUMBER:
        row |= {"exclusiveMinimum": 0, "exclusiveMaximum": LARGEST}
    return row


def _pattern(field: Field) -> str:
    """What the reader demands of a text; where it demands nothing else, something that is not blank."""
    return f"^({field.pattern})$" if field.pattern else r"\S"
