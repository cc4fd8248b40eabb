"""One change to a YAML document, as a value."""

from __future__ import annotations

from typing import Any, NamedTuple

from stayfast.documents.positions import Path


class Edit(NamedTuple):
    """One change to a document.

    ``operation`` is ``set`` (a key of the mapping or list at ``path``, added or replaced), ``append`` or ``prepend``
    (to the list at ``path``),
    ``remove`` (the key or element at ``path``), ``rename`` (the key at ``path`` to ``value``), ``first`` (move the
    element at ``path`` to the front of its list).
    """

    operation: str
    path: Path
    value: Any = None
    key: str | int = ""
