"""Values as YAML: whole objects in one fixed style with comments that say why, and the fragments that edits insert.

Written by hand instead of with a dumper so that a byte of the output changes only when a value does, and so that
comments can stand where they belong. A fragment takes the indent of the place where it is put, and quotes only what
another reader would take for something else than text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from stayfast.documents.scalars import resolve

Path = tuple[str, ...]
Why = Callable[[Path], str | None]

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./@=+-]*(:[A-Za-z0-9_./@=+-]+)*\Z")
_NOT_TEXT = re.compile(r"(true|false|yes|no|on|off|y|n|null|nan|inf|[0-9a-f]{8,})\Z", re.IGNORECASE)
"""Words that some reader of YAML takes for something else; long hexadecimal ones are quoted so that all look alike."""

_PLAIN_FRAGMENT = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@-]*\Z")
_WIDTH = 110
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def nothing(_path: Path) -> str | None:
    """No comment anywhere."""
    return None


def document(value: dict[str, Any], why: Why = nothing) -> str:
    """One object as one YAML document, without the separator."""
    return "\n".join(_mapping(value, (), why)) + "\n"


def documents(values: Sequence[dict[str, Any]], why: Callable[[dict[str, Any]], Why]) -> str:
    """Several objects of one file."""
    return "---\n".join(document(value, why(value)) for value in values)


def _mapping(value: dict[str, Any], path: Path, why: Why) -> Iterator[str]:
    for key, item in value.items():
        here = (*path, key)
        comment = why(here)
        if comment:
            yield from (f"# {line}" for line in _fold(comment))
        yield from _entry(scalar(key), item, here, why)


def _entry(key: str, item: Any, path: Path, why: Why) -> Iterator[str]:
    if isinstance(item, dict) and item:
        yield f"{key}:"
        yield from (f"  {line}" for line in _mapping(item, path, why))
    elif isinstance(item, list) and item:
        flow = _flow(item)
        if flow is not None and len(key) + len(flow) < _WIDTH - 2 * len(path):
            yield f"{key}: {flow}"
        else:
            yield f"{key}:"
            yield from _sequence(item, path, why)
    else:
        yield f"{key}: {scalar(item)}"


def _flow(items: list[Any]) -> str | None:
    """Short lists of scalars on one line, as commands are read."""
    if any(isinstance(item, dict | list) for item in items):
        return None
    return f"[{', '.join(_in_flow(item) for item in items)}]"


def _in_flow(item: Any) -> str:
    return _quoted(item) if isinstance(item, str) and not re.fullmatch(r"[A-Za-z_][\w-]*", item) else scalar(item)


def _sequence(items: list[Any], path: Path, why: Why) -> Iterator[str]:
    for item in items:
        if isinstance(item, dict) and item:
            lines = list(_mapping(item, path, why))
            first = next(index for index, line in enumerate(lines) if not line.startswith("#"))
            yield from (f"  {line}" for line in lines[:first])
            yield f"  - {lines[first]}"
            yield from (f"    {line}" for line in lines[first + 1 :])
        else:
            yield f"  - {scalar(item)}"


def scalar(value: Any) -> str:
    """A value that is no mapping and no filled list."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, dict | list):
        assert not value
        return "{}" if isinstance(value, dict) else "[]"
    assert isinstance(value, str), f"{type(value).__name__} has no place in a manifest"
    return value if _PLAIN.match(value) and not _NOT_TEXT.match(value) else _quoted(value)


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(char) or _visible(char) for char in text) + '"'


def _visible(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _fold(text: str, width: int = 96) -> Iterator[str]:
    line = ""
    for word in text.split():
        if line and len(line) + len(word) >= width:
            yield line
            line = ""
        line = f"{line} {word}".strip()
    yield line


def scalar_fragment(value: Any) -> str:
    """One scalar on one line, quoted where YAML would read it as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = bool(_PLAIN_FRAGMENT.match(value)) and resolve(value) == value and not isinstance(resolve(value), bool)
        return value if plain else json.dumps(value, ensure_ascii=True)
    return str(value)


def flow_fragment(value: Any) -> str:
    """A value in flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar_fragment(key)}: {flow_fragment(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow_fragment(inner) for inner in value) + "]"
    return scalar_fragment(value)


def block_fragment(value: Any, indent: int) -> list[str]:
    """A non-empty mapping or list in block style, each line indented; scalars and empty ones as a single line."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in entry_fragment(key, inner, indent)]
    if isinstance(value, list) and value:
        lines = []
        for inner in value:
            rendered = block_fragment(inner, indent + 2)
            lines += [f"{pad}- {rendered[0].lstrip(' ')}", *rendered[1:]]
        return lines
    return [pad + flow_fragment(value)]


def entry_fragment(key: str, value: Any, indent: int) -> list[str]:
    """``key: value`` as indented lines."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return [f"{pad}{scalar_fragment(key)}:", *block_fragment(value, indent + 2)]
    if isinstance(value, list) and value:
        if all(not isinstance(inner, dict | list) for inner in value):
            return [f"{pad}{scalar_fragment(key)}: {flow_fragment(value)}"]
        return [f"{pad}{scalar_fragment(key)}:", *block_fragment(value, indent)]
    return [f"{pad}{scalar_fragment(key)}: {flow_fragment(value)}"]
