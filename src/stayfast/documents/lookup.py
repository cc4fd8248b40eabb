"""Looking into values that anybody may have written: what has another type than expected is as good as absent."""

from __future__ import annotations

from typing import Any, overload


def mapping(value: Any) -> dict[str, Any]:
    """The value if it is a mapping, else an empty one."""
    return value if isinstance(value, dict) else {}


def items(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: Any) -> list[dict[str, Any]]:
    """The mappings of a list."""
    return [item for item in items(value) if isinstance(item, dict)]


def text(value: Any) -> str:
    """The value if it is text, else an empty one."""
    return value if isinstance(value, str) else ""


def texts(value: Any) -> dict[str, str]:
    """A mapping of texts, as labels and annotations are."""
    return {key: item for key, item in mapping(value).items() if isinstance(item, str)}


@overload
def number(value: Any, default: int) -> int: ...
@overload
def number(value: Any, default: None = None) -> int | None: ...
def number(value: Any, default: int | None = None) -> int | None:
    """The value if it is a whole number, else the default."""
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def dig(value: Any, *path: str | int) -> Any:
    """What stands at ``path``, or ``None``."""
    for part in path:
        if isinstance(value, dict) and isinstance(part, str):
            value = value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and part < len(value):
            value = value[part]
        else:
            return None
    return value
