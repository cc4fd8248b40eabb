"""The rehearsal as JUnit XML: one test case per trial, so that CI shows it beside the other tests."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from stayfast.proof.rehearse.plan import TrialPlan
from stayfast.proof.rehearse.rehearsal import RehearsalResult
from stayfast.proof.rehearse.verdict import CODES, Reason, reasons_of, reproduce

_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_junit(result: RehearsalResult, flags: Sequence[str]) -> str:
    """A whole document."""
    confirmed = {reason.code for reason in result.reasons}
    suite = ElementTree.Element("testsuite", name="stayfast rehearse")
    failed = 0
    for trial in result.trials:
        case = ElementTree.SubElement(
            suite, "testcase", classname="rehearse", name=_name(trial.plan), time=f"{trial.seconds:.3f}"
        )
        for reason in reasons_of(result.baseline, trial):
            if reason.code in confirmed:
                failed += not len(case)
                _failure(case, reason, result, flags)
                break  # a case fails once; the others are told by the other formats
    suite.set("tests", str(len(result.trials)))
    suite.set("failures", str(failed))
    suite.set("errors", "0")
    suite.set("time", f"{sum(trial.seconds for trial in result.trials):.3f}")
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ElementTree.tostring(suite, encoding="unicode")}\n'


def _name(plan: TrialPlan) -> str:
    return _clean(f"trial {plan.number}: " + ", ".join(f"{kill.kind} {kill.moment}" for kill in plan.kills))


def _failure(case: ElementTree.Element, reason: Reason, result: RehearsalResult, flags: Sequence[str]) -> None:
    small = next((other for other in result.reasons if other.code == reason.code), reason)
    again = reproduce(small, seed=result.options.seed, options=flags, command=result.options.command)
    element = ElementTree.SubElement(case, "failure", type=reason.code, message=_clean(CODES[reason.code]))
    element.text = _clean(f"{reason.detail}\n{again}")


def _clean(text: str) -> str:
    """Without the characters that no XML may hold; file names may have any."""
    return _NOT_XML.sub("?", text)
