"""Fixes over every case of ``cases/``: stable, true to their word, and gentle with comments."""

from __future__ import annotations

import re

import pytest
from test_lint_strangers import CASES, Case

from stayfast.documents import parse_documents
from stayfast.lint.engine import lint_bundle
from stayfast.lint.fixes import fix_sources
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.sources import Source

BLOCK_STYLE = [case for case in CASES if not case.files[0][1].lstrip().startswith("{")]


def _sources(case: Case, *, commented: bool = False) -> list[Source]:
    files = [(name, text) for name, text in case.files if text.strip()]
    return [Source(name, _commented(text) if commented and name.endswith(".yaml") else text) for name, text in files]


def _commented(text: str) -> str:
    """The text with a comment above every line that starts in the first column."""
    lines = []
    for number, line in enumerate(text.splitlines(keepends=True)):
        if re.match(r"[a-z]", line):
            lines.append(f"# keep {number}\n")
        lines.append(line)
    return "".join(lines)


def _find(sources):
    return lint_bundle(sources, LintSettings()).findings


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.title}")
def test_fixing_twice_changes_nothing_and_what_was_fixed_is_gone(case: Case) -> None:
    before = {(f.rule, f.file, f.pointer, f.message) for f in _find(_sources(case)) if f.fixable != "no"}
    once, count = fix_sources(_sources(case), _find, unsafe=True)
    again, more = fix_sources(once, _find, unsafe=True)
    assert more == 0
    assert [source.text for source in again] == [source.text for source in once]
    after = {(f.rule, f.file, f.pointer, f.message) for f in _find(once)}
    if count:
        assert len(before & after) < len(before)
    for source in once:
        if source.name.endswith(".yaml"):
            assert not any(problem.fatal for problem in parse_documents(source.text).problems)  # still YAML


@pytest.mark.parametrize("case", BLOCK_STYLE, ids=lambda case: f"{case.rule}-{case.title}")
def test_fixes_keep_comments(case: Case) -> None:
    sources = _sources(case, commented=True)
    fixed, _ = fix_sources(sources, _find, unsafe=True)
    for old, new in zip(sources, fixed, strict=True):
        kept = set(re.findall(r"# keep [0-9]+", new.text))
        assert kept == set(re.findall(r"# keep [0-9]+", old.text)), new.text


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.title}")
def test_safe_fixes_never_bring_an_error(case: Case) -> None:
    errors = {(f.rule, f.message) for f in _find(_sources(case)) if f.severity == "error"}
    fixed, _ = fix_sources(_sources(case), _find, unsafe=False)
    assert {(f.rule, f.message) for f in _find(fixed) if f.severity == "error"} <= errors
