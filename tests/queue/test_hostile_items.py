"""What a hostile or careless world hands in: keys, payloads, reasons, tasks and instants, each with its sentence."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import sqlite3
import subprocess
import threading
import time

import pytest
from work_command import QUIET, command, finish, pairs, shorten_leases, start_work, stayfast, until, write_task

from stayfast.batch.queue.item_sources import from_directory
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure
from stayfast.batch.queue.validation import MAX_KEY_BYTES, ItemError
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.task import Task
from stayfast.batch.worker.worker import Worker, WorkerOptions
from stayfast.errors import QueueError, QueueUnavailableError, UsageError
from stayfast.runtime.interruption.guard import Guard
from stayfast.storage.database import sqlite

KEYS = [
    "../../etc/passwd",
    "a\nb\tc",
    "\x1b[2J\x1b]0;title\x07",
    "'; DROP TABLE stayfast_item; --",
    '"\\"',
    "%s ? $1 {0}",
    " ",
    ".",
    "..",
    "CON",
    "ä" * (MAX_KEY_BYTES // 2),
    "\U0001f600\u202e",
    "=41",
    "A",
    "null",
]


@pytest.fixture(params=["sqlite", "postgres", "directory"])
def hostile_place(request, make_place, tmp_path):
    place = make_place("sqlite" if request.param == "directory" else request.param)
    if request.param == "directory":
        place.sink = f"file://{tmp_path}/results"
    return place


def test_hostile_keys_go_all_the_way_and_audit_clean(hostile_place, tmp_path):
    place = hostile_place
    lines = "\n".join(json.dumps({"id": key, "text": f"\0 {key} \ud800"}) for key in KEYS)
    added = stayfast("enqueue", "--queue", place.queue, "-", "--json", stdin=lines)
    assert json.loads(added.stdout)["added"] == len(KEYS), added.stderr
    task = write_task(tmp_path, "def work(batch): return [i['text'] for i in batch]")
    code, told, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert (code, told["done"]) == (0, len(KEYS)), err
    sink = open_sink(place.sink)
    assert sorted(sink.keys()) == sorted(KEYS)
    assert {key: json.loads(sink.get(key)) for key in KEYS} == {key: f"\0 {key} \ud800" for key in KEYS}
    sink.close()
    assert stayfast("audit", "--queue", place.queue, "--sink", place.sink).returncode == 0


def test_reasons_that_no_database_stores_are_made_plain(place):
    queue = open_queue(place.queue)
    queue.enqueue(pairs(1))
    assert queue.fail([Failure(queue.claim(1)[0], "no file \udcff\0.jpg", final=True)]) == ["k00000"]
    assert [row.reason for row in queue.dead()] == ["no file \\udcff\\0.jpg"]
    queue.close()


def test_escape_sequences_do_not_reach_the_terminal(make_place):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue([("\x1b[2Jkey", "1")])
    queue.fail([Failure(queue.claim(1)[0], "\x1b[31mred", final=True)])
    queue.close()
    shown = stayfast("queue", "dead", "--queue", place.queue).stdout
    assert "\x1b" not in shown
    assert "2Jkey" in shown


def test_the_same_json_in_another_spelling_is_the_same_item_whatever_it_holds(place):
    queue = open_queue(place.queue)
    queue.enqueue([("k", '{"a":"\\u0000\\ud800","n":1.0}')])
    assert queue.enqueue([("k", '{ "n": 1, "a": "\\u0000\\uD800" }')]).known == 1
    with pytest.raises(UsageError, match="another payload"):
        queue.enqueue([("k", '{"a":"\\u0000","n":1}')])
    queue.close()


def test_broken_payloads_cannot_swallow_their_neighbours(place):
    """Read together as one list, these three would be three other items."""
    queue, sink = open_queue(place.queue), open_sink(place.sink)
    queue.enqueue([("a", "1,9,[2"), ("b", "7"), ("c", "3]"), ("d", ""), ("e", " 5 "), ("f", "0" * 5000)])
    seen = []
    with Guard() as guard:
        task = Task(lambda batch: seen.extend(batch) or [1] * len(batch), key=None, each=False)
        Worker(task, queue, sink, guard, WorkerOptions()).run()
    assert sorted(seen) == [5, 7]
    assert sorted(row.key for row in queue.dead()) == ["a", "c", "d", "f"]
    queue.close()
    sink.close()


WILD = """class Odd(list):
    def __len__(self): return 2
    def __getitem__(self, index): raise OSError('gone')
class Rude(dict):
    def items(self): raise RuntimeError('never')
@stayfast.task
def work(batch):
    for item in batch:
        if item['v'] == 1: raise KeyboardInterrupt
        if item['v'] == 2: raise GeneratorExit('stop')
        if item['v'] == 3: raise type('Mine', (BaseException,), {})('\\udcff')
        if item['v'] == 4: sys.exit(0)
    return [Rude(a=1) if i['v'] == 5 else i['v'] for i in batch]
"""


def test_whatever_a_task_raises_is_the_fault_of_its_item_alone(make_place, tmp_path):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(10))
    (tmp_path / "wild.py").write_text("import sys, stayfast\n" + WILD)
    code, told, err = finish(start_work(tmp_path, "wild:work", place.queue, place.sink, "--max-failures", "1"))
    assert (code, told["done"], told["dead"]) == (0, 5, 5), err
    reasons = {row.key: row.reason for row in queue.dead()}
    assert "KeyboardInterrupt" in reasons["k00001"]
    assert "Mine" in reasons["k00003"]
    assert "JSON" in reasons["k00005"]
    assert "Traceback" not in err
    queue.close()


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ("(i for i in batch)", "returned a generator for 3 items"),
        ("None", "returned a NoneType for 3 items"),
        ("{i['id']: 1 for i in batch}", "returned a dict for 3 items"),
        ("[[1] * len(batch)]", "returned 1 results for 3 items"),
    ],
)
def test_a_task_that_returns_no_list_of_results_is_wrong_as_a_whole(make_place, tmp_path, result, sentence):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(3))
    task = write_task(tmp_path, f"def work(batch): return {result}")
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink))
    assert code == 1
    assert sentence in err
    assert "Traceback" not in err
    assert queue.depth().ready == 3
    queue.close()


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b'{"id": "a", "v": "\xff"}', "not.*UTF-8"),
        (b'{"id": "\xff"}', "not valid Unicode|not.*UTF-8"),
        (b'{"id": "a\\u0000b"}', "holds a NUL"),
        (b'{"id": "\\ud800"}', "not valid Unicode"),
        (b'{"id": "a", "v": "' + b"x" * (1 << 20) + b'"}', "over the limit"),
        (b'{"id": ["a"]}', "not a string"),
        (b'{"id": ""}', "is empty"),
        (b"\0", "not JSON"),
    ],
    ids=lambda value: value[:24] if isinstance(value, bytes) else "",
)
@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_bad_bytes_on_standard_input_are_one_sentence_in_every_locale(tmp_path, line, sentence, locale):
    """In the C locale Python hands undecodable bytes on as lone surrogates, which no database takes."""
    done = subprocess.run(
        command("enqueue", "--queue", f"sqlite://{tmp_path}/w.db", "-"),
        input=b'{"id": "good"}\n' + line,
        capture_output=True,
        timeout=60,
        env={**os.environ, **QUIET, "LC_ALL": locale},
    )
    error = done.stderr.decode("utf-8", "replace")
    assert done.returncode == 2, error
    assert re.search(sentence, error), error
    assert len(error.strip().splitlines()) == 1
    queue = open_queue(f"sqlite://{tmp_path}/w.db")
    assert queue.depth().enqueued == 0, "nothing of a refused input is kept"
    queue.close()


def test_a_key_on_the_command_line_that_is_not_unicode(tmp_path):
    queue = open_queue(f"sqlite://{tmp_path}/w.db")
    queue.close()
    done = subprocess.run(
        [os.fsencode(part) for part in command("queue", "retry", "--queue", f"sqlite://{tmp_path}/w.db", "--only")]
        + [b"\xff"],
        capture_output=True,
        timeout=60,
        env={**os.environ, **QUIET},
    )
    assert done.returncode == 2, done.stderr
    assert b"Traceback" not in done.stderr


def test_a_byte_order_mark_is_not_part_of_the_first_key(tmp_path):
    for name, text in (("in.csv", "id,n\na,1\n"), ("in.jsonl", '{"id": "b"}\n')):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        done = stayfast("enqueue", "--queue", f"sqlite://{tmp_path}/w.db", str(tmp_path / name))
        assert done.returncode == 0, done.stderr


def test_a_directory_that_cannot_be_read_is_said_not_skipped(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("1")
    (tmp_path / "in" / "closed").mkdir()
    scandir = os.scandir

    def closed(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", closed)
    with pytest.raises(ItemError, match=r"cannot read .*closed: Permission denied"):
        list(from_directory(str(tmp_path / "in")))


def test_workers_that_start_together_on_a_new_file_wait_for_each_other(tmp_path):
    """While one creates the file, SQLite tells the next at once that it cannot switch it to a write-ahead log."""
    path = tmp_path / "w.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as first:
        first.execute("CREATE TABLE t (x)")
        first.execute("BEGIN IMMEDIATE")
        waiting = threading.Timer(0.5, lambda: first.execute("COMMIT"))
        waiting.start()
        queue, sink = open_queue(f"sqlite://{path}"), open_sink(f"sqlite://{path}")
        waiting.join()
    assert queue.connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    queue.close()
    sink.close()


def test_a_newer_schema_in_postgres_is_left_alone(make_place):
    place = make_place("postgres")
    queue = open_queue(place.queue)
    try:
        queue._database.execute("UPDATE stayfast_schema SET version=99 WHERE part='queue'", ())
        done = stayfast("queue", "status", "--queue", place.queue)
        assert done.returncode == 2
        assert "schema version 99" in done.stderr
        assert "upgrade stayfast" in done.stderr
    finally:
        queue._database.execute("UPDATE stayfast_schema SET version=1 WHERE part='queue'", ())
        queue.close()


@contextlib.contextmanager
def locked(place):
    """Somebody else holds what every claim needs."""
    if place.kind == "postgres":
        queue = open_queue(place.queue)
        with queue.batch() as cursor:
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout=0")
            cursor.execute("LOCK TABLE stayfast_item IN ACCESS EXCLUSIVE MODE")
            yield
        queue.close()
        return
    path = place.queue[len("sqlite://") :].split("?")[0]
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_notice_while_claiming_from_a_locked_queue_still_leaves_in_time(place, tmp_path):
    queue = open_queue(place.queue)
    queue.enqueue(pairs(30))
    flag = tmp_path / "begun"
    body = f"def work(item):\n    open({str(flag)!r}, 'a').write('x')\n    time.sleep(0.05)\n    return 1"
    task = write_task(tmp_path, body, "@stayfast.task(each=True)")
    short = {"PYTHONPATH": shorten_leases(tmp_path, 3.0)}
    more = ("--chunk", "3")
    process = start_work(tmp_path, task, place.queue, place.sink, *more, STAYFAST_GRACE_SECONDS="4", **short)
    until(flag.exists)
    with locked(place):
        time.sleep(0.5)
        started = time.monotonic()
        os.kill(process.pid, signal.SIGTERM)
        code, _, err = finish(process)
        assert code == 75, err
        assert time.monotonic() - started < 5.0
        assert "Traceback" not in err
    code, _, err = finish(start_work(tmp_path, task, place.queue, place.sink, **short))
    assert code == 0, err
    assert queue.depth().done == 30
    queue.close()


@pytest.mark.parametrize("words", ["database is locked", "locking protocol", "disk I/O error"])
def test_trouble_of_sqlite_that_passes_is_worth_another_try(words):
    with pytest.raises(QueueUnavailableError), sqlite.translate_errors("here", QueueUnavailableError, QueueError):
        raise sqlite3.OperationalError(words)
