"""What a rehearsal reports: notes, the JSON that checks and ``plan`` read, text for a terminal, JUnit XML for CI."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from stayfast.proof.rehearse.baseline import Baseline
from stayfast.proof.rehearse.facts import AttemptObservation, TrialObservation
from stayfast.proof.rehearse.schedule import InterruptionKind, TrialPlan
from stayfast.proof.rehearse.trial import TrialSettings
from stayfast.proof.rehearse.verdict import CODES, Reason, counted_failures, reasons_of, reproduce

if TYPE_CHECKING:
    from stayfast.proof.rehearse.rehearsal import RehearsalResult

_WIDTH = 56
_MARKS = {
    InterruptionKind.TERM: "T",
    InterruptionKind.KILL: "K",
    InterruptionKind.KILL_DURING_RESUME: "R",
    InterruptionKind.OVERLAP: "O",
    InterruptionKind.FREEZE: "F",
}
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def result_notes(
    setting: TrialSettings, source: str, baseline: Baseline, facts: Sequence[TrialObservation]
) -> Iterator[str]:
    """Sentences for the end of a report."""
    if setting.comparison.is_empty:
        yield "nothing was compared: name what has to be the same with --compare, --records or --check"
    if there := setting.comparison.was_there(source, baseline.work):
        yield (
            f"{there[0]} was there before and is the same afterwards: a run that is finished already proves little; "
            "rehearse where earlier runs have left no result and no checkpoints"
        )
    if baseline.why_no_namespace and setting.namespace:
        yield f"no PID namespace ({baseline.why_no_namespace}): PID 1 is imitated from outside"
    if not baseline.watched:
        yield (
            f"system calls cannot be held here: files are watched by {baseline.means}, so that short moments "
            "between two writes may be missed, and writes outside are not noticed"
        )
    if told := counted_failures(facts, setting.backoff_limit):
        yield told
    missed = sum(len(fact.plan.kills) - len(fact.delivered) for fact in facts)
    if missed:
        yield f"{missed} of {sum(len(fact.plan.kills) for fact in facts)} kills came after the program had finished"
    ignored = sorted(setting.comparison.unstable)
    if ignored:
        yield f"fields that differ by themselves were left out: {', '.join(ignored)}"


def amount(number: int, noun: str) -> str:
    """In words: one trial, nine trials."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def as_json(result: RehearsalResult, flags: Sequence[str]) -> dict[str, Any]:
    """The whole; ``flags`` are the options that have to be repeated to see a failure again."""
    options = result.options
    return {
        "verdict": "survives" if result.survives else "fails",
        "reasons": [_reason(reason, result, flags) for reason in result.reasons],
        "attempts": [_attempt(trial, attempt) for trial in result.trials for attempt in trial.attempts],
        "seed": options.seed,
        "trials": len(result.trials),
        "kills": sum(len(trial.delivered) for trial in result.trials),
        "kinds": [str(kind) for kind in options.kinds],
        "grace_seconds": options.grace_seconds,
        "baseline": {
            "seconds": round(result.profile.seconds, 3),
            "cpu_seconds": round(result.baseline.cpu_seconds, 3),
            "first_write_seconds": round(result.profile.first_write_seconds, 3),
        },
        "measures": measures(result),
        "pid_namespace": not result.namespace,
        "watched": result.watched,
        "notes": list(result.notes),
    }


def _reason(reason: Reason, result: RehearsalResult, flags: Sequence[str]) -> dict[str, Any]:
    seed = result.options.seed
    return {
        "code": reason.code,
        "kill": reason.kills[-1].number if reason.kills else None,
        "kills": [kill.number for kill in reason.kills],
        "seed": seed,
        "trial": reason.trial,
        "detail": reason.detail,
        "moments": [str(kill) for kill in reason.kills],
        "reproduce": reproduce(reason, seed=seed, options=flags, command=result.options.command),
    }


def _attempt(trial: TrialObservation, fact: AttemptObservation) -> dict[str, Any]:
    return {
        "trial": trial.plan.number,
        "attempt": fact.number,
        "began_seconds": round(fact.began_seconds, 3),
        "seconds": round(fact.seconds, 3),
        "exit_code": fact.code,
        "kill": fact.kill.number if fact.kill is not None and fact.delivered else None,
        "kind": fact.kind,
        "at": fact.at if fact.delivered else None,
        "ran_seconds": round(fact.ran_seconds, 3),
        "safe_seconds": None if fact.safe_seconds is None else round(fact.safe_seconds, 3),
        "needed_sigkill": fact.overran,
        "cpu_seconds": round(fact.cpu_seconds, 3),
        "last_words": fact.last_words,
    }


def measures(result: RehearsalResult) -> dict[str, float | None]:
    """Lost work per interruption, seconds from SIGTERM to safe, seconds from a start to the first write."""
    finished = [trial for trial in result.trials if trial.finished and trial.delivered]
    lost = [
        max(0.0, sum(attempt.ran_seconds for attempt in trial.attempts) - result.profile.seconds) / len(trial.delivered)
        for trial in finished
    ]
    attempts = [attempt for trial in result.trials for attempt in trial.attempts]
    safe = [attempt.safe_seconds for attempt in attempts if attempt.safe_seconds is not None]
    starts = [
        attempt.first_write_seconds
        for attempt in attempts
        if attempt.number > 1 and attempt.first_write_seconds is not None
    ]
    return {
        "lost_seconds_per_interruption": _middle(lost),
        "safe_seconds_p50": _middle(safe),
        "safe_seconds_max": round(max(safe), 3) if safe else None,
        "restart_seconds": _middle(starts),
    }


def _middle(values: Sequence[float]) -> float | None:
    return round(statistics.median(values), 3) if values else None


def as_text(result: RehearsalResult, flags: Sequence[str]) -> str:
    """Everything, ready to print."""
    return "\n".join(_lines(result, flags))


def _lines(result: RehearsalResult, flags: Sequence[str]) -> Iterator[str]:
    kills = sum(len(trial.delivered) for trial in result.trials)
    starts = sum(len(trial.attempts) for trial in result.trials)
    counts = (len(result.trials), "trial"), (kills, "interruption"), (starts, "start")
    yield (
        f"baseline {result.profile.seconds:.1f} s; {', '.join(amount(*row) for row in counts)}, "
        f"grace {result.options.grace_seconds:g} s, seed {result.options.seed}"
    )
    yield ""
    scale = max((trial.seconds for trial in result.trials), default=1.0) or 1.0
    for trial in result.trials:
        confirmed = {reason.code for reason in result.reasons}
        codes = [reason.code for reason in reasons_of(result.baseline, trial) if reason.code in confirmed]
        mark = ", ".join(codes) if codes else "ok"
        yield f"  {trial.plan.number:>3}  {timeline(trial, scale)}  {mark}"
    used = {fact.kind for trial in result.trials for fact in trial.attempts if fact.kind is not None}
    legend = ", ".join(f"{_MARKS[kind]} {kind}" for kind in InterruptionKind if kind in used)
    yield f"       {'-' * (_WIDTH - 1)}> {scale:.1f} s   {legend}"
    yield ""
    yield from (f"  {name:<44}{value}" for name, value in _measures(result))
    for note in result.notes:
        yield f"  note: {note}"
    yield ""
    if result.survives:
        yield f"survives: {amount(kills, 'interruption')}, and the result is the uninterrupted run's"
        return
    yield "fails"
    for reason in result.reasons:
        yield f"  {reason.code}: {CODES[reason.code]}"
        yield f"      {reason.detail}"
        for kill in reason.kills:
            yield f"      {kill}"
        again = reproduce(reason, seed=result.options.seed, options=flags, command=result.options.command)
        yield f"      again: {again}"


def timeline(trial: TrialObservation, scale: float) -> str:
    """Attempts as bars: ``=`` works, ``.`` grace after SIGTERM, a letter where it was interrupted, ``!`` a failure."""
    row = [" "] * _WIDTH
    for fact in trial.attempts:
        begin, stop, until = _places(fact, scale)
        for column in range(begin, until + 1):
            row[column] = "=" if column <= stop else "."
    for fact in trial.attempts:  # after all bars, so that the next attempt's does not hide an end
        _, stop, until = _places(fact, scale)
        if fact.kind is not None:
            row[stop] = _MARKS[fact.kind]
        if fact.kind is None or fact.code == 0:
            row[until] = "|" if fact.code == 0 else "!"
    return "".join(row)


def _places(fact: AttemptObservation, scale: float) -> tuple[int, int, int]:
    ends = (0.0, fact.ran_seconds, fact.seconds)
    begin, stop, until = (min(_WIDTH - 1, int((fact.began_seconds + end) / scale * _WIDTH)) for end in ends)
    return begin, stop, until


def _measures(result: RehearsalResult) -> Iterator[tuple[str, str]]:
    names = {
        "lost_seconds_per_interruption": "lost per interruption, restart included",
        "safe_seconds_p50": "seconds from SIGTERM to safe, median",
        "safe_seconds_max": "seconds from SIGTERM to safe, longest",
        "restart_seconds": "seconds from a restart to its first write",
    }
    for key, value in measures(result).items():
        if value is not None:
            yield names[key], f"{value:.2f} s"


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
