"""What we depend on is locked, listed and licensed; nothing unpickles; no secret lies in the tree."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import pickle  # noqa: TID251 - to see that it is caught
import re
import subprocess
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_sbom", ROOT / "tools" / "make_sbom.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wanted(extra: str | None) -> list[Requirement]:
    """The requirements of an extra, with those of the extras it names."""
    rows = [Requirement(row) for row in PROJECT["dependencies"]]
    todo = [extra] if extra else []
    while todo:
        for row in map(Requirement, PROJECT["optional-dependencies"][todo.pop()]):
            if row.name == "stayfast":
                todo += row.extras
            else:
                rows.append(row)
    return rows


@pytest.mark.parametrize("name", ["base", "all", "test"])
def test_the_lock_covers_every_requirement(name: str) -> None:
    locked = tool().read_lock((ROOT / "requirements" / f"{name}.txt").read_text())
    assert all(item.hashes for item in locked)
    by_name: dict[str, list[str]] = {}
    for item in locked:
        by_name.setdefault(canonicalize_name(item.name), []).append(item.version)
    for row in wanted(None if name == "base" else name):
        versions = by_name.get(canonicalize_name(row.name), [])
        assert any(row.specifier.contains(version, prereleases=True) for version in versions), f"run make lock: {row}"


def test_the_lock_names_no_place() -> None:
    for path in (ROOT / "requirements").iterdir():
        assert not re.search(r"://|file:|--index|--find-links|^-", path.read_text(), re.MULTILINE), path


def test_the_sbom_lists_what_is_locked_and_is_the_same_twice(tmp_path: Path) -> None:
    module = tool()
    assert module.main(["sbom", str(tmp_path / "a.json")]) == module.main(["sbom", str(tmp_path / "b.json")]) == 0
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()
    bom = json.loads((tmp_path / "a.json").read_text())
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", bom["serialNumber"]
    )
    about = importlib.import_module("stayfast.version").__version__
    assert bom["metadata"]["component"]["version"] == about
    locked = module.read_lock(module.LOCK.read_text())
    assert {(item["name"], item["version"]) for item in bom["components"]} == {item[:2] for item in locked}
    references = [item["bom-ref"] for item in bom["components"]]
    assert bom["dependencies"][0]["dependsOn"] == references
    assert len(references) == len(set(references))


def test_every_dependency_is_listed_with_its_licence() -> None:
    module = tool()
    page = module.PAGE.read_text()
    for name, purpose in module.direct().items():
        assert f"| {name} | {purpose} | " in page, "run: python tools/make_sbom.py licences"
        try:
            importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        assert f"| {name} | {purpose} | {module.licence(name)} |" in page, "run: python tools/make_sbom.py licences"
    assert not re.search(r"\| (A?GPL|SSPL|BUSL|.*proprietary)", page, re.IGNORECASE)


class Harmless:
    """Something that pickle has to look up."""


def test_unpickling_in_the_product_fails_the_run() -> None:
    data = pickle.dumps(Harmless())
    assert isinstance(pickle.loads(data), Harmless), "tests may"
    here = str(ROOT / "src" / "stayfast" / "runtime" / "checkpoint" / "made_up.py")
    for source in ("import pickle\nread = pickle.loads", "import pickle\nread = lambda data: pickle._loads(data)"):
        scope: dict[str, object] = {}
        exec(compile(source + "\ndef product(data):\n    return read(data)", here, "exec"), scope)
        with pytest.raises(BaseException, match=r"made_up\.py") as caught:
            scope["product"](data)  # type: ignore[operator]
        assert type(caught.value).__name__ == "Unpickling"


FORBIDDEN_IMPORTS = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__"}


def test_the_product_neither_unpickles_nor_evaluates() -> None:
    for path in (ROOT / "src" / "stayfast").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").partition(".")[0]]
            assert not FORBIDDEN_IMPORTS & set(names), path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in FORBIDDEN_CALLS, f"{path}:{node.lineno}"
            if isinstance(node, ast.Attribute) and node.attr in ("Loader", "FullLoader", "UnsafeLoader", "unsafe_load"):
                assert not (isinstance(node.value, ast.Name) and node.value.id == "yaml"), f"{path}:{node.lineno}"


SECRETS = {
    "a private key": rb"-----BEGIN (RSA |EC |OPENSSH |ENCRYPTED )?PRIVATE KEY-----\s*[A-Za-z0-9+/=\s]{100,}",
    "an AWS key": rb"\b(AKIA|ASIA)(?!IOSFODNN7EXAMPLE)[A-Z0-9]{16}\b",
    "a Google API key": rb"\bAIza[0-9A-Za-z_-]{35}\b",
    "a GitHub token": rb"\bgh[pousr]_[A-Za-z0-9]{36}\b",
    "a Slack webhook": rb"hooks\.slack\.com/services/T[A-Z0-9]{8,}/B[A-Z0-9]{8,}/[A-Za-z0-9]{20,}",
    "a service account": rb'"private_key":\s*"-----BEGIN[^"]{200,}"',
}


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, timeout=60)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]


def test_no_secret_lies_in_the_tree() -> None:
    assert re.search(SECRETS["an AWS key"], b"x AKIA" + b"ABCDEFGHIJKLMNOP y"), "or this test could not fail"
    for path in tracked():
        if path.is_file() and path.stat().st_size < 5_000_000:
            data = path.read_bytes()
            for what, pattern in SECRETS.items():
                assert not re.search(pattern, data), f"{path} holds {what}"


def test_workflow_examples_ask_for_no_more_than_they_need() -> None:
    """Not a whole linter: what goes wrong most in workflows that people copy."""
    from stayfast.documents import load_documents

    examples = sorted((ROOT / "docs" / "examples").glob("*.yml")) + sorted((ROOT / ".github").rglob("*.y*ml"))
    assert examples
    for path in examples:
        (document,) = load_documents(path.read_text(), str(path))
        body = document.value
        assert set(body) <= {"name", "on", "True", "true", "permissions", "jobs", "env", "concurrency", "defaults"}, (
            path
        )
        assert body["permissions"] == {}, "nothing by default; each job says what it needs"
        for job in body["jobs"].values():
            assert set(job) <= {"runs-on", "permissions", "steps", "needs", "strategy", "timeout-minutes", "env", "if"}
            assert "write-all" not in str(job.get("permissions"))
            for step in job["steps"]:
                assert ("uses" in step) != ("run" in step)
                assert not re.search(r"\$\{\{\s*github\.(event|head_ref)", step.get("run", "")), "an injection"
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False
                assert re.search(r"@(v\d+|[0-9a-f]{40})$", step.get("uses", "x@v1"))
