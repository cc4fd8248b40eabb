"""Doubtful reasons are looked at again: the smallest set of interruptions that still fails, trials with another moment.

A reason with one kill is one that somebody will look at.
"""

from __future__ import annotations

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from stayfast.errors import UsageError
from stayfast.proof.rehearse.baseline import Baseline
from stayfast.proof.rehearse.differences import Comparison, Steps, first_divergence
from stayfast.proof.rehearse.facts import TrialObservation
from stayfast.proof.rehearse.lost_work import (
    lost_everything,
    may_be_slow_baseline,
    may_hide_lost_work,
    went_on_after_sigterm,
    with_control_run,
    with_idle_run,
)
from stayfast.proof.rehearse.schedule import TWO_WRITERS, AtEvent, AtTime, InterruptionKind, TrialPlan
from stayfast.proof.rehearse.trial import Trial, TrialSettings
from stayfast.proof.rehearse.verdict import (
    BY_CLOCK,
    BY_RESULT,
    CODES,
    SINGLE,
    Reason,
    reasons_of,
    reasons_without_signal,
)
from stayfast.proof.rehearse.workspace import WorkspaceCopier

_MOST_RUNS = 7
_MOST_TRIALS = 2  # trials that may show it again
_TRIES_BY_CLOCK = 3  # a busy machine can hide what goes by the clock as well as imitate it
_CONFIRMATIONS = 2  # of three more runs that have to agree where nothing can be counted: of many tries one may err
_SECOND_LOOKS = 4
_EARLY = 0.1  # of the baseline, for a program that may have been done by luck before its grace was over

Run = Callable[[TrialPlan, str], list[Reason]]


def run_trial(setting: TrialSettings, plan: TrialPlan, baseline: Baseline, label: str) -> TrialObservation:
    """One trial beside this baseline."""
    return Trial(setting, plan, baseline.profile, baseline=baseline.work, label=label).run()


class Confirmation:
    """Runs again what the trials of a rehearsal make doubtful, and keeps the reasons that show again."""

    def __init__(
        self,
        setting: TrialSettings,
        baseline: Baseline,
        *,
        token: str,
        one_at_a_time: bool,
        progress: Callable[[str], None],
    ) -> None:
        """``token`` begins the name of every trial that is run again."""
        self._setting = setting
        self._baseline = baseline
        self._token = token
        self._one_at_a_time = one_at_a_time
        self._progress = progress
        self._slowness = 1.0  # of the machine, beside what it was when the baseline ran
        self.witnesses: list[TrialObservation] = []
        """Trials beyond the schedule that a reason is derived from."""

    def reasons(self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation]) -> list[Reason]:
        """One reason per code, from the first trial that shows it, with as few kills as show it."""
        if any(fact.finished and lost_everything(self._baseline.fact, fact) for fact in facts):
            idle = with_idle_run(self._baseline.fact, self._run_when_done("idle"))
            self._baseline = self._baseline._replace(fact=idle)
        shown: dict[str, list[tuple[Reason, TrialObservation]]] = defaultdict(list)
        for fact in facts:
            for reason in reasons_of(self._baseline.fact, fact):
                shown[reason.code].append((reason, fact))
        first = {code: min(rows, key=lambda row: num_by_clock(row[0])) for code, rows in shown.items()}

        if "no-progress" not in first:
            first |= self._second_look(pool, facts)
        if "grace-overrun" not in first:
            first |= self._early_look(facts)
        if "stale-writer" not in first:
            first |= self._check_stale_writers(pool, facts)
        self._setting.hung.clear()  # what is told has to show again in full
        ordered = [first[code] for code in CODES if code in first]
        if ordered:
            self._progress("looking for the smallest schedule that fails")
        futures = [
            pool.submit(
                confirm_by_clock,
                [(x, seen.plan) for x, seen in shown[reason.code] or [(reason, fact)]],
                self._run_with_control,
            )
            if reason.code in BY_CLOCK
            else pool.submit(shrink, reason, fact.plan, self._run_again, instead=reasons_without_signal(fact))
            for reason, fact in ordered
        ]
        small: dict[str, Reason] = {}
        for future in futures:
            for reason in future.result():
                small.setdefault(reason.code, reason)
        if small.keys() & BY_RESULT:
            _reject_failures_without_kills([*small.values(), *self._run_again(TrialPlan(0, ()), "uninterrupted")])
        if "result-differs" in small:
            plans = {fact.plan.number: fact.plan for fact in facts}
            small["result-differs"] = self._divergence(small["result-differs"], plans)
        return [small[code] for code in CODES if code in small]

    def _once(self, plan: TrialPlan, label: str) -> TrialObservation:
        return run_trial(self._setting, plan, self._baseline, f"{self._token}-{label}")

    def _run_again(self, plan: TrialPlan, label: str) -> list[Reason]:
        return reasons_of(self._baseline.fact, self._once(plan, label))

    def _run_when_done(self, label: str) -> TrialObservation:
        """The program once more where the baseline has left everything done."""
        finished = WorkspaceCopier(self._baseline.work, may_link=self._setting.watch)
        impatient = threading.Event()
        impatient.set()
        setting = self._setting._replace(copier=finished, comparison=Comparison(), hung=impatient)
        return run_trial(setting, TrialPlan(0, ()), self._baseline, f"{self._token}-{label}")

    def _run_with_control(self, plan: TrialPlan, label: str) -> list[Reason]:
        """A trial, judged by an uninterrupted run at the same time; the next one's moments go by that one's pace.

        And by a start that finds everything done: how much of both is no work at all.
        """
        with ThreadPoolExecutor(1 if self._one_at_a_time else 3) as beside:
            control = beside.submit(self._once, plan._replace(kills=()), f"{label}-control")
            idle = beside.submit(self._run_when_done, f"{label}-idle")
            trial = beside.submit(self._once, plan.stretched(self._slowness), label)
            fact = trial.result()
            now = with_control_run(with_idle_run(self._baseline.fact, idle.result()), control.result())
        self._slowness = max(1.0, control.result().attempts[-1].seconds / self._baseline.profile.seconds)
        planned = {kill.number: kill for kill in plan.kills}
        return [
            reason._replace(kills=tuple(planned[kill.number] for kill in reason.kills))
            for reason in reasons_of(now, fact)
        ]

    def _second_look(
        self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation]
    ) -> dict[str, tuple[Reason, TrialObservation]]:
        """Trials in which small gains, or a slow baseline, may hide that the first kill lost everything, alone."""

        baseline = self._baseline.fact

        def look(fact: TrialObservation, label: str) -> list[Reason]:
            alone = fact.plan.only(frozenset({fact.plan.kills[0].number}))
            if not may_be_slow_baseline(baseline, fact):
                again = self._once(alone, label)
                if not may_be_slow_baseline(baseline, again):
                    return reasons_of(baseline, again)
            return self._run_with_control(alone, f"{label}-beside")

        doubts = [fact for fact in facts if may_hide_lost_work(baseline, fact)][:_SECOND_LOOKS]
        doubts += [fact for fact in facts if may_be_slow_baseline(baseline, fact)][:_SECOND_LOOKS]
        futures = [pool.submit(look, fact, f"alone-{number}") for number, fact in enumerate(doubts)]
        for fact, future in zip(doubts, futures, strict=True):
            for reason in future.result():
                if reason.code == "no-progress":
                    return {reason.code: (reason, fact)}
        return {}

    def _early_look(self, facts: Sequence[TrialObservation]) -> dict[str, tuple[Reason, TrialObservation]]:
        """Whether a program that went on after SIGTERM overruns its grace when more is left to do."""
        baseline = self._baseline
        kill, fact = next(
            ((kill, fact) for fact in facts if (kill := went_on_after_sigterm(baseline.fact, fact))), (None, None)
        )
        if kill is None or fact is None or baseline.profile.seconds * (1 - _EARLY) <= self._setting.grace_seconds:
            return {}
        number = max(fact.plan.number for fact in facts) + 1
        early = TrialPlan(number, (kill._replace(moment=AtTime(_EARLY)),))
        again = self._once(early, "early")
        found = {x.code: (x, again) for x in reasons_of(baseline.fact, again) if x.code == "grace-overrun"}
        self.witnesses += [again] if found else []
        return found

    def _check_stale_writers(
        self, pool: ThreadPoolExecutor, facts: Sequence[TrialObservation]
    ) -> dict[str, tuple[Reason, TrialObservation]]:
        """The first kill alone, where the next one took the replacement before it had anything to lose."""
        plans = [fact.plan for fact in facts if len(fact.plan.kills) > 1 and fact.plan.kills[0].kind in TWO_WRITERS]
        futures = [
            pool.submit(self._once, plan.only(frozenset({plan.kills[0].number})), f"zombie-{plan.number}")
            for plan in sorted(plans, key=_stale_writer_order)[:_SECOND_LOOKS]
        ]
        again = [future.result() for future in futures]
        found = ((reason, fact) for fact in again for reason in reasons_of(self._baseline.fact, fact))
        return next(({reason.code: (reason, fact)} for reason, fact in found if reason.code == "stale-writer"), {})

    def _divergence(self, reason: Reason, plans: Mapping[int, TrialPlan]) -> Reason:
        """Run both again with fingerprints: a program that leaves them tells the first step that differs."""
        setting = self._setting._replace(fingerprints=True)
        plan = plans[reason.trial].only(frozenset(kill.number for kill in reason.kills))

        def steps(plan: TrialPlan, label: str) -> Steps:
            return run_trial(setting, plan, self._baseline, f"{self._token}-steps-{label}").steps

        wanted = steps(plan._replace(kills=()), "baseline")
        # Alone it may be done before its moment.
        for number, variant in enumerate(plan.with_earlier() if wanted else ()):
            if told := first_divergence(wanted, steps(variant, f"trial-{number}")):
                return reason._replace(detail=f"{told} ({reason.detail})")
        return reason


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


def shrink(reason: Reason, plan: TrialPlan, run: Run, *, instead: Sequence[Reason] = ()) -> list[Reason]:
    """Try fewer kills of the failing trial, fewest first; ``run`` is one trial and says what was wrong with it.

    Nothing when the reason goes by the clock and does not show again; another reason when that is the true one:
    ``instead`` is what an exit with 0 means that no signal has caused.
    """
    if reason.code == "exit-zero-unfinished" and reason.kills[0] != plan.kills[0]:
        return _was_it_the_signal(reason, plan, run, instead)
    doubtful = reason.code in BY_CLOCK
    if reason.code in SINGLE or (len(reason.kills) < 2 and not doubtful):
        return [reason]
    numbers = [kill.number for kill in reason.kills]
    fewer = itertools.chain.from_iterable(itertools.combinations(numbers, size) for size in range(1, len(numbers)))
    tries = [*itertools.islice(fewer, _MOST_RUNS), *([tuple(numbers)] * _TRIES_BY_CLOCK if doubtful else [])]
    for count, chosen in enumerate(tries):
        fewer_kills, label = plan.only(frozenset(chosen)), f"shrink-{reason.code}-{reason.trial}-{count}"
        found = _same(reason, run(fewer_kills, label))
        if found is not None and (not found.by_time or _confirmed_by_majority(found, fewer_kills, run, label)):
            return [found]
    return [] if doubtful else [reason]


def _confirmed_by_majority(reason: Reason, plan: TrialPlan, run: Run, label: str) -> bool:
    """Whether most of a few more runs show it too."""
    against = for_it = 0
    while max(for_it, against) < _CONFIRMATIONS:
        if _same(reason, run(plan, f"{label}-again-{for_it + against}")) is not None:
            for_it += 1
        else:
            against += 1
    return for_it == _CONFIRMATIONS


def confirm_by_clock(doubts: Sequence[tuple[Reason, TrialPlan]], run: Run) -> list[Reason]:
    """A reason that goes by the clock, from the trials that show it: those first that can be repeated most exactly.

    A kill that is aimed at a file comes at the same point again, one at a time of day may not.
    """
    certain = sorted(doubts, key=lambda doubt: num_by_clock(doubt[0]))
    for reason, plan in certain[:_MOST_TRIALS]:
        if found := shrink(reason, plan, run):
            return found
    return []


def num_by_clock(reason: Reason) -> int:
    """How many of its kills come at a time of the clock."""
    return sum(isinstance(kill.moment, AtTime) for kill in reason.kills)


def _was_it_the_signal(reason: Reason, plan: TrialPlan, run: Run, instead: Sequence[Reason]) -> list[Reason]:
    """A later attempt that left with 0 may have done so by itself, misled by what the kills before it had left."""
    alone = frozenset(kill.number for kill in reason.kills)
    found = _same(reason, run(plan.only(alone), f"shrink-{reason.code}-alone"))
    if found is not None:
        return [found]
    others = frozenset(kill.number for kill in plan.kills if kill.number < min(alone))
    return run(plan.only(others), f"shrink-{reason.code}-others") or list(instead) or [reason]


def _same(reason: Reason, found: list[Reason]) -> Reason | None:
    return next((other for other in found if other.code == reason.code), None)
