"""The smallest set of interruptions that still fails: a reason with one kill is one that somebody will look at."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from holdfast.rehearse.plan import TrialPlan
from holdfast.rehearse.verdict import BY_CLOCK, SINGLE, Reason

_MOST_RUNS = 7


def shrink(reason: Reason, plan: TrialPlan, run: Callable[[TrialPlan, str], list[Reason]]) -> Reason | None:
    """Try fewer kills of the failing trial, fewest first; ``run`` is one trial and says what was wrong with it.

    None when the reason goes by the clock and does not show again.
    """
    doubtful = reason.code in BY_CLOCK
    if reason.code in SINGLE or (len(reason.kills) < 2 and not doubtful):
        return reason
    numbers = [kill.number for kill in reason.kills]
    most = len(numbers) + doubtful
    tries = itertools.chain.from_iterable(itertools.combinations(numbers, size) for size in range(1, most))
    for count, chosen in enumerate(itertools.islice(tries, _MOST_RUNS)):
        label = f"shrink-{reason.code}-{count}"
        for found in run(plan.only(frozenset(chosen)), label):
            if found.code == reason.code:
                return found
    return None if doubtful else reason
