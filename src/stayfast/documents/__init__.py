"""Reading YAML that a stranger wrote: bounded, positioned, and resolved the way Kubernetes resolves it.

::

    from stayfast.documents import load_documents

    for document in load_documents(text, "stayfast.yaml"):   # raises DocumentError: one sentence with line and column
        document.value                                       # plain dict, list, str, int, float, bool, None
        document.locate(("spec", "nodes"))                   # where that stands in the file

May import: text, model, errors.
Start reading: ``reader.py``.
"""

from stayfast.documents.positions import Document, Mapping, Place, Sequence
from stayfast.documents.reader import Limits, Parsed, SyntaxProblem, load_documents, parse_documents

__all__ = [
    "Document",
    "Limits",
    "Mapping",
    "Parsed",
    "Place",
    "Sequence",
    "SyntaxProblem",
    "load_documents",
    "parse_documents",
]
