"""The runtime's tests run real child processes, which ``runtime_children`` starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent.parent
for folder in (TESTS, TESTS / "runtime"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A developer's own environment must not decide a test."""
    for name in list(os.environ):
        if name.startswith("STAYFAST_") and name != "STAYFAST_COUNTS_FILE":
            monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX", "GCE_METADATA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STAYFAST_METADATA", "off")
