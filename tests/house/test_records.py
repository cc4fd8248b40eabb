"""What users have on disk stays readable, and what they read stays as it is.

``records.json`` holds one of every record that an earlier version stored or printed; ``written`` holds what it left
behind. Neither is edited when code moves: a difference here is a change of a format.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

import pytest
import records

pytest.importorskip("numpy")
pytest.importorskip("xxhash")  # without it checksums are sha256


def test_every_record_is_what_it_was(tmp_path: Path) -> None:
    assert records.make(tmp_path) == json.loads((records.HERE / "records.json").read_text())


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A copy of what an earlier version wrote, with its programs."""
    folder = tmp_path / "written"
    shutil.copytree(records.HERE / "written", folder, symlinks=True)
    (folder / "train.py").write_text(records.TRAIN)
    (folder / "jobs.py").write_text(records.TASK)
    return folder


def test_a_run_that_was_written_before_is_read_and_extended(written: Path) -> None:
    url = f"file://{written}/run"
    rows = records.stayfast(written, "checkpoints", "verify", url)["checkpoints"]
    assert [row["verdict"] for row in rows] == ["whole", "whole"]
    known = json.loads((records.HERE / "records.json").read_text())["result"]
    again = records.call(written, "train.py", url)
    assert json.loads(again.stdout) == known
    longer = written / "longer.py"
    longer.write_text(records.TRAIN.replace("total_steps=6", "total_steps=9"))
    resumed = json.loads(records.call(written, "longer.py", url).stdout)
    alone = f"file://{written}/alone"
    records.call(written, "longer.py", alone, code=75)
    assert resumed == json.loads(records.call(written, "longer.py", alone).stdout)


def test_a_directory_that_was_copied_before_comes_back(written: Path) -> None:
    shutil.rmtree(written / "kept")
    look = "cat kept/file kept/folder/link"
    done = records.call(
        written, "-m", "stayfast", "exec", "--sync", f"kept=file://{written}/store", "--", "sh", "-c", look
    )
    assert done.stdout == "hello\nhello\n"


def test_a_queue_and_sinks_that_were_written_before_are_used(written: Path) -> None:
    queue, sink = f"sqlite:///{written}/queue.db?queue=a", f"sqlite:///{written}/sink.db?table=results"
    assert records.stayfast(written, "queue", "dead", "--queue", queue)["key"] == "fails"
    assert records.stayfast(written, "queue", "retry", "--queue", queue)["retried"] == 1
    records.stayfast(written, "enqueue", "--queue", queue, "--key", "id", str(more(written)))
    options = ["--queue", queue, "--sink", sink, "--workers", "1", "--max-failures", "1"]
    records.stayfast(written, "work", "jobs:work", *options)
    with sqlite3.connect(written / "sink.db") as connection:
        recorded = dict(connection.execute("select key, payload from results"))
    assert recorded == {"one": '{"squared":0}', "two": '{"squared":1}', "bytes": b"\x00\xff", "new": '{"squared":81}'}
    objects = [path.name for path in (written / "objects").rglob("*") if path.is_file()]
    assert len(objects) == 1, "the item that was enqueued late went there"


def more(folder: Path) -> Path:
    path = folder / "more.jsonl"
    path.write_text('{"id": "new", "n": 9}\n')
    return path
