"""What every fault suite really injected, merged into one JSON; a run below its count is void.

``record("F", schedules=888, faults=5000)`` adds to what other tests and other pytest-xdist workers recorded under the
same suite. ``HOLDFAST_COUNTS_FILE`` names another file than ``tests/.counts/counts.json``.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).resolve().parent.parent / ".counts" / "counts.json"


def counts_file() -> Path:
    """Where the counts go."""
    return Path(os.environ.get("HOLDFAST_COUNTS_FILE") or DEFAULT)


def record(suite: str, **counts: int) -> dict[str, int]:
    """Add the counts to those of the suite and return its sums; safe between processes."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"the count {name} of suite {suite} is {value!r}, not a number of injected faults")
    path = counts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything = read()
        row = everything.setdefault(suite, {})
        for name, value in counts.items():
            row[name] = row.get(name, 0) + value
        fresh = path.with_suffix(f".tmp-{os.getpid()}")
        fresh.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
        os.replace(fresh, path)
        return dict(row)


def read() -> dict[str, dict[str, int]]:
    """All counts so far; an absent or damaged file counts as nothing injected."""
    try:
        found: Any = json.loads(counts_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
