"""The smallest set of interruptions that still fails: a reason with one kill is one that somebody will look at."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from stayfast.proof.rehearse.plan import AtTime, TrialPlan
from stayfast.proof.rehearse.verdict import BY_CLOCK, SINGLE, Reason

_MOST_RUNS = 7
_MOST_TRIALS = 2  # trials that may show it again
_TRIES_BY_CLOCK = 3  # a busy machine can hide what goes by the clock as well as imitate it
_CONFIRMATIONS = 2  # of three more runs that have to agree where nothing can be counted: of many tries one may err


Run = Callable[[TrialPlan, str], list[Reason]]


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
