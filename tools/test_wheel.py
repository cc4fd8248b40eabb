"""Build the wheel, install it into a fresh environment, and run tests against it where no source tree is near.

    python tools/test_wheel.py                 installs the extra ``test`` from the index: minutes, and what a user gets
    python tools/test_wheel.py --borrow        lends the packages of this interpreter instead: seconds, and no network
    python tools/test_wheel.py -- tests/queue  other tests than the usual ones

What a wheel can lack is data: schemas, prices, pages, fitted regimes. The usual tests are those that read them, and the
library itself. Tests that look at the source or the documentation have no place here.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USUAL = (
    "tests/checkpoint/test_tracked.py",
    "tests/cli/test_cli_main.py",
    "tests/cli/test_imports_light.py",
    "tests/dashboard/test_dashboard_views.py",
    "tests/documents",
    "tests/lint/test_lint_command.py",
    "tests/plan/test_init_command.py",
    "tests/plan/test_plan_command.py",
    "tests/render/test_render_command.py",
    "tests/simulate/test_simulate_command.py",
    "tests/stores/test_file_store.py",
)


def main(arguments: list[str]) -> int:
    """Everything happens below one temporary folder."""
    parser = argparse.ArgumentParser(prog="tools/test_wheel.py")
    parser.add_argument("--borrow", action="store_true", help="use this interpreter's packages, all but stayfast")
    parser.add_argument("tests", nargs="*", default=USUAL)
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="stayfast-wheel-") as name:
        folder = Path(name)
        python = install(build(folder), folder, borrow=args.borrow)
        for part in ("tests", "examples"):
            shutil.copytree(
                ROOT / part, folder / "place" / part, ignore=shutil.ignore_patterns("__pycache__", ".counts")
            )
        shutil.copy(ROOT / "pyproject.toml", folder / "place")
        check_origin(python, folder)
        command = [str(python), "-m", "pytest", "-q", "-n", "auto", "-p", "no:cacheprovider", *args.tests]
        return subprocess.run(command, cwd=folder / "place", env=clean(), check=False).returncode


def build(folder: Path) -> Path:
    """The wheel, as ``make dist`` makes it."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(ROOT)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return next((folder / "dist").glob("*.whl"))


def install(wheel: Path, folder: Path, *, borrow: bool) -> Path:
    """A fresh environment with the wheel in it; returns its interpreter."""
    venv.create(folder / "venv", with_pip=not borrow)
    python = folder / "venv" / "bin" / "python"
    if not borrow:
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"{wheel}[test]"], check=True)
        return python
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    # A line in a .pth file adds the folder behind our own, and does not follow the .pth of an editable stayfast in it.
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def clean() -> dict[str, str]:
    """The environment without anything that leads back to the source."""
    return {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}


def check_origin(python: Path, folder: Path) -> None:
    """The tests are worth nothing when they import the source tree."""
    program = "import stayfast, sys; print(stayfast.__file__)"
    found = subprocess.run([python, "-c", program], cwd=folder, env=clean(), check=True, capture_output=True, text=True)
    if not found.stdout.startswith(str(folder / "venv")):
        raise SystemExit(f"stayfast came from {found.stdout.strip()}, not from the wheel")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
