"""Kubernetes objects as the rules see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stayfast.documents.lookup import mapping, text
from stayfast.documents.positions import Document, Path


def is_placeholder(value: Any) -> bool:
    """Text that a template engine or ``envsubst`` will replace: nothing can be said about it."""
    if not isinstance(value, str):
        # `image: {name}`, for str.format: to YAML a mapping of one key and no value
        return isinstance(value, dict) and len(value) == 1 and None in value.values()
    if any(mark in value for mark in ("${", "$(", "{{", "<", "%(")) or value[:1] in ("$", "@") or "/$" in value:
        return True
    return (len(value) > 2 and value.isupper() and ("_" in value or len(value) > 5)) or "replaced-by" in value


class ManifestObject:
    """One object in one file; ``prefix`` is the path to it inside its document (objects in a ``List``)."""

    __slots__ = ("api_version", "document", "file", "group", "kind", "metadata", "name", "namespace", "prefix", "value")

    def __init__(self, file: str, document: Document, value: dict[str, Any], prefix: Path = ()) -> None:
        self.file = file
        self.document = document
        self.value = value
        self.prefix = prefix
        self.api_version = text(value.get("apiVersion"))
        self.group = self.api_version.rpartition("/")[0]
        self.kind = text(value.get("kind"))
        self.metadata = mapping(value.get("metadata"))
        name = self.metadata.get("name", self.metadata.get("generateName"))
        self.name = name if isinstance(name, str) else str(name or "")
        namespace = self.metadata.get("namespace")
        self.namespace = namespace if isinstance(namespace, str) else ""

    @property
    def spec(self) -> dict[str, Any]:
        """The object's ``spec``."""
        return mapping(self.value.get("spec"))

    @property
    def labels(self) -> dict[str, Any]:
        """Labels of the object itself, not of a pod template."""
        return mapping(self.metadata.get("labels"))

    @property
    def annotations(self) -> dict[str, Any]:
        """Annotations of the object itself."""
        return mapping(self.metadata.get("annotations"))

    @property
    def title(self) -> str:
        """``Kind/namespace/name`` as findings print it."""
        return "/".join(part for part in (self.kind, self.namespace, self.name) if part)


def unpack(file: str, document: Document) -> list[ManifestObject]:
    """The objects of a document: one, or those of a ``List`` (and of lists in it), or none."""
    return list(_objects(file, document, document.value, ()))


def _objects(file: str, document: Document, value: Any, prefix: Path) -> Iterator[ManifestObject]:
    if not isinstance(value, dict) or "kind" not in value:
        return
    kind = text(value["kind"])
    if not (kind.endswith("List") and isinstance(value.get("items"), list) and "spec" not in value):
        yield ManifestObject(file, document, value, prefix)
        return
    # In a JobList the Jobs need not say what they are.
    implied = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")} if kind != "List" else {}
    for index, inner in enumerate(value["items"]):
        named = inner if not isinstance(inner, dict) or "kind" in inner else implied | inner
        yield from _objects(file, document, named, (*prefix, "items", index))
