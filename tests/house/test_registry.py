"""The one mechanism by which stores, queues, policies and the other parts are found by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stayfast.registry import Registry

TOY = '''
class ToyClock:
    """A part of another package."""
'''


@pytest.fixture
def toy_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package outside ours that adds a part through an entry point."""
    (tmp_path / "toy_clock.py").write_text(TOY)
    metadata = tmp_path / "toy_clock-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-clock\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[stayfast.test_clocks]\ntoy = toy_clock:ToyClock\nsystem = toy_clock:ToyClock\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))


def test_a_part_is_imported_when_it_is_asked_for() -> None:
    program = (
        "import sys; from stayfast.registry import Registry; "
        "table = Registry('stayfast.x', {'memory': 'stayfast.storage.stores.memory:MemoryStore'}); "
        "assert 'stayfast.storage' not in sys.modules and 'importlib.metadata' not in sys.modules; "
        "print(table.find('memory').__name__, 'importlib.metadata' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["MemoryStore", "False"]


def test_another_package_adds_a_part_but_replaces_none(toy_package: None) -> None:
    clocks: Registry[type] = Registry("stayfast.test_clocks", {"system": "stayfast.clock:SystemClock"})
    toy, system = clocks.find("toy"), clocks.find("system")
    assert (toy.__name__ if toy else None, system.__name__ if system else None) == ("ToyClock", "SystemClock")
    assert clocks.names() == ("system",)
    assert clocks.installed_names() == ("system", "toy")


def test_an_unknown_name_is_nothing() -> None:
    assert Registry("stayfast.test_clocks", {}).find("sundial") is None
