"""An exception inside a trainer after a notice: interrupted, resumable, and only the torn step is not saved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"


@pytest.mark.parametrize(("library", "name"), [("lightning", "lightning_raises"), ("transformers", "trainer_raises")])
def test_an_exception_in_a_trainer_after_a_notice_is_an_interruption(tmp_path: Path, library: str, name: str) -> None:
    pytest.importorskip(library)
    variables = {**os.environ, "STAYFAST_CHECKPOINT_SECONDS": "0.01", "STAYFAST_METADATA": "off"}
    codes = []
    for how in ("raise", "plain"):
        command = [sys.executable, str(PROGRAMS / f"{name}.py"), f"file://{tmp_path}/run", how]
        codes.append(subprocess.run(command, env=variables, cwd=tmp_path, timeout=240, check=False).returncode)
    assert codes == [75, 0]
    head = json.loads((tmp_path / "run" / "HEAD.json").read_text())
    assert [row["outcome"] for row in head["attempts"]] == ["interrupted", "finished"]
    assert head["checkpoints"][0]["step"] == 9
    assert head["attempts"][0]["last_step"] < 5, "the step that the exception cut short"
