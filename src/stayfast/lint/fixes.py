"""Apply the fixes of findings, round by round, until nothing more can be fixed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stayfast.documents.editor import apply_edits
from stayfast.lint.finding import Finding
from stayfast.lint.sources import Source

_ROUNDS = 12
_SHIFTS_INDEXES = ("remove", "first", "prepend")

Lint = Callable[[Sequence[Source]], list[Finding]]


def fix_sources(sources: Sequence[Source], lint: Lint, *, unsafe: bool) -> tuple[list[Source], int]:
    """The sources with everything fixed that may be, and the number of fixes."""
    current = {source.name: source for source in sources}
    done: set[tuple[str, str, int, str, str]] = set()
    fixed = 0
    for _ in range(_ROUNDS):
        findings = [entry for entry in lint(list(current.values())) if entry.fix and (entry.fix.safe or unsafe)]
        before = fixed
        shifted: set[tuple[str, int]] = set()
        for finding in findings:
            key = (finding.rule, finding.file, finding.document, finding.pointer, finding.message)
            place = (finding.file, finding.document)
            if key in done or place in shifted or finding.fix is None or finding.file not in current:
                continue
            source = current[finding.file]
            text = apply_edits(source.text, finding.document, finding.fix.edits)
            if text is None:
                continue
            done.add(key)
            current[finding.file] = source._replace(text=text)
            fixed += 1
            if any(edit.operation in _SHIFTS_INDEXES for edit in finding.fix.edits):
                shifted.add(place)
        if fixed == before:
            break
    return list(current.values()), fixed
