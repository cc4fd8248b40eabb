"""The metadata server as a source: a real HTTP server, every way it can go wrong, and a clock that needs no waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from metadata_server import MetadataServer
from runtime_children import python

from stayfast.clock import ManualClock
from stayfast.model.notice import Cause
from stayfast.runtime.interruption import metadata_source
from stayfast.runtime.interruption.metadata_source import MetadataSource
from stayfast.runtime.interruption.notice_board import NoticeBoard
from stayfast.settings import Settings

PREEMPTED, MAINTENANCE = "instance/preempted", "instance/maintenance-event"


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    with MetadataServer() as running:
        yield running


@pytest.fixture
def watching(server: MetadataServer) -> Iterator[NoticeBoard]:
    board = NoticeBoard(Settings(metadata_host=server.host), ManualClock())
    source = MetadataSource(board)
    source.start()
    yield board
    source.stop()


@pytest.mark.parametrize(
    ("path", "value", "cause"),
    [(PREEMPTED, "TRUE", Cause.PREEMPTION), (MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE", Cause.MAINTENANCE)],
)
def test_a_long_poll_ends_when_the_value_changes(
    server: MetadataServer, watching: NoticeBoard, path: str, value: str, cause: Cause
) -> None:
    server.wait_for_requests(path, 2)
    first, second = server.asked(path)[:2]
    assert first["wait_for_change"] == ["true"]
    assert first["last_etag"] == ["0"]
    assert second["last_etag"] == ["1"], "the etag of the last answer comes back"
    assert not watching.arrived.wait(0.05)
    started = time.monotonic()
    server.set(path, value)
    assert watching.arrived.wait(5)
    assert time.monotonic() - started < 1
    assert watching.notice is not None
    assert watching.notice.cause is cause
    assert {flavor for _, _, flavor in server.requests} == {"Google"}


def test_values_that_mean_nothing_are_no_notice(server: MetadataServer, watching: NoticeBoard) -> None:
    for count, value in enumerate(("NONE", "MIGRATE_ON_HOST_MAINTENANCE", "", "true", "garbage " * 50), start=2):
        server.set(MAINTENANCE, value)
        server.set(PREEMPTED, value)
        server.wait_for_requests(PREEMPTED, count)
    assert watching.notice is None


@pytest.mark.parametrize(
    "fault", ["503", "404", "no-flavor", "garbage", "garbage-body", "long-header", "short", "reset", "huge"]
)
def test_after_any_fault_it_asks_again_and_believes_nothing_of_it(server: MetadataServer, fault: str) -> None:
    server.faults[PREEMPTED] = [fault] * 3
    board = NoticeBoard(Settings(metadata_host=server.host), ManualClock())
    source = MetadataSource(board)
    source.start()
    server.wait_for_requests(PREEMPTED, 4)
    assert board.notice is None
    server.set(PREEMPTED, "TRUE")
    assert board.arrived.wait(5)
    source.stop()


def test_failures_are_asked_again_with_growing_pauses(server: MetadataServer) -> None:
    class Patient(ManualClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            if threading.current_thread().name == "stayfast-preemption":
                pauses.append(seconds)
            return super().wait(event, seconds)

    pauses: list[float | None] = []
    server.faults[PREEMPTED] = ["503"] * 9
    server.values[PREEMPTED] = "TRUE"
    board = NoticeBoard(Settings(metadata_host=server.host), Patient())
    MetadataSource(board).start()
    assert board.arrived.wait(10)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_hanging_server_keeps_nobody(server: MetadataServer) -> None:
    server.faults[PREEMPTED] = ["hang"]
    board = NoticeBoard(Settings(metadata_host=server.host), ManualClock())
    source = MetadataSource(board)
    source.start()
    server.wait_for_requests(PREEMPTED, 1)
    started = time.monotonic()
    source.stop()
    assert time.monotonic() - started < 0.5
    server.set(MAINTENANCE, "TERMINATE_ON_HOST_MAINTENANCE")
    assert not board.arrived.wait(0.1), "after stop nothing is posted any more"


def test_a_server_that_never_waits_is_not_asked_in_a_hot_loop(server: MetadataServer) -> None:
    class Counting(ManualClock):
        def wait(self, event: threading.Event, seconds: float | None) -> bool:
            waits.append(threading.current_thread().name)
            return super().wait(event, seconds)

    waits: list[str] = []
    board = NoticeBoard(Settings(metadata_host=server.host), Counting())
    source = MetadataSource(board)
    source.start()
    for count in range(2, 30):
        server.wait_for_requests(PREEMPTED, count)
        server.set(PREEMPTED, "FALSE")  # a new etag and the same value
    source.stop()
    assert waits.count("stayfast-preemption") >= 25


def test_it_is_silent_and_free_when_not_on_gce(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata_source, "on_gce", lambda: False)
    before = threading.active_count()
    MetadataSource(NoticeBoard(Settings(), ManualClock())).start()
    MetadataSource(NoticeBoard(Settings(metadata="off", metadata_host="127.0.0.1:1"), ManualClock())).start()
    assert threading.active_count() == before
    monkeypatch.setattr(metadata_source, "on_gce", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr(MetadataSource, "_watch", lambda self, path, cause, judge: asked.append(path))
    MetadataSource(NoticeBoard(Settings(), ManualClock())).start()
    while len(asked) < 2:
        time.sleep(0.001)
    assert sorted(asked) == sorted([PREEMPTED, MAINTENANCE])


def test_a_program_is_interrupted_by_the_metadata_server(server: MetadataServer) -> None:
    child = python(
        """
        import time, stayfast
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True); time.sleep(0.02)
        """,
        GCE_METADATA_HOST=server.host,
        STAYFAST_METADATA="auto",
    )
    server.wait_for_requests(PREEMPTED, 2)
    child.wait_for("step")
    server.set(PREEMPTED, "TRUE")
    ended = child.end()
    assert ended.code == 75
    assert ended.report["cause"] == "preemption"
    assert ended.report["detail"] == "metadata server: the VM is being preempted"


def test_sigterm_then_metadata_names_the_cause(server: MetadataServer) -> None:
    child = python(
        """
        import time, stayfast
        with stayfast.run() as run:
            for step in run.steps():
                print("step", flush=True)
                while run.notice is None:
                    time.sleep(0.01)
                print("told", flush=True)
                while run.notice.cause == "unknown":
                    time.sleep(0.01)
        """,
        GCE_METADATA_HOST=server.host,
        STAYFAST_METADATA="on",
    )
    server.wait_for_requests(PREEMPTED, 2)
    child.wait_for("step")
    child.send()
    child.wait_for("told")  # the signal first: on a busy machine the other one overtakes it
    server.set(PREEMPTED, "TRUE")
    ended = child.end()
    assert ended.code == 75
    assert ended.report["cause"] == "preemption"
    assert ended.report["detail"] == "SIGTERM"
