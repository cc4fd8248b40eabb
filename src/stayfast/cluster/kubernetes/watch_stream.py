"""A watch that does not end: it resumes where it stopped, and lists again when the server has forgotten that place.

The server says "too old" in two ways: HTTP 410, or an ``ERROR`` event with code 410 inside an answer of 200. Either way
the list is read again, and what vanished meanwhile is reported as deleted; a watch that only starts over would never
tell. Every failure backs off, so that no answer can make it spin.
"""

from __future__ import annotations

import enum
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

from stayfast.clock import Clock, SystemClock
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.errors import RequestContext, VersionGoneError, error_for_status
from stayfast.cluster.kubernetes.resources import Resource
from stayfast.cluster.kubernetes.transport import ResponseStream, parse
from stayfast.errors import ClusterError, ClusterUnreachableError
from stayfast.storage.network.transport import ResponseLostError

WATCH_SECONDS = 290
SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
CALM_SECONDS = 0.25


class ChangeKind(enum.StrEnum):
    """What happened."""

    ADDED = "added"
    MODIFIED = "modified"
    DELETED = "deleted"
    SYNCED = "synced"  # the list has been told in full: whatever was not added is not there
    UNAVAILABLE = "trouble"  # the server cannot be heard for now; we keep trying


class Change(NamedTuple):
    """One event; the object is empty for ``SYNCED``, and only metadata for deletions found by listing again."""

    kind: ChangeKind
    object: Object
    detail: str = ""


class ResourceWatch:
    """All changes of one kind of object, from the first list on."""

    def __init__(
        self, client: Client, resource: Resource, namespace: str | None = None, *, labels: str = "",
        clock: Clock | None = None, watch_seconds: int = WATCH_SECONDS,
    ) -> None:  # fmt: skip
        self._client, self._resource, self._namespace, self._labels = client, resource, namespace, labels
        self._clock = clock or SystemClock()
        self._watch_seconds = watch_seconds
        self._stop = threading.Event()
        self._stream: ResponseStream | None = None
        self._known: dict[str, tuple[str, str]] = {}  # uid -> namespace, name
        self._version = ""
        self.lists = 0

    def stop(self) -> None:
        """End the iteration, from any thread."""
        self._stop.set()
        stream = self._stream
        if stream is not None:
            stream.interrupt()

    def __iter__(self) -> Iterator[Change]:
        pause = SHORTEST_PAUSE_SECONDS
        while not self._stop.is_set():
            started = self._clock.monotonic()
            heard = False
            try:
                if not self._version:
                    yield from self._relist()
                for change in self._read():
                    heard = True
                    yield change
            except VersionGoneError:
                self._version = ""
            except (ResponseLostError, ClusterUnreachableError) as error:
                if not self._stop.is_set():
                    yield Change(ChangeKind.UNAVAILABLE, {}, str(error))
            except ClusterError as error:
                # Worth the longest pause, not the end: roles are granted, CRDs installed and logins renewed meanwhile.
                yield Change(ChangeKind.UNAVAILABLE, {}, str(error))
                pause = LONGEST_PAUSE_SECONDS
            if heard or self._clock.monotonic() - started > self._watch_seconds / 2:
                pause = SHORTEST_PAUSE_SECONDS
            if self._stop.is_set():
                return
            self._clock.wait(self._stop, pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _relist(self) -> Iterator[Change]:
        """The present state, told as additions and deletions."""
        present: dict[str, tuple[str, str]] = {}
        version = ""
        self.lists += 1
        for page in self._client.pages(self._resource, self._namespace, labels=self._labels):
            version = page.resource_version
            for item in page.items:
                uid, place = _place(item)
                kind = ChangeKind.MODIFIED if uid in self._known else ChangeKind.ADDED
                present[uid] = place
                yield Change(kind, item)
        for uid, (namespace, name) in self._known.items():
            if uid not in present:
                yield Change(ChangeKind.DELETED, {"metadata": {"uid": uid, "namespace": namespace, "name": name}})
        self._known = present
        self._version = version
        yield Change(ChangeKind.SYNCED, {})

    def _read(self) -> Iterator[Change]:
        query = {
            "watch": "true",
            "resourceVersion": self._version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(self._watch_seconds),
            "labelSelector": self._labels,
        }
        stream = self._client.stream(self._resource, self._namespace, query, silence_seconds=self._watch_seconds + 30.0)
        self._stream = stream
        try:
            for line in stream.lines(calm_seconds=CALM_SECONDS):
                change = self._parse_event(line)
                if change is not None:
                    yield change
                if self._stop.is_set():
                    return
        finally:
            self._stream = None
            stream.close()

    def _parse_event(self, line: bytes) -> Change | None:
        try:
            event: Any = parse(line)
            kind, body = event["type"], event["object"]
            metadata = body.get("metadata") or {}
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ResponseLostError("an event was cut short") from None
        if kind == "ERROR":
            code = body.get("code")
            asked = RequestContext("watch", self._resource, self._namespace)
            error = error_for_status(code if isinstance(code, int) else 500, body, asked)
            self._version = ""  # whatever it was, only a fresh list is certain
            raise error if isinstance(error, VersionGoneError) else ResponseLostError(str(error))
        version = metadata.get("resourceVersion")
        if isinstance(version, str) and version:
            self._version = version
        if kind == "BOOKMARK":
            return None
        uid, place = _place(body)
        if kind == "DELETED":
            self._known.pop(uid, None)
        else:
            self._known[uid] = place
        return Change(ChangeKind(kind.lower()), body) if kind in ("ADDED", "MODIFIED", "DELETED") else None


def _place(item: Object) -> tuple[str, tuple[str, str]]:
    metadata = item.get("metadata") or {}
    name, namespace = str(metadata.get("name", "")), str(metadata.get("namespace", ""))
    return str(metadata.get("uid") or f"{namespace}/{name}"), (namespace, name)
