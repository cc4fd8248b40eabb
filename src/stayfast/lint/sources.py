"""What is linted: named texts."""

from __future__ import annotations

from typing import NamedTuple

MANIFESTS = (".yaml", ".yml", ".json")
POOLS = (".tf", ".sh")
PYTHON = (".py",)


class Source(NamedTuple):
    """One text; ``problem`` says why it could not be read."""

    name: str
    text: str
    problem: str = ""
