"""``stayfast.yaml``: one definition of its fields, from which the reader, the JSON Schema and the examples come.

May import: documents, text, model, errors.
Start reading: ``fields.py``.
"""

from stayfast.capacity.spec.reader import read_spec
from stayfast.capacity.spec.schema import json_schema

__all__ = ["json_schema", "read_spec"]
