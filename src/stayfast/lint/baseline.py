"""Findings that were there before: accepted once, so that only new ones fail the build."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from stayfast.errors import UsageError
from stayfast.lint.finding import Finding
from stayfast.lint.formats.machine import fingerprint


def to_baseline(findings: Sequence[Finding]) -> str:
    """A text that accepts all these findings."""
    counts = Counter(fingerprint(finding) for finding in findings)
    return json.dumps({"stayfast-baseline": 1, "findings": dict(sorted(counts.items()))}, indent=2) + "\n"


def new_findings(baseline: str, file: str, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that the baseline does not know; each accepted one hides as many as were accepted."""
    try:
        accepted = Counter({str(key): int(count) for key, count in json.loads(baseline)["findings"].items()})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{file} is no baseline", help="make one with --write-baseline") from None
    kept = []
    for finding in findings:
        key = fingerprint(finding)
        if accepted[key] > 0:
            accepted[key] -= 1
        else:
            kept.append(finding)
    return kept
