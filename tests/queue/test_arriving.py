"""Items that arrive slowly through a pipe: they are there for workers within a second, and errors are not swallowed."""

from __future__ import annotations

import os
import signal
import subprocess
import threading

import pytest
from work_command import QUIET, command, until

from stayfast.batch.queue import item_sources
from stayfast.batch.queue.item_sources import stream_batches
from stayfast.batch.queue.open_queue import open_queue
from stayfast.batch.queue.validation import same_json
from stayfast.errors import UsageError


def test_what_has_arrived_does_not_wait_for_what_has_not(tmp_path):
    url = f"sqlite://{tmp_path}/w.db"
    process = subprocess.Popen(
        command("enqueue", "--queue", url, "-"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **QUIET},
    )
    process.stdin.write(b'{"id": "a"}\n{"id": "b"}\n')
    process.stdin.flush()
    until(lambda: os.path.exists(tmp_path / "w.db-owners"))
    queue = open_queue(url)
    until(lambda: queue.depth().ready == 2)
    process.stdin.write(b'{"id": "c"}\n{"id": "d"')
    process.stdin.flush()
    until(lambda: queue.depth().ready == 3)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == b"stayfast: stopped by Ctrl-C\n"
    queue.close()


def test_every_item_comes_once_and_in_order(monkeypatch):
    monkeypatch.setattr(item_sources, "BATCH", 7)
    pairs = [(str(n), "x") for n in range(100)]
    found = list(stream_batches(iter(pairs), patience_seconds=60.0))
    assert [pair for part in found for pair in part] == pairs
    assert {len(part) for part in found} == {7, 2}
    monkeypatch.setattr(item_sources, "BATCH_BYTES", 3)
    assert [len(part) for part in stream_batches(iter(pairs[:7]), patience_seconds=60.0)] == [3, 3, 1]
    assert list(stream_batches(iter(()))) == []


def test_an_error_is_raised_where_the_items_are_taken_and_drops_what_came_with_it():
    gate = threading.Event()

    def source():
        yield ("a", "1")
        gate.wait(20)
        yield ("b", "1")
        raise UsageError("line 3 is wrong")

    taken = []
    with pytest.raises(UsageError, match="line 3"):
        for part in stream_batches(source(), patience_seconds=0.05):
            taken += part
            gate.set()
    assert taken == [("a", "1")]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ('{"a": 1, "b": [1.0]}', '{"b":[1],"a":1e0}', True),
        ('{"a": 1}', '{"a": true}', False),
        ('{"a": 0}', '{"a": false}', False),
        ('{"a": null}', "{}", False),
        ("1.5", "1.50", True),
        ("1e999", "1e999", True),
        ("9007199254740993", "9007199254740992", False),
    ],
)
def test_the_same_json(one, other, same):
    assert same_json(one, other) is same
