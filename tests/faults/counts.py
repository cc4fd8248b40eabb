"""What every fault suite really injected, merged into one JSON; a run below its count is void.

``record("F", schedules=888, faults=5000)`` adds to what other tests and other pytest-xdist workers recorded under the
same suite. ``STAYFAST_COUNTS_FILE`` names another file than ``tests/.counts/counts.json``. Beside the sums stand the
tier, the day, the machine and the seeds, so that a file says by itself what it is worth.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import json
import os
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

DEFAULT = Path(__file__).resolve().parent.parent / ".counts" / "counts.json"
MOST_SEEDS = 100
_at_first = os.environ.get("STAYFAST_COUNTS_FILE"), os.environ.get("STAYFAST_TIER", "pr")


def counts_file() -> Path:
    """Where the counts go."""
    return Path(os.environ.get("STAYFAST_COUNTS_FILE") or _at_first[0] or DEFAULT)


def machine() -> dict[str, Any]:
    """What a count was made on."""
    return {
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def record(suite: str, **counts: int) -> dict[str, int]:
    """Add the counts to those of the suite and return its sums; safe between processes."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"the count {name} of suite {suite} is {value!r}, not a number of injected faults")
    with _changing() as everything:
        row = everything["suites"].setdefault(suite, {})
        for name, value in counts.items():
            row[name] = row.get(name, 0) + value
        return {name: value for name, value in row.items() if name != "seeds"}


def add_seed(suite: str, seed: int) -> None:
    """Keep a seed with its suite."""
    with _changing() as everything:
        seeds = everything["suites"].setdefault(suite, {}).setdefault("seeds", [])
        if seed not in seeds and len(seeds) < MOST_SEEDS:
            seeds.append(seed)


@contextlib.contextmanager
def _changing() -> Iterator[dict[str, Any]]:
    path = counts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        everything = read() or {
            "tier": os.environ.get("STAYFAST_TIER") or _at_first[1],
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "machine": machine(),
            "suites": {},
        }
        yield everything
        fresh = path.with_suffix(f".tmp-{os.getpid()}")
        fresh.write_text(json.dumps(everything, indent=1, sort_keys=True) + "\n")
        os.replace(fresh, path)


def read() -> dict[str, Any]:
    """All counts so far; an absent or damaged file counts as nothing injected."""
    try:
        found: Any = json.loads(counts_file().read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("suites"), dict) else {}
