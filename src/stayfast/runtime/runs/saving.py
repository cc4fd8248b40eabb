"""Saving beside the training loop: one thread that makes durable and commits what the loop hands over.

The loop pays for the hand-over alone. While a save is under way a newer one waits its turn at the loop's side; what has
been committed is what the ledger says, never what was asked for.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from stayfast.clock import Clock
from stayfast.errors import SupersededError
from stayfast.telemetry.durations import Durations

log = logging.getLogger("stayfast")

Job = Callable[[], None]


class CheckpointSaver:
    """At most one save in flight; failures are kept for the loop to decide about."""

    def __init__(self, clock: Clock, durations: Durations) -> None:
        self._clock = clock
        self._durations = durations
        self._wake = threading.Condition()
        self._job: Job | None = None
        self._started_at = 0.0
        self._closed = False
        self._thread: threading.Thread | None = None
        self.superseded: SupersededError | None = None
        self.error: Exception | None = None
        self.failures = 0
        self.total_seconds = 0.0

    @property
    def busy(self) -> bool:
        """Whether a save is in flight."""
        return self._job is not None

    def in_flight_seconds(self) -> float | None:
        """What the save in flight still needs, by what saves have cost so far; None when there is none."""
        with self._wake:
            if self._job is None:
                return None
            estimate = self._durations.p95("persist")
            return max(0.0, (estimate or 0.0) - (self._clock.monotonic() - self._started_at))

    def submit(self, job: Job) -> None:
        """Start a save; the caller has made sure that none is in flight."""
        with self._wake:
            assert self._job is None, "one save at a time"
            self._job = job
            self._started_at = self._clock.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="stayfast-saver", daemon=True)
                self._thread.start()
            self._wake.notify_all()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for the save in flight; false when time ran out first."""
        with self._wake:
            return self._wake.wait_for(lambda: self._job is None, None if seconds == float("inf") else seconds)

    def close(self, seconds: float = 0.0) -> None:
        """No more saves; the one in flight goes on by itself, and is waited for this long."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()
        if seconds and self._thread is not None:
            self._thread.join(seconds)

    def _work(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._job is not None or self._closed)
                if self._job is None:
                    return
                job = self._job
            self._run(job)
            with self._wake:
                self._job = None
                self._wake.notify_all()

    def _run(self, job: Job) -> None:
        started = self._clock.monotonic()
        try:
            job()
            self.error = None
        except SupersededError as error:
            self.superseded = error
        except Exception as error:  # noqa: BLE001 - kept for the loop, which decides whether to go on
            self.error = error
            self.failures += 1
            log.warning(
                "a checkpoint could not be saved (%s); an earlier one, if there is any, is still valid",
                error,
                extra={"action": "checkpoint_failed"},
            )
        else:
            seconds = self._clock.monotonic() - started
            self.total_seconds += seconds
            self._durations.add("persist", seconds)
