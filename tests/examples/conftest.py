"""The examples need the same servers as the queue tests."""

from __future__ import annotations

import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
for folder in (TESTS, TESTS / "queue", TESTS / "runtime"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from queue_fixtures import postgres_base, postgres_server, pubsub_server  # noqa: E402, F401
