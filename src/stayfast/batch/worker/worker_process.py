"""One worker process of ``stayfast work``: ``python -m stayfast.batch.worker.worker_process OPTIONS``.

It talks to the pool over two pipes and a piece of shared memory. Through one pipe it reports, line by line, what it
holds. The other carries nothing: it ends when the pool ends, and a worker without a pool has no heartbeat for its
leases. The memory holds the counts of what it has done.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from stayfast.backoff import Backoff
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import RetryPolicy
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.item_counts import SharedTally
from stayfast.batch.worker.task import load_task
from stayfast.batch.worker.worker import Worker, WorkerOptions
from stayfast.errors import (
    Interrupted,
    QueueGoneError,
    QueueUnavailableError,
    SinkGoneError,
    SinkUnavailableError,
    StayfastError,
)
from stayfast.forks import add_descriptor
from stayfast.model.exit_codes import FAILED, FINISHED
from stayfast.model.notice import Cause
from stayfast.runtime.interruption.guard import Guard

_PATIENCE_SECONDS = 60.0
Opened = TypeVar("Opened")


class PoolPipe:
    """The pipe to the pool; a pool that is gone is not an error here, the other pipe tells."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()

    def send(self, **values: Any) -> None:
        """One JSON object."""
        data = (json.dumps(values, separators=(",", ":")) + "\n").encode()
        with self._lock:
            try:
                while data:
                    data = data[os.write(self._fd, data) :]
            except OSError:
                pass


def main() -> int:
    """Run until drained or interrupted; the code is the exit contract's."""
    options = json.loads(sys.argv[1])
    sys.argv = ["stayfast-worker"]
    logging.basicConfig(format="stayfast: %(message)s", level=logging.WARNING)
    line = PoolPipe(add_descriptor(options["tell_fd"]))
    try:
        with Guard() as guard:
            _watch_pool(add_descriptor(options["life_fd"]), guard)
            guard.board.on_notice(lambda: line.send(warned=True))
            end = _spans(options["task"], guard)
            try:
                return _work(options, line, guard)
            finally:
                end()
    except Interrupted as interruption:
        return interruption.code if isinstance(interruption.code, int) else FAILED
    except StayfastError as error:
        line.send(fatal=str(error), gone=isinstance(error, (QueueGoneError, SinkGoneError)))
        return FAILED


def _work(options: dict[str, Any], line: PoolPipe, guard: Guard) -> int:
    task = load_task(options["task"])
    create, policy = options["create"], RetryPolicy(*options["policy"])
    queue = _open_with_retries(
        lambda: open_queue(options["queue"], sink=options["sink"], policy=policy, create=create), guard
    )
    try:
        sink = _open_with_retries(lambda: open_sink(options["sink"], create=create), guard)
        worker = Worker(
            task,
            queue,
            sink,
            guard,
            WorkerOptions(**options["worker"]),
            on_leases=lambda handles: line.send(handles=handles),
            on_settled=SharedTally(options["tally_fd"]).write,
        )
        line.send(started=True)
        try:
            worker.run()
        finally:
            sink.close()
    finally:
        queue.close()
        line.send(handles=[])
    line.send(finished=worker.drained)
    return FINISHED


def _spans(task: str, guard: Guard) -> Callable[[], None]:
    """Spans of this worker, until the returned function is called."""
    if guard.settings.spans == "off":
        return lambda: None
    from stayfast.telemetry import spans

    provider = spans.find_provider()
    if provider is None:
        return lambda: None
    recorder = spans.SpanRecorder(
        provider, guard.clock, spans.WORKER, {"task": task, "machine": guard.settings.machine}
    )
    guard.durations.listen(recorder.on_measurement)

    def end() -> None:
        guard.durations.listen(None)
        cause = {} if guard.notice is None else {"cause": str(guard.notice.cause)}
        recorder.end(cause, failed=False, seconds=guard.budget.remaining_seconds / 2)

    return end


def _open_with_retries(opening: Callable[[], Opened], guard: Guard) -> Opened:
    """A database that is just restarting must not cost an attempt: a minute is given before that is a failure."""
    pauses, until = Backoff(0.1, 2.0).pauses(), guard.clock.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return opening()
        except (QueueUnavailableError, SinkUnavailableError):
            if guard.clock.monotonic() > until or guard.should_stop():
                raise
        guard.wait(next(pauses))


def _watch_pool(fd: int, guard: Guard) -> None:
    def watch() -> None:
        try:
            while os.read(fd, 1):
                pass
        except OSError:
            pass
        guard.interrupt("the pool of workers is gone", cause=Cause.REQUEST)

    threading.Thread(target=watch, name="stayfast-pool-watch", daemon=True).start()


if __name__ == "__main__":
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the task may have closed or replaced them
            stream.flush()
    if threading.active_count() > 1:
        # Threads that a task's libraries left behind must not keep a finished worker from leaving with its code.
        time.sleep(0)
        os._exit(code)
    sys.exit(code)
