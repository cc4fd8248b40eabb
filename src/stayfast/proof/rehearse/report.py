"""A rehearsal as plain values: the JSON that checks read, and the measures that ``plan`` can use."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from stayfast.proof.rehearse.facts import AttemptObservation, TrialObservation
from stayfast.proof.rehearse.rehearsal import RehearsalResult
from stayfast.proof.rehearse.verdict import Reason, reproduce


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
