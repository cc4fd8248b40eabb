"""Manifests as strangers write them: for every rule some that must be reported and some near misses that must not.

``cases/*.yaml`` hold the manifests; a line ``#%% SFnnn fires: title`` or ``#%% SFnnn silent: title`` starts one, and
``#%% file: name`` inside it starts another file of the same bundle. They are written from what the rules are for, in
many shapes (Job, CronJob, JobSet, Ray, Kubeflow, lists, JSON, anchors, affinity instead of selectors).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

from stayfast.lint.engine import lint_bundle
from stayfast.lint.objects.bundle import LintSettings
from stayfast.lint.rule_pages import codes
from stayfast.lint.sources import Source

FOLDER = Path(__file__).parent / "cases"
_MARK = re.compile(r"#%% (SF[0-9]{3}) (fires|silent): (.+)")


class Case(NamedTuple):
    """One bundle, the rule it is about, and whether that must fire."""

    rule: str
    fires: bool
    title: str
    files: list[tuple[str, str]]


def read_cases() -> list[Case]:
    """All cases of all files."""
    cases: list[Case] = []
    for path in sorted(FOLDER.glob("*.yaml")):
        for line in path.read_text().splitlines(keepends=True):
            match = _MARK.match(line)
            if match:
                cases.append(Case(match[1], match[2] == "fires", match[3].strip(), [("manifest.yaml", "")]))
            elif line.startswith("#%% file: "):
                cases[-1].files.append((line.removeprefix("#%% file: ").strip(), ""))
            else:
                name, text = cases[-1].files[-1]
                cases[-1].files[-1] = (name, text + line)
    return cases


CASES = read_cases()


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.title}")
def test_a_stranger_is_judged_rightly(case: Case) -> None:
    sources = [Source(name, text) for name, text in case.files if text.strip()]
    findings = lint_bundle(sources, LintSettings()).findings
    about = [finding for finding in findings if finding.rule == case.rule]
    assert bool(about) == case.fires, [f"{finding.rule} {finding.message}" for finding in findings]


def test_every_rule_has_three_cases_of_each_kind() -> None:
    counted = Counter((case.rule, case.fires) for case in CASES)
    rules = {code for code in codes() if code < "SF900"}
    short = [(rule, fires) for rule in sorted(rules) for fires in (True, False) if counted[rule, fires] < 3]
    assert not short


def test_no_case_is_broken_yaml_unless_that_is_its_point() -> None:
    """A case that cannot be read would pass every "silent" test for the wrong reason."""
    for case in CASES:
        sources = [Source(name, text) for name, text in case.files if text.strip()]
        report = lint_bundle(sources, LintSettings())
        if any(name.endswith(".yaml") and text.strip() for name, text in case.files):
            assert report.objects > 0, case.title
        if case.rule != "SF601":
            broken = [finding.message for finding in report.findings if "not YAML" in finding.message]
            assert not broken, (case.title, broken)


def test_json_twins_are_judged_alike() -> None:
    """The same objects as a JSON List: same rules, whatever the notation."""
    yaml = pytest.importorskip("yaml")
    for case in CASES:
        if len(case.files) > 1 or "backoffLimit: 3\n  template" in case.files[0][1]:
            continue  # bundles with pools, and the duplicate key that JSON cannot say
        objects = [
            value for value in yaml.safe_load_all(case.files[0][1]) if isinstance(value, dict) and "kind" in value
        ]
        flat = [inner for value in objects for inner in (value["items"] if value["kind"] == "List" else [value])]
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": flat})
        findings = lint_bundle([Source("list.json", text)], LintSettings()).findings
        assert (case.rule in {finding.rule for finding in findings}) == case.fires, case.title
