"""The sink tests share the servers of the queue tests."""

from __future__ import annotations

import sys
from pathlib import Path

QUEUE_TESTS = Path(__file__).resolve().parent.parent / "queue"
if str(QUEUE_TESTS) not in sys.path:
    sys.path.insert(0, str(QUEUE_TESTS))

from queue_fixtures import *  # noqa: E402, F403
