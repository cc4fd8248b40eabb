"""Watches: resumed after a cut, listed again after 410, never spinning."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from servers.api_server import ApiServer, Fault
from stayfast.clock import SystemClock
from stayfast.cluster.kubernetes.client import Client
from stayfast.cluster.kubernetes.resources import PODS
from stayfast.cluster.kubernetes.watch_stream import Change, ChangeKind, ResourceWatch


class QuickClock(SystemClock):
    """Pauses are recorded and cut short."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def wait(self, event: threading.Event, seconds: float | None) -> bool:
        self.pauses.append(seconds or 0.0)
        return event.wait(0.01)

    def sleep(self, seconds: float) -> None:
        super().sleep(min(seconds, 0.01))


class Follower:
    """Reads a watch on a thread of its own."""

    def __init__(self, client: Client, **options: object) -> None:
        self.clock = QuickClock()
        client._clock = self.clock
        self.watch = ResourceWatch(client, PODS, "default", clock=self.clock, **options)  # type: ignore[arg-type]
        self.changes: queue.Queue[Change] = queue.Queue()
        self.thread = threading.Thread(target=self._follow, daemon=True)
        self.thread.start()

    def _follow(self) -> None:
        for change in self.watch:
            self.changes.put(change)

    def next(self, *, skip: ChangeKind | None = ChangeKind.UNAVAILABLE) -> tuple[str, str]:
        while True:
            change = self.changes.get(timeout=30)
            if change.kind is not skip:
                return change.kind.value, (change.object.get("metadata") or {}).get("name", "")

    def until(self, wanted: tuple[str, str]) -> list[tuple[str, str]]:
        seen = [self.next()]
        while seen[-1] != wanted:
            seen.append(self.next())
        return seen


@pytest.fixture
def follower(server: ApiServer, client: Client) -> Iterator[Follower]:
    server.add(PODS, {"metadata": {"name": "old", "uid": "u-old"}})
    following = Follower(client)
    assert [following.next(), following.next()] == [("added", "old"), ("synced", "")]
    for _ in range(3000):  # the watch follows the list: what a test cuts must be open
        if server.watches:
            break
        SystemClock().sleep(0.01)
    yield following
    following.watch.stop()
    following.thread.join(30)
    assert not following.thread.is_alive()


def test_changes_arrive_as_they_happen(server: ApiServer, follower: Follower) -> None:
    server.add(PODS, {"metadata": {"name": "new", "uid": "u-new"}})
    assert follower.next() == ("added", "new")
    server.objects.merge(PODS, "default", "new", {"status": {"phase": "Running"}}, {})
    assert follower.next() == ("modified", "new")
    server.objects.delete(PODS, "default", "new", None)
    assert follower.next() == ("deleted", "new")


def test_a_cut_connection_is_resumed_without_a_list(server: ApiServer, follower: Follower) -> None:
    server.drop_watches()
    server.add(PODS, {"metadata": {"name": "new"}})
    assert follower.until(("added", "new")) == [("added", "new")]
    assert follower.watch.lists == 1


def test_forgotten_history_means_a_new_list_and_the_deletions_of_the_gap(server: ApiServer, follower: Follower) -> None:
    server.faults.append(Fault("drop", "watch", times=5))
    server.drop_watches()
    server.objects.delete(PODS, "default", "old", None)
    server.add(PODS, {"metadata": {"name": "new"}})
    server.objects.forget_history()
    seen = follower.until(("synced", ""))
    assert seen == [("added", "new"), ("deleted", "old"), ("synced", "")]
    assert follower.watch.lists == 2


def test_http_410_is_the_same(server: ApiServer, follower: Follower) -> None:
    server.faults.append(Fault("410", "watch"))
    server.drop_watches()
    assert follower.until(("synced", "")) == [("modified", "old"), ("synced", "")]


def test_any_other_error_inside_the_stream_means_a_new_list_too(server: ApiServer, follower: Follower) -> None:
    server.faults.append(Fault("error_event", "watch"))
    server.drop_watches()
    assert follower.until(("synced", "")) == [("modified", "old"), ("synced", "")]
    assert follower.watch.lists == 2


def test_bookmarks_move_the_place_to_resume_from(server: ApiServer, client: Client) -> None:
    server.bookmark_seconds = 0.05
    following = Follower(client)
    assert following.next() == ("synced", "")
    before = following.watch._version
    server.objects.put(
        PODS.__class__("", "v1", "secrets", "Secret"), {"metadata": {"name": "s", "namespace": "x"}}, "ADDED"
    )
    for _ in range(200):
        if following.watch._version != before:
            break
        SystemClock().sleep(0.05)
    assert int(following.watch._version) > int(before)
    following.watch.stop()
    following.thread.join(30)


def test_a_server_that_ends_every_watch_at_once_is_not_hammered(server: ApiServer, client: Client) -> None:
    server.faults.append(Fault("drop", "watch", times=10_000))
    following = Follower(client)
    for _ in range(6):
        following.changes.get(timeout=30)
    following.watch.stop()
    following.thread.join(30)
    pauses = following.clock.pauses
    assert pauses[:4] == sorted(pauses[:4])
    assert pauses[0] >= 1.0
    assert pauses[3] >= 8.0


def test_credentials_that_are_refused_are_told_and_tried_again(server: ApiServer, client: Client) -> None:
    server.allowed = {("list", "pods")}
    following = Follower(client)
    assert following.next() == ("synced", "")
    kind, _ = following.next(skip=None)
    assert kind == "trouble"
    server.allowed = None
    server.add(PODS, {"metadata": {"name": "new"}})
    assert following.until(("added", "new"))
    following.watch.stop()
    following.thread.join(30)
