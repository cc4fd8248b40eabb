"""``holdfast.yaml``: one definition of its fields, from which the reader, the JSON Schema and the examples come."""

from holdfast.spec.read import read_spec
from holdfast.spec.schema import json_schema

__all__ = ["json_schema", "read_spec"]
