"""Connections that are kept for the next request: one pool for buckets and for API servers.

A kept connection is used again only while it is young, while the other side has not hung up, and by the process that
opened it: a forked child that talked on its parent's connections would read the parent's answers.
"""

from __future__ import annotations

import http.client
import os
import select
import threading
import time
from collections.abc import Callable

from stayfast.forks import close_in_children

IDLE_SECONDS = 30.0  # servers and balancers hang up on idle connections; do not find out during a commit


class ConnectionPool:
    """Idle connections to one place; safe to call from many threads."""

    def __init__(self, connect: Callable[[], http.client.HTTPConnection]) -> None:
        self._connect = connect
        self._idle: list[tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def __len__(self) -> int:
        return len(self._idle)

    def acquire(self) -> http.client.HTTPConnection:
        """One that is kept, else a new one."""
        while True:
            with self._lock:
                if self._pid != os.getpid():
                    self._pid, self._idle = os.getpid(), []
                if not self._idle:
                    break
                since, connection = self._idle.pop()
            if time.monotonic() - since < IDLE_SECONDS and not is_closed_by_peer(connection):
                return connection
            connection.close()
        connection = self._connect()
        close_in_children(connection)
        return connection

    def release(self, connection: http.client.HTTPConnection) -> None:
        """Its answer was read to the end: keep it."""
        with self._lock:
            self._idle.append((time.monotonic(), connection))

    def close(self) -> None:
        """Hang up on all that are idle; the pool can be used on."""
        with self._lock:
            idle, self._idle = self._idle, []
            ours = self._pid == os.getpid()
        for _, connection in idle if ours else ():
            connection.close()


def is_closed_by_peer(connection: http.client.HTTPConnection) -> bool:
    """Nothing is due on an idle connection: readable means that the other side closed it."""
    if connection.sock is None:
        return True
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN | select.POLLHUP | select.POLLERR)
    return bool(poll.poll(0))
