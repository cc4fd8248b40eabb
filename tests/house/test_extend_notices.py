"""A notice source of another package: found by its entry point, named by a variable, used inside and outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import stayfast
from stayfast.errors import SettingError
from stayfast.settings import read_settings

TOY = """
from stayfast.model.notice import Cause, Notice


class TowerSource:
    \"\"\"Says at once that the machine goes.\"\"\"

    def __init__(self, board):
        self.board = board

    def start(self):
        self.board.post(Notice(Cause.EVICTION, self.board.clock.monotonic(), 5.0, "the tower has called"))

    def stop(self):
        pass
"""


@pytest.fixture
def toy_package(tmp_path: Path) -> Path:
    (tmp_path / "toy_tower.py").write_text(TOY)
    metadata = tmp_path / "toy_tower-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-tower\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[stayfast.notice_sources]\ntower = toy_tower:TowerSource\n")
    return tmp_path


def test_a_guard_takes_its_notice(toy_package: Path) -> None:
    program = (
        "import stayfast\n"
        "with stayfast.guard() as guard:\n"
        "    print(guard.wait(20), guard.notice.cause, guard.notice.detail, guard.should_stop())\n"
    )
    ended = start(toy_package, "-c", program)
    assert ended.stdout == "True eviction the tower has called True\n", ended.stderr
    assert ended.returncode == 75


def test_exec_gives_it_to_any_program(toy_package: Path) -> None:
    ended = start(toy_package, "-m", "stayfast", "exec", "--", "sh", "-c", "trap 'exit 3' TERM; sleep 20 & wait")
    assert ended.returncode == 75, ended
    assert '"cause":"eviction"' in ended.stderr


def test_a_name_that_no_package_has_is_one_sentence() -> None:
    settings = read_settings({"STAYFAST_NOTICE_SOURCES": "sundial"})
    with pytest.raises(SettingError, match=r"'sundial' is not a notice source; .*there are metadata, lease, file"):
        stayfast.Guard(settings=settings)


def start(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "STAYFAST_NOTICE_SOURCES": "tower"}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
