"""What the queue says when the last worker has ended: it decides whether the work is finished."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from stayfast.batch.queue.protocol import Depth, Queue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.errors import QueueUnavailableError, SinkUnavailableError, StayfastError
from stayfast.runtime.interruption.guard import Guard

log = logging.getLogger("stayfast")

_PATIENCE_SECONDS = 60.0  # a database that is restarting
_PAUSE_SECONDS = 1.0
_NOTICED_SECONDS = 2.0  # after a notice
_LAST_SECONDS = 0.4
_TICK_SECONDS = 0.1


class LastLook:
    """Asks on a thread, because a slow database must not outlast the grace window."""

    def __init__(self, queue: Callable[[], Queue], sink: str, guard: Guard) -> None:
        self._queue, self._sink, self._guard = queue, sink, guard
        self._thread: threading.Thread | None = None
        self.depth: Depth | None = None
        """What the queue holds; None when it could not be asked."""
        self.error: str | None = None
        """Why the work must not count as finished: the queue or the sink is not there any more."""
        self.url = ""

    def ask(self, *, settled: bool, patient: bool) -> None:
        """Fill ``depth`` or ``error``. ``settled``: items were done before, so the queue cannot be empty.

        ``patient``: wait for a database that is not available, until a notice comes.
        """
        started = self._guard.clock.monotonic()
        self.depth = None
        self._thread = threading.Thread(
            target=self._look, args=(started, settled, patient), name="stayfast-last-look", daemon=True
        )
        self._thread.start()
        while self.is_asking and not self._is_over(started):
            self._thread.join(_TICK_SECONDS)

    @property
    def is_asking(self) -> bool:
        """Whether the answer is still awaited."""
        return self._thread is not None and self._thread.is_alive()

    def _is_over(self, started: float) -> bool:
        notice = self._guard.notice
        if notice is None:
            return False
        waited = self._guard.clock.monotonic() - max(started, notice.received_at)
        return waited > _NOTICED_SECONDS or self._guard.budget.remaining_seconds < _LAST_SECONDS

    def _look(self, started: float, settled: bool, patient: bool) -> None:
        while True:
            try:
                self.depth = self._count(settled)
                return
            except (QueueUnavailableError, SinkUnavailableError) as error:
                over = self._guard.clock.monotonic() - started > _PATIENCE_SECONDS
                if over or not patient or self._guard.wait(_PAUSE_SECONDS):
                    log.warning("what is left is not known: %s", error, extra={"action": "queue_unavailable"})
                    return
            except StayfastError as error:
                self.error = str(error)
                return

    def _count(self, settled: bool) -> Depth:
        """Opens the sink too: results that were recorded must still be somewhere."""
        queue, sink = self._queue(), open_sink(self._sink, create=False)
        self.url = queue.url
        try:
            depth = queue.depth()
        finally:
            sink.close()
        if settled and depth.enqueued == 0:
            raise StayfastError(
                f"{queue.url} is empty, and items of it were done before: it was replaced",
                help="restore it, or enqueue again, and check with `stayfast audit`",
            )
        return depth
