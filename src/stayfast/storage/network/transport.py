"""HTTP/1.1 over the standard library: a pool of connections, and exactness about what became of a request.

A commit needs to know one thing that client libraries hide: whether a request that failed *can* have been applied. A
request whose body was not sent to its end cannot; one that was sent whole and whose answer did not come may have been.
Bodies are sent from, and answers read into, the caller's own memory.
"""

from __future__ import annotations

import http.client
import os
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from stayfast.filesystem import Buffer
from stayfast.forks import close_in_children
from stayfast.storage.network.urls import parse_address

CONNECT_SECONDS = 5.0
IDLE_SECONDS = 30.0  # servers and balancers hang up on idle connections; do not find out during a commit
SLICE_BYTES = 1 << 20  # a socket's time limit covers one whole send, so a big body goes in slices


class RequestNotSentError(Exception):
    """The request was not sent to its end: the server cannot have applied it."""


class ResponseLostError(Exception):
    """The request was sent and no whole answer came: it may have been applied."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers and body; the body is empty when it was read into the caller's buffer."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    bytes_read: int = 0
    """Bytes that went into the caller's buffer."""
    fully_read: bool = True
    """Whether the body was read to its end, so that the connection can be used again."""


class ConnectionPool:
    """Idle connections to one place; safe to call from many threads.

    A kept connection is used again only while it is young, while the other side has not hung up, and by the process
    that opened it: a forked child that used its parent's connections would read the parent's responses.
    """

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


class HttpTransport:
    """Requests to one host; safe to call from many threads."""

    def __init__(self, base_url: str, *, silence_seconds: float = 20.0) -> None:
        self._secure, self._host, self._port = parse_address(base_url)
        self._silence_seconds = silence_seconds
        self._connections = ConnectionPool(self._connect)
        self._context: Any = None

    def request(
        self,
        method: str,
        target: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: Buffer | None = None,
        into: memoryview | None = None,
    ) -> Response:
        """Send once, never again; the two errors above say what can have become of it."""
        connection = self._connections.acquire()
        try:
            unsent = self._send(connection, method, target, headers or {}, body)
            try:
                answer = self._receive(connection, into)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if unsent is not None:
                    raise RequestNotSentError(describe_error(unsent)) from error
                raise ResponseLostError(describe_error(error)) from error
        except BaseException:
            connection.close()
            raise
        if unsent is not None or not answer.fully_read or connection.sock is None:
            connection.close()
        else:
            self._connections.release(connection)
        return answer

    def close(self) -> None:
        self._connections.close()

    # -- inside

    @staticmethod
    def _send(
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: Buffer | None,
    ) -> Exception | None:
        """What stopped the body short, if anything did: a server that refuses early may still answer why."""
        view = memoryview(b"" if body is None else body).cast("B")
        sent = 0
        try:
            connection.putrequest(method, target, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name, value)
            if body is not None or method in ("POST", "PUT"):
                connection.putheader("Content-Length", str(len(view)))
            connection.endheaders()
            while sent < len(view):
                connection.send(view[sent : sent + SLICE_BYTES])
                sent += SLICE_BYTES
        except (OSError, http.client.HTTPException) as error:
            if sent + SLICE_BYTES >= len(view):  # the last bytes were on their way: they may have arrived
                raise ResponseLostError(describe_error(error)) from error
            if isinstance(error, TimeoutError):
                raise RequestNotSentError(describe_error(error)) from error
            return error
        return None

    @staticmethod
    def _receive(connection: http.client.HTTPConnection, into: memoryview | None) -> Response:
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        if into is None or response.status not in (200, 206):
            return Response(response.status, headers, response.read())
        view, count = into.cast("B"), 0
        while count < len(view):
            got = response.readinto(view[count:])
            if not got:
                break
            count += got
        expected = headers.get("content-length")
        if expected is not None and count < min(int(expected), len(view)):
            raise http.client.IncompleteRead(b"", int(expected) - count)
        return Response(response.status, headers, b"", count, fully_read=response.isclosed() or not response.read1(1))

    def _connect(self) -> http.client.HTTPConnection:
        if self._secure:
            if self._context is None:
                import ssl

                self._context = ssl.create_default_context()
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                self._host, self._port, timeout=CONNECT_SECONDS, context=self._context
            )
        else:
            connection = http.client.HTTPConnection(self._host, self._port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise RequestNotSentError(f"cannot connect to {self._host}:{self._port} ({error})") from error
        connection.sock.settimeout(self._silence_seconds)
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def describe_error(error: Exception) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
