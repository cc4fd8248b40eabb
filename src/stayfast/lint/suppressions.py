"""Silenced findings; each must say why.

``# stayfast: ignore SF104 because the sweep restarts itself`` on the line of the finding or right above it; at the top
of a document it holds for the whole object. ``stayfast.dev/ignore: "SF104 because ...; SF801 because ..."`` as an
annotation of the object does the same.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from stayfast.documents.lookup import text
from stayfast.lint.finding import ADVICE, WARNING, Finding
from stayfast.lint.objects.objects import ManifestObject
from stayfast.lint.sources import Source
from stayfast.model.labels import IGNORE

_COMMENT = re.compile(r"#\s*stayfast:\s*ignore\s+(.*)")
_ENTRY = re.compile(r"((?:SF[0-9]{3}[\s,]*)+)(?:because\s+(\S.*))?")


class Suppression(NamedTuple):
    """Codes silenced on some lines of a file, or for one object."""

    codes: frozenset[str]
    reason: str
    file: str
    line: int
    first: int  # lines that it covers
    last: int
    title: str = ""  # or the object


class Suppressions:
    """All suppressions of a bundle."""

    def __init__(self) -> None:
        self.entries: list[Suppression] = []

    def read(self, source: Source) -> None:
        """Comments in a text."""
        if "stayfast: ignore" not in source.text and "stayfast:ignore" not in source.text:
            return
        lines = source.text.split("\n")
        for number, line in enumerate(lines, start=1):
            match = _COMMENT.search(line)
            if match is None:
                continue
            first = last = number
            if line.lstrip().startswith("#"):
                last = _next_content(lines, number)
                if _is_top(lines, number):
                    last = _end_of_document(lines, number)
            for codes, reason in parse(match.group(1)):
                self.entries.append(Suppression(codes, reason, source.name, number, first, last))

    def annotate(self, item: ManifestObject) -> None:
        """The annotation of an object."""
        written = text(item.annotations.get(IGNORE))
        if not written:
            return
        line = item.document.locate((*item.prefix, "metadata", "annotations", IGNORE)).line
        for part in written.split(";"):
            for codes, reason in parse(part):
                self.entries.append(Suppression(codes, reason, item.file, line, 0, 0, item.title))

    def apply(self, findings: list[Finding]) -> list[Finding]:
        """The findings that remain, plus one for each suppression that is no good."""
        if not self.entries:
            return findings
        kept = []
        used: set[Suppression] = set()
        for finding in findings:
            cover = next((entry for entry in self.entries if entry.reason and _covers(entry, finding)), None)
            if cover is None:
                kept.append(finding)
            else:
                used.add(cover)
        for entry in self.entries:
            if not entry.reason:
                codes = ", ".join(sorted(entry.codes))
                message = f"this suppression of {codes} gives no reason and is not honoured: add `because ...`"
                kept.append(_about(entry, "SF901", "suppression-without-reason", message))
            elif entry not in used:
                message = f"nothing here for {', '.join(sorted(entry.codes))} to silence: remove the suppression"
                kept.append(_about(entry, "SF902", "suppression-unused", message))
        return kept


def _about(entry: Suppression, code: str, name: str, message: str) -> Finding:
    severity = WARNING if code == "SF901" else ADVICE
    return Finding(code, name, severity, message, entry.file, entry.line, 1, "", entry.title, "no")


def parse(written: str) -> list[tuple[frozenset[str], str]]:
    """``SF104, SF105 because ...`` as codes and reason."""
    match = _ENTRY.search(written)
    if match is None:
        return []
    return [(frozenset(re.findall(r"SF[0-9]{3}", match.group(1))), (match.group(2) or "").strip())]


def _covers(entry: Suppression, finding: Finding) -> bool:
    if finding.rule not in entry.codes or finding.file != entry.file:
        return False
    return finding.object == entry.title if entry.title else entry.first <= finding.line <= entry.last


def _next_content(lines: list[str], number: int) -> int:
    for index in range(number, len(lines)):
        if lines[index].strip() and not lines[index].lstrip().startswith("#"):
            return index + 1
    return number


def _is_top(lines: list[str], number: int) -> bool:
    for line in reversed(lines[: number - 1]):
        if line.startswith("---"):
            return True
        if line.strip() and not line.lstrip().startswith(("#", "%")):
            return False
    return True


def _end_of_document(lines: list[str], number: int) -> int:
    seen = False
    for index in range(number, len(lines)):
        if lines[index].startswith("---") and seen:
            return index
        seen = seen or bool(lines[index].strip() and not lines[index].lstrip().startswith(("#", "---")))
    return len(lines)
