"""A whole rehearsal: the uninterrupted run, the trials, the smallest schedule that fails, the verdict."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import NamedTuple

from stayfast.errors import UsageError
from stayfast.process.container import InitServer
from stayfast.proof.rehearse.attempt import can_watch
from stayfast.proof.rehearse.baseline import Baseline, run_baselines
from stayfast.proof.rehearse.confirmation import Confirmation, run_trial
from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.facts import BaselineObservation, TrialObservation
from stayfast.proof.rehearse.lost_work import (
    was_stalled,
)
from stayfast.proof.rehearse.report import result_notes
from stayfast.proof.rehearse.schedule import (
    DEFAULT_KINDS,
    AtTime,
    InterruptionKind,
    Profile,
    TrialPlan,
    schedule,
)
from stayfast.proof.rehearse.trial import RehearsalStoppedError, TrialSettings
from stayfast.proof.rehearse.verdict import (
    Reason,
)
from stayfast.proof.rehearse.workspace import AllowedPaths, WorkspaceCopier, check_command, check_ephemeral, remove_tree
from stayfast.proof.syscalls.seccomp import machine


class RehearsalOptions(NamedTuple):
    """What a rehearsal is asked to do."""

    command: Sequence[str]
    comparison: Comparison = Comparison()
    kinds: Sequence[InterruptionKind] = DEFAULT_KINDS
    kills: int = 3
    trials: int = 9
    seed: int = 0
    grace_seconds: float = 15.0
    parallel: int = 0
    """0 means as many as there are cores."""
    ephemeral: Sequence[str] = ()
    backoff_limit: int = 6
    writable: Sequence[str] = ()
    only_kills: frozenset[int] = frozenset()
    disk_limit_bytes: int | None = None
    namespace: bool = True
    watch: bool = True
    directory: str = "."


class RehearsalResult(NamedTuple):
    """Everything that a report tells."""

    options: RehearsalOptions
    baseline: BaselineObservation
    profile: Profile
    """With the baseline's time on this machine."""
    trials: tuple[TrialObservation, ...]
    reasons: tuple[Reason, ...]
    namespace: str
    """Empty when the program was PID 1 of a namespace, else why not."""
    watched: str
    """How its files were watched: ``system calls``, ``notifications`` or ``polling``."""
    notes: tuple[str, ...] = ()

    @property
    def survives(self) -> bool:
        return not self.reasons


Progress = Callable[[str], None]


def rehearse(
    options: RehearsalOptions,
    environment: Mapping[str, str] | None = None,
    *,
    stop: threading.Event | None = None,
    progress: Progress = lambda _: None,
    report: Progress = lambda _: None,
) -> RehearsalResult:
    """Run everything; ``stop`` ends it early with :class:`Stopped`, and nothing is left behind.

    ``progress`` gets how far it is, ``report`` what a baseline of more than half a minute does.
    """
    env = dict(os.environ if environment is None else environment)
    check_command(options.command, env)
    with contextlib.closing(InitServer()) as keepers:
        base = os.path.realpath(tempfile.mkdtemp(prefix="stayfast-rehearse-"))
        try:
            return _Rehearsal(options, env, base, keepers, stop or threading.Event(), progress, report).run()
        finally:
            remove_tree(base)


class _Rehearsal:
    def __init__(
        self,
        options: RehearsalOptions,
        env: Mapping[str, str],
        base: str,
        keepers: InitServer,
        stop: threading.Event,
        progress: Progress,
        report: Progress,
    ) -> None:
        self._options = options
        self._progress = progress
        self._report = report
        self._token = ""
        self._parallel = options.parallel or os.cpu_count() or 1
        shared = check_ephemeral(options.ephemeral)
        self._one_at_a_time = bool(shared)  # one node at a time has this directory
        if self._one_at_a_time:
            self._parallel = 1
        watch = options.watch and machine() is not None
        may_link = watch and can_watch(base, env, keepers, namespace=options.namespace)
        self._setting = TrialSettings(
            command=options.command,
            environment=env,
            base=base,
            copier=WorkspaceCopier(options.directory, may_link=may_link),
            fence=AllowedPaths(options.command, writable=[*options.writable, *shared]),
            comparison=options.comparison,
            grace_seconds=options.grace_seconds,
            backoff_limit=options.backoff_limit,
            ephemeral=options.ephemeral,
            namespace=options.namespace,
            watch=watch,
            disk_limit_bytes=options.disk_limit_bytes,
            stop=stop,
            keepers=keepers,
            hung=threading.Event(),
        )

    def run(self) -> RehearsalResult:
        with ThreadPoolExecutor(self._parallel, thread_name_prefix="trial") as pool:
            try:
                baseline, facts = self._measure(pool)
                if was_stalled(baseline.fact, facts):
                    self._progress("the baseline took longer than a whole trial: once more")
                    baseline, facts = self._measure(pool)
                doubts = Confirmation(
                    self._setting,
                    baseline,
                    token=self._token,
                    one_at_a_time=self._one_at_a_time,
                    progress=self._progress,
                )
                reasons = doubts.reasons(pool, facts)
            except BaseException:
                self._setting.stop.set()
                raise
        return RehearsalResult(
            options=self._options,
            baseline=baseline.fact,
            profile=baseline.profile,
            trials=(*facts, *doubts.witnesses),
            reasons=tuple(reasons),
            namespace=baseline.why_no_namespace,
            watched=baseline.means,
            notes=tuple(result_notes(self._setting, self._options.directory, baseline, facts)),
        )

    def _measure(self, pool: ThreadPoolExecutor) -> tuple[Baseline, list[TrialObservation]]:
        """The uninterrupted run, and then all trials by its moments."""
        self._token = secrets.token_hex(3)
        self._setting.hung.clear()
        self._progress("baseline: running it without an interruption, twice")
        setting = self._setting._replace(comparison=self._options.comparison)
        baseline = run_baselines(setting, self._token, parallel=self._parallel, report=self._report)
        self._setting = self._setting._replace(comparison=baseline.comparison, watch=baseline.watched)
        return baseline, list(self._run_all(pool, self._plans(baseline.profile), baseline))

    def _plans(self, profile: Profile) -> list[TrialPlan]:
        options = self._options
        plans = schedule(profile, kinds=options.kinds, kills=options.kills, trials=options.trials, seed=options.seed)
        if not options.only_kills:
            return plans
        known = {kill.number for plan in plans for kill in plan.kills}
        if not options.only_kills <= known:
            raise UsageError(
                f"--only-kill {max(options.only_kills - known)} is not one of the kills 1 to {max(known)}",
                help="use the same --kills and --trials as in the run that failed",
            )
        return [plan.only(options.only_kills) for plan in plans if plan.only(options.only_kills).kills]

    def _run_all(
        self, pool: ThreadPoolExecutor, plans: Sequence[TrialPlan], baseline: Baseline
    ) -> Iterator[TrialObservation]:
        futures = [pool.submit(self._trial, plan, baseline, f"trial-{plan.number}") for plan in plans]
        self._wait(futures)
        for future in futures:
            yield future.result()

    def _wait(self, futures: Sequence[Future[TrialObservation]]) -> None:
        """For all of them, or the first that fails; short sleeps, so that a signal is heard at once."""
        pending = set(futures)
        told = 0
        while pending:
            done, pending = wait_for(pending, timeout=0.1)
            for future in done:
                future.result()
                told += 1
                self._progress(f"{told} of {len(futures)} trials")
            if self._setting.stop.is_set():
                raise RehearsalStoppedError

    def _trial(self, plan: TrialPlan, baseline: Baseline, label: str) -> TrialObservation:
        """One trial; a program that is done before the first kill is tried again with an earlier moment."""
        at_once = tuple(kill._replace(moment=AtTime(0.1)) for kill in plan.kills)
        for number, variant in enumerate([*plan.with_earlier(), plan._replace(kills=at_once)]):
            name = label + (f"-{number}" if number else "")
            fact = run_trial(self._setting, variant, baseline, f"{self._token}-{name}")
            if fact.delivered or not plan.kills:
                break
        return fact
