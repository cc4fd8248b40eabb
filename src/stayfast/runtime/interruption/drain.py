"""The drain: what is done between the notice and the door, in order, each step only if it still fits."""

from __future__ import annotations

import enum
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


class SaveKind(enum.StrEnum):
    """How much of the work is carried over, best first."""

    FULL = "full save"
    SNAPSHOT = "last snapshot"
    COMMITTED = "last committed checkpoint"


@dataclass(frozen=True, slots=True)
class SaveChoice:
    """What the budget allows, in numbers."""

    saving: SaveKind
    needed_seconds: float
    had_seconds: float

    def __str__(self) -> str:
        return f"needed {self.needed_seconds:.1f} s, had {self.had_seconds:.1f} s: {self.saving}"


def choose_save(budget: GraceBudget, *, full_seconds: float | None, in_flight_seconds: float | None) -> SaveChoice:
    """The best that still fits.

    ``full_seconds`` is what a new save would take on top of the one in flight, None when none has been measured yet:
    then it is worth trying, the watchdog leaves in time either way. ``in_flight_seconds`` is what a snapshot that is
    already in host memory still needs, None when there is none.
    """
    had = budget.remaining_seconds
    flight = in_flight_seconds or 0.0
    full = (full_seconds or 0.0) + flight
    if budget.fits(full):
        return SaveChoice(SaveKind.FULL, full, had)
    if in_flight_seconds is not None and budget.fits(flight):
        return SaveChoice(SaveKind.SNAPSHOT, full, had)
    return SaveChoice(SaveKind.COMMITTED, full, had)
