"""From facts to a verdict: pure, and by cause rather than by clock wherever there is a cause to go by."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stayfast.model.exit_codes import FINISHED, NOT_COUNTED
from stayfast.proof.rehearse.facts import AttemptObservation, BaselineObservation, TrialObservation
from stayfast.proof.rehearse.lost_work import is_known_by_time_alone, lost_everything
from stayfast.proof.rehearse.schedule import TWO_WRITERS, InterruptionKind, Kill

CODES = {
    "exit-zero-unfinished": "left with 0 before the work was done: the Job would be Complete",
    "grace-overrun": "did not end within the grace and needed SIGKILL",
    "result-differs": "finished with another result than the uninterrupted run",
    "no-progress": "restarts lose everything, or it never finishes",
    "resume-crash": "fails when it is started again",
    "duplicate-records": "records are there more often than in the uninterrupted run",
    "missing-records": "records of the uninterrupted run are not there",
    "stale-writer": "the old attempt overwrote what its replacement had written",
}
"""Every reason, in the order in which they are told."""

SINGLE = frozenset({"exit-zero-unfinished", "grace-overrun"})
"""Reasons that one kill alone explains: nothing to shrink."""
BY_RESULT = frozenset({"result-differs", "resume-crash", "duplicate-records", "missing-records"})
"""Reasons that a program could give by itself, without any interruption."""
BY_CLOCK = frozenset({"no-progress"})
"""Reasons that a slow moment of the machine could imitate: told only when they show a second time."""


class Reason(NamedTuple):
    """One cause of a failed rehearsal."""

    code: str
    kills: tuple[Kill, ...]
    """The smallest known set of interruptions that shows it."""
    trial: int
    detail: str
    by_time: bool = False
    """Whether nothing but time tells it: no file or write that grows with the work."""

    @property
    def numbers(self) -> str:
        return ",".join(str(kill.number) for kill in self.kills)


def reasons_of(baseline: BaselineObservation, trial: TrialObservation) -> list[Reason]:
    """What is wrong with one trial; nothing when the program survived it."""
    found: dict[str, Reason] = {}
    for reason in _reasons(baseline, trial):
        found.setdefault(reason.code, reason)
    return [found[code] for code in CODES if code in found]


def _reasons(baseline: BaselineObservation, trial: TrialObservation) -> Iterator[Reason]:
    delivered = tuple(trial.delivered)
    for attempt in trial.attempts:
        if (
            attempt.overran
            and attempt.kill is not None
            and attempt.kill.kind in (InterruptionKind.TERM, InterruptionKind.OVERLAP)
        ):
            yield Reason("grace-overrun", (attempt.kill,), trial.plan.number, _overrun(attempt))
    if trial.unfinished_zero:
        last = next(item for item in reversed(trial.attempts) if item.code == 0 and item.kill is not None)
        first = trial.unfinished_zero[0]
        detail = f"attempt {last.number} left with 0 after SIGTERM {last.at}, but {first.path} {first.detail}"
        assert last.kill is not None
        yield Reason("exit-zero-unfinished", (last.kill,), trial.plan.number, detail)
    if trial.gave_up:
        yield _gave_up(trial, delivered)
    yield from _results(trial, delivered)
    if trial.finished and (detail := lost_everything(baseline, trial)):
        yield Reason("no-progress", delivered, trial.plan.number, detail, is_known_by_time_alone(baseline))


def _overrun(attempt: AttemptObservation) -> str:
    why = "" if attempt.noticed else "; its first process neither handles nor waits for SIGTERM, so PID 1 never saw it"
    return f"attempt {attempt.number} got SIGTERM {attempt.at} and had to be killed{why}"


def _gave_up(trial: TrialObservation, delivered: tuple[Kill, ...]) -> Reason:
    last = trial.attempts[-1]
    if last.timed_out or last.code in NOT_COUNTED:
        return Reason("no-progress", delivered, trial.plan.number, f"never finishes: {trial.gave_up}")
    if _meddled(trial, delivered):
        detail = f"{trial.gave_up}; the old attempt wrote while its replacement ran"
        return Reason("stale-writer", delivered, trial.plan.number, detail)
    return Reason("resume-crash", delivered, trial.plan.number, trial.gave_up)


def _meddled(trial: TrialObservation, delivered: tuple[Kill, ...]) -> bool:
    """Whether an old attempt wrote beside its replacement, so that what is wrong is its doing."""
    two_writers = any(kill.kind in TWO_WRITERS for kill in delivered)
    return two_writers and bool(trial.wrote_after_replaced or trial.overwrote)


def _results(trial: TrialObservation, delivered: tuple[Kill, ...]) -> Iterator[Reason]:
    two_writers = any(kill.kind in TWO_WRITERS for kill in delivered)
    if two_writers and trial.overwrote:
        detail = f"the old attempt replaced {trial.overwrote[0]} after its replacement had written it"
        yield Reason("stale-writer", delivered, trial.plan.number, detail)
    for row in trial.differences:
        if _meddled(trial, delivered):
            detail = f"{row.path} {row.detail}; the old attempt wrote while its replacement ran"
            yield Reason("stale-writer", delivered, trial.plan.number, detail)
        else:
            yield Reason(row.code, delivered, trial.plan.number, f"{row.path} {row.detail}")


def reasons_without_signal(trial: TrialObservation) -> list[Reason]:
    """What an attempt that left with 0 is guilty of when no signal made it leave: a result of its own."""
    rows = [row for row in trial.unfinished_zero if "missing" not in row.detail]
    return [Reason(row.code, tuple(trial.delivered), trial.plan.number, f"{row.path} {row.detail}") for row in rows[:1]]


def counted_failures(trials: Sequence[TrialObservation], backoff_limit: int) -> str:
    """A sentence where the program survives, but each SIGTERM brings the Job closer to its end; else nothing."""
    attempts = [attempt for trial in trials for attempt in trial.attempts]
    told = [
        attempt
        for attempt in attempts
        if attempt.kind is InterruptionKind.TERM and attempt.noticed and not attempt.overran
    ]
    codes = sorted({attempt.code for attempt in told if attempt.code not in NOT_COUNTED | {FINISHED}})
    if not codes:
        return ""
    return (
        f"after SIGTERM it leaves with {', '.join(map(str, codes))}, which a Job counts as a failure: more than "
        f"{backoff_limit} interruptions end it (--backoff-limit); leave with 75, or put stayfast exec in front"
    )


def reproduce(reason: Reason, *, seed: int, options: Sequence[str], command: Sequence[str]) -> str:
    """The command line that shows it again."""
    words = ["stayfast", "rehearse", "--seed", str(seed), "--only-kill", reason.numbers, *options, "--", *command]
    return shlex.join(words)
