"""The smallest HTTP server that Prometheus can scrape: one thread, one connection at a time, one path.

It must never harm the work beside it: a port that is taken, a client that hangs or sends rubbish, a reading that fails
are a line in the log at most.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from stayfast.forks import close_in_children
from stayfast.settings import Settings
from stayfast.telemetry.metric_table import CONTENT_TYPE, PrometheusText

log = logging.getLogger("stayfast")

_CLIENT_SECONDS = 2.0
_MOST_BYTES = 8192


def start_metrics_server(settings: Settings, read: Callable[[], PrometheusText]) -> Callable[[], None]:
    """Serve ``/metrics`` until the returned function is called; a port that cannot be had is told, not raised."""
    try:
        family = socket.AF_INET6 if ":" in settings.metrics_address else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        close_in_children(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((settings.metrics_address, settings.metrics_port))
        listener.listen(16)
    except OSError as error:
        log.warning(
            "no metrics: cannot listen on %s port %d (%s)",
            settings.metrics_address,
            settings.metrics_port,
            error.strerror or error,
            extra={"action": "metrics_failed"},
        )
        return lambda: None
    over = threading.Event()
    threading.Thread(target=_serve, args=(listener, read, over), name="stayfast-metrics", daemon=True).start()

    def end() -> None:
        over.set()
        try:
            listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in accept()
        except OSError:
            pass
        listener.close()

    return end


def _serve(listener: socket.socket, read: Callable[[], PrometheusText], over: threading.Event) -> None:
    while not over.is_set():
        try:
            connection, _ = listener.accept()
        except OSError:
            if over.wait(0.5):  # out of descriptors, say: the work goes on, and so do we
                return
            continue
        close_in_children(connection)
        with connection:
            try:
                connection.settimeout(_CLIENT_SECONDS)
                connection.sendall(_answer(_request_line(connection), read))
            except OSError:
                continue


def _request_line(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data and b"\n\n" not in data and len(data) < _MOST_BYTES:
        more = connection.recv(_MOST_BYTES)
        if not more:
            break
        data += more
    return data.partition(b"\n")[0].decode("latin-1").strip()


def _answer(request: str, read: Callable[[], PrometheusText]) -> bytes:
    method, _, rest = request.partition(" ")
    path = rest.partition(" ")[0].partition("?")[0]
    if method != "GET":
        return _response("405 Method Not Allowed", b"only GET\n")
    if path != "/metrics":
        return _response("404 Not Found", b"see /metrics\n")
    try:
        return _response("200 OK", read().render(), CONTENT_TYPE)
    except Exception as error:  # a reading that fails must end neither the thread nor the work
        log.debug("a scrape failed: %s", error, exc_info=True)
        return _response("500 Internal Server Error", b"the reading failed\n")


def _response(status: str, body: bytes, kind: str = "text/plain; charset=utf-8") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
