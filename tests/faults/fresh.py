"""Call a campaign in an interpreter of its own.

A test process that has imported the whole world, torch too, forks four times as slowly as one that has not; and the
campaigns here do little else.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.tiers import Lost

TESTS = Path(__file__).parents[1]


def call(name: str, *arguments: Any) -> dict[str, Any]:
    """What ``module:function`` returned, as a dict; arguments and result travel as JSON, and so does a ``Lost``."""
    paths = [str(TESTS), *(path for path in sys.path if path.endswith("src")), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "faults.fresh", name, json.dumps(arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"{name} left with {done.returncode}; its last words are above")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "lost" in answer:
        raise Lost(answer["lost"])
    report: dict[str, Any] = answer["report"]
    return report


def main() -> None:
    """In there."""
    module, _, function = sys.argv[1].partition(":")
    try:
        report = getattr(importlib.import_module(module), function)(*json.loads(sys.argv[2]))
        answer = {"report": report if isinstance(report, dict) else vars(report)}
    except Lost as error:
        answer = {"lost": str(error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
