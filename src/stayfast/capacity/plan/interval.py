"""How long to work between checkpoints: the closed forms.

Symbols of the literature, in seconds: δ the blocking cost of one save, M the mean time between interruptions, r the
cost of a restart, D the wait for a new machine. Sources: Young (1974), Daly (2006), and for an exponential M the exact
minimum of the expected time, in Lambert's W.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from stayfast.errors import UsageError


def young(save_seconds: float, mtbi_seconds: float) -> float:
    """√(2δM): the first-order rule."""
    _check(save_seconds, mtbi_seconds)
    return math.sqrt(2 * save_seconds * mtbi_seconds)


def daly_first(save_seconds: float, mtbi_seconds: float, *, restart_seconds: float = 0.0) -> float:
    """√(2δ(M+r)): Young's rule with the restart counted in."""
    _check(save_seconds, mtbi_seconds)
    return math.sqrt(2 * save_seconds * (mtbi_seconds + restart_seconds))


def daly_second(save_seconds: float, mtbi_seconds: float) -> float:
    """The higher-order rule; good until saving takes as long as machines live."""
    _check(save_seconds, mtbi_seconds)
    if save_seconds >= 2 * mtbi_seconds:
        return mtbi_seconds
    ratio = save_seconds / (2 * mtbi_seconds)
    return math.sqrt(2 * save_seconds * mtbi_seconds) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save_seconds


def exact(save_seconds: float, mtbi_seconds: float) -> float:
    """M(1 + W₀(-e^-(1+δ/M))): the minimum of :func:`expected_seconds` itself."""
    _check(save_seconds, mtbi_seconds)
    # With x = τ/M the condition reads -ln(1-x) - x = δ/M, whose left side grows from 0 to infinity on [0, 1).
    goal = save_seconds / mtbi_seconds
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _gap(middle) < goal:
            low = middle
        else:
            high = middle
    return mtbi_seconds * (low + high) / 2


def _gap(x: float) -> float:
    """-ln(1-x) - x without the cancellation near 0."""
    if x < 1e-3:
        return x * x * (1 / 2 + x * (1 / 3 + x * (1 / 4 + x * (1 / 5 + x / 6))))
    return -math.log1p(-x) - x


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
    _check(save_seconds, mtbi_seconds)
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
    _check(save_seconds, mtbi_seconds)
    return save_seconds / interval_seconds + (interval_seconds / 2 + restart_seconds + wait_seconds) / mtbi_seconds


@dataclass(frozen=True, slots=True)
class IntervalAdvice:
    """An interval, the work at risk under it, and why."""

    interval_seconds: float
    at_risk_seconds: float
    because: str


def recommend_interval(
    *,
    blocking_seconds: float,
    persist_seconds: float,
    mtbi_seconds: float,
    step_seconds: float = 1.0,
    flush_seconds: float | None = None,
    grace_seconds: float = 0.0,
    unannounced_mtbi_seconds: float | None = None,
) -> IntervalAdvice:
    """The interval for saving in the background, with or without a notice that is long enough.

    Only the blocking part costs; a save must be over before the next begins; what is at risk is half an interval and
    the time to persist. Where the flush fits the grace window, an announced interruption costs at most a step, and the
    interval only guards against the rest: ``unannounced_mtbi_seconds``, if known.
    """
    guarded = flush_seconds is not None and flush_seconds <= grace_seconds
    mean = unannounced_mtbi_seconds or mtbi_seconds if guarded else mtbi_seconds
    interval = exact(blocking_seconds, mean)
    because = (
        f"exact optimum for a blocking cost of {blocking_seconds:g} s and {mean / 3600:.1f} h between interruptions"
    )
    if interval < persist_seconds:
        interval, because = persist_seconds, f"one save takes {persist_seconds:g} s to persist, so none can be closer"
    interval = max(interval, step_seconds)
    at_risk = step_seconds if guarded else interval / 2 + persist_seconds
    return IntervalAdvice(interval, at_risk, because)


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


def _check(save_seconds: float, mtbi_seconds: float) -> None:
    if not (math.isfinite(save_seconds) and save_seconds >= 0):
        raise UsageError(f"the cost of a save must be a number of seconds from 0, not {save_seconds!r}")
    if not (math.isfinite(mtbi_seconds) and mtbi_seconds > 0):
        raise UsageError(f"the mean time between interruptions must be above 0 s, not {mtbi_seconds!r}")
