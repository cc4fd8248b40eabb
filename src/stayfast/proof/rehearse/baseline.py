"""The run that nobody interrupts, twice: what it leaves is the truth, and what it does tells where to interrupt.

The second one tells what differs by itself, so that no interruption is blamed for a time stamp.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from stayfast.errors import UsageError
from stayfast.proof.rehearse.attempt import Attempt, AttemptEnvironment
from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.facts import AttemptObservation, BaselineObservation, Family, WriteCounts
from stayfast.proof.rehearse.schedule import Profile
from stayfast.proof.rehearse.slow_baseline import SlowBaseline
from stayfast.proof.rehearse.trial import RehearsalStoppedError, TrialSettings, empty_ephemeral, prepare, surroundings
from stayfast.proof.rehearse.workspace import check_refused, is_cache, remove_tree
from stayfast.proof.syscalls.events import FilePoint

_STEADY_SHARE = 0.1
_STEADY_MIDDLE = 0.2  # of what is counted, in the middle half of the time; even work has a half of it there
_LEAST = 2
_RENEWALS = 3  # of files in their place: checkpoints, however short the work is beside the start


class Baseline(NamedTuple):
    """What the uninterrupted run has taught."""

    fact: BaselineObservation
    profile: Profile
    work: str
    comparison: Comparison
    why_no_namespace: str
    watched: bool
    means: str
    """How files were watched."""


class _Seen(NamedTuple):
    fact: AttemptObservation
    events: dict[tuple[str, FilePoint], int]
    handler_seconds: float | None
    why_no_namespace: str
    watched: bool
    means: str
    steady_writes: bool
    steady_opens: bool
    growing: frozenset[Family]
    prepared: frozenset[Family]
    prepared_calls: int


def run_baselines(
    setting: TrialSettings, token: str, *, parallel: int, report: Callable[[str], None] = lambda _: None
) -> Baseline:
    """Both runs, side by side where trials will run side by side too; ``report`` gets what a long one does."""
    labels = (f"{token}-baseline", f"{token}-baseline-again")
    with ThreadPoolExecutor(2 if parallel > 1 else 1) as pool:
        futures = [pool.submit(_run, setting, label, learn=label == labels[0], report=report) for label in labels]
        learned, timed = (future.result() for future in futures)
    work, again = (os.path.join(setting.base, label, "work") for label in labels)
    setting.comparison.check_baseline(work, setting.environment)
    comparison = setting.comparison.learn(work, again)
    remove_tree(os.path.join(setting.base, labels[1]))
    return Baseline(
        fact=_fact(learned, timed),
        profile=_profile(learned, timed),
        work=work,
        comparison=comparison,
        why_no_namespace=learned.why_no_namespace,
        watched=learned.watched,
        means=learned.means,
    )


def _run(setting: TrialSettings, label: str, *, learn: bool, report: Callable[[str], None]) -> _Seen:
    folder = os.path.join(setting.base, label)
    disk = prepare(setting, folder)
    around = surroundings(setting, label, None, 1, disk=disk)
    attempt = Attempt(1, around, None, None, learn=learn, count=True)
    slowness = SlowBaseline(f"baseline, run {1 if learn else 2} of 2", attempt, report)
    try:
        while not attempt.tick():
            slowness.tick()
            if setting.stop.is_set():
                raise RehearsalStoppedError
            if any(not is_cache(path) for path in list(attempt.watcher.refused)) or _cannot(attempt, around):
                break
    finally:
        fact = attempt.close()
        empty_ephemeral(
            setting._replace(ephemeral=[name for name in setting.ephemeral if os.path.isabs(name)]), folder, label
        )
    check_refused(attempt.watcher.refused)
    if why := _cannot(attempt, around):
        raise UsageError(why, help="leave the option out, or rehearse on Linux 5.9 or later where seccomp is allowed")
    if attempt.program.start_error is not None:
        reason = os.strerror(attempt.program.start_error)
        raise UsageError(f"cannot start {setting.command[0]!r}: {reason}", help="check its name, its mode and PATH")
    if fact.code != 0:
        said = f": {fact.last_words}" if fact.last_words else ""
        raise UsageError(
            f"without any interruption the command leaves with {fact.code}{said}",
            help="rehearse a command that succeeds by itself; it runs in a copy of the current directory",
        )
    growing = _growing(attempt, fact)
    prepared, prepared_calls = _prepared(attempt, growing)
    return _Seen(
        fact=fact,
        events=dict(attempt.watcher.counts),
        handler_seconds=attempt.moment.handler_seconds,
        why_no_namespace=attempt.program.namespace_refusal or "",
        watched=bool(attempt.program.listener_kind),
        means=attempt.watcher.means,
        steady_writes=is_steady(attempt.calls, fact.seconds),
        steady_opens=_opens_are_steady(attempt, fact),
        growing=growing,
        prepared=prepared,
        prepared_calls=prepared_calls,
    )


def _cannot(attempt: Attempt, around: AttemptEnvironment) -> str:
    """Why the disk that was asked for cannot be had; nothing when it can."""
    if around.disk is not None and not attempt.program.listener_kind:
        return f"--disk-limit needs to hold system calls, and that is not possible here ({attempt.program.unwatched})"
    return ""


def _fact(learned: _Seen, timed: _Seen) -> BaselineObservation:
    agreed = learned.fact.families.items() & timed.fact.families.items()
    own = [seen.fact.on_its_own_clock() for seen in (learned, timed)]
    return BaselineObservation(
        seconds=min(fact.seconds for fact in own),
        cpu_seconds=min(learned.fact.cpu_seconds, timed.fact.cpu_seconds),
        # Starting over means as much as the busier of the two: a background task may have skipped some in the other.
        write_calls=max(learned.fact.write_calls, timed.fact.write_calls),
        first_write_seconds=_first_write(*own),
        opens=max(learned.fact.opens, timed.fact.opens),
        families={key: count for key, count in agreed if key in learned.growing | timed.growing},
        steady_writes=learned.steady_writes or timed.steady_writes,
        steady_opens=learned.steady_opens or timed.steady_opens,
        prepared={key: count for key, count in agreed if key in learned.prepared & timed.prepared},
        prepared_calls=min(learned.prepared_calls, timed.prepared_calls),
        late=WriteCounts(*map(max, learned.fact.late, timed.fact.late)),
    )


def _opens_are_steady(attempt: Attempt, fact: AttemptObservation) -> bool:
    share = 0.0 if attempt.watcher.renewals >= _RENEWALS else _STEADY_SHARE
    return is_steady(_counts(attempt.watcher.opened_seconds), fact.seconds, least_share=share)


def _growing(attempt: Attempt, fact: AttemptObservation) -> frozenset[Family]:
    by_family = attempt.watcher.opened_by_family()
    return frozenset(key for key, moments in by_family.items() if is_steady(_counts(moments), fact.seconds))


def _prepared(attempt: Attempt, growing: frozenset[Family]) -> tuple[frozenset[Family], int]:
    """What was written before the work began to show, and how often it had written by then."""
    by_family = attempt.watcher.opened_by_family()
    begin = min((by_family[key][0] for key in growing if len(by_family[key]) >= _RENEWALS), default=0.0)
    calls = max((count for at, count in attempt.calls if at <= begin), default=0)
    return frozenset(key for key, moments in by_family.items() if moments[-1] < begin), calls


def _counts(moments: Sequence[float]) -> list[tuple[float, int]]:
    return [(at, number) for number, at in enumerate(moments, 1)]


def is_steady(counts: Sequence[tuple[float, int]], seconds: float, *, least_share: float = _STEADY_SHARE) -> bool:
    """Whether what is counted grows as the program works, so that it tells how far it is, whatever the start needed.

    Files that are begun at the start and at the end only, or a database that is filled before the work begins, do not.
    ``least_share`` of the time it has to last: several results that are written at the end are no steps of the work.
    """
    most = max((count for _, count in counts), default=0)
    if most < _LEAST:
        return False
    begin = next(at for at, count in counts if count >= 0.1 * most)
    span = seconds - begin
    early, late = (max((n for at, n in counts if at <= begin + part * span), default=0) for part in (0.25, 0.75))
    return span >= least_share * seconds and late - early >= _STEADY_MIDDLE * most


def _first_write(learned: AttemptObservation, timed: AttemptObservation) -> float:
    known = [fact.first_write_seconds for fact in (learned, timed) if fact.first_write_seconds is not None]
    return min(known, default=min(learned.seconds, timed.seconds))


def _profile(learned: _Seen, timed: _Seen) -> Profile:
    known = [seen.handler_seconds for seen in (learned, timed) if seen.handler_seconds is not None]
    return Profile(
        seconds=min(learned.fact.seconds, timed.fact.seconds),
        first_write_seconds=_first_write(learned.fact, timed.fact),
        handler_seconds=max(known, default=None),
        events=learned.events,
    )
