"""``stayfast.yaml``: one definition of its fields, from which the reader, the JSON Schema and the examples come."""

from stayfast.spec.read import read_spec
from stayfast.spec.schema import json_schema

__all__ = ["json_schema", "read_spec"]
