"""An array library of another package: its arrays and generator are saved and restored through its entry point."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIBRARY = """
import array

seed = 1


class Grid:
    def __init__(self, numbers):
        self.numbers = array.array("d", numbers)
"""
ADAPTER = """
import array, sys
from stayfast.runtime.state.leaf import Leaf, check_size


class Adapter:
    tags = {}

    def exact_types(self):
        return {sys.modules["toygrid"].Grid: self.encode}

    def encode(self, value):
        if not isinstance(value, sys.modules["toygrid"].Grid):
            return None
        address, count = value.numbers.buffer_info()
        return "array", Leaf("toygrid:d", (count,), 8 * count, value, address), ("toygrid", address)

    def build(self, dtype, shape, memory):
        import toygrid
        check_size(shape, 8, len(memory))
        return toygrid.Grid(array.array(dtype, bytes(memory)))

    def track(self, name, thing):
        return None

    def random_state(self):
        return {"toygrid": sys.modules["toygrid"].seed}

    def set_random_state(self, state):
        import toygrid
        toygrid.seed = state["toygrid"]


ADAPTER = Adapter()
"""
PROGRAM = """
import stayfast, sys, toygrid
grids = {"left": toygrid.Grid([1.0, 2.0])}
grids["right"] = grids["left"]
with stayfast.run(sys.argv[1], 4) as run:
    run.track(grids=(lambda: grids, grids.update))
    for step in run.steps():
        grids["left"].numbers[0] += 1
        toygrid.seed *= 2
        if step == 1 and run.attempt == 1:
            run.interrupt("enough")
print(run.attempt, list(grids["left"].numbers), grids["left"] is grids["right"], toygrid.seed)
"""


def test_arrays_of_another_package_are_saved_and_restored(tmp_path: Path) -> None:
    site = tmp_path / "site"
    metadata = site / "toygrid-1.0.dist-info"
    metadata.mkdir(parents=True)
    (site / "toygrid.py").write_text(LIBRARY)
    (site / "toygrid_stayfast.py").write_text(ADAPTER)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: toygrid\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[stayfast.frameworks]\ntoygrid = toygrid_stayfast:ADAPTER\n")
    first = start(site, f"file://{tmp_path}/run")
    assert first.returncode == 75, first.stderr
    second = start(site, f"file://{tmp_path}/run")
    assert second.stdout == "2 [5.0, 2.0] True 16\n", second.stderr


def start(site: Path, url: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, url],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": path},
        check=False,
    )
