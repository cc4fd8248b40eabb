"""What a rehearsal has measured, for a plan to use instead of guessing: the JSON of ``stayfast rehearse``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from stayfast.errors import SettingError

_LONGEST_SECONDS = 1e9


@dataclass(frozen=True, slots=True)
class RehearsalMeasurements:
    """Of the program itself. Its lost work is not here: a rehearsal is short, and the replays lose their own."""

    restart_seconds: float | None = None
    """From the start of the process to its first write: imports, restore."""
    last_save_seconds: float | None = None
    """The longest from SIGTERM to the program's own end."""
    failures: tuple[str, ...] = ()
    """The codes of a rehearsal that it did not survive."""


def read_measured(text: str, name: str) -> RehearsalMeasurements:
    """The measures in the output of ``stayfast rehearse --output json``; anything else is one sentence."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("verdict") not in ("survives", "fails"):
        raise SettingError(
            f"{name} is not what a rehearsal prints",
            help="make it with: stayfast rehearse --output json -- CMD > rehearse.json",
        )
    measures = found.get("measures")
    rows = found.get("reasons")
    if not isinstance(measures, dict) or not isinstance(rows, list):
        raise SettingError(f"{name} has no measures", help="make it again with this version of stayfast")
    codes = tuple(str(row["code"]) for row in rows if isinstance(row, dict) and "code" in row)
    if found["verdict"] == "fails" and not codes:
        raise SettingError(f"{name} says that it fails, and gives no reason", help="make it again")
    return RehearsalMeasurements(
        _seconds(measures, "restart_seconds", name),
        _seconds(measures, "safe_seconds_max", name),
        codes if found["verdict"] == "fails" else (),
    )


def _seconds(measures: dict[str, Any], field: str, name: str) -> float | None:
    value = measures.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _LONGEST_SECONDS:
        raise SettingError(f"{name}: measures.{field} is {value!r:.40}, not a number of seconds", help="make it again")
    return float(value)
