"""Databases of queue and sink that are moved, removed or replaced while workers use them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time

import pytest
from work_command import fill, finish, log_pid, pairs, start_work, until, write_task

from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.sink.open_sink import open_sink
from stayfast.errors import StayfastError, UrlError

SLOW = "@stayfast.task(each=True)"
STEADY = "    time.sleep(0.01)\n    return 1"


def working(place, tmp_path, sink: str, **environment: str):
    """A pool in the middle of its work, and how many calls there were."""
    fill(place, 2000)
    log = tmp_path / "pids"
    task = write_task(tmp_path, "def work(item):\n" + log_pid(log) + STEADY, SLOW)
    process = start_work(tmp_path, task, place.queue, sink, "--chunk", "10", **environment)
    until(lambda: log.exists() and len(log.read_text().split()) > 30)
    return process


def path_of(url: str) -> str:
    return url.removeprefix("sqlite://").partition("?")[0]


def fresh_copy(path: str, place) -> None:
    """Another database with the same queue and table, and nothing in it."""
    os.replace(path, path + ".old")
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.replace(path + suffix, path + ".old" + suffix)
    open_queue(place.queue).close()
    open_sink(place.sink).close()


def remove(path: str, place) -> None:
    for suffix in ("", "-wal", "-shm"):
        os.unlink(path + suffix)


def remove_file_only(path: str, place) -> None:
    os.unlink(path)


def remove_log(path: str, place) -> None:
    os.unlink(path + "-wal")


def remove_shared_memory(path: str, place) -> None:
    os.unlink(path + "-shm")


def move(path: str, place) -> None:
    os.rename(path, path + ".moved")


def put_empty_file(path: str, place) -> None:
    with open(path + ".new", "w"):
        pass
    os.replace(path + ".new", path)


VANISH = [remove, remove_file_only, remove_log, remove_shared_memory, move, put_empty_file, fresh_copy]


@pytest.mark.parametrize("vanish", VANISH, ids=lambda action: action.__name__)
@pytest.mark.parametrize("which", ["both", "queue", "sink"])
def test_a_sqlite_file_that_vanishes_under_the_workers_is_a_failure(make_place, tmp_path, which, vanish):
    place = make_place("sqlite")
    sink = place.sink if which == "both" else place.other_sink
    process = working(place, tmp_path, sink)
    path = path_of(sink if which == "sink" else place.queue)
    vanish(path, place)
    code, told, err = finish(process)
    assert (code, told["code"]) == (1, 1), err
    assert told["done"] < 2000
    assert f"{path}" in err
    assert "was moved, removed or replaced" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("last", ["queue", "sink"])
def test_a_sqlite_file_that_vanishes_in_the_last_call_is_a_failure(make_place, tmp_path, last):
    place = make_place("sqlite")
    fill(place, 5)
    path = path_of(place.queue if last == "queue" else place.other_sink)
    body = f"def work(batch):\n    os.unlink({path!r})\n    return [1] * len(batch)"
    code, told, err = finish(start_work(tmp_path, write_task(tmp_path, body), place.queue, place.other_sink))
    assert (code, told["code"], told["done"]) == (1, 1, 0), err
    assert "was moved, removed or replaced" in err


def test_a_file_that_vanishes_and_a_notice_are_a_failure(make_place, tmp_path):
    """The next attempt would make an empty database and find nothing to do in it."""
    place = make_place("sqlite")
    fill(place, 5)
    flag = tmp_path / "begun"
    body = f"def work(batch):\n    open({str(flag)!r}, 'w').close()\n    time.sleep(1.0)\n    return [1] * len(batch)"
    process = start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink)
    until(flag.exists)
    os.unlink(path_of(place.queue))
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["code"], told["done"]) == (1, 1, 0), err


@pytest.mark.parametrize("which", ["queue", "sink"])
def test_a_file_that_vanishes_while_no_worker_lives_and_a_notice_are_a_failure(make_place, tmp_path, which):
    place = make_place("sqlite")
    outcome = tmp_path / "outcome"
    process = working(place, tmp_path, place.other_sink, STAYFAST_OUTCOME_FILE=str(outcome))
    os.kill(int((tmp_path / "pids").read_text().split()[-1]), signal.SIGKILL)
    remove(path_of(place.queue if which == "queue" else place.other_sink), place)
    os.kill(process.pid, signal.SIGTERM)
    code, told, err = finish(process)
    assert (code, told["code"], told["outcome"]) == (1, 1, "failed"), err
    line = json.loads(outcome.read_text())
    assert (line["outcome"], line["code"]) == ("failed", 1)
    assert "there is no file" in line["detail"]
    assert "Traceback" not in err


def test_a_file_that_vanishes_while_it_is_opened_is_one_sentence(make_place, monkeypatch):
    place = make_place("sqlite")
    fill(place, 5)
    find = SqliteQueue._find_queue

    def find_and_lose(self, create):
        found = find(self, create)
        os.unlink(path_of(place.queue))
        return found

    monkeypatch.setattr(SqliteQueue, "_find_queue", find_and_lose)
    with pytest.raises(UrlError, match="was moved or removed while it was being opened"):
        open_queue(place.queue, create=False)


def test_a_replaced_worker_does_not_make_a_new_database(make_place, tmp_path):
    place = make_place("sqlite")
    fill(place, 50)
    path = path_of(place.queue)
    body = f"def work(batch):\n    os.unlink({path!r})\n    os.kill(os.getpid(), signal.SIGKILL)"
    code, told, err = finish(start_work(tmp_path, write_task(tmp_path, body), place.queue, place.sink))
    assert (code, told["done"]) == (1, 0), err
    assert not os.path.exists(path)
    assert path in err


def test_enqueueing_into_a_file_that_vanished_is_an_error(make_place):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(5))
    os.unlink(path_of(place.queue))
    with pytest.raises(StayfastError, match="was moved, removed or replaced"):
        queue.enqueue([("one more", "1")])
    queue.close()


def test_a_file_that_is_backed_up_or_linked_is_still_there(make_place, tmp_path):
    place = make_place("sqlite")
    queue, sink = open_queue(place.queue), open_sink(place.other_sink)
    for number in range(3):
        queue.enqueue([(f"k{number}", "1")])
        sink.record(f"k{number}", "1")
        for path in (path_of(place.queue), path_of(place.other_sink)):
            shutil.copy(path, tmp_path / "backup")
            os.link(path, f"{path}.link{number}")
            looked = sqlite3.connect(path)
            looked.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            looked.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            looked.close()
    assert queue.depth().ready == 3
    queue.close()
    sink.close()


@pytest.fixture
def database(postgres_base):
    """A PostgreSQL database of its own, which a test may take away."""
    import psycopg

    name = f"gone{os.getpid()}_{time.monotonic_ns()}"
    server = psycopg.connect(postgres_base, autocommit=True)
    server.execute(f"CREATE DATABASE {name}")
    yield server, name, postgres_base.rpartition("/")[0] + f"/{name}"
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
    server.close()


@pytest.mark.parametrize("what", ["database", "queue tables", "sink table", "schema"])
def test_a_postgres_database_or_table_that_vanishes_under_the_workers_is_a_failure(
    database, make_place, tmp_path, what
):
    import psycopg

    server, name, base = database
    place = make_place("sqlite")
    place.queue, place.sink = f"{base}?queue=q", f"{base}?table=results"
    process = working(place, tmp_path, place.sink)
    if what == "database":
        server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    else:
        statement = {
            "queue tables": "DROP TABLE stayfast_item, stayfast_owner, stayfast_queue, stayfast_schema",
            "sink table": "DROP TABLE results",
            "schema": "DROP SCHEMA public CASCADE",
        }[what]
        with psycopg.connect(base, autocommit=True) as connection:
            connection.execute(statement)
    code, told, err = finish(process)
    assert (code, told["code"]) == (1, 1), err
    assert told["done"] < 2000
    assert "does not exist" in err
    assert "Traceback" not in err


def test_a_postgres_database_that_is_made_again_under_the_workers_is_a_failure(database, make_place, tmp_path):
    server, name, base = database
    place = make_place("sqlite")
    place.queue, place.sink = f"{base}?queue=q", f"{base}?table=results"
    process = working(place, tmp_path, place.sink)
    server.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
    server.execute(f"DROP DATABASE {name} WITH (FORCE)")
    server.execute(f"CREATE DATABASE {name}")
    code, told, err = finish(process)
    assert (code, told["code"]) == (1, 1), err
    assert told["done"] < 2000
