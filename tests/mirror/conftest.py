"""Mirrors of directories: in-process ones on any store, and real ``stayfast exec --sync`` processes."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
for folder in (TESTS, TESTS / "runtime", TESTS / "mirror"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
