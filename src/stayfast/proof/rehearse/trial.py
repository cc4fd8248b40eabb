"""One trial: the program is interrupted and started again in the same directory until it is done, as a Job would.

75, 143 and 137 are interruptions and cost nothing; another code is a failure and counts against the backoff limit; 0 is
believed, because the Job would be Complete.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stayfast.model import variables
from stayfast.model.exit_codes import FINISHED, NOT_COUNTED
from stayfast.process.container import InitServer
from stayfast.proof.rehearse.attempt import Attempt, AttemptEnvironment
from stayfast.proof.rehearse.differences import Comparison, Difference, left_over, read_steps
from stayfast.proof.rehearse.facts import AttemptObservation, TrialObservation
from stayfast.proof.rehearse.schedule import InterruptionKind, Kill, Profile, TrialPlan
from stayfast.proof.rehearse.workspace import (
    AllowedPaths,
    WorkspaceCopier,
    empty_directory,
    expand_trial_name,
    remove_tree,
)
from stayfast.proof.syscalls.disk_limit import DiskLimit
from stayfast.proof.syscalls.watcher import has_content

_FINGERPRINTS = "fingerprints.jsonl"
_SAME_FAILURES = 3  # in a row, with nothing written in between: the next one would be the same
_LONGEST_BASELINE_SECONDS = 3600.0 * 24
_PATIENCE = 30.0, 5.0  # seconds, and times the baseline, until an attempt counts as one that never ends
_PATIENCE_AGAIN = 10.0, 3.0  # the same for those after it
_UNASKED_RESTARTS = 5  # in a row that say "resume me" although nobody interrupted them


class RehearsalStoppedError(Exception):
    """The rehearsal itself is told to end."""


class TrialSettings(NamedTuple):
    """What all trials of a rehearsal share."""

    command: Sequence[str]
    environment: Mapping[str, str]
    base: str
    copier: WorkspaceCopier
    fence: AllowedPaths
    comparison: Comparison
    grace_seconds: float
    backoff_limit: int
    ephemeral: Sequence[str]
    namespace: bool
    watch: bool
    disk_limit_bytes: int | None
    stop: threading.Event
    keepers: InitServer
    hung: threading.Event
    """Set once an attempt did not end within its time: another one that hangs too tells nothing new."""
    fingerprints: bool = False
    """Whether programs that use stayfast leave a digest of every step."""


class Trial:
    """Runs one plan."""

    def __init__(self, setting: TrialSettings, plan: TrialPlan, profile: Profile, *, baseline: str, label: str) -> None:
        self._setting = setting
        self._plan = plan
        self._profile = profile
        self._baseline = baseline
        self._label = label
        self.folder = os.path.join(setting.base, label)
        self._facts: list[AttemptObservation] = []
        self._overwrote: list[str] = []
        self._wrote_after = False
        self._old: _ReplacedAttempt | None = None
        self._disk: DiskLimit | None = None

    def run(self) -> TrialObservation:
        """Copy, interrupt, start again, compare; the directory is gone afterwards."""
        began = time.monotonic()
        self._disk = prepare(self._setting, self.folder)
        try:
            ending = self._attempts()
            if self._old is not None:
                self._end_replaced(self._old, wait=True)
            differences: list[Difference] = []
            if ending.finished and not self._setting.comparison.is_empty:
                differences = self._compare()
            facts = sorted(self._facts, key=lambda fact: fact.began_seconds)
            return TrialObservation(
                plan=self._plan,
                attempts=tuple(fact._replace(began_seconds=fact.began_seconds - began) for fact in facts),
                seconds=time.monotonic() - began,
                finished=ending.finished,
                differences=tuple(differences),
                unfinished_zero=tuple(ending.unfinished),
                gave_up=ending.gave_up,
                overwrote=tuple(dict.fromkeys(self._overwrote)),
                wrote_after_replaced=self._wrote_after,
                steps=read_steps(os.path.join(self.folder, _FINGERPRINTS)),
            )
        finally:
            if self._old is not None:
                self._old.attempt.close()
            empty_ephemeral(self._setting, self.folder, self._label)
            remove_tree(self.folder)

    def _compare(self) -> list[Difference]:
        setting = self._setting
        work = os.path.join(self.folder, "work")
        return setting.comparison.differences(self._baseline, work, setting.environment)

    # -- the controller

    def _attempts(self) -> _TrialEnd:
        kills = list(self._plan.kills)
        failures, same, unasked = 0, 0, 0
        number = 0
        while True:
            number += 1
            if number > 1:
                self._new_node()
            fact = self._one(number, kills.pop(0) if kills else None)
            if fact is None:
                continue  # it lives on beside its replacement
            self._facts.append(fact)
            if fact.overran:  # it will not hear the next one either, and every time costs a whole grace
                kills = [
                    kill._replace(kind=InterruptionKind.KILL) if kill.kind is InterruptionKind.TERM else kill
                    for kill in kills
                ]
            if fact.timed_out:
                self._setting.hung.set()
                return _TrialEnd(gave_up=f"attempt {number} did not end within {fact.seconds:.0f} s")
            if fact.code == FINISHED:
                unfinished = self._missing() if fact.interrupted and fact.noticed else []
                return _TrialEnd(finished=not unfinished, unfinished=unfinished)
            if self._old is not None and not fact.interrupted:
                self._end_replaced(
                    self._old, wait=True
                )  # it found the other one still at work; a Job backs off for longer
            unasked = 0 if fact.interrupted or fact.code not in NOT_COUNTED else unasked + 1
            if unasked >= _UNASKED_RESTARTS:
                return _TrialEnd(
                    gave_up=f"left with {fact.code} {unasked} times in a row although nobody interrupted it"
                )
            if fact.code not in NOT_COUNTED:
                failures += 1
            is_same = not fact.interrupted and fact.code not in NOT_COUNTED and fact.first_write_seconds is None
            same = same + 1 if is_same else 0
            if failures > self._setting.backoff_limit or same >= _SAME_FAILURES:
                which = f"attempts {number - same + 1} to {number}" if same > 1 else f"attempt {number}"
                return _TrialEnd(gave_up=f"{which} left with {fact.code}: {fact.last_words}")

    def _missing(self) -> list[Difference]:
        """Interrupted, and it says that it is done: what is not as it would be at the end?"""
        if self._setting.comparison.is_empty:
            return left_over(self._baseline, os.path.join(self.folder, "work"))
        return self._compare()

    def _new_node(self) -> None:
        """What does not move with the pod."""
        if self._old is None:
            empty_directory(os.path.join(self.folder, "tmp"))
        empty_ephemeral(self._setting, self.folder, self._label)

    # -- one attempt

    def _one(self, number: int, kill: Kill | None) -> AttemptObservation | None:
        around = surroundings(self._setting, self._label, self._profile, number, disk=self._disk)
        attempt = Attempt(number, around, kill, self._profile, count=not self._plan.kills)
        try:
            while not attempt.tick():
                if self._setting.stop.is_set():
                    raise RehearsalStoppedError
                if self._old is not None:
                    self._check_replaced(self._old, attempt)
                if attempt.runs_beside_replacement:
                    if self._old is not None:
                        self._end_replaced(self._old, wait=False)
                    attempt.replace()
                    self._old = _ReplacedAttempt(attempt)
                    return None
        except BaseException:
            attempt.close()
            raise
        if self._old is not None:
            self._check_replaced(self._old, attempt)
        return attempt.close()

    def _check_replaced(self, old: _ReplacedAttempt, new: Attempt) -> None:
        """Look after the attempt that was replaced."""
        self._evidence(old, new)
        if old.attempt.is_frozen:
            path = old.attempt.moment.held_path
            wrote = self._holds_something(path, new) if path else new.watcher.last_event is not None
            waited = time.monotonic() - old.since
            if wrote or new.program.poll() is not None or waited > max(2.0, self._profile.seconds):
                old.since = time.monotonic()
                old.attempt.resume()
            return
        if old.attempt.tick(alone=False):
            self._end_replaced(old, wait=False)
        else:
            old.attempt.enforce_grace(old.since)

    def _holds_something(self, path: str, new: Attempt) -> bool:
        """Whether the replacement has not only emptied the file, but has something in it to lose."""
        return path in new.watcher.replaced and has_content(os.path.join(self.folder, "work", path))

    def _end_replaced(self, old: _ReplacedAttempt, *, wait: bool) -> None:
        """The old one ends by itself or at the end of its grace."""
        if old.attempt.is_frozen:
            old.since = time.monotonic()
            old.attempt.resume()
        while wait and not old.attempt.tick(alone=False):
            if self._setting.stop.is_set():
                break
            old.attempt.enforce_grace(old.since)
        self._evidence(old, None)
        self._facts.append(old.attempt.close())
        self._old = None

    def _evidence(self, old: _ReplacedAttempt, new: Attempt | None) -> None:
        """What did the old one replace after the new one had written it?"""
        if new is not None:
            old.newer = {**new.watcher.replaced, **old.newer}  # its first time: it may go on, and write it again
        if old.attempt.watcher.last_event_at > old.since:
            self._wrote_after = True
        for path, at in dict(old.attempt.watcher.overwrote).items():
            if path in old.own and path in old.newer and at > old.newer[path]:
                self._overwrote.append(path)


class _TrialEnd(NamedTuple):
    """How the controller stopped."""

    finished: bool = False
    unfinished: Sequence[Difference] = ()
    gave_up: str = ""


class _ReplacedAttempt:
    """An attempt whose replacement runs already."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.since = time.monotonic()
        self.newer: dict[str, float] = {}
        # Only what it took for its own before: one that had written nothing yet begins afresh, as any attempt may.
        self.own = {*attempt.watcher.replaced, attempt.moment.held_path}


def prepare(setting: TrialSettings, folder: str) -> DiskLimit | None:
    """The trial's own directory, and what there is of space in it."""
    os.mkdir(folder)
    os.mkdir(os.path.join(folder, "tmp"))
    work = os.path.join(folder, "work")
    setting.copier.copy_to(work)
    return None if setting.disk_limit_bytes is None else DiskLimit(work, setting.disk_limit_bytes)


def empty_ephemeral(setting: TrialSettings, folder: str, label: str) -> None:
    """The node's own disk is gone; an absolute path is as absolute as it was given."""
    for name in expand_trial_name(setting.ephemeral, label):
        empty_directory(os.path.join(folder, "work", name))


def surroundings(
    setting: TrialSettings, label: str, profile: Profile | None, number: int, *, disk: DiskLimit | None
) -> AttemptEnvironment:
    """A pod's environment: a name of its own for every attempt, and the grace that the manifest gives it."""
    folder = os.path.join(setting.base, label)
    grace = f"{setting.grace_seconds:g}"
    environment = {
        variables.TERMINATION_GRACE_SECONDS: grace,
        variables.METADATA: "off",
        **setting.environment,
        "HOSTNAME": f"rehearsal-{label}-{number}",
        "TMPDIR": os.path.join(folder, "tmp"),
        "PWD": os.path.join(folder, "work"),
    }
    if setting.fingerprints:
        environment[variables.FINGERPRINTS] = os.path.join(folder, _FINGERPRINTS)
    own = os.path.realpath(folder)
    limit = _LONGEST_BASELINE_SECONDS
    if profile is not None:
        patience = _PATIENCE_AGAIN if setting.hung.is_set() else _PATIENCE
        limit = patience[0] + patience[1] * profile.seconds
    return AttemptEnvironment(
        command=expand_trial_name(setting.command, label),
        folder=folder,
        environment=environment,
        grace_seconds=setting.grace_seconds,
        limit_seconds=limit,
        allows=lambda path: setting.fence.allows(path, own),
        namespace=setting.namespace,
        watch=setting.watch,
        disk=disk,
        keepers=setting.keepers,
    )
