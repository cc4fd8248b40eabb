"""``stayfast enqueue``, ``queue`` and ``audit``: sources, shapes, and one sentence for what is wrong."""

from __future__ import annotations

import csv
import io
import json
import sqlite3
import tracemalloc

import pytest
from work_command import pairs, stayfast

from stayfast.batch.queue.item_sources import from_csv, from_directory, from_json_lines, from_listing, key_by_field
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.protocol import Failure
from stayfast.batch.queue.sqlite import SqliteQueue
from stayfast.batch.queue.validation import MAX_PAYLOAD_BYTES
from stayfast.batch.sink.open_sink import open_sink
from stayfast.batch.worker.audit import audit_queue
from stayfast.batch.worker.task import Task, load_task
from stayfast.errors import UsageError


def lines(*text: str, key: str | None = None) -> list[tuple[str, str]]:
    return list(from_json_lines(io.StringIO("\n".join(text)), "in.jsonl", key_by_field(key)))


def test_json_lines_keep_their_text_and_find_their_key():
    assert lines('{"key": "a", "id": "z"}', "", '  {"id": "b"} ') == [
        ("a", '{"key": "a", "id": "z"}'),
        ("b", '{"id": "b"}'),
    ]
    assert lines('{"url": "x", "id": "z"}', key="url") == [("x", '{"url": "x", "id": "z"}')]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("{", "in.jsonl:1 is not JSON"),
        ('{"id": NaN}', "NaN is not JSON"),
        ("[1]", "is a list, not an object"),
        ('{"name": "x"}', "no field 'key' or 'id'"),
        ('{"id": 5}', "key 5, which is not a string"),
        ('{"id": null}', "not a string"),
        ('{"id": ""}', "key that is empty"),
        ('{"id": "a\\u0000b"}', "holds a NUL"),
        ('{"id": "\\ud800"}', "not valid Unicode"),
        ('{"id": "' + "x" * 600 + '"}', "600 characters"),
        ('{"id": "' + "ä" * 400 + '"}', "800 bytes"),
        ('{"id": "a", "x": "' + "y" * MAX_PAYLOAD_BYTES + '"}', "over the limit"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_bad_lines_are_named_with_file_and_line(line, sentence):
    with pytest.raises(UsageError) as caught:
        lines(line)
    assert sentence in str(caught.value)
    assert "in.jsonl:1" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_csv_directories_and_listings(tmp_path):
    rows = list(from_csv(io.StringIO('id,n\r\na,1\r\n"b,c",2\r\n'), "in.csv", key_by_field(None)))
    assert rows == [("a", '{"id":"a","n":"1"}'), ("b,c", '{"id":"b,c","n":"2"}')]
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "x.png").write_bytes(b"12345")
    (tmp_path / "y.png").write_bytes(b"")
    found = dict(from_directory(str(tmp_path)))
    assert sorted(found) == ["d/x.png", "y.png"]
    assert json.loads(found["d/x.png"])["size_bytes"] == 5
    listed = dict(from_listing(f"file://{tmp_path}"))
    assert json.loads(listed["d/x.png"])["url"] == f"file://{tmp_path}/d/x.png"


@pytest.mark.parametrize("text", ["id,id\na,b\n", "id,n\na\n", "id,n\na,b,c\n", 'id,n\n"a,b\n'])
def test_bad_csv_is_named(text):
    with pytest.raises(UsageError, match=r"in\.csv:\d+"):
        list(from_csv(io.StringIO(text), "in.csv", key_by_field(None)))


def test_a_csv_field_may_be_as_long_as_an_item():
    read = lambda size: list(from_csv(io.StringIO(f"id,n\na,{'7' * size}\n"), "in.csv", key_by_field(None)))  # noqa: E731
    assert len(read(200_000)[0][1]) > 200_000
    before = csv.field_size_limit(MAX_PAYLOAD_BYTES)  # whatever ran before in this process
    try:
        with pytest.raises(UsageError, match=r"in\.csv:2 has a field over the limit of 262144 bytes"):
            read(300_000)
    finally:
        csv.field_size_limit(before)


def test_the_commands_together(tmp_path):
    queue_url, sink_url = f"sqlite://{tmp_path}/w.db?queue=a", f"sqlite://{tmp_path}/w.db?table=r"
    source = tmp_path / "in.jsonl"
    source.write_text("\n".join(text for _, text in pairs(50)))
    done = stayfast("enqueue", "--queue", queue_url, str(source), "--json")
    assert (done.returncode, json.loads(done.stdout)["added"]) == (0, 50), done.stderr
    again = stayfast("enqueue", "--queue", queue_url, "-", "--json", stdin=source.read_text())
    assert json.loads(again.stdout)["known"] == 50

    queue, sink = open_queue(queue_url), open_sink(sink_url)
    leases = queue.claim(48)
    sink.record_all([(lease.key, "1", lease.generation) for lease in leases[:45]])
    queue.complete(leases[:46])  # one acknowledged and not recorded: the bug that audit exists for
    queue.fail([Failure(lease, "Traceback\nValueError: bad", final=True) for lease in leases[46:]])
    sink.record("stranger", "1")

    status = stayfast("queue", "status", "--queue", queue_url, "--json")
    assert json.loads(status.stdout) == {
        "ready": 2, "delayed": 0, "leased": 0, "done": 46, "dead": 2, "enqueued": 50,
    }  # fmt: skip
    dead = stayfast("queue", "dead", "--queue", queue_url, "--json")
    assert [json.loads(line)["key"] for line in dead.stdout.splitlines()] == ["k00046", "k00047"]
    assert "ValueError: bad" in stayfast("queue", "dead", "--queue", queue_url).stdout

    audit = stayfast("audit", "--queue", queue_url, "--sink", sink_url, "--json")
    told = json.loads(audit.stdout)
    assert audit.returncode == 1
    assert {name: told[name] for name in ("enqueued", "recorded", "dead", "missing")} == {
        "enqueued": 50, "recorded": 45, "dead": 2, "missing": ["k00045", "k00048", "k00049"],
    }  # fmt: skip
    assert told["acknowledged_not_recorded"] == ["k00045"]
    assert told["foreign_count"] == 1
    assert "NOT every item" in stayfast("audit", "--queue", queue_url, "--sink", sink_url).stdout

    sink.record_all([(key, "1", 0) for key in told["missing"]])
    clean = stayfast("audit", "--queue", queue_url, "--sink", sink_url)
    assert clean.returncode == 0, clean.stdout
    assert (
        stayfast("queue", "retry", "--queue", queue_url, "--only", "k00046", "--json").stdout.strip()
        == '{"retried": 1}'
    )
    assert stayfast("queue", "retry", "--queue", queue_url, "--only", "nobody").returncode == 1
    queue.close()
    sink.close()


@pytest.mark.parametrize("sink", ["sqlite://./none.db?table=r", "sqlite://./w.db?table=r", "file://./none"])
def test_an_audit_before_any_worker_lists_every_item(tmp_path, sink, monkeypatch):
    monkeypatch.setenv("STAYFAST_QUEUE", "sqlite://./w.db?queue=a")
    monkeypatch.setenv("STAYFAST_SINK", sink)
    assert stayfast("enqueue", "-", stdin='{"id": "a"}\n{"id": "b"}\n', cwd=tmp_path).returncode == 0
    before = sorted(path.name for path in tmp_path.iterdir())
    audit = stayfast("audit", "--json", cwd=tmp_path)
    assert audit.returncode == 1, audit.stderr
    told = json.loads(audit.stdout)
    assert (told["enqueued"], told["recorded"], told["missing"]) == (2, 0, ["a", "b"])
    if sink.startswith("sqlite"):
        assert "nothing is recorded: there is no " in audit.stderr
        assert "`stayfast work` creates it" in audit.stderr
    assert stayfast("queue", "status", cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_contradiction_stops_enqueue_and_replace_is_explicit(tmp_path):
    queue_url = f"sqlite://{tmp_path}/w.db"
    stayfast("enqueue", "--queue", queue_url, stdin='{"id": "a", "v": 1}')
    refused = stayfast("enqueue", "--queue", queue_url, stdin='{"id": "a", "v": 2}')
    assert refused.returncode == 2
    assert "'a' is in queue 'default' already, with another payload" in refused.stderr
    assert stayfast("enqueue", "--queue", queue_url, "--replace", stdin='{"id": "a", "v": 2}').returncode == 0
    queue = open_queue(queue_url)
    assert queue.claim(1)[0].payload == '{"id": "a", "v": 2}'
    queue.close()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("absent.jsonl",), "cannot read absent.jsonl: No such file"),
        (("--key", "a", "--task", "m:t"), "both say where the key is"),
        (("--task", "nomodule:t"), "cannot be imported"),
        (("--format", "listing", "/dev/null"), "not a directory"),
        (("ftp://x/y",), "no known scheme"),
    ],
)
def test_bad_sources_are_exit_2(tmp_path, arguments, sentence):
    done = stayfast("enqueue", "--queue", f"sqlite://{tmp_path}/w.db", *arguments, cwd=tmp_path, stdin="")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_bytes_that_are_not_utf8_are_named(tmp_path):
    (tmp_path / "bad.jsonl").write_bytes(b'{"id": "a"}\n{"id": "\xff"}\n')
    done = stayfast("enqueue", "--queue", f"sqlite://{tmp_path}/w.db", str(tmp_path / "bad.jsonl"))
    assert done.returncode == 2
    assert "not UTF-8" in done.stderr


def test_a_newer_schema_is_left_alone(tmp_path):
    path = str(tmp_path / "w.db")
    SqliteQueue(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE stayfast_schema SET version=99")
    done = stayfast("queue", "status", "--queue", f"sqlite://{path}")
    assert done.returncode == 2
    assert "schema version 99" in done.stderr
    assert "upgrade" in done.stderr


def test_a_queue_that_is_not_there_names_those_that_are(tmp_path):
    SqliteQueue(str(tmp_path / "w.db"), "images").close()
    done = stayfast("queue", "status", "--queue", f"sqlite://{tmp_path}/w.db?queue=image")
    assert done.returncode == 2
    assert "it has images" in done.stderr


def test_network_file_systems_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("stayfast.storage.database.sqlite.unsafe_filesystem", lambda path: "NFS")
    with pytest.raises(UsageError, match=r"NFS.*postgresql://"):
        SqliteQueue(str(tmp_path / "w.db"))


def test_tasks_bring_their_own_keys(tmp_path, monkeypatch):
    (tmp_path / "own_keys.py").write_text(
        "import stayfast\n@stayfast.task(key=lambda item: item['image'])\ndef work(batch): return batch\n"
    )
    monkeypatch.chdir(tmp_path)
    task = load_task("own_keys:work")
    url = f"sqlite://{tmp_path}/w.db"
    assert task.enqueue(url, [{"image": "a"}, {"image": "b"}]).added == 2
    done = stayfast(
        "enqueue", "--queue", url, "--task", "own_keys:work", "--json", cwd=tmp_path, stdin='{"image": "c"}'
    )
    assert json.loads(done.stdout)["added"] == 1, done.stderr
    with pytest.raises(UsageError, match=r"key function .* failed on item 0: KeyError"):
        task.enqueue(url, [{"other": 1}])
    with pytest.raises(UsageError, match="cannot be written as JSON"):
        task.enqueue(url, [{"image": "x", "set": {1}}])
    with pytest.raises(UsageError, match="has no key function"):
        Task(print, key=None, each=False).enqueue(url, [1])


def test_the_audit_streams(tmp_path):
    """A million keys on both sides in a few megabytes."""

    def keys():
        return (f"{number:08d}" for number in range(300_000))

    tracemalloc.start()
    audit = audit_queue(((key, "done") for key in keys()), keys())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (audit.recorded, audit.clean) == (300_000, True)
    assert peak < 1 << 20
    few = audit_queue(((key, "ready") for key in keys()), iter(()), limit=10)
    assert (len(few.missing), few.missing_count) == (10, 300_000)


def test_an_audit_of_a_queue_that_never_held_anything_is_exit_1(place):
    open_queue(place.queue).close()
    open_sink(place.sink).close()
    text = stayfast("audit", "--queue", place.queue, "--sink", place.sink)
    assert text.returncode == 1
    assert "nothing was ever enqueued in" in text.stdout
    assert "every item is accounted for" not in text.stdout
    told = json.loads(stayfast("audit", "--queue", place.queue, "--sink", place.sink, "--json").stdout)
    assert (told["enqueued"], told["clean"]) == (0, False)


def test_an_audit_of_a_queue_whose_items_are_all_dead_is_clean(make_place):
    place = make_place("sqlite")
    queue = open_queue(place.queue)
    queue.enqueue(pairs(1))
    queue.fail([Failure(queue.claim(1)[0], "no", final=True)])
    queue.close()
    open_sink(place.sink).close()
    assert stayfast("audit", "--queue", place.queue, "--sink", place.sink).returncode == 0
