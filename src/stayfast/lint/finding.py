"""The values that rules produce: a hit inside an object, and the finding that a person sees."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from stayfast.documents.editor import Edit
from stayfast.documents.positions import Path


class Severity(StrEnum):
    """How bad: errors fail the command, warnings with ``--strict``, advice never."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"


ERROR, WARNING, ADVICE = Severity.ERROR, Severity.WARNING, Severity.ADVICE


class Fix(NamedTuple):
    """How to mend a finding: edits, and whether they keep the meaning of everything else."""

    edits: tuple[Edit, ...]
    safe: bool


class Hit(NamedTuple):
    """What a rule reports about one object; the engine adds file, line and names."""

    path: Path
    message: str
    severity: Severity
    fix: Fix | None = None
    item: Any = None  # the object, where it is not the one the rule was called for


class Finding(NamedTuple):
    """One violation, as reported."""

    rule: str
    name: str
    severity: Severity
    message: str
    file: str
    line: int
    column: int
    pointer: str
    object: str
    fixable: str
    fix: Fix | None = None
    document: int = 0
