"""A local server that speaks the metadata protocol: long polls, etags, and every way of going wrong."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit


class MetadataServer:
    """Values by path; a change wakes the polls that wait for it. ``faults`` are served first, one per request."""

    def __init__(self) -> None:
        self.values = {"instance/preempted": "FALSE", "instance/maintenance-event": "NONE"}
        self.versions = dict.fromkeys(self.values, 1)
        self.faults: dict[str, list[str]] = {path: [] for path in self.values}
        self.requests: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.changed = threading.Condition()
        self.closing = False

        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    def __enter__(self) -> MetadataServer:
        return self

    def __exit__(self, *_: object) -> None:
        with self.changed:
            self.closing = True
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()

    def set(self, path: str, value: str) -> None:
        with self.changed:
            self.values[path] = value
            self.versions[path] += 1
            self.changed.notify_all()

    def asked(self, path: str) -> list[dict[str, list[str]]]:
        return [query for asked, query, _ in list(self.requests) if asked == path]

    def wait_for_requests(self, path: str, count: int, seconds: float = 10.0) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.asked(path)) >= count, seconds), self.requests

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        path = parts.path.removeprefix("/computeMetadata/v1/")
        query = parse_qs(parts.query)
        with self.changed:
            self.requests.append((path, query, request.headers.get("Metadata-Flavor")))
            self.changed.notify_all()
            fault = self.faults[path].pop(0) if self.faults.get(path) else None
        if fault is not None:
            self._misbehave(request, fault)
            return
        with self.changed:
            last = query.get("last_etag", ["0"])[0]
            self.changed.wait_for(lambda: self.closing or str(self.versions[path]) != last)
            value, etag = self.values[path], str(self.versions[path])
        self._send(request, 200, value.encode(), {"Metadata-Flavor": "Google", "ETag": etag})

    def _misbehave(self, request: BaseHTTPRequestHandler, fault: str) -> None:
        google = {"Metadata-Flavor": "Google", "ETag": "x"}
        if fault == "503":
            self._send(request, 503, b"try later", google)
        elif fault == "404":
            self._send(request, 404, b"TRUE", google)
        elif fault == "no-flavor":
            self._send(request, 200, b"TRUE", {"ETag": "x"})
        elif fault == "huge":
            self._send(request, 200, b"TRUE" * 5_000_000, google)
        elif fault == "garbage-body":
            self._send(request, 200, b"\xff\xfe\x00TRUE", google)
        elif fault == "garbage":
            request.wfile.write(b"\x16\x03\x01 this is no HTTP at all\r\n\r\n")
        elif fault == "long-header":
            request.wfile.write(b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000 + b"\r\n\r\n")
        elif fault == "short":
            request.wfile.write(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 100\r\n\r\nTR")
        elif fault == "reset":
            request.connection.close()
        elif fault == "hang":
            with self.changed:
                self.changed.wait_for(lambda: self.closing)
        else:
            raise AssertionError(fault)
        request.close_connection = True

    def _send(self, request: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
        try:
            request.send_response(status)
            for name, value in headers.items():
                request.send_header(name, value)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            request.wfile.write(body)
        except OSError:
            pass  # the client has heard enough
