"""Text from a cluster, a bucket or a program, made safe to print: one line, short, without control characters."""

from __future__ import annotations

from typing import Any


def line(*parts: Any) -> str:
    """One evidence line: parts joined, spaces folded, kept short; nothing in it can steer a terminal."""
    text = printable(" ".join(" ".join(str(part).split()) for part in parts if part))
    return text if len(text) <= 400 else text[:399] + "…"


def printable(text: str) -> str:
    """For a terminal: what comes from a cluster must not move the cursor, change colours or reverse the line."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "?" for character in text)
