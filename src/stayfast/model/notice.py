"""What takes an attempt away, and the warning of it."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Cause(enum.StrEnum):
    """Why an attempt ends before its work is done."""

    PREEMPTION = "preemption"  # the Spot VM is reclaimed
    MAINTENANCE = "maintenance"  # host maintenance; GPU machines do not live-migrate
    EVICTION = "eviction"  # the API server or node pressure
    QUEUE_PREEMPTION = "queue-preemption"  # Kueue gave the quota to somebody else
    RUN_LIMIT = "run-limit"  # the lease of the machine is over (flex-start: at most 7 days)
    CANCELLATION = "cancellation"  # a person
    REQUEST = "request"  # the program itself asked to stop
    SUPERSEDED = "superseded"  # a newer attempt of the same run took over
    PEER_LOST = "peer-lost"  # another rank of the gang is gone
    UNKNOWN = "unknown"  # a SIGTERM says that, not why


@dataclass(frozen=True, slots=True)
class Notice:
    """One warning that the machine goes away, from whichever source spoke first.

    ``received_at`` is monotonic seconds of the moment the warning *arrived* (the kernel's stamp for signals), not of
    the moment somebody looked. ``grace_seconds`` is what the source says; the budget may allow less.
    """

    cause: Cause
    """Why."""
    received_at: float
    """When, in monotonic seconds."""
    grace_seconds: float
    """How long from then until the machine may be gone."""
    detail: str = ""
    """Who said so, such as ``SIGTERM``."""
    capped: bool = True
    """Whether the pod's termination grace limits this notice too; a lease end known hours ahead is not."""

    @property
    def deadline(self) -> float:
        """Monotonic seconds at which the machine may be gone."""
        return self.received_at + self.grace_seconds
