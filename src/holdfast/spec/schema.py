"""The JSON Schema of ``holdfast.yaml``, for editors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.spec.fields import FIELDS, Field, Form

_TYPES = {
    Form.TEXT: "string",
    Form.DURATION: "string",
    Form.SIZE: "string",
    Form.NUMBER: "number",
    Form.WHOLE: "integer",
    Form.FLAG: "boolean",
}
_WORK_WAYS = (["hours"], ["steps", "seconds_per_step"], ["items", "seconds_per_item"])


def json_schema(accelerators: Sequence[str] = ()) -> dict[str, Any]:
    """Draft 07, from the same table that the reader uses."""
    body = _section(FIELDS)
    body["properties"]["work"]["oneOf"] = [{"required": way} for way in _WORK_WAYS]
    if accelerators:
        body["properties"]["accelerator"]["properties"]["type"]["enum"] = list(accelerators)
    return {"$schema": "http://json-schema.org/draft-07/schema#", "title": "holdfast workload", **body}


def _section(fields: Sequence[Field]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in fields if field.required],
        "properties": {field.name: _field(field) for field in fields},
    }


def _field(field: Field) -> dict[str, Any]:
    if field.form == Form.SECTION:
        return {"description": field.about, **_section(field.fields)}
    if field.form == Form.TEXTS:
        items: dict[str, Any] = {"type": "string", "minLength": 1}
        if field.pattern:
            items["pattern"] = f"^({field.pattern})$"
        return {"description": field.about, "type": "array", "minItems": 1, "items": items}
    row: dict[str, Any] = {"description": field.about, "type": _TYPES[field.form]}
    if field.choices:
        row["enum"] = list(field.choices)
    if field.pattern:
        row["pattern"] = f"^({field.pattern})$"
    if field.form == Form.WHOLE:
        row["minimum"] = int(field.low or 0)
    if field.form == Form.NUMBER:
        row["exclusiveMinimum"] = 0
    return row
