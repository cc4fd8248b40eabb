"""Text from a cluster, a bucket or a program, made safe to print: one line, short, without control characters."""

from __future__ import annotations

import re
from typing import Any

_SECRET = re.compile(r"eyJ[\w.-]{20,}|ya29\.[\w.-]{10,}|[A-Za-z0-9+/_=-]{60,}")


def line(*parts: Any) -> str:
    """One evidence line: parts joined, spaces folded, kept short; nothing in it can steer a terminal."""
    text = printable(" ".join(" ".join(str(part).split()) for part in parts if part))
    return text if len(text) <= 400 else text[:399] + "…"


def printable(text: str, instead: str = "?") -> str:
    """For a terminal: what comes from a cluster must not move the cursor, change colours or reverse the line."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else instead for character in text)


def quoted_unless_printable(text: str) -> str:
    """A key or a reason for a terminal, such that two different ones never look the same."""
    return text if text.isprintable() else repr(text)


def redact(text: str) -> str:
    """The text without anything that looks like a token."""
    return _SECRET.sub("[hidden]", text)
