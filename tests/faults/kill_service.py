"""Start the fork server of suite D in a process of its own, where nothing but it runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from faults import kills

TESTS = Path(__file__).parents[1]


def serve_many(seed: int, count: int, servers: int) -> dict[str, Any]:
    """Several servers side by side; their sums, or what one of them lost."""
    with ThreadPoolExecutor(servers) as pool:
        reports = list(pool.map(lambda number: serve(seed + number, -(-count // servers)), range(servers)))
    for report in reports:
        if "lost" in report:
            return report
    return {name: sum(report[name] for report in reports) for name in reports[0]}


def serve(seed: int, count: int, deadline_seconds: float = 100_000.0) -> dict[str, Any]:
    """Run the fork server in a process of its own; what it found."""
    paths = [str(TESTS), *(path for path in sys.path if path.endswith("src")), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, kills.__file__, str(seed), str(count), str(deadline_seconds)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        timeout=deadline_seconds + 60,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
