"""The site: it builds without a warning, needs no network, and its generated pages are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent


def listed(node: object) -> list[str]:
    if isinstance(node, str):
        return [node]
    items = node.values() if isinstance(node, dict) else node
    return [name for item in items for name in listed(item)]  # type: ignore[union-attr]


def test_every_page_is_in_the_navigation() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    pages = {str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")}
    assert set(listed(settings["nav"])) == pages, "list the page under nav in mkdocs.yml"


def test_the_site_builds_without_a_warning_and_asks_nobody(tmp_path: Path) -> None:
    if not os.environ.get("CI"):
        pytest.importorskip("mkdocs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert built.returncode == 0, built.stdout + built.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        text = page.read_text()
        fetched = re.findall(r"<(?:script|img|iframe)[^>]*\ssrc=\"([^\"]+)\"|<link[^>]*\shref=\"([^\"]+)\"", text)
        outside = [a or b for a, b in fetched if "://" in (a or b) or (a or b).startswith("//")]
        assert outside == [], page.name


@pytest.mark.parametrize("tool", ["make_cli_reference.py", "make_house.py", "make_library_reference.py"])
def test_generated_pages_are_up_to_date(tool: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, f"tools/{tool}", "--check"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"run: python tools/{tool}\n" + done.stderr
