"""What is wrong or missing in the cluster before anything is applied."""

from __future__ import annotations

import enum
from typing import NamedTuple


class ProblemSeverity(enum.StrEnum):
    """Whether it stops a submit."""

    ERROR = "error"
    WARNING = "warning"


class Problem(NamedTuple):
    """One thing that is wrong or missing."""

    weight: ProblemSeverity
    object: str
    sentence: str
    fix: str = ""
