"""Programs of these tests run as real processes; torch is imported once in each."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

PROGRAMS = Path(__file__).parent / "programs"
GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"


@pytest.fixture
def guide(tmp_path: Path) -> Callable[[str], list[Path]]:
    """The Python snippets of a guide, as files."""

    def extract(name: str) -> list[Path]:
        found = re.findall(r"^```python\n(.*?)^```", (GUIDES / name).read_text(), re.M | re.S)
        paths = [tmp_path / f"snippet-{number}.py" for number in range(len(found))]
        for path, text in zip(paths, found, strict=True):
            path.write_text(text)
        return paths

    return extract


@pytest.fixture
def program() -> Callable[..., list[dict[str, Any]]]:
    """Run a program to its end; returns the JSON objects it said on stdout."""

    def run(name: str, *arguments: object, timeout_seconds: float = 200, **environ: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / name), *map(str, arguments)],
            env={**os.environ, "OMP_NUM_THREADS": "1", "STAYFAST_CHECKPOINT_SECONDS": "300", **environ},
            capture_output=True,
            text=True,
            timeout=timeout_seconds,
        )
        assert done.returncode == 0, done.stderr[-4000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"')]

    return run
