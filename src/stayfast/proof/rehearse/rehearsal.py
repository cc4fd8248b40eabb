"""A whole rehearsal: the uninterrupted run, the trials, the smallest schedule that fails, the verdict."""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from typing import NamedTuple

from stayfast.errors import UsageError
from stayfast.process.container import InitServer
from stayfast.proof.rehearse import confine
from stayfast.proof.rehearse.attempt import can_watch
from stayfast.proof.rehearse.baseline import Baseline, run_baselines
from stayfast.proof.rehearse.confirmation import Run, confirm_by_clock, num_by_clock, shrink
from stayfast.proof.rehearse.differences import Comparison
from stayfast.proof.rehearse.divergence import Steps, first_divergence
from stayfast.proof.rehearse.facts import BaselineObservation, TrialObservation
from stayfast.proof.rehearse.notes import result_notes
from stayfast.proof.rehearse.plan import (
    DEFAULT_KINDS,
    TWO_WRITERS,
    AtEvent,
    AtTime,
    InterruptionKind,
    Profile,
    TrialPlan,
)
from stayfast.proof.rehearse.schedule import schedule
from stayfast.proof.rehearse.trial import RehearsalStoppedError, Trial, TrialSettings
from stayfast.proof.rehearse.verdict import (
    BY_CLOCK,
    BY_RESULT,
    CODES,
    Reason,
    lost_everything,
    may_be_slow_baseline,
    may_hide_lost_work,
    reasons_of,
    reasons_without_signal,
    was_stalled,
    went_on_after_sigterm,
    with_control_run,
    with_idle_run,
)
from stayfast.proof.rehearse.workspace import WorkspaceCopier, remove_tree
from stayfast.proof.syscalls.seccomp import machine

_SECOND_LOOKS = 4
_EARLIER = (0.5, 0.1)  # of the moment, for a program that was done before it
_EARLY = 0.1  # of the baseline, for a program that may have been done by luck before its grace was over


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
    confine.check_command(options.command, env)
    with contextlib.closing(InitServer()) as keepers:
        base = os.path.realpath(tempfile.mkdtemp(prefix="stayfast-rehearse-"))
        try:
            return _Rehearsal(options, env, base, keepers, stop or threading.Event(), progress, report).run()
        finally:
            remove_tree(base)


def _stale_writer_order(plan: TrialPlan) -> tuple[bool, bool]:
    """To sort by: first those that stand before a file of theirs until the replacement has written it too."""
    kill = plan.kills[0]
    return kill.kind is not InterruptionKind.FREEZE, not isinstance(kill.moment, AtEvent)


def _reject_failures_without_kills(reasons: Iterable[Reason]) -> None:
    """Who fails without an interruption as well cannot be rehearsed."""
    for reason in reasons:
        if not reason.kills:
            raise UsageError(
                f"{reason.detail}, and that without any interruption",
                help="rehearse a command that does the same every time, in a directory that nobody changes meanwhile",
            )


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
        self._witnesses: list[TrialObservation] = []  # trials beyond the schedule that a reason is told from
        self._slowness = 1.0  # of the machine, beside what it was when the baseline ran
        self._parallel = options.parallel or os.cpu_count() or 1
        shared = confine.check_ephemeral(options.ephemeral)
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
            fence=confine.AllowedPaths(options.command, writable=[*options.writable, *shared]),
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
                reasons = self._reasons(pool, facts, baseline)
            except BaseException:
                self._setting.stop.set()
                raise
        return RehearsalResult(
            options=self._options,
            baseline=baseline.fact,
            profile=baseline.profile,
            trials=(*facts, *self._witnesses),
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
        tries = [plan, *(plan.earlier(factor) for factor in _EARLIER)]
        at_once = tuple(kill._replace(moment=AtTime(0.1)) for kill in plan.kills)
        for number, variant in enumerate([*tries, plan._replace(kills=at_once)]):
            name = label + (f"-{number}" if number else "")
            fact = self._once(variant, baseline, name)
            if fact.delivered or not plan.kills:
                break
        return fact

    def _reasons(self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation], baseline: Baseline) -> list[Reason]:
        """One reason per code, from the first trial that shows it, with as few kills as show it."""
        if any(fact.finished and lost_everything(baseline.fact, fact) for fact in facts):
            baseline = baseline._replace(fact=with_idle_run(baseline.fact, self._run_when_done(baseline, "idle")))
        shown: dict[str, list[tuple[Reason, TrialObservation]]] = defaultdict(list)
        for fact in facts:
            for reason in reasons_of(baseline.fact, fact):
                shown[reason.code].append((reason, fact))
        first = {code: min(rows, key=lambda row: num_by_clock(row[0])) for code, rows in shown.items()}

        def run_again(plan: TrialPlan, label: str) -> list[Reason]:
            return reasons_of(baseline.fact, self._once(plan, baseline, label))

        def run_beside_a_control(plan: TrialPlan, label: str) -> list[Reason]:
            return self._run_with_control(plan, baseline, label)

        if "no-progress" not in first:
            first |= self._second_look(pool, facts, baseline, run_beside_a_control)
        if "grace-overrun" not in first:
            first |= self._early_look(facts, baseline)
        if "stale-writer" not in first:
            first |= self._check_stale_writers(pool, facts, baseline)
        self._setting.hung.clear()  # what is told has to show again in full
        ordered = [first[code] for code in CODES if code in first]
        if ordered:
            self._progress("looking for the smallest schedule that fails")
        futures = [
            pool.submit(
                confirm_by_clock,
                [(x, seen.plan) for x, seen in shown[reason.code] or [(reason, fact)]],
                run_beside_a_control,
            )
            if reason.code in BY_CLOCK
            else pool.submit(shrink, reason, fact.plan, run_again, instead=reasons_without_signal(fact))
            for reason, fact in ordered
        ]
        small: dict[str, Reason] = {}
        for future in futures:
            for reason in future.result():
                small.setdefault(reason.code, reason)
        if small.keys() & BY_RESULT:
            _reject_failures_without_kills([*small.values(), *run_again(TrialPlan(0, ()), "uninterrupted")])
        if "result-differs" in small:
            plans = {fact.plan.number: fact.plan for fact in facts}
            small["result-differs"] = self._divergence(small["result-differs"], plans, baseline)
        return [small[code] for code in CODES if code in small]

    def _once(self, plan: TrialPlan, baseline: Baseline, label: str) -> TrialObservation:
        name = f"{self._token}-{label}"
        return Trial(self._setting, plan, baseline.profile, baseline=baseline.work, label=name).run()

    def _run_when_done(self, baseline: Baseline, label: str) -> TrialObservation:
        """The program once more where the baseline has left everything done."""
        finished = WorkspaceCopier(baseline.work, may_link=self._setting.watch)
        impatient = threading.Event()
        impatient.set()
        setting = self._setting._replace(copier=finished, comparison=Comparison(), hung=impatient)
        name = f"{self._token}-{label}"
        return Trial(setting, TrialPlan(0, ()), baseline.profile, baseline=baseline.work, label=name).run()

    def _run_with_control(self, plan: TrialPlan, baseline: Baseline, label: str) -> list[Reason]:
        """A trial, judged by an uninterrupted run at the same time; the next one's moments go by that one's pace.

        And by a start that finds everything done: how much of both is no work at all.
        """
        with ThreadPoolExecutor(1 if self._one_at_a_time else 3) as beside:
            control = beside.submit(self._once, plan._replace(kills=()), baseline, f"{label}-control")
            idle = beside.submit(self._run_when_done, baseline, f"{label}-idle")
            trial = beside.submit(self._once, plan.stretched(self._slowness), baseline, label)
            fact = trial.result()
            now = with_control_run(with_idle_run(baseline.fact, idle.result()), control.result())
        self._slowness = max(1.0, control.result().attempts[-1].seconds / baseline.profile.seconds)
        planned = {kill.number: kill for kill in plan.kills}
        return [
            reason._replace(kills=tuple(planned[kill.number] for kill in reason.kills))
            for reason in reasons_of(now, fact)
        ]

    def _second_look(
        self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation], baseline: Baseline, run_beside: Run
    ) -> dict[str, tuple[Reason, TrialObservation]]:
        """Trials in which small gains, or a slow baseline, may hide that the first kill lost everything, alone."""

        def look(fact: TrialObservation, label: str) -> list[Reason]:
            alone = fact.plan.only(frozenset({fact.plan.kills[0].number}))
            if not may_be_slow_baseline(baseline.fact, fact):
                again = self._once(alone, baseline, label)
                if not may_be_slow_baseline(baseline.fact, again):
                    return reasons_of(baseline.fact, again)
            return run_beside(alone, f"{label}-beside")

        doubts = [fact for fact in facts if may_hide_lost_work(baseline.fact, fact)][:_SECOND_LOOKS]
        doubts += [fact for fact in facts if may_be_slow_baseline(baseline.fact, fact)][:_SECOND_LOOKS]
        futures = [pool.submit(look, fact, f"alone-{number}") for number, fact in enumerate(doubts)]
        for fact, future in zip(doubts, futures, strict=True):
            for reason in future.result():
                if reason.code == "no-progress":
                    return {reason.code: (reason, fact)}
        return {}

    def _early_look(
        self, facts: Sequence[TrialObservation], baseline: Baseline
    ) -> dict[str, tuple[Reason, TrialObservation]]:
        """Whether a program that went on after SIGTERM overruns its grace when more is left to do."""
        kill, fact = next(
            ((kill, fact) for fact in facts if (kill := went_on_after_sigterm(baseline.fact, fact))), (None, None)
        )
        if kill is None or fact is None or baseline.profile.seconds * (1 - _EARLY) <= self._options.grace_seconds:
            return {}
        number = max(fact.plan.number for fact in facts) + 1
        early = TrialPlan(number, (kill._replace(moment=AtTime(_EARLY)),))
        again = self._once(early, baseline, "early")
        found = {x.code: (x, again) for x in reasons_of(baseline.fact, again) if x.code == "grace-overrun"}
        self._witnesses += [again] if found else []
        return found

    def _check_stale_writers(
        self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation], baseline: Baseline
    ) -> dict[str, tuple[Reason, TrialObservation]]:
        """The first kill alone, where the next one took the replacement before it had anything to lose."""
        plans = [fact.plan for fact in facts if len(fact.plan.kills) > 1 and fact.plan.kills[0].kind in TWO_WRITERS]
        futures = [
            pool.submit(self._once, plan.only(frozenset({plan.kills[0].number})), baseline, f"zombie-{plan.number}")
            for plan in sorted(plans, key=_stale_writer_order)[:_SECOND_LOOKS]
        ]
        again = [future.result() for future in futures]
        found = ((reason, fact) for fact in again for reason in reasons_of(baseline.fact, fact))
        return next(({reason.code: (reason, fact)} for reason, fact in found if reason.code == "stale-writer"), {})

    def _divergence(self, reason: Reason, plans: Mapping[int, TrialPlan], baseline: Baseline) -> Reason:
        """Run both again with fingerprints: a program that leaves them tells the first step that differs."""
        setting = self._setting._replace(fingerprints=True)
        plan = plans[reason.trial].only(frozenset(kill.number for kill in reason.kills))

        def steps(plan: TrialPlan, label: str) -> Steps:
            name = f"{self._token}-steps-{label}"
            return Trial(setting, plan, baseline.profile, baseline=baseline.work, label=name).run().steps

        wanted = steps(plan._replace(kills=()), "baseline")
        tries = [plan, *(plan.earlier(factor) for factor in _EARLIER)]  # alone it may be done before its moment
        for number, variant in enumerate(tries if wanted else ()):
            if told := first_divergence(wanted, steps(variant, f"trial-{number}")):
                return reason._replace(detail=f"{told} ({reason.detail})")
        return reason
