"""The drain: what is done between the notice and the door, in order, each step only if it still fits."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from stayfast.clock import Clock
from stayfast.runtime.interruption.notice_board import GraceBudget

log = logging.getLogger("stayfast")


@dataclass(frozen=True, slots=True)
class DrainStep:
    """One thing to do before leaving."""

    name: str
    action: Callable[[], object]
    estimate_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DrainResult:
    """What became of a step: ``done``, ``skipped`` because it would not fit, or ``failed``."""

    name: str
    outcome: str
    seconds: float
    detail: str = ""


def run_drain(steps: list[DrainStep], budget: GraceBudget, clock: Clock) -> list[DrainResult]:
    """Run the steps in order; one that fails or does not fit never keeps the next from running."""
    results = []
    for step in steps:
        if not budget.fits(step.estimate_seconds):
            detail = f"needed {step.estimate_seconds:.1f} s, had {budget.remaining_seconds:.1f} s"
            log.warning("drain: skipped %s: %s", step.name, detail, extra={"action": "drain_skipped"})
            results.append(DrainResult(step.name, "skipped", 0.0, detail))
            continue
        started = clock.monotonic()
        try:
            step.action()
        except Exception as error:
            seconds = clock.monotonic() - started
            log.exception("drain: %s failed", step.name, extra={"action": "drain_failed"})
            results.append(DrainResult(step.name, "failed", seconds, f"{type(error).__name__}: {error}"[:200]))
        else:
            results.append(DrainResult(step.name, "done", clock.monotonic() - started))
    return results
