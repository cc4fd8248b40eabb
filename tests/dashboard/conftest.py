"""The folder's own modules can be imported; a laptop without the extra or a browser skips."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
for folder in (HERE, HERE.parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
