"""A pretended API server on a real socket, with faults on demand: see ``api_objects`` for what it remembers.

It is checked against the real ``kubectl`` (``tests/cluster/test_fake_is_true.py``), so that our client is not tested
against our own idea of the protocol alone.
"""

from __future__ import annotations

import copy
import gzip
import json
import re
import socket
import ssl
import struct
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from servers.api_admission import NO_STATUS
from servers.api_objects import BUILT_IN, CUSTOM, Object, Objects, Refusal
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes import resources as known
from stayfast.cluster.kubernetes.resources import Resource

VERBS = ["create", "delete", "get", "list", "patch", "update", "watch"]


@dataclass
class Fault:
    """One fault: its kind, and which request it waits for."""

    kind: str
    """drop, reset, apply_drop, stall, torn, garbage, html, a status code; half_event and error_event of a watch."""
    verb: str = ""
    path: str = ""
    times: int = 1
    seconds: float = 0.3
    retry_after: str = ""


class ApiServer(ThreadingHTTPServer):
    """Start with ``with ApiServer() as server``; ``server.url`` is its address."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, *, crds: bool = True, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.resources = BUILT_IN + (CUSTOM if crds else [])
        self.objects = Objects(self.resources)
        self.git_version = "v1.36.4"
        self.tokens: set[str] | None = None
        self.allowed: set[tuple[str, str]] | None = None
        """(verb, resource) pairs such as ("list", "pods") or ("create", "pods/eviction"); None allows all."""
        self.used: set[tuple[str, str]] = set()
        self.seen: list[tuple[str, str, dict[str, str]]] = []
        """Method, path and query of every request."""
        self.headers_seen: list[dict[str, str]] = []
        self.faults: list[Fault] = []
        self.deletions: list[tuple[str, Object]] = []
        """Names, and the options that they were deleted with."""
        self.logs: dict[tuple[str, str], str] = {}
        self.kept_lists: dict[tuple[str, bool], tuple[bytes, dict[str, str]]] | None = None
        """Lists kept as bytes, for benchmarks: the time of a Python server is not what they measure."""
        self.bookmark_seconds = 1.0
        self.ahead_seconds = 0.0
        """Of its clock, against everybody else's."""
        self.watches: set[socket.socket] = set()
        self.lock = threading.Lock()
        self.tls = tls
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self.objects.create(known.NAMESPACES, "", {"metadata": {"name": "default"}})

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> ApiServer:
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.drop_watches()
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Clients that hang up are part of the tests."""

    def add(self, resource: Resource, value: Object, namespace: str = "default") -> Object:
        """Put an object in as it is, with its status."""
        with self.objects.changed:
            if resource.namespaced and ("", namespace) not in self.objects.table(known.NAMESPACES):
                self.objects.create(known.NAMESPACES, "", {"metadata": {"name": namespace}})
            value = copy.deepcopy(value)
            metadata = value.setdefault("metadata", {})
            if resource.namespaced:
                metadata["namespace"] = namespace
            metadata.setdefault("uid", f"uid-{self.objects.version}")
            metadata.setdefault("creationTimestamp", "2026-11-15T12:00:00Z")
            value |= {"apiVersion": resource.api_version, "kind": resource.kind}
            return self.objects.put(resource, value, "ADDED")

    def drop_watches(self) -> None:
        """Cut every open watch, as a balancer does."""
        with self.lock:
            open_now = list(self.watches)
        for sock in open_now:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def take_fault(self, verb: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times > 0 and fault.verb in ("", verb) and fault.path in path:
                    fault.times -= 1
                    return fault
        return None


class _Target:
    """What a path means."""

    def __init__(self, server: ApiServer, path: str) -> None:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        core = parts[0] == "api"
        group, version = ("", parts[1]) if core else (parts[1], parts[2])
        rest = parts[2:] if core else parts[3:]
        self.namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
            self.namespace, rest = rest[1], rest[2:]
        self.name = rest[1] if len(rest) > 1 else ""
        self.subresource = rest[2] if len(rest) > 2 else ""
        found = [
            item for item in server.resources if (item.group, item.version, item.plural) == (group, version, rest[0])
        ]
        if not found:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        self.resource: Resource = found[0]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: ApiServer

    def setup(self) -> None:
        if isinstance(self.request, ssl.SSLSocket):
            self.request.settimeout(20)
            self.request.do_handshake()
        super().setup()

    def log_message(self, *_: Any) -> None:
        pass

    def date_time_string(self, timestamp: float | None = None) -> str:
        return super().date_time_string(SystemClock().wall() + self.server.ahead_seconds)

    def do_GET(self) -> None:
        self._answer()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _answer(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length) if length else b""
        with self.server.lock:
            self.server.seen.append((self.command, url.path, query))
            self.server.headers_seen.append({key.lower(): value for key, value in self.headers.items()})
        try:
            verb = self._verb(url.path, query)
            fault = self.server.take_fault(verb, url.path)
            if fault and self._spoil(fault):
                return
            self._authenticate()
            if url.path in ("/api", "/apis", "/version") or url.path.startswith(("/openapi", "/healthz", "/readyz")):
                self._send(200, self._about(url.path), torn=bool(fault and fault.kind == "torn"))
                return
            if re.fullmatch(r"/api/v1|/apis/[^/]+/[^/]+", url.path):
                self._send(200, self._discover(url.path), torn=bool(fault and fault.kind == "torn"))
                return
            target = _Target(self.server, url.path)
            self._authorize(verb, target)
            if verb == "watch":
                if fault and fault.kind == "half_event":
                    self._half_event()
                    return
                self._watch(target, query, broken=bool(fault and fault.kind == "error_event"))
            elif verb == "list" and self.server.kept_lists is not None:
                self._send_kept(target, query)
            elif target.subresource == "log":
                text = self.server.logs.get((target.namespace, target.name), "")
                self._send_bytes(200, text.encode(), "text/plain", {"Connection": "close"})  # as the kubelet does
            else:
                code, found = self._act(verb, target, query, body)
                if fault and fault.kind == "apply_drop":
                    self._cut(reset=False)
                    return
                self._send(code, found, torn=bool(fault and fault.kind == "torn"))
        except Refusal as refusal:
            self._send(refusal.code, refusal.status)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _verb(self, path: str, query: dict[str, str]) -> str:
        if self.command != "GET":
            return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[self.command]
        if query.get("watch") in ("true", "1"):
            return "watch"
        try:
            target = _Target(self.server, path)
        except (Refusal, IndexError):
            return "get"
        return "get" if target.name else "list"

    # -- faults

    def _spoil(self, fault: Fault) -> bool:
        if fault.kind in ("drop", "reset"):
            self._cut(reset=fault.kind == "reset")
        elif fault.kind == "stall":
            time.sleep(fault.seconds)
            self._cut(reset=False)
        elif fault.kind in ("garbage", "html"):
            code = 200 if fault.kind == "garbage" else 502
            self._send_bytes(code, b"<html>\x1b[31ma proxy says hello</html>", "text/html")
        elif fault.kind.isdigit():
            code = int(fault.kind)
            refusal = Refusal(code, {401: "Unauthorized", 429: "TooManyRequests"}.get(code, "Unknown"), "on demand")
            self._send(code, refusal.status, {"Retry-After": fault.retry_after} if fault.retry_after else {})
        else:
            return False
        return True

    def _cut(self, *, reset: bool) -> None:
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass

    # -- who may

    def _authenticate(self) -> None:
        if self.server.tokens is None:
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token not in self.server.tokens:
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _authorize(self, verb: str, target: _Target) -> None:
        resource = target.resource.title
        if target.subresource:
            resource = resource.replace(target.resource.plural, f"{target.resource.plural}/{target.subresource}", 1)
        self.server.used.add((verb, resource))
        if self.server.allowed is None or (verb, resource) in self.server.allowed:
            return
        where = f' in the namespace "{target.namespace}"' if target.namespace else " at the cluster scope"
        group = target.resource.group
        raise Refusal(
            403, "Forbidden",
            f'{resource} is forbidden: User "tester" cannot {verb} resource "{target.resource.plural}" in API group '
            f'"{group}"{where}',
            kind=target.resource.plural, **({"group": group} if group else {}),
        )  # fmt: skip

    # -- acting

    def _act(self, verb: str, target: _Target, query: dict[str, str], body: bytes) -> tuple[int, Object]:
        objects, resource = self.server.objects, target.resource
        with objects.changed:
            if verb == "list":
                return 200, self._list(target, query)
            if verb == "get":
                return 200, objects.get(resource, target.namespace, target.name)
            value = self._writable(target, json.loads(body) if body else {})
            if verb == "create" and resource == known.PODS and not target.subresource:
                value = {**objects.admit_pod(target.namespace, value), "status": {"phase": "Pending"}}
            if verb == "create":
                if target.subresource == "eviction":
                    return 201, objects.evict(target.namespace, target.name)
                return 201, objects.create(resource, target.namespace, value, dry_run="dryRun" in query)
            if verb == "delete":
                stands = value.get("preconditions") or {}
                self.server.deletions.append((target.name, value))
                return 200, objects.delete(
                    resource, target.namespace, target.name, stands.get("uid"), version=stands.get("resourceVersion"),
                    grace=value.get("gracePeriodSeconds"),
                )  # fmt: skip
            kind = self.headers.get("Content-Type", "")
            if kind.startswith("application/apply-patch"):
                if not value.get("apiVersion") or not value.get("kind"):
                    raise Refusal(400, "BadRequest", "Object 'Kind' is missing in the patch")
                if (value.get("metadata") or {}).get("name", target.name) != target.name:
                    raise Refusal(400, "BadRequest", "the name of the object does not match the name on the URL")
                if (target.namespace if resource.namespaced else "", target.name) not in objects.table(resource):
                    self._authorize("create", target)  # an apply that makes the object needs both rights
                return 200, objects.apply(resource, target.namespace, value, query)
            if kind.startswith(("application/merge-patch", "application/strategic-merge-patch")):
                return 200, objects.merge(resource, target.namespace, target.name, value, query)
        raise Refusal(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")

    @staticmethod
    def _writable(target: _Target, value: Object) -> Object:
        """The status is written through its own path, and nothing else is written there."""
        if target.subresource == "status":
            return {key: value[key] for key in ("apiVersion", "kind", "metadata", "status") if key in value}
        if target.resource.kind in NO_STATUS or target.subresource:
            return value
        return {key: inner for key, inner in value.items() if key != "status"}

    def _list(self, target: _Target, query: dict[str, str]) -> Object:
        objects = self.server.objects
        version, start = objects.version, ("", "")
        if query.get("continue"):
            token = json.loads(query["continue"])
            version, start = token["v"], (token["ns"], token["n"])
            if version < objects.oldest:
                fresh = json.dumps({**token, "v": objects.version})
                raise Refusal(410, "Expired", "The provided continue parameter is too old", following=fresh)
        rows = sorted(objects.table(target.resource).items())
        rows = [(key, item) for key, item in rows if key > start and _selected(item, target.namespace, query)]
        limit = int(query.get("limit") or 0) or len(rows)
        metadata: Object = {"resourceVersion": str(version)}
        if len(rows) > limit:
            (namespace, name), _ = rows[limit - 1]
            metadata |= {"continue": json.dumps({"v": version, "ns": namespace, "n": name})}
            metadata |= {"remainingItemCount": len(rows) - limit}
        return {
            "kind": f"{target.resource.kind}List",
            "apiVersion": target.resource.api_version,
            "metadata": metadata,
            "items": [item for _, item in rows[:limit]],
        }

    # -- watching

    def _watch(self, target: _Target, query: dict[str, str], *, broken: bool = False) -> None:
        objects = self.server.objects
        version = int(query.get("resourceVersion") or 0)
        ends = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        with self.server.lock:
            self.server.watches.add(self.connection)
        try:
            if broken:
                self._event("ERROR", Refusal(500, "InternalError", "etcdserver: no leader").status)
                ends = 0.0
            while time.monotonic() < ends:
                with objects.changed:
                    if version and version < objects.oldest:
                        message = f"too old resource version: {version} ({objects.oldest})"
                        self._event("ERROR", Refusal(410, "Expired", message).status)
                        break
                    news = list(objects.since(version, target.resource))
                    if not news:
                        quiet = not objects.changed.wait(
                            min(self.server.bookmark_seconds, max(0.01, ends - time.monotonic()))
                        )
                        if quiet and query.get("allowWatchBookmarks"):
                            version = max(version, objects.version)
                            self._event("BOOKMARK", _bookmark(target.resource, version))
                        continue
                for item in news:
                    version = item.version
                    if _selected(item.value, target.namespace, query):
                        self._event(item.type, item.value)
            self.wfile.write(b"0\r\n\r\n")
        finally:
            with self.server.lock:
                self.server.watches.discard(self.connection)

    def _half_event(self) -> None:
        """Cut in the middle of a line, in the middle of a chunk."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b'40\r\n{"type":"ADDED","object":{"metadata":{"na')
        self.wfile.flush()
        self._cut(reset=False)

    def _event(self, kind: str, value: Object) -> None:
        data = compact({"type": kind, "object": value}) + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()

    # -- pages

    def _about(self, path: str) -> Object:
        groups = sorted({(item.group, item.version) for item in self.server.resources if item.group})
        if path == "/version":
            major, minor = self.server.git_version[1:].split(".")[:2]
            return {"major": major, "minor": minor, "gitVersion": self.server.git_version, "platform": "linux/amd64"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            rows = []
            for group, version in groups:
                entry = {"groupVersion": f"{group}/{version}", "version": version}
                rows.append({"name": group, "versions": [entry], "preferredVersion": entry})
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": rows}
        if path == "/openapi/v3":
            names = ["api/v1", *(f"apis/{group}/{version}" for group, version in groups)]
            return {"paths": {name: {"serverRelativeURL": f"/openapi/v3/{name}?hash=1"} for name in names}}
        if path.startswith("/openapi/v3/"):
            return self._openapi(path.removeprefix("/openapi/v3/"))
        return {}

    def _openapi(self, name: str) -> Object:
        """As much as ``kubectl`` needs to see that the server validates fields."""
        group, _, version = name.removeprefix("apis/").removeprefix("api/").rpartition("/")
        paths = {}
        for item in self.server.resources:
            if (item.group, item.version) == (group, version):
                operation = {
                    "parameters": [{"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}],
                    "x-kubernetes-action": "patch",
                    "x-kubernetes-group-version-kind": {
                        "group": item.group,
                        "version": item.version,
                        "kind": item.kind,
                    },
                    "responses": {"200": {"description": "OK"}},
                }
                paths[item.path("{namespace}", "{name}").replace("%7B", "{").replace("%7D", "}")] = {"patch": operation}
        return {"openapi": "3.0.0", "info": {"title": "pretended", "version": "1"}, "paths": paths}

    def _discover(self, path: str) -> Object:
        group, _, version = path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")
        rows = []
        for item in self.server.resources:
            if (item.group, item.version) == (group, version):
                base = {"singularName": item.kind.lower(), "namespaced": item.namespaced, "kind": item.kind}
                rows.append({"name": item.plural, **base, "verbs": VERBS})
                rows.append({"name": f"{item.plural}/status", **base, "verbs": ["get", "patch", "update"]})
        if not rows:
            raise Refusal(404, "NotFound", "the server could not find the requested resource")
        name = f"{group}/{version}" if group else version
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": rows}

    def _send(self, code: int, value: Object, headers: dict[str, str] | None = None, *, torn: bool = False) -> None:
        self._send_bytes(code, compact(value), "application/json", headers or {}, torn=torn)

    def _send_kept(self, target: _Target, query: dict[str, str]) -> None:
        assert self.server.kept_lists is not None
        packed = "gzip" in (self.headers.get("Accept-Encoding") or "")
        found = self.server.kept_lists.get((self.path, packed))
        if found is None:
            data, headers = compact(self._list(target, query)), {}
            if packed and len(data) > 128 << 10:
                data, headers = gzip.compress(data, 1), {"Content-Encoding": "gzip"}
            found = self.server.kept_lists[self.path, packed] = (data, headers)
        self.send_response(200)
        for name, value in {
            "Content-Type": "application/json",
            "Content-Length": str(len(found[0])),
            **found[1],
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(found[0])

    def _send_bytes(
        self, code: int, data: bytes, kind: str, headers: dict[str, str] | None = None, *, torn: bool = False
    ) -> None:
        headers = dict(headers or {})
        if "gzip" in (self.headers.get("Accept-Encoding") or "") and len(data) > 128 << 10:
            data = gzip.compress(data, 1)
            headers["Content-Encoding"] = "gzip"
        self.send_response(code)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data[: len(data) // 2] if torn else data)
        if torn:
            self._cut(reset=False)


def compact(value: Object) -> bytes:
    """As Go writes it."""
    return json.dumps(value, separators=(",", ":")).encode()


def _bookmark(resource: Resource, version: int) -> Object:
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": {"resourceVersion": str(version), "creationTimestamp": None},
    }


def _selected(item: Object, namespace: str, query: dict[str, str]) -> bool:
    if namespace and item["metadata"].get("namespace") != namespace:
        return False
    labels = item["metadata"].get("labels") or {}
    for term in re.findall(r"[^,(]+\([^)]*\)|[^,]+", query.get("labelSelector") or ""):
        match = re.fullmatch(r"\s*([\w./-]+)\s*(?:(=|==|!=)\s*([\w./-]*)|\s+in\s+\(([^)]*)\))?\s*", term)
        assert match, f"a selector the pretended server does not know: {term}"
        key, operator, value, values = match.groups()
        if values is not None:
            fits = labels.get(key) in [entry.strip() for entry in values.split(",")]
        elif operator == "!=":
            fits = labels.get(key) != value
        else:
            fits = key in labels if operator is None else labels.get(key) == value
        if not fits:
            return False
    for term in (query.get("fieldSelector") or "").split(","):
        key, equals, value = term.partition("=")
        if equals:
            found: Any = item
            for part in key.split("."):
                found = found.get(part) if isinstance(found, dict) else None
            if str(found or "") != value:
                return False
    return True
