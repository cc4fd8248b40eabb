"""The release: built twice it is the same bytes, it holds what it should, and works where nothing else is installed."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
EPOCH = "1767225600"


def check_dist() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_dist", ROOT / "tools" / "check_dist.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(command: list[str], folder: Path, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{command}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


def build(folder: Path) -> Path:
    """Build from a copy, so that whatever else lies in the checkout cannot slip in or be touched."""
    tree = folder / "tree"
    tree.mkdir(parents=True)
    for name in ("README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", ".gitignore"):
        shutil.copy(ROOT / name, tree / name)
    shutil.copytree(ROOT / "src", tree / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    (tree / "tests").mkdir()
    (tree / "tests" / "test_stray.py").write_text("")
    out = folder / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    run(command, folder, SOURCE_DATE_EPOCH=EPOCH)
    return out


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not os.environ.get("CI"):
        pytest.importorskip("build")
        pytest.importorskip("hatchling")
    return build(tmp_path_factory.mktemp("first"))


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_built_twice_it_is_the_same(dist: Path, tmp_path: Path) -> None:
    first = hashes(dist)
    assert len(first) == 2
    assert hashes(build(tmp_path)) == first


def test_it_holds_what_it_should(dist: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = check_dist()
    assert checks.main([str(dist)]) == 0, capsys.readouterr().err
    files = checks.read_wheel(next(dist.glob("*.whl")))
    for data in (
        "py.typed",
        "capacity/machines/prices.json",
        "lint/schema/data/kubernetes.json",
        "capacity/policies/regimes.json",
    ):
        assert f"stayfast/{data}" in files
    assert any(name.endswith("/licenses/LICENSE") for name in files)


def test_the_check_finds_what_is_wrong(dist: Path, tmp_path: Path) -> None:
    checks = check_dist()
    files = checks.read_wheel(next(dist.glob("*.whl")))
    lacking = {name: data for name, data in files.items() if name != "stayfast/py.typed"}
    assert checks.check_wheel(lacking) == ["the wheel lacks stayfast/py.typed"]
    assert checks.check_wheel({**files, "tests/test_x.py": b""}) == ["the wheel holds tests/test_x.py"]
    told = checks.check_wheel({**files, "stayfast/version.py": str(checks.ROOT).encode()})
    assert [sentence.split(" ")[0] for sentence in told] == ["stayfast/version.py", "stayfast/version.py"]
    assert checks.main([str(tmp_path)]) == 1


def test_installed_alone_it_works(dist: Path, tmp_path: Path) -> None:
    """No extras, not even the two dependencies of the command line: the library and exec need none."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    wheel = next(dist.glob("*.whl"))
    installer = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    run([*installer, "--no-deps", "--no-index", str(wheel)], tmp_path)
    assert not (site / "yaml").exists()
    python, stayfast = str(place / "bin" / "python"), str(place / "bin" / "stayfast")
    quiet = {"STAYFAST_METADATA": "off"}
    program = (
        "import stayfast\n"
        "with stayfast.run('file:///' + __import__('os').getcwd() + '/run', total_steps=3) as run:\n"
        "    for step in run.steps(): print(step)\n"
    )
    assert run([python, "-c", program], tmp_path, **quiet).split() == ["0", "1", "2"]
    version = run([python, "-c", "import stayfast; print(stayfast.__version__)"], tmp_path).strip()
    assert run([stayfast, "--version"], tmp_path) == f"stayfast {version}\n"
    assert "Start here:" in run([stayfast], tmp_path)
    assert run([stayfast, "exec", "--", "echo", "held"], tmp_path, **quiet) == "held\n"
    assert "whole" in run([stayfast, "checkpoints", "verify", f"file://{tmp_path}/run"], tmp_path)
    run([stayfast, "init", "batch", "p"], tmp_path)
    assert "100 items added" in run(
        [stayfast, "enqueue", "--queue", "sqlite://./work.db", "items.jsonl"], tmp_path / "p"
    )


def hard_dependencies(distribution: importlib.metadata.Distribution) -> dict[str, importlib.metadata.Distribution]:
    """What it needs without any extra, and what that needs, as installed here."""
    found = {}
    for text in distribution.requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            needed = importlib.metadata.distribution(requirement.name)
            found |= {requirement.name: needed, **hard_dependencies(needed)}
    return found


def test_installed_with_its_hard_dependencies_the_demo_runs(dist: Path, tmp_path: Path) -> None:
    """`pip install` of the wheel without extras, as far as that works without a network."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    python, stayfast = str(place / "bin" / "python"), str(place / "bin" / "stayfast")
    installer = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index"]
    run([*installer, str(next(dist.glob("*.whl")))], tmp_path)
    (installed,) = importlib.metadata.distributions(name="stayfast", path=[str(site)])
    for needed in hard_dependencies(installed).values():
        for top in {file.parts[0] for file in needed.files or ()} - {"..", "__pycache__"}:
            (site / top).symlink_to(needed.locate_file(top))
    imports = "import rich, yaml, stayfast, importlib.util as u; print(stayfast.__file__, u.find_spec('numpy'))"
    assert run([python, "-c", imports], tmp_path).split() == [str(site / "stayfast" / "__init__.py"), "None"]
    given = ("--items", "200", "--steps", "60", "--kills", "3", "--output", "json")
    result = json.loads(run([stayfast, "demo", *given], tmp_path, STAYFAST_METADATA="off"))
    assert (result["items"], result["lost"], result["duplicates"]) == (200, 0, 0)
    assert result["bit_identical"] is True
    assert result["kills"] >= 1


def test_what_it_reads_is_in_the_wheel(dist: Path, tmp_path: Path) -> None:
    """Schemas, rules, prices, regimes, pages: read by commands of an installation that has no source beside it."""
    place = tmp_path / "venv"
    venv.create(place, with_pip=False)
    site = next((place / "lib").glob("python*/site-packages"))
    installer = [sys.executable, "-m", "pip", "--python", str(place / "bin" / "python"), "install", "--quiet"]
    run([*installer, "--no-deps", "--no-index", str(next(dist.glob("*.whl")))], tmp_path)
    (site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")  # PyYAML, rich, NumPy
    stayfast = str(place / "bin" / "stayfast")
    origin = run([str(place / "bin" / "python"), "-c", "import stayfast; print(stayfast.__file__)"], tmp_path)
    assert origin.startswith(str(site)), "the tests are worth nothing when they import the source tree"
    run([stayfast, "init", "train", "p"], tmp_path)
    assert "done p50" in run([stayfast, "plan", "-f", "p/stayfast.yaml", "--replays", "80"], tmp_path)
    run([stayfast, "render", "-f", "p/stayfast.yaml", "-d", "deploy"], tmp_path)
    assert "No findings" in run([stayfast, "lint", "deploy"], tmp_path)
    assert "SF101" in run([stayfast, "lint", "--explain", "SF101"], tmp_path)
