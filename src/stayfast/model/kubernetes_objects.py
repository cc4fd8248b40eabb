"""What all that reads Kubernetes objects shares: their names in messages, and label selectors."""

from __future__ import annotations

from typing import Any


def identity(value: dict[str, Any]) -> str:
    """``Job/namespace/name`` of an object, for messages."""
    metadata = value.get("metadata") or {}
    parts = (value.get("kind"), metadata.get("namespace"), metadata.get("name"))
    return "/".join(str(part) for part in parts if part)


def matches(selector: Any, labels: dict[str, Any]) -> bool:
    """Whether a label selector picks these labels; an empty selector picks everything."""
    selector = selector if isinstance(selector, dict) else {}
    wanted, expressions = selector.get("matchLabels"), selector.get("matchExpressions")
    if isinstance(wanted, dict) and any(labels.get(key) != value for key, value in wanted.items()):
        return False
    rows = expressions if isinstance(expressions, list) else []
    return all(_expression(row if isinstance(row, dict) else {}, labels) for row in rows)


def _expression(entry: dict[str, Any], labels: dict[str, Any]) -> bool:
    key, operator, values = entry.get("key"), entry.get("operator"), entry.get("values")
    key = key if isinstance(key, str) else ""
    values = values if isinstance(values, list) else []
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return labels.get(key) not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return False
