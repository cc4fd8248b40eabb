"""Measured numbers: pages and recorded results say the same, missed goals are shown, and recording takes an option."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
sys.path += [str(ROOT / "benchmarks"), str(ROOT / "tools")]

import make_figures  # noqa: E402 - the path must be set first
from goals import GOALS, Goal  # noqa: E402

BLOCK = re.compile(r"(<!-- figures ([a-z ]+):[^\n]*\n)(.*?)<!-- end of figures -->", re.DOTALL)
PAGES = [path for path in make_figures.pages() if BLOCK.search(path.read_text())]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, the results and the tool, where they may be changed."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copy(ROOT / "README.md", folder)
    for name in ("docs", "benchmarks", "tools"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "images"))
    (folder / "src").symlink_to(ROOT / "src")
    return folder


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(folder / "tools" / "make_figures.py"), "--check"]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def test_the_pages_show_what_was_recorded() -> None:
    found = check(ROOT)
    assert found.returncode == 0, found.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_an_edited_number_of_a_page_is_found(copied: Path, page: Path) -> None:
    place = copied / page.relative_to(ROOT)
    text = place.read_text()
    try:
        for block in BLOCK.finditer(text):
            numbers = list(re.finditer(r"\d+", block[3]))
            assert numbers, block[2]
            for number in (numbers[0], numbers[len(numbers) // 2], numbers[-1]):
                start, end = block.start(3) + number.start(), block.start(3) + number.end()
                place.write_text(f"{text[:start]}{int(number[0]) + 1}{text[end:]}")
                assert check(copied).returncode == 1, f"{block[2]}: {number[0]}"
    finally:
        place.write_text(text)


@pytest.mark.parametrize("name", sorted(GOALS))
def test_an_edited_result_is_found(copied: Path, name: str) -> None:
    place = copied / "benchmarks" / "results" / f"{name}.json"
    text = place.read_text()
    report = json.loads(text)
    rows = report.get("rows", report.get("results", report))
    try:
        place.write_text(json.dumps({**report, **({"rows": grown(rows)} if "rows" in report else grown(report))}))
        found = check(copied)
        assert found.returncode == 1
        assert "differs from benchmarks/results" in found.stderr
    finally:
        place.write_text(text)


def grown(value: Any) -> Any:
    """Every measured number is a tenth larger."""
    if isinstance(value, dict):
        return {key: grown(each) for key, each in value.items()}
    if isinstance(value, list):
        return [grown(each) for each in value]
    return value * 1.1 if isinstance(value, float) else value


def test_every_missed_goal_stands_in_the_readme_and_every_goal_on_its_page() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    page = (ROOT / "docs" / "benchmarks" / "goals.md").read_text()
    for name, judge in GOALS.items():
        for goal in judge(make_figures.load(name)):
            row = f"| {goal.what} | {make_figures.number(goal)} | {make_figures.bound(goal)} |"
            assert row in page, goal
            assert (f"{row} **missed** |" in page) == (not goal.met)
            if not goal.met:
                assert f"{goal.what} {make_figures.number(goal)} (goal {make_figures.bound(goal)})" in readme


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_missed_goal_stands_beside_its_figure_on_every_page(page: Path) -> None:
    for shown in BLOCK.finditer(page.read_text()):
        result = shown[2].replace(" ", "_")
        found = [goal for goal in GOALS[result](make_figures.load(result)) if not goal.met] if result in GOALS else []
        text = " ".join(shown[3].split())
        for goal in found:
            assert f"{goal.what} {make_figures.number(goal)} (goal {make_figures.bound(goal)})" in text
        assert found or "Missed goals" not in text


def test_every_block_of_figures_is_of_a_result_or_sums_up_all() -> None:
    assert {name.replace(" ", "_") for name in make_figures.BLOCKS} - GOALS.keys() == {"goals", "readme"}


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("", 4.12, "≥", 20), False),
        (Goal("", 20.3, "≥", 20), True),
        (Goal("", 1.303, "≤", 1.3), False),
        (Goal("", 1.298, "≤", 1.3), True),
    ],
)
def test_a_goal_is_judged_by_what_was_measured(goal: Goal, met: bool) -> None:
    assert goal.met is met
    shown = float(make_figures.number(goal))
    assert (shown <= goal.bound if goal.sign == "≤" else shown >= goal.bound) is met  # as printed, too


def test_every_recorded_result_is_judged_or_known_to_have_no_goal() -> None:
    """What is measured stands on the page of goals."""
    recorded = {path.stem for path in make_figures.RESULTS.glob("*.json")}
    no_goals = {"night"}
    parts = {"queue_speed_pubsub", "queue_speed_sqlite"}  # of queue_speed
    assert recorded == GOALS.keys() | no_goals | parts


@pytest.mark.parametrize("name", sorted(GOALS))
def test_every_recorded_result_names_its_machine_and_its_day(name: str) -> None:
    report = make_figures.load(name)
    for said in (make_figures.machine(report), make_figures.date(report)):
        assert "does not name" not in said


def test_what_is_no_bound_is_not_called_a_floor() -> None:
    for page in PAGES:
        assert "floor" not in page.read_text(), page


# -- running a benchmark


def scripts() -> list[str]:
    """Every benchmark that reports; torch takes seconds to import, so the two that need it are only read."""
    return sorted(path.name for path in (ROOT / "benchmarks").glob("*.py") if "ArgumentParser(" in path.read_text())


def test_every_benchmark_reports_in_one_way() -> None:
    assert len(scripts()) > 15
    for path in (ROOT / "benchmarks").glob("*.py"):
        if path.name != "reporting.py":
            text = path.read_text()
            assert "parse_args()" not in text, f"{path.name}: use reporting.parse, which has --record"
            assert "benchmarks/results" not in text, f"{path.name}: use reporting.publish or write"
            assert "json.dump(" not in text or path.name == "rehearse_overhead.py", path.name


@pytest.mark.parametrize("name", [name for name in scripts() if not name.startswith("checkpoint")])
def test_every_benchmark_has_the_option(name: str) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / name), "--help"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "--record" in found.stdout, found.stderr


def test_a_benchmark_overwrites_the_recorded_result_only_with_record(copied: Path) -> None:
    recorded = copied / "benchmarks" / "results" / "steps_overhead.json"
    before = recorded.read_bytes()
    command = [sys.executable, str(copied / "benchmarks" / "steps_overhead.py"), "--steps", "300", "--repeats", "1"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert recorded.read_bytes() == before
        written = json.loads((copied / "build" / "benchmarks" / "steps_overhead.json").read_text())
        assert written["steps"] == 300
        assert "written to build/benchmarks/steps_overhead.json" in found.stdout
        assert "run.steps(), file URL, over a bare loop, per step" in found.stdout  # the goals stand under the table
        subprocess.run([*command, "--record"], capture_output=True, timeout=120, check=True)
        assert json.loads(recorded.read_text())["steps"] == 300
    finally:
        recorded.write_bytes(before)
