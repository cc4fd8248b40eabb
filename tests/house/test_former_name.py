"""The product's first name stands in two places: the changelog, and a string that fixes the schedules of rehearse."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FORMER = "hold" + "fast"


def test_the_former_name_is_in_the_changelog_and_in_the_seed_of_schedules_alone() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    found = subprocess.run(["git", "grep", "-in", FORMER], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert found.returncode == 0, found.stderr
    seed, changelog = sorted(found.stdout.splitlines(), reverse=True)
    assert changelog.startswith("CHANGELOG.md:")
    assert f"it was called {FORMER}." in changelog
    assert seed.startswith("src/stayfast/proof/rehearse/schedule.py:")
    assert seed.endswith(f'random.Random(f"{FORMER} rehearse {{seed}}")')


def test_no_file_has_the_former_name() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert FORMER not in names.stdout.lower()
