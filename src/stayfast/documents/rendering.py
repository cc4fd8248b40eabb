"""Small YAML writer for the values that fixes insert."""

from __future__ import annotations

import json
import re
from typing import Any

from stayfast.documents.scalars import resolve

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@-]*\Z")


def scalar(value: Any) -> str:
    """One scalar on one line, quoted where YAML would read it as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        plain = bool(_PLAIN.match(value)) and resolve(value) == value and not isinstance(resolve(value), bool)
        return value if plain else json.dumps(value, ensure_ascii=True)
    return str(value)


def flow(value: Any) -> str:
    """A value in flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{scalar(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    return scalar(value)


def block(value: Any, indent: int) -> list[str]:
    """A non-empty mapping or list in block style, each line indented; scalars and empty ones as a single line."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return [line for key, inner in value.items() for line in entry(key, inner, indent)]
    if isinstance(value, list) and value:
        lines = []
        for inner in value:
            rendered = block(inner, indent + 2)
            lines += [f"{pad}- {rendered[0].lstrip(' ')}", *rendered[1:]]
        return lines
    return [pad + flow(value)]


def entry(key: str, value: Any, indent: int) -> list[str]:
    """``key: value`` as indented lines."""
    pad = " " * indent
    if isinstance(value, dict) and value:
        return [f"{pad}{scalar(key)}:", *block(value, indent + 2)]
    if isinstance(value, list) and value:
        if all(not isinstance(inner, dict | list) for inner in value):
            return [f"{pad}{scalar(key)}: {flow(value)}"]
        return [f"{pad}{scalar(key)}:", *block(value, indent)]
    return [f"{pad}{scalar(key)}: {flow(value)}"]
