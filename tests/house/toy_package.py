"""A package outside ours, on the path and with entry points, as ``pip install`` would leave it."""

from __future__ import annotations

from pathlib import Path

import pytest


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, group: str, entries: str) -> None:
    """A module ``name`` with this text, and lines of ``entries`` in a group of entry points."""
    (folder / f"{name}.py").write_text(text)
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{entries}\n")
    monkeypatch.syspath_prepend(str(folder))
