"""JSON, SARIF, GitHub annotations and JUnit: formats that other programs read."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from stayfast.lint.engine import Report
from stayfast.lint.finding import Finding, Severity
from stayfast.version import __version__

_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "note"}
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_GITHUB = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.ADVICE: "notice"}


def as_dict(finding: Finding) -> dict[str, Any]:
    """The finding as the JSON contract has it."""
    return {
        "rule": finding.rule,
        "name": finding.name,
        "severity": finding.severity.value,
        "message": finding.message,
        "file": finding.file,
        "line": finding.line,
        "column": finding.column,
        "pointer": finding.pointer,
        "object": finding.object,
        "fixable": finding.fixable,
    }


def to_json(report: Report) -> str:
    """The JSON contract."""
    content = {
        "findings": [as_dict(finding) for finding in report.findings],
        "files": report.files,
        "objects": report.objects,
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def to_sarif(report: Report, descriptions: dict[str, tuple[str, str]]) -> str:
    """SARIF 2.1.0; ``descriptions`` is code -> (name, one sentence)."""
    used = sorted({finding.rule for finding in report.findings})
    rules = []
    for code in used:
        name, sentence = descriptions.get(code, (code, code))
        rules.append({"id": code, "name": name, "shortDescription": {"text": sentence}})
    results = [
        {
            "ruleId": finding.rule,
            "ruleIndex": used.index(finding.rule),
            "level": _LEVELS[finding.severity],
            "message": {"text": finding.message},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(finding.file)},
                        "region": {"startLine": finding.line, "startColumn": finding.column},
                    },
                    "logicalLocations": [{"fullyQualifiedName": f"{finding.object}{finding.pointer}"}],
                }
            ],
            "partialFingerprints": {"stayfast/v1": fingerprint(finding)},
        }
        for finding in report.findings
    ]
    driver = {"name": "stayfast", "version": __version__, "rules": rules}
    content = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _uri(file: str) -> str:
    from urllib.parse import quote

    return quote(file.removeprefix("./"))


def fingerprint(finding: Finding) -> str:
    """What stays the same when lines move: rule, file, object, pointer."""
    return "|".join((finding.rule, finding.file, finding.object, finding.pointer))


def to_github(findings: Sequence[Finding]) -> str:
    """Workflow commands that GitHub shows beside the lines of a pull request."""
    lines = []
    for finding in findings:
        title = f"{finding.rule} {finding.name}"
        where = f"file={_property(finding.file)},line={finding.line},col={finding.column},title={_property(title)}"
        lines.append(f"::{_GITHUB[finding.severity]} {where}::{_data(finding.message)}\n")
    return "".join(lines)


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def to_junit(report: Report) -> str:
    """JUnit XML: one test case per finding, one that passes where there is none."""
    from xml.sax.saxutils import quoteattr

    def attribute(text: str) -> str:
        return quoteattr(_NO_XML.sub("", text))

    failing = [finding for finding in report.findings if finding.severity is not Severity.ADVICE]
    count = max(1, len(failing))
    lines = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    lines.append(f'<testsuites tests="{count}" failures="{len(failing)}">\n')
    lines.append(f'  <testsuite name="stayfast lint" tests="{count}" failures="{len(failing)}">\n')
    for finding in failing:
        name = attribute(f"{finding.file}:{finding.line} {finding.object}")
        lines.append(f"    <testcase classname={attribute(finding.rule)} name={name}>\n")
        lines.append(f"      <failure type={attribute(finding.severity)} message={attribute(finding.message)}/>\n")
        lines.append("    </testcase>\n")
    if not failing:
        lines.append('    <testcase classname="stayfast" name="no findings"/>\n')
    lines.append("  </testsuite>\n</testsuites>\n")
    return "".join(lines)
