"""Findings for people: where, what, the line with a caret, and how to mend it."""

from __future__ import annotations

from collections.abc import Callable

from stayfast.lint.engine import Report
from stayfast.lint.finding import Finding, Severity
from stayfast.text.safe import printable

_COLOURS = {Severity.ERROR: "31;1", Severity.WARNING: "33;1", Severity.ADVICE: "36"}
_FIXES = {"safe": "fix: --fix", "unsafe": "fix: --unsafe-fixes"}


def to_text(report: Report, lines_of: Callable[[str], list[str]], *, colour: bool) -> str:
    """All findings with their source lines, and a last line that sums up."""
    parts = [_finding(finding, lines_of(finding.file), colour=colour) for finding in report.findings]
    return "".join(parts) + _summary(report)


def _paint(text: str, code: str, *, colour: bool) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colour else text


def _finding(finding: Finding, lines: list[str], *, colour: bool) -> str:
    where = _paint(f"{finding.file}:{finding.line}:{finding.column}", "1", colour=colour)
    severity = _paint(finding.severity.value, _COLOURS[finding.severity], colour=colour)
    text = f"{where}: {severity} {finding.rule} {finding.name}: {finding.message}\n"
    if 0 < finding.line <= len(lines):
        line = lines[finding.line - 1]
        start = min(finding.column, len(line) + 1) - 1
        cut = max(0, start - 40) if len(line) > 140 else 0
        source, start = printable(line[cut : cut + 140].rstrip("\r\n"), instead=" "), start - cut
        gutter = f"{finding.line:>5} | "
        text += f"{gutter}{source}\n{' ' * (len(gutter) + start)}{_paint('^', '31', colour=colour)}\n"
    notes = [note for note in (finding.object, _FIXES.get(finding.fixable, "")) if note]
    return text + (f"        {'; '.join(notes)}\n" if notes else "")


def _summary(report: Report) -> str:
    counts = dict.fromkeys(Severity, 0)
    for finding in report.findings:
        counts[finding.severity] += 1
    looked = f"{_many(report.objects, 'object')} in {_many(report.files, 'file')}"
    if not report.findings:
        return f"No findings: {looked}.\n"
    found = ", ".join(
        (
            _many(counts[Severity.ERROR], "error"),
            _many(counts[Severity.WARNING], "warning"),
            f"{counts[Severity.ADVICE]} advice",
        )
    )
    safe = sum(finding.fixable == "safe" for finding in report.findings)
    unsafe = sum(finding.fixable == "unsafe" for finding in report.findings)
    fixes = f" {safe} can be fixed with --fix, {unsafe} more with --unsafe-fixes." if safe or unsafe else ""
    return f"{found} in {looked}.{fixes} stayfast lint --explain CODE says why.\n"


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
