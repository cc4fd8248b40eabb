"""The cluster as it changes: one watch per kind, kept as a model that can be looked at any moment."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from stayfast.clock import Clock, SystemClock
from stayfast.cluster.kubernetes.client import Client, Object
from stayfast.cluster.kubernetes.discovery import resolve_served
from stayfast.cluster.kubernetes.resources import Resource
from stayfast.cluster.kubernetes.trimming import trim
from stayfast.cluster.kubernetes.watch_stream import ChangeKind, ResourceWatch
from stayfast.cluster.observed.objects import meta
from stayfast.cluster.observed.snapshot import LABELLED_KINDS, Snapshot


class LiveSnapshot:
    """Threads that follow kinds of objects; ``snapshot`` is what they know now."""

    def __init__(
        self, client: Client, namespace: str | None, kinds: Sequence[Resource], *, labels: str = "",
        clock: Clock | None = None,
    ) -> None:  # fmt: skip
        self._client, self._clock = client, clock or SystemClock()
        self._lock = threading.Lock()
        self._tables: dict[str, dict[str, Object]] = {}
        kinds, self._unseen = resolve_served(client, kinds)
        self._waiting = {resource.title for resource in kinds}
        self._synced = threading.Event()
        self.changed = threading.Event()
        """Set at every change; whoever waits for it clears it."""
        self.events = 0
        self._watches = [
            ResourceWatch(
                client,
                resource,
                namespace if resource.namespaced else None,
                labels=labels if resource.kind in LABELLED_KINDS else "",
                clock=self._clock,
            )
            for resource in kinds
        ]
        self._threads = [
            threading.Thread(target=self._follow, args=(watch, resource), name=f"watch-{resource.plural}", daemon=True)
            for watch, resource in zip(self._watches, kinds, strict=True)
        ]

    def start(self, *, timeout_seconds: float = 60.0) -> bool:
        """Begin; returns when every kind was listed or turned out to be unreadable, or the time is over."""
        for thread in self._threads:
            thread.start()
        return self._synced.wait(timeout_seconds)

    def stop(self) -> None:
        """End all watches."""
        for watch in self._watches:
            watch.stop()
        for thread in self._threads:
            thread.join(10.0)

    def snapshot(self) -> Snapshot:
        """What is known at this moment; the objects are shared and must not be changed."""
        with self._lock:
            tables = {title: list(rows.values()) for title, rows in self._tables.items()}
            return Snapshot(self._clock.wall() + self._client.skew_seconds, tables, dict(self._unseen))

    def _follow(self, watch: ResourceWatch, resource: Resource) -> None:
        fresh: dict[str, Object] = {}
        for change in watch:
            uid = str(meta(change.object).get("uid") or meta(change.object).get("name") or "")
            with self._lock:
                table = self._tables.setdefault(resource.title, fresh)
                if change.kind is ChangeKind.UNAVAILABLE:
                    self._unseen[resource.title] = change.detail
                    self._is_done(resource)
                    continue
                self._unseen.pop(resource.title, None)
                if change.kind is ChangeKind.DELETED:
                    table.pop(uid, None)
                elif change.kind is ChangeKind.SYNCED:
                    self._is_done(resource)
                else:
                    table[uid] = trim(resource, change.object)
                self.events += 1
            self.changed.set()

    def _is_done(self, resource: Resource) -> None:
        self._waiting.discard(resource.title)
        if not self._waiting:
            self._synced.set()
