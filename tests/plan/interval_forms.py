"""The closed forms of the literature for the time between checkpoints, which the product's exact one is held against.

Symbols, in seconds: δ the blocking cost of one save, M the mean time between interruptions, r the cost of a restart,
D the wait for a new machine. Sources: Young (1974), Daly (2006).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stayfast.capacity.plan.interval import check_figures
from stayfast.errors import UsageError


def young(save_seconds: float, mtbi_seconds: float) -> float:
    """√(2δM): the first-order rule."""
    check_figures(save_seconds, mtbi_seconds)
    return math.sqrt(2 * save_seconds * mtbi_seconds)


def daly_first(save_seconds: float, mtbi_seconds: float, *, restart_seconds: float = 0.0) -> float:
    """√(2δ(M+r)): Young's rule with the restart counted in."""
    check_figures(save_seconds, mtbi_seconds)
    return math.sqrt(2 * save_seconds * (mtbi_seconds + restart_seconds))


def daly_second(save_seconds: float, mtbi_seconds: float) -> float:
    """The higher-order rule; good until saving takes as long as machines live."""
    check_figures(save_seconds, mtbi_seconds)
    if save_seconds >= 2 * mtbi_seconds:
        return mtbi_seconds
    ratio = save_seconds / (2 * mtbi_seconds)
    return math.sqrt(2 * save_seconds * mtbi_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def expected_seconds(
    work_seconds: float,
    interval_seconds: float,
    save_seconds: float,
    mtbi_seconds: float,
    *,
    restart_seconds: float = 0.0,
    wait_seconds: float = 0.0,
) -> float:
    """Expected wall time for the work: (W/τ)(M+D)e^(r/M)(e^((τ+δ)/M) - 1)."""
    check_figures(save_seconds, mtbi_seconds)
    if interval_seconds <= 0:
        raise UsageError(f"an interval must be longer than 0 s, not {interval_seconds!r}")
    exponent = (interval_seconds + save_seconds) / mtbi_seconds
    if exponent + restart_seconds / mtbi_seconds > 700:
        return math.inf  # no machine lives long enough for one interval
    cycles = work_seconds / interval_seconds
    return cycles * (mtbi_seconds + wait_seconds) * math.exp(restart_seconds / mtbi_seconds) * math.expm1(exponent)


def lost_share(
    interval_seconds: float,
    save_seconds: float,
    mtbi_seconds: float,
    *,
    restart_seconds: float = 0.0,
    wait_seconds: float = 0.0,
) -> float:
    """To first order, the share of time that is not useful: δ/τ + (τ/2 + r + D)/M."""
    check_figures(save_seconds, mtbi_seconds)
    return save_seconds / interval_seconds + (interval_seconds / 2 + restart_seconds + wait_seconds) / mtbi_seconds


def by_hazard(save_seconds: float, hazard_per_second: float) -> float:
    """√(2δ/h): short intervals while the machine is likely to go, long ones when it has proved itself."""
    if hazard_per_second <= 0:
        return math.inf
    return math.sqrt(2 * save_seconds / hazard_per_second)


def hazard_schedule(
    work_seconds: float,
    save_seconds: float,
    hazard: Callable[[float], float],
    *,
    age_seconds: float = 0.0,
    least_seconds: float = 1.0,
) -> Sequence[float]:
    """Intervals for the work on a machine of this age, each by the hazard at its start."""
    schedule = []
    while work_seconds > 0:
        interval = min(work_seconds, max(least_seconds, by_hazard(save_seconds, hazard(age_seconds))))
        schedule.append(interval)
        work_seconds -= interval
        age_seconds += interval + save_seconds
    return schedule
