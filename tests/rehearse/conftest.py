"""What the rehearsal tests share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class AsNobody:
    """Runs Python as an ordinary user, in a folder of its own."""

    def __init__(self, python: str, folder: Path) -> None:
        self.python = python
        self.folder = folder

    def __call__(self, *arguments: str, timeout: float = 120.0) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "HOME": str(self.folder)}
        return subprocess.run(
            [*NOBODY, self.python, *arguments],
            cwd=self.folder, env=environment, capture_output=True, text=True, timeout=timeout,
        )  # fmt: skip


@pytest.fixture
def as_nobody() -> Iterator[AsNobody]:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory(prefix="stayfast-nobody-") as name:
        folder = Path(name)
        os.chown(folder, 65534, 65534)
        for python in (sys.executable, "/usr/bin/python3"):  # ours may live where nobody can go
            check = "import sys; sys.exit(sys.version_info < (3, 11))"
            tried = subprocess.run([*NOBODY, python, "-c", f"import subprocess; {check}"], cwd=folder, env={})
            nested = f"import subprocess, sys; sys.exit(subprocess.call([{python!r}, '-c', {check!r}]))"
            if tried.returncode == 0 and subprocess.run([*NOBODY, python, "-c", nested], cwd=folder).returncode == 0:
                yield AsNobody(python, folder)
                return
        pytest.skip("no Python >= 3.11 that an ordinary user may run")
