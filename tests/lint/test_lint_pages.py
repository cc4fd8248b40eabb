"""The rule pages are tests: each example fires its rule, what it says to use instead does not."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from lint_cases import SHARED

from stayfast.cli.main import main
from stayfast.errors import UsageError
from stayfast.lint import rule_pages
from stayfast.lint.engine import lint_bundle
from stayfast.lint.finding import Severity
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.rules import names
from stayfast.lint.sources import Source

ROOT = Path(__file__).parents[2]


def findings(code: str, section: str):
    blocks = rule_pages.page(code).code_blocks(section)
    assert blocks, f"{code} has no code under {section}"
    return lint_bundle([Source(f"{n}.{kind}", text) for n, (kind, text) in enumerate(blocks)], LintSettings()).findings


@pytest.mark.parametrize("code", rule_pages.codes())
def test_the_example_fires_and_the_alternative_is_clean(code):
    assert code in {finding.rule for finding in findings(code, "Example")}
    left = [f for f in findings(code, "Use instead") if f.rule == code or f.severity is not Severity.ADVICE]
    assert left == []


@pytest.mark.parametrize("code", rule_pages.codes())
def test_every_page_is_complete(code):
    page = rule_pages.page(code)
    for title in ("What it does", "Why is this bad?", "Example", "Use instead", "Fix", "Source"):
        assert page.section(title), f"{code}: {title} is missing"
    assert page.name == names().get(code, page.name)


def test_every_rule_has_a_page_and_every_page_a_rule():
    assert set(rule_pages.codes()) == set(names()) | {"SF901", "SF902"}


def test_codes_and_names_are_those_that_were_agreed():
    if not SHARED.exists():
        pytest.skip("the agreed list of rules is not here")
    agreed = {entry["id"]: entry["name"] for entry in json.loads((SHARED / "rules.json").read_text())}
    assert {code: name for code, name in names().items() if code in agreed} == agreed
    assert set(names()) - set(agreed) == {"SF108"}  # found missing since


def test_the_reference_is_up_to_date():
    done = subprocess.run([sys.executable, ROOT / "tools/make_rule_reference.py", "--check"], timeout=60)
    assert done.returncode == 0, "run: python tools/make_rule_reference.py"


@pytest.mark.parametrize("code", rule_pages.codes())
def test_explain_prints_the_page_of_the_reference(code, capsys):
    assert main(["lint", "--explain", code]) == 0
    printed = capsys.readouterr().out
    heading, _, body = printed.partition("\n")
    reference = (ROOT / "docs/reference/rules.md").read_text(encoding="utf-8")
    assert f"\n## {heading.removeprefix('# ')}\n{body.replace(chr(10) + '## ', chr(10) + '### ').rstrip()}" in reference


@pytest.mark.parametrize("code", ["SF999", "104", "../SF104", ""])
def test_an_unknown_rule_is_one_sentence(code):
    with pytest.raises(UsageError, match="there is no rule"):
        rule_pages.page(code)
