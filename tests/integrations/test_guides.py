"""The snippets of the FSDP2 guide, run as they stand; those of the trainers run with their programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")


def test_fsdp2_guide(guide: Callable[[str], list[Path]], tmp_path: Path) -> None:
    single = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    files = guide("torch-fsdp2.md")
    assert len(files) == 2
    both = f"import runpy\nfor name in {[path.name for path in files]}:\n    runpy.run_path(name)\n"
    done = subprocess.run(
        [sys.executable, "-c", both],
        cwd=tmp_path,
        env={**os.environ, **single, "RUN_URL": f"file://{tmp_path}/run", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    head = json.loads((tmp_path / "run" / "HEAD.json").read_text())
    assert head["finished"] is True
    assert head["checkpoints"][0]["step"] == 49
