"""The rehearsal for a terminal: a timeline per trial, the verdict, and how to see each failure again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stayfast.proof.rehearse.facts import AttemptObservation, TrialObservation
from stayfast.proof.rehearse.plan import InterruptionKind
from stayfast.proof.rehearse.rehearsal import RehearsalResult
from stayfast.proof.rehearse.report import amount, measures
from stayfast.proof.rehearse.verdict import CODES, reasons_of, reproduce

_WIDTH = 56
_MARKS = {
    InterruptionKind.TERM: "T",
    InterruptionKind.KILL: "K",
    InterruptionKind.KILL_DURING_RESUME: "R",
    InterruptionKind.OVERLAP: "O",
    InterruptionKind.FREEZE: "F",
}


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
