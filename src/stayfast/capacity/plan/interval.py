"""How long to work between checkpoints.

Symbols of the literature, in seconds: δ the blocking cost of one save, M the mean time between interruptions. The
interval is the exact minimum of the expected time for an exponential M, in Lambert's W; the tests hold it against the
rules of Young (1974) and Daly (2006).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from stayfast.errors import UsageError


def exact(save_seconds: float, mtbi_seconds: float) -> float:
    """M(1 + W₀(-e^-(1+δ/M))): the exact minimum of the expected time."""
    check_figures(save_seconds, mtbi_seconds)
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


def check_figures(save_seconds: float, mtbi_seconds: float) -> None:
    """Refuse what no formula can use."""
    if not (math.isfinite(save_seconds) and save_seconds >= 0):
        raise UsageError(f"the cost of a save must be a number of seconds from 0, not {save_seconds!r}")
    if not (math.isfinite(mtbi_seconds) and mtbi_seconds > 0):
        raise UsageError(f"the mean time between interruptions must be above 0 s, not {mtbi_seconds!r}")
