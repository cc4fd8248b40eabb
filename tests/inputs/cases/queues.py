"""Queues, sinks, stores and what is put into them: URLs, JSON lines, CSV, folders, databases of another kind."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from inputs.bad_inputs import Case

QUEUE = "sqlite://{world}/work.db"
WORK = "sqlite:///{world}/work.db"
LINE = '{"key": "a", "x": 1}\n'


def enqueue(name: str, data: str | bytes, says: str, *options: str, file: str = "items.jsonl", **more: object) -> Case:
    """A file that is put into a fresh queue; an empty queue may be left."""
    argv = ("enqueue", "--queue", QUEUE, *options, file)
    return Case(f"enqueue-{name}", argv, says, files={file: data}, leaves=("work.db",), **more)  # type: ignore[arg-type]


def url(name: str, given: str, says: str, **more: object) -> Case:
    """A queue URL, asked for its state."""
    return Case(f"queue-url-{name}", ("queue", "status", "--queue", given), says, **more)  # type: ignore[arg-type]


def sink(name: str, given: str, says: str, **more: object) -> Case:
    """A sink URL, in an audit of a queue that is there."""
    argv = ("audit", "--queue", QUEUE, "--sink", given)
    return Case(f"sink-url-{name}", argv, says, make=_queue, leaves=("work.db",), **more)  # type: ignore[arg-type]


def store(name: str, given: str, says: str, **more: object) -> Case:
    """A store URL, asked for its checkpoints."""
    return Case(f"store-url-{name}", ("checkpoints", "ls", given), says, **more)  # type: ignore[arg-type]


def _users(world: Path) -> None:
    database(world, "CREATE TABLE users (name TEXT)")


def _queue(world: Path) -> None:
    from stayfast.batch.queue.open_queue import open_queue

    queue = open_queue(f"sqlite://{world}/work.db")
    queue.enqueue([("a", "{}")])
    queue.close()


def _newer_queue(world: Path) -> None:
    _queue(world)
    database(world, "UPDATE stayfast_schema SET version=999")


def _foreign_database(world: Path) -> None:
    database(world, "CREATE TABLE stayfast_item (surprise TEXT)")


def database(world: Path, *statements: str) -> None:
    """A SQLite file that somebody else wrote."""
    with sqlite3.connect(world / "work.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def _truncated(world: Path) -> None:
    _queue(world)
    whole = (world / "work.db").read_bytes()
    (world / "work.db").write_bytes(whole[: len(whole) // 2])


def _damaged(world: Path) -> None:
    _queue(world)
    whole = bytearray((world / "work.db").read_bytes())
    whole[100:4096] = b"\xff" * 3996
    (world / "work.db").write_bytes(whole)


def _unreadable_folder(world: Path) -> None:
    (world / "incoming" / "closed").mkdir(parents=True)
    (world / "incoming" / "a").write_text("x")
    (world / "incoming" / "closed").chmod(0)


def _hostile_folder(world: Path) -> None:
    (world / "incoming").mkdir()
    (world / "incoming" / os.fsdecode(b"\xff\xfe.jpg")).write_text("x")


LINES = [
    enqueue("not-json", LINE + "{broken\n", "items.jsonl:2 is not JSON"),
    enqueue("array", "[1, 2]\n", "items.jsonl:1 is a list, not an object with a key"),
    enqueue("number", "7\n", "items.jsonl:1 is a int, not an object with a key"),
    enqueue("no-key", '{"x": 1}\n', "items.jsonl:1 has no field 'key' or 'id'"),
    enqueue("no-such-field", LINE, "items.jsonl:1 has no field 'image'", "--key", "image"),
    enqueue("key-number", '{"key": 7}\n', "has the key 7, which is not a string"),
    enqueue("key-null", '{"key": null}\n', "has the key None, which is not a string"),
    enqueue("key-empty", '{"key": ""}\n', "has a key that is empty"),
    enqueue("key-long", '{"key": "%s"}\n' % ("k" * 2000), "has a key that has 2000 characters"),
    enqueue("key-long-utf8", '{"key": "%s"}\n' % ("ä" * 400), "has a key of 800 bytes"),
    enqueue("key-nul", '{"key": "a\\u0000b"}\n', "has a key that holds a NUL"),
    enqueue("key-surrogate", '{"key": "\\ud800"}\n', "has a key that is not valid Unicode"),
    enqueue("nan", '{"key": "a", "x": NaN}\n', "NaN is not JSON"),
    enqueue("infinity", '{"key": "a", "x": -Infinity}\n', "-Infinity is not JSON"),
    enqueue("5000-digits", '{"key": "a", "x": %s}\n' % ("9" * 5000), "items.jsonl:1 is not JSON"),
    enqueue("deep", '{"key": "a", "x": %s}\n' % ("[" * 100_000), "items.jsonl:1 is not JSON"),
    enqueue("big", '{"key": "a", "x": "%s"}\n' % ("x" * 300_000), "over the limit of 262144"),
    enqueue("utf-16", LINE.encode("utf-16"), "items.jsonl:1 is not UTF-8"),
    enqueue("binary", bytes(range(128, 256)), "is not UTF-8"),
    enqueue("nul-bytes", b"\0" * 100, "items.jsonl:1 is not JSON"),
    enqueue("duplicate-key-differs", LINE + LINE.replace("1", "2"), "the key 'a' is in queue 'default' already"),
    enqueue("python-repr", "{'key': 'a'}\n", "items.jsonl:1 is not JSON"),
    enqueue("pretty-printed", '{\n "key": "a"\n}\n', "items.jsonl:1 is not JSON"),
    enqueue("escape-in-line", '{"key": \x1b[2J}\n', "items.jsonl:1 is not JSON"),
    enqueue("both-ways-to-the-key", LINE, "--key and --task both say where the key is", "--key", "a", "--task", "t:x"),
    enqueue("no-such-module", LINE, "nosuch", "--task", "nosuch:task"),
    enqueue("listing-of-a-file", LINE, "items.jsonl is not a directory", "--format", "listing"),
    enqueue("unknown-format", LINE, "invalid choice: 'xml'", "--format", "xml"),
    Case(
        "enqueue-closed-folder",
        ("enqueue", "--queue", QUEUE, "incoming"),
        "closed: Permission denied",
        make=_unreadable_folder,
        unprivileged=True,
        leaves=("work.db",),
    ),
    Case(
        "enqueue-not-utf8-file-name",
        ("enqueue", "--queue", QUEUE, "incoming"),
        "has a key that is not valid Unicode",
        make=_hostile_folder,
        leaves=("work.db",),
    ),
    Case(
        "enqueue-missing",
        ("enqueue", "--queue", QUEUE, "no.jsonl"),
        "cannot read no.jsonl: No such file",
        leaves=("work.db",),
    ),
    Case("enqueue-no-queue", ("enqueue", "x.jsonl"), "the following arguments are required: --queue"),
    Case(
        "enqueue-stdin-broken",
        ("enqueue", "--queue", QUEUE),
        "stdin:1 is not JSON",
        stdin=b"{",
        leaves=("work.db",),
    ),
    Case(
        "enqueue-stdin-binary",
        ("enqueue", "--queue", QUEUE, "-"),
        "stdin:1 is not UTF-8",
        stdin=b"\xff\xfe",
        leaves=("work.db",),
    ),
]

TABLES = [
    enqueue("csv-short-row", "key,x\na\n", "items.csv:2 does not have 2 columns", file="items.csv"),
    enqueue("csv-long-row", "key,x\na,1,2\n", "items.csv:2 does not have 2 columns", file="items.csv"),
    enqueue("csv-column-twice", "key,key\na,b\n", "items.csv:1 names a column twice", file="items.csv"),
    enqueue("csv-open-quote", 'key,x\na,"b\n', "is not CSV", file="items.csv"),
    enqueue("csv-no-key", "name,x\na,1\n", "has no field 'key' or 'id'", file="items.csv"),
    enqueue("csv-utf-16", "key,x\na,1\n".encode("utf-16"), "items.csv is not UTF-8", file="items.csv"),
    enqueue(
        "csv-huge-field", "key,x\na,%s\n" % ("x" * 300_000), "items.csv:2 has a field over the limit", file="items.csv"
    ),
    enqueue("csv-empty-key", "key,x\n,1\n", "has a key that is empty", file="items.csv"),
]

URLS = [
    url("nothing", "", "has no known scheme"),
    url("path", "work.db", "the queue URL 'work.db' has no known scheme"),
    url("redis", "redis://localhost", "has no known scheme"),
    url("host", "sqlite://host/work.db", "names a host; write sqlite://./host/work.db for a file here"),
    url("no-file", "sqlite://", "names no file"),
    url("nul", "sqlite:///%00", "names no file"),
    url("option", WORK + "?que=x", "the option 'que' of"),
    url("option-twice", WORK + "?queue=x&queue=y", "is given twice"),
    url("option-empty", WORK + "?queue=", "is empty"),
    url("name-slash", WORK + "?queue=a/b", "'a/b' is not a queue name", make=_queue, leaves=("work.db",)),
    url("bracket", "sqlite://[", "sqlite://["),
    url("bracket-port", "postgresql://[::1", "postgresql://[::1"),
    url("bad-port", "postgresql://localhost:notaport/db?queue=q", "notaport"),
    url("no-folder", "sqlite:///{world}/no/work.db", "/no; create it"),
    url("missing", WORK, "there is no file"),
    url("folder", "sqlite:///{world}", "is not a file"),
    url("long", "sqlite:///{world}/" + "x" * 5000, "x"),
    url("pubsub-no-sink", "pubsub://project/sub", "needs to know where its ledger is"),
    url("escape", "sqlite:///\x1b[2J/work.db", "there is no directory"),
    url("surrogate", "sqlite:///" + os.fsdecode(b"\xff\xfe/work.db"), "there is no directory"),
    url("proc", "sqlite:///proc/work.db", "/proc/work.db"),
    url("dev-null", "sqlite:////dev/null", "/dev/null is not a file"),
    url("text-file", WORK, "cannot be used as a SQLite database", files={"work.db": "hello " * 999}),
    url("empty-file", WORK, "work.db", files={"work.db": ""}, leaves=("work.db",)),
    url("truncated", WORK, "work.db", make=_truncated, leaves=("work.db",)),
    url("damaged", WORK, "work.db", make=_damaged, leaves=("work.db",)),
    url("newer-schema", WORK, "schema version 999", make=_newer_queue, leaves=("work.db",)),
    url("foreign-table", WORK, "there is no queue in", make=_foreign_database, leaves=("work.db",)),
    url("not-ours-is-left-alone", WORK, "there is no queue in", make=_users),
    url("password-is-not-shown", "mysql://me:secret@host/db", "'mysql://…@host/db' has no known scheme"),
    url("other-queue", WORK + "?queue=other", "other", make=_queue, leaves=("work.db",)),
]  # fmt: skip

SINKS = [
    sink("nothing", "", "has no known scheme"),
    sink("http", "https://example.com/x", "the sink URL 'https://example.com/x' has no known scheme"),
    sink("table-name", "sqlite://{world}/work.db?table=a;b", "a;b"),
    sink("option", "sqlite://{world}/work.db?tab=x", "the option 'tab'"),
    sink("no-folder-table", "sqlite://{world}/no/results.db?table=r", "/no; create it"),
    sink("bracket", "gs://[", "gs://["),
    sink("queue-table", "sqlite://{world}/work.db?table=stayfast_item", "stayfast_item"),
    sink("missing-folder", "sqlite://{world}/no/x.db", "there is no directory"),
]

STORES = [
    store("nothing", "", "the URL '' has no known scheme"),
    store("path", "run", "the URL 'run' has no known scheme"),
    store("http", "https://x/y", "has no known scheme"),
    store("host", "file://host/x", "names a host; write file:///host/x"),
    store("no-path", "file://", "has no path"),
    store("query", "file:///x?y=1", "has a query or fragment"),
    store("fragment", "file:///x#1", "has a query or fragment"),
    store("no-bucket", "gs:///x", "names no bucket; write gs://bucket/prefix"),
    store("bracket", "s3://[/x", "s3://["),
    store("nul", "file:///{world}/%00", "holds a NUL character"),
    store("missing", "file://{world}/no", "there is no run under"),
    store("file", "file://{world}/plain", "plain", files={"plain": "x"}),
    store("surrogate", "file://{world}/%ff", "there is no run under"),
    store("escape", "file://{world}/\x1b[2J", "there is no run under"),
    store("long", "file://{world}/" + "x" * 5000, "file name too long", code=3),
    store("bucket-name", "gs://a b/x", "a b"),
    store("dots", "file://{world}/../../../../..", "there is no run under"),
    store("emulator-nonsense", "gs://bucket/run", "STORAGE_EMULATOR_HOST", env={"STORAGE_EMULATOR_HOST": "::::"}),
]  # fmt: skip

CASES = LINES + TABLES + URLS + SINKS + STORES
