"""Threads for calls that may never come back.

The executors of the standard library wait for their threads when the interpreter ends; a bucket or a database that does
not answer would then keep a dashboard alive that was told to end. These threads are daemons, and nobody waits.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class DaemonThreadPool(Executor):
    """At most so many threads, made when they are needed."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._threads = 0
        self._open = 0
        self._closed = False
        self._lock = threading.Lock()

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """As every executor does."""
        future: Future[T] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            self._jobs.put((future, lambda: fn(*args, **kwargs)))
            self._open += 1
            if self._open > self._threads and self._threads < self._most:
                self._threads += 1
                name = f"{self._name}-{self._threads}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """No more jobs; what has not begun is cancelled, and what has is left to itself."""
        del wait
        with self._lock:
            self._closed = True
        while cancel_futures:
            try:
                self._jobs.get_nowait()[0].cancel()
            except queue.Empty:
                return

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if future.set_running_or_notify_cancel():
                try:
                    result = job()
                except BaseException as error:  # noqa: BLE001 - belongs to whoever waits for the future
                    future.set_exception(error)
                else:
                    future.set_result(result)
            del future, job
            with self._lock:
                self._open -= 1
