"""The smallest HTTP server that Prometheus can scrape: one thread, one connection at a time, a few pages.

It must never harm the work beside it: a client that hangs or sends rubbish, a reading that fails are a line in the log
at most. No client has it for longer than two seconds.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping

from stayfast.forks import close_in_children
from stayfast.settings import Settings
from stayfast.telemetry.prometheus import CONTENT_TYPE, PrometheusText

log = logging.getLogger("stayfast")

_CLIENT_SECONDS = 2.0
_MOST_BYTES = 8192

Pages = Mapping[str, Callable[[], bytes]]
"""By path, the body as it is when it is asked for."""


class MetricsServer:
    """Serves its pages until it is closed; a port that cannot be had is an ``OSError``."""

    def __init__(self, address: str, port: int, pages: Pages) -> None:
        self._pages = pages
        self._over = threading.Event()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        close_in_children(self._listener)
        try:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._listener.bind((address, port))
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise
        threading.Thread(target=self._serve, name="stayfast-metrics", daemon=True).start()

    @property
    def port(self) -> int:
        """The port that it got."""
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Stop serving."""
        self._over.set()
        try:
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
        except OSError:
            pass
        self._listener.close()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if self._over.wait(0.5):  # out of descriptors, say: the work goes on, and so do we
                    return
                continue
            close_in_children(connection)
            with connection:
                try:
                    request = _request_line(connection)
                    connection.settimeout(_CLIENT_SECONDS)
                    connection.sendall(self._answer(request))
                except OSError:
                    continue

    def _answer(self, request: str) -> bytes:
        method, _, rest = request.partition(" ")
        page = self._pages.get(rest.partition(" ")[0].partition("?")[0])
        if method != "GET":
            return _response("405 Method Not Allowed", b"only GET\n")
        if page is None:
            return _response("404 Not Found", f"see {' '.join(self._pages)}\n".encode())
        try:
            return _response("200 OK", page(), CONTENT_TYPE)
        except Exception as error:  # a reading that fails must end neither the thread nor the work
            log.debug("a scrape failed: %s", error, exc_info=True)
            return _response("500 Internal Server Error", b"the reading failed\n")


def start_metrics_server(settings: Settings, read: Callable[[], PrometheusText]) -> Callable[[], None]:
    """Serve ``/metrics`` until the returned function is called; a port that cannot be had is logged, not raised."""
    try:
        return MetricsServer(
            settings.metrics_address, settings.metrics_port, {"/metrics": lambda: read().render()}
        ).close
    except OSError as error:
        log.warning(
            "no metrics: cannot listen on %s port %d (%s)",
            settings.metrics_address,
            settings.metrics_port,
            error.strerror or error,
            extra={"action": "metrics_failed"},
        )
        return lambda: None


def _request_line(connection: socket.socket) -> str:
    data, until = b"", time.monotonic() + _CLIENT_SECONDS
    while b"\r\n\r\n" not in data and b"\n\n" not in data and len(data) < _MOST_BYTES:
        connection.settimeout(max(0.001, until - time.monotonic()))  # for all of it: a client may send byte by byte
        more = connection.recv(_MOST_BYTES)
        if not more:
            break
        data += more
    return data.partition(b"\n")[0].decode("latin-1").strip()


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
