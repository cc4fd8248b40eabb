"""The reference pages are complete: whatever a user can meet is written down."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stayfast.cli import main as cli
from stayfast.model.exit_codes import CONTRACT, Outcome
from stayfast.model.notice import Cause
from stayfast.settings import VARIABLES

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference"


def page(name: str) -> str:
    return (REFERENCE / name).read_text()


@pytest.mark.parametrize("variable", VARIABLES, ids=lambda variable: variable.name)
def test_every_variable_is_documented_with_its_default(variable: object) -> None:
    row = next(
        (line for line in page("environment.md").splitlines() if line.startswith(f"| `{variable.name}` |")), None
    )  # type: ignore[attr-defined]
    assert row is not None, "add a row to docs/reference/environment.md"
    _, _, default, meaning, _ = (cell.strip() for cell in row.split("|"))
    assert default == variable.default  # type: ignore[attr-defined]
    assert meaning == variable.meaning  # type: ignore[attr-defined]


def test_no_variable_is_documented_that_does_not_exist() -> None:
    mentioned = set(re.findall(r"STAYFAST_[A-Z_]+", "".join(path.read_text() for path in REFERENCE.glob("*.md"))))
    known = {variable.name for variable in VARIABLES} | set(re.findall(r"STAYFAST_[A-Z_]+", all_source()))
    assert mentioned <= known


def test_no_variable_is_read_that_is_not_in_the_table() -> None:
    known = {variable.name for variable in VARIABLES}
    used = set(re.findall(r"\bSTAYFAST_(?!DEMO_)[A-Z_]+[A-Z]\b", all_source()))  # the demo talks to its own children
    assert used <= known, "add it to VARIABLES in settings.py"


def all_source() -> str:
    return "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))


def test_every_exit_code_and_outcome_is_documented() -> None:
    text = page("exit-codes.md")
    for row in CONTRACT:
        assert re.search(rf"^\| {row.code} \| `\w+` \| {re.escape(row.meaning)} \|", text, re.MULTILINE), row
    for outcome in Outcome:
        assert f"`{outcome}`" in text
    for code in (cli.OK, cli.FINDINGS, cli.USAGE, cli.UNREACHABLE, cli.INFEASIBLE):
        assert re.search(rf"^\| {code} \| [a-z]", text, re.MULTILINE), code


def test_every_cause_and_notice_source_is_documented() -> None:
    text = page("notices.md")
    for cause in Cause:
        assert f"`{cause}`" in text, cause
    from stayfast.runtime.interruption.metadata_source import WATCHED
    from stayfast.runtime.interruption.sources import SOURCES

    for name in ("SIGTERM", *SOURCES.names()):
        assert name in text, "describe the new source in docs/reference/notices.md"
    for path, _, _ in WATCHED:
        assert f"`{path}`" in text


def test_the_readme_is_short_and_shows_what_it_should() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 220
    picture = re.search(r"!\[[^\]]{20,}\]\((docs/images/[a-z-]+\.png)\)", text)
    assert picture is not None, "a picture made from a real run, with words for those who cannot see it"
    for word in ("make demo", "make test", "stayfast lint", "stayfast plan", "stayfast rehearse", "@stayfast.task"):
        assert word in text, word


def test_the_first_screen_of_the_readme_shows_a_loop_of_ten_lines() -> None:
    text = (ROOT / "README.md").read_text()
    example = text.split("```python\n", 1)[1].split("```", 1)[0]
    compile(example, "README.md", "exec")
    lines = [line for line in example.splitlines() if line.strip() and not line.startswith("import")]
    assert len(lines) <= 10
    assert text.index("```python") < 1000


def test_links_between_pages_lead_somewhere() -> None:
    broken = []
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)}: {target}")
    assert broken == []
