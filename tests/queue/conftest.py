"""Fixtures live in a module of their own, so that the sink tests can use them too."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from queue_fixtures import *  # noqa: E402, F403
