"""A bucket server on a real socket: enough of the Cloud Storage JSON API and of S3, with enforced preconditions.

It does what no public emulator does: it loses requests, applies a write and loses the answer, tears answers, lists the
past, and counts what it really did. Faults are armed by name (``Fault``), picked up by the next request they match.
"""

from __future__ import annotations

import base64
import collections
import hashlib
import json
import re
import socket
import struct
import sys
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

FAULTS = (
    "lose_request",  # read, not applied, connection closed
    "reset",  # not applied, RST
    "apply_drop",  # applied, connection closed without an answer
    "apply_reset",  # applied, RST
    "apply_503",  # applied, answered with 503
    "stall",  # not applied, silence, then closed
    "apply_stall",  # applied, silence, then closed
    "torn",  # a read whose body stops in the middle
    "stale_list",  # a listing from before the last write
    "409",
    "429",
    "403",
    "401",
    "500",
    "503",
)


@dataclass
class Fault:
    """One fault: its kind, and which request it waits for."""

    kind: str
    op: str = ""
    """get, put, look, list or delete; empty for any."""
    name: str = ""
    """Part of the object's name."""
    times: int = 1
    skip: int = 0
    seconds: float = 0.5
    """How long a stall lasts."""


@dataclass(frozen=True)
class Stored:
    data: bytes | bytearray
    generation: int

    @property
    def md5(self) -> bytes:
        return hashlib.md5(self.data).digest()


class BucketServer(ThreadingHTTPServer):
    """Start with ``with BucketServer() as server``; ``server.url`` is its address."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *, enforce: bool = True, page: int = 1000, weak_etags: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.enforce = enforce
        self.page = page
        self.weak_etags = weak_etags  # S3 ETags that are not the MD5 of the content, as under KMS
        self.buckets: dict[str, dict[str, Stored]] = {"bucket": {}}
        self.places: dict[str, dict[str, object]] = {}
        """What the JSON API tells of a bucket itself: ``location`` and the like."""
        self.before: dict[str, dict[str, Stored]] = {"bucket": {}}
        self.heads: list[tuple[str, bytes]] = []
        self.faults: list[Fault] = []
        self.injected: collections.Counter[str] = collections.Counter()
        self.requests: collections.Counter[str] = collections.Counter()
        self.tokens: set[str] | None = None
        self.counter = int(time.time() * 1e6)
        self.lock = threading.Lock()
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> BucketServer:
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.shutdown()
        self.server_close()
        assert self.thread is not None
        self.thread.join(5)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up as they like; a bug in the server itself must show."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)

    def arm(self, kind: str, **how: Any) -> Fault:
        """Let the next request that fits meet this fault."""
        assert kind in FAULTS, kind
        fault = Fault(kind, **how)
        with self.lock:
            self.faults.append(fault)
        return fault

    def calm(self) -> None:
        """No more faults."""
        with self.lock:
            self.faults.clear()

    def pick(self, op: str, name: str) -> Fault | None:
        with self.lock:
            self.requests[op] += 1
            for fault in self.faults:
                if fault.op not in ("", op) or fault.name not in name or not _fits(fault.kind, op):
                    continue
                if fault.skip:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if not fault.times:
                    self.faults.remove(fault)
                self.injected[fault.kind] += 1
                return fault
        return None

    def names(self, bucket: str = "bucket") -> list[str]:
        with self.lock:
            return sorted(self.buckets[bucket])

    def wipe(self) -> None:
        """Empty every bucket."""
        with self.lock:
            for objects in (*self.buckets.values(), *self.before.values()):
                objects.clear()

    # -- the bucket itself

    def write(self, bucket: str, name: str, data: bytes | bytearray, wants: Any) -> tuple[int, Stored | None]:
        """HTTP status and what is stored now; ``wants(current)`` is the precondition."""
        with self.lock:
            objects = self.buckets.get(bucket)
            if objects is None:
                return 404, None
            if self.enforce and not wants(objects.get(name)):
                return 412, None
            self.before[bucket] = dict(objects) if len(objects) < 2000 else {}
            self.counter += 1
            objects[name] = Stored(data, self.counter)
            if name.endswith("HEAD.json"):
                self.heads.append((name, bytes(data)))
            return 200, objects[name]

    def heads_of(self, prefix: str) -> list[bytes]:
        """Everything that a run's HEAD ever was, oldest first."""
        with self.lock:
            return [data for name, data in self.heads if name.startswith(prefix)]

    def remove(self, bucket: str, name: str) -> bool:
        with self.lock:
            objects = self.buckets.get(bucket, {})
            self.before[bucket] = dict(objects)
            return objects.pop(name, None) is not None

    def listing(self, bucket: str, prefix: str, after: str, stale: bool) -> list[tuple[str, Stored]] | None:
        with self.lock:
            if bucket not in self.buckets:
                return None
            objects = self.before[bucket] if stale else self.buckets[bucket]
            return sorted((name, row) for name, row in objects.items() if name.startswith(prefix) and name > after)


def _fits(kind: str, op: str) -> bool:
    if kind == "torn":
        return op == "get"
    if kind == "stale_list":
        return op == "list"
    if kind.startswith("apply"):
        return op in ("put", "delete")
    return True


class _Dropped(Exception):
    """The connection is gone on purpose."""


class _Answered(Exception):
    """The fault was the answer; the connection stays."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = 1 << 16
    server: BucketServer

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self._serve()

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        self.query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        body = bytearray(int(self.headers.get("Content-Length") or 0))
        view, count = memoryview(body), 0
        while count < len(body):
            got = self.rfile.readinto(view[count:])
            if not got:
                self.close_connection = True
                return  # the client died in the middle: not a request
            count += got
        try:
            if parts.path == "/-/wipe":  # for benchmarks: start over
                self.server.wipe()
                self._answer(200, b"")
                return
            about = re.fullmatch(r"/storage/v1/b/([^/]+)", parts.path)
            if about:
                row = self.server.places.get(unquote(about[1]))
                self._answer(200 if row else 404, json.dumps(row or {"error": {"message": "no such bucket"}}).encode())
                return
            found = re.match(r"(/upload)?/storage/v1/b/([^/]+)/o(?:/(.+))?\Z", parts.path)
            if found:
                self.json_style = True
                self._google(bool(found[1]), unquote(found[2]), unquote(found[3] or ""), body)
            else:
                self.json_style = False
                bucket, _, name = unquote(parts.path).lstrip("/").partition("/")
                self._amazon(bucket, name, body)
        except _Answered:
            pass
        except _Dropped:
            self.close_connection = True

    # -- the two dialects

    def _google(self, upload: bool, bucket: str, name: str, body: bytearray) -> None:
        name = name or self.query.get("name", "")
        media = self.query.get("alt") == "media"
        if upload:
            op = "put"
        elif self.command == "DELETE":
            op = "delete"
        else:
            op = "get" if media else "look" if name else "list"
        fault = self._begin(op, name)
        if self.server.tokens is not None:
            token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
            if token not in self.server.tokens:
                self._refuse(401, "authError")
                return
        if op == "put":
            match = self.query.get("ifGenerationMatch")

            def wants(now: Stored | None) -> bool:
                return match is None or int(match) == (now.generation if now else 0)

            status, stored = self.server.write(bucket, name, body, wants)
            self._applied(fault)
            if stored is None:
                self._refuse(status, "conditionNotMet" if status == 412 else "bucket does not exist")
            else:
                self._json({"generation": str(stored.generation)})
        elif op == "list":
            self._google_list(bucket, fault)
        else:
            self._object(op, bucket, name, fault)

    def _google_list(self, bucket: str, fault: Fault | None) -> None:
        stale = fault is not None and fault.kind == "stale_list"
        rows = self.server.listing(bucket, self.query.get("prefix", ""), self.query.get("pageToken", ""), stale)
        if rows is None:
            self._refuse(404, "bucket does not exist")
            return
        page = rows[: self.server.page]
        answer: dict[str, Any] = {"items": [{"name": name, "size": str(len(row.data))} for name, row in page]}
        if len(rows) > len(page):
            answer["nextPageToken"] = page[-1][0]
        self._json(answer)

    def _amazon(self, bucket: str, name: str, body: bytearray) -> None:
        op = {"GET": "get", "HEAD": "look", "PUT": "put", "DELETE": "delete"}.get(self.command, "put")
        if op == "get" and not name:
            op = "list"
        fault = self._begin(op, name)
        if op == "put":
            none_match, match = self.headers.get("If-None-Match"), self.headers.get("If-Match")
            if match and self.server.enforce and name not in self.server.buckets.get(bucket, {name: None}):
                self._refuse(404, "NoSuchKey")
                return

            def wants(now: Stored | None) -> bool:
                fits = match is None or (now is not None and self._etag(now) == match)
                return fits and (none_match is None or now is None)

            status, stored = self.server.write(bucket, name, body, wants)
            self._applied(fault)
            if stored is None:
                self._refuse(status, "PreconditionFailed" if status == 412 else "NoSuchBucket")
            else:
                self._answer(200, b"", {"ETag": self._etag(stored)})
        elif op == "list":
            self._amazon_list(bucket, fault)
        else:
            self._object(op, bucket, name, fault)

    def _amazon_list(self, bucket: str, fault: Fault | None) -> None:
        stale = fault is not None and fault.kind == "stale_list"
        after = self.query.get("continuation-token") or self.query.get("start-after", "")
        rows = self.server.listing(bucket, self.query.get("prefix", ""), after, stale)
        if rows is None:
            self._refuse(404, "NoSuchBucket")
            return
        page = rows[: self.server.page]
        more = len(rows) > len(page)
        text = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{len(row.data)}</Size>"
            f"<LastModified>2026-11-15T20:00:00.000Z</LastModified><ETag>{escape(self._etag(row))}</ETag></Contents>"
            for name, row in page
        )
        token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
        truncated = f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
        body = f"<ListBucketResult>{truncated}{token}{text}</ListBucketResult>"
        self._answer(200, body.encode(), {"Content-Type": "application/xml"})

    def _object(self, op: str, bucket: str, name: str, fault: Fault | None) -> None:
        stored = self.server.buckets.get(bucket, {}).get(name)
        if op == "delete":
            gone = self.server.remove(bucket, name)
            self._applied(fault)
            if self.json_style and not gone:
                self._refuse(404, "notFound")
            else:
                self._answer(204, b"")
        elif bucket not in self.server.buckets:
            self._refuse(404, "bucket does not exist" if self.json_style else "NoSuchBucket")
        elif stored is None:
            self._refuse(404, "notFound" if self.json_style else "NoSuchKey")
        elif op == "look" and self.json_style:
            md5 = base64.b64encode(stored.md5).decode()
            self._json({"generation": str(stored.generation), "size": str(len(stored.data)), "md5Hash": md5})
        else:
            self._content(stored, fault)

    def _content(self, stored: Stored, fault: Fault | None) -> None:
        headers = {"ETag": self._etag(stored), "Last-Modified": "Sun, 15 Nov 2026 20:00:00 GMT"}
        headers["x-goog-generation"] = str(stored.generation)
        data, status = stored.data, 200
        asked = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if asked and self.command == "GET":
            start, end = int(asked[1]), min(len(data), int(asked[2]) + 1 if asked[2] else len(data))
            if start >= len(data):
                self._refuse(416, "InvalidRange")
                return
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
            data, status = data[start:end], 206
        if fault is not None and fault.kind == "torn":
            self._answer(status, data, headers, cut=len(data) // 2)
            self._hang_up()
        self._answer(status, data, headers)

    # -- faults

    def _begin(self, op: str, name: str) -> Fault | None:
        """Faults that keep the request from being applied happen here; the others are returned."""
        fault = self.server.pick(op, name)
        if fault is None:
            return None
        if fault.kind == "lose_request":
            self._hang_up()
        if fault.kind == "reset":
            self._hang_up(reset=True)
        if fault.kind == "stall":
            self.server.stopping.wait(fault.seconds)
            self._hang_up()
        if fault.kind.isdigit():
            status = int(fault.kind)
            words = {409: "ConditionalRequestConflict", 429: "SlowDown", 403: "AccessDenied", 401: "authError"}
            self._refuse(status, words.get(status, "InternalError"))
            raise _Answered
        return fault

    def _applied(self, fault: Fault | None) -> None:
        """Faults after the write took effect."""
        if fault is None or not fault.kind.startswith("apply"):
            return
        if fault.kind == "apply_503":
            self._refuse(503, "ServiceUnavailable")
            raise _Answered
        if fault.kind == "apply_stall":
            self.server.stopping.wait(fault.seconds)
        self._hang_up(reset=fault.kind == "apply_reset")

    def _hang_up(self, *, reset: bool = False) -> None:
        self.wfile.flush()
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self.connection.shutdown(socket.SHUT_RDWR)
        raise _Dropped

    # -- answers

    def _etag(self, stored: Stored) -> str:
        return f'"{stored.generation:x}-kms"' if self.server.weak_etags else f'"{stored.md5.hex()}"'

    def _json(self, body: dict[str, Any]) -> None:
        self._answer(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, word: str) -> None:
        if self.json_style:
            message = "The specified bucket does not exist." if "bucket" in word else word
            error = {"code": status, "message": message, "errors": [{"reason": word, "message": message}]}
            self._answer(status, json.dumps({"error": error}).encode())
        else:
            self._answer(status, f"<Error><Code>{word}</Code></Error>".encode())

    def _answer(
        self, status: int, body: bytes | bytearray, headers: dict[str, str] | None = None, cut: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        self.wfile.flush()


def main() -> None:
    """As a process of its own: prints its port, serves until stdin closes."""
    with BucketServer(weak_etags="--weak-etags" in sys.argv) as server:
        print(server.server_address[1], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
