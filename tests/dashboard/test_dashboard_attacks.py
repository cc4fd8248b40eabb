"""Everything around a dashboard misbehaves: clients that hang, buckets that hang, folders that go, files that lie."""

from __future__ import annotations

import os
import resource
import select
import shutil
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from dashboard_server import Dashboard, row, write_run

from stayfast.batch.queue.open_queue import open_queue
from stayfast.dashboard import http_timeouts
from stayfast.dashboard.sources import find_queues, find_runs
from stayfast.dashboard.thread_pool import DaemonThreadPool
from stayfast.runtime.run_record.record import RECORD_KEY


def eventually(look: Any, seconds: float = 40.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
    return found


# -- clients


class Viewer:
    """One event stream."""

    def __init__(self, port: int, *, buffer: int = 0) -> None:
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.connect(("127.0.0.1", port))
        self.socket.sendall(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        self.data = b""

    def wait_for(self, marker: bytes, seconds: float = 40.0) -> None:
        end = time.monotonic() + seconds
        while marker not in self.data:
            assert time.monotonic() < end, "it was not told"
            if select.select([self.socket], [], [], 0.2)[0]:
                more = self.socket.recv(1 << 20)
                assert more, "it was cut off"
                self.data = (self.data + more)[-(1 << 20) :]


def test_viewers_that_never_read_keep_nobody_waiting(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    many = [row(number + 1) for number in range(60)]
    with Dashboard(tmp_path, str(runs)) as dashboard:
        stuck = [Viewer(dashboard.port, buffer=2048) for _ in range(10)]
        reading = Viewer(dashboard.port)
        reading.wait_for(b"retry:")
        for turn in range(3):
            for number in range(30):
                write_run(runs / f"run-{number:03d}", *many, total_steps=5000 + turn)
            reading.wait_for(f'"total_steps":{5000 + turn}'.encode())
            assert dashboard.ask("GET", "/assets/icon.svg").status == 200
        for viewer in (*stuck, reading):
            viewer.socket.close()


def test_an_answer_that_nobody_reads_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    monkeypatch.setattr(http_timeouts, "UNREAD_SECONDS", 0.5)

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(1 if scope["path"] == "/short" else 10_000):
            await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    config = uvicorn.Config(
        endless, http=http_timeouts.make_protocol(), lifespan="off", log_level="critical", ws="none", access_log=False
    )
    server = uvicorn.Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    port = listener.getsockname()[1]
    stuck = Viewer(port, buffer=2048)
    gone = select.poll()
    gone.register(stuck.socket, select.POLLRDHUP)
    assert gone.poll(30_000), "it was never cut off"
    with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
        client.sendall(b"GET /short HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"
    server.should_exit = True
    thread.join(30)
    stuck.socket.close()


def test_a_thousand_connections_that_ask_for_nothing_are_closed(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(1200, (hard if hard > 0 else 4096) - 200)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted + 200), hard))
    idle: list[socket.socket] = []
    try:
        with Dashboard(tmp_path, str(tmp_path / "runs")) as dashboard:
            for number in range(wanted):
                connection = socket.create_connection(("127.0.0.1", dashboard.port), timeout=30)
                if number % 3 == 0:
                    connection.sendall(b"GET / HTTP/1.1\r\nHo")
                idle.append(connection)

            def answers() -> bool:
                try:
                    return dashboard.ask("GET", "/api/overview").status == 200
                except OSError:
                    return False

            eventually(answers)
            idle[-1].settimeout(40)
            assert idle[-1].recv(1) == b""  # and the idle ones were sent away
            assert "Traceback" not in dashboard.log.read_text()
    finally:
        for connection in idle:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_viewer_is_no_idle_connection(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "a")
    with Dashboard(tmp_path, str(tmp_path / "runs")) as dashboard:
        viewer = Viewer(dashboard.port)
        viewer.wait_for(b"retry:")
        time.sleep(6.0)  # longer than an idle connection lives
        write_run(tmp_path / "runs" / "b")
        viewer.wait_for(b'"name":"b"')
        viewer.socket.close()


# -- buckets and folders


def test_a_bucket_that_is_silent_hides_nothing_and_delays_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "runs" / "a")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "x")
        with Dashboard(tmp_path, str(tmp_path / "runs"), "s3://bucket/away") as dashboard:
            for _ in range(8):  # more than the server has threads to wait with
                assert [item["name"] for item in dashboard.get("/api/overview")["runs"]] == ["a"]
            trouble = eventually(lambda: dashboard.get("/api/overview")["troubles"])
            assert trouble[0]["url"] == "s3://bucket/away"
            began = time.monotonic()
            assert dashboard.end() == 0
            assert time.monotonic() - began < 15
            assert "Traceback" not in dashboard.log.read_text()


def test_folders_that_go_and_come_while_they_are_watched(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for number in range(20):
        write_run(runs / f"run-{number}")
    over = threading.Event()

    def churn() -> None:
        while not over.is_set():
            shutil.rmtree(runs, ignore_errors=True)
            for number in range(20):
                write_run(runs / f"run-{number}")

    thread = threading.Thread(target=churn)
    with Dashboard(tmp_path, str(runs)) as dashboard:
        viewer = Viewer(dashboard.port)
        thread.start()
        try:
            for _ in range(30):
                for item in dashboard.get("/api/overview")["runs"]:
                    assert dashboard.ask("GET", f"/api/runs/{item['id']}").status in (200, 404)
        finally:
            over.set()
            thread.join()
        eventually(lambda: len(dashboard.get("/api/overview")["runs"]) == 20)
        shutil.rmtree(runs)
        eventually(lambda: dashboard.get("/api/overview")["runs"] == [])
        assert "Traceback" not in dashboard.log.read_text()
        viewer.socket.close()


def test_ten_thousand_files_around_one_run(tmp_path: Path) -> None:
    for number in range(10_000):
        os.close(os.open(tmp_path / f"{number:05d}.log", os.O_CREAT | os.O_WRONLY))
    write_run(tmp_path / "the-run")
    assert find_runs(f"file://{tmp_path}") == [f"file://{tmp_path}/the-run"]
    with Dashboard(tmp_path, str(tmp_path)) as dashboard:
        assert [item["name"] for item in dashboard.get("/api/overview")["runs"]] == ["the-run"]


def test_what_is_called_head_but_is_none(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    whole = (tmp_path / "good" / RECORD_KEY).read_bytes()
    for name, data in (("empty", b""), ("half", whole[: len(whole) // 2]), ("garbage", os.urandom(4096))):
        (tmp_path / name).mkdir()
        (tmp_path / name / RECORD_KEY).write_bytes(data)
    (tmp_path / "folder" / RECORD_KEY).mkdir(parents=True)
    (tmp_path / "dangling").mkdir()
    (tmp_path / "dangling" / RECORD_KEY).symlink_to(tmp_path / "nowhere")
    with Dashboard(tmp_path, str(tmp_path)) as dashboard:
        found = {item["name"]: item["state"] for item in dashboard.get("/api/overview")["runs"]}
        assert found["good"] != "broken"
        assert {found[name] for name in ("empty", "half", "garbage")} == {"broken"}
        (tmp_path / "half" / RECORD_KEY).write_bytes(whole)  # the writer was only slow
        eventually(
            lambda: {item["name"]: item["state"] for item in dashboard.get("/api/overview")["runs"]}["half"] != "broken"
        )


def test_queues_beside_runs_are_found_and_nothing_else_is_opened(tmp_path: Path) -> None:
    url = f"sqlite://{tmp_path}/work.db?queue=a-b.c"
    open_queue(url).close()
    (tmp_path / "other.db").write_bytes(os.urandom(5000))
    (tmp_path / "empty.db").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.db")
    (tmp_path / "dir.db").mkdir()
    before = {path.name for path in tmp_path.iterdir()}
    assert find_queues(f"file://{tmp_path}") == [url]
    assert {path.name for path in tmp_path.iterdir()} - before <= {"work.db-wal", "work.db-shm"}
    assert find_queues(f"file://{tmp_path}/nothing") == []
    assert find_queues("gs://bucket/runs") == []
    with Dashboard(tmp_path, str(tmp_path)) as dashboard:
        assert [item["name"] for item in dashboard.get("/api/overview")["queues"]] == ["a-b.c"]


# -- the pool behind it


def test_a_pool_runs_what_it_can_and_waits_for_nobody() -> None:
    pool = DaemonThreadPool(3, "test")
    gate = threading.Event()
    stuck = [pool.submit(gate.wait, 60) for _ in range(3)]
    waiting = pool.submit(lambda: 7)
    assert not waiting.done()
    gate.set()
    assert waiting.result(30) == 7
    assert all(future.result(30) for future in stuck)
    assert list(pool.map(lambda value: value * 2, range(50))) == [value * 2 for value in range(50)]
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 // 0).result(30)
    gate.clear()
    begun = threading.Semaphore(0)
    blocked = [pool.submit(lambda: (begun.release(), gate.wait(60))[1]) for _ in range(3)]
    for _ in range(3):
        assert begun.acquire(timeout=30)
    never = pool.submit(lambda: 8)
    pool.shutdown()
    assert never.cancelled()
    with pytest.raises(RuntimeError):
        pool.submit(lambda: 9)
    gate.set()
    assert [future.result(30) for future in blocked] == [True] * 3
