"""One of every record that stayfast stores or prints, made by commands and public names alone.

``python tests/house/records.py --write`` makes ``records.json`` and the folder ``written`` again. Do that only for a
deliberate change of a format: both stand for what users have on disk.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parents[1] / "src"

TRAIN = """
import json, random, sys
import numpy as np
import stayfast

random.seed(1), np.random.seed(1)
weights, draws = np.zeros(4), random.Random(7)
plain = {"numbers": [1, 2.5, None, 2**70], "others": (True, b"bytes", "text"), 3: {"a", }, "big": np.arange(1000)}
with stayfast.run(sys.argv[1], total_steps=6) as run:
    run.track(weights=(lambda: weights, lambda saved: np.copyto(weights, saved)), draws=draws)
    run.track(plain=(lambda: plain, plain.update))
    run.on_drain(lambda: None, name="metrics")
    for step in run.steps():
        weights += draws.random() + random.random()
        if step == 3 and run.attempt == 1:
            run.interrupt("asked", grace_seconds=30)
print(json.dumps(weights.tolist()))
"""

TASK = """
import stayfast

@stayfast.task(key=lambda item: item["id"])
def work(batch):
    return [result(item) for item in batch]

def result(item):
    if item["id"] == "fails":
        return stayfast.Failed("odd")
    return b"\\x00\\xff" if item["id"] == "bytes" else {"squared": item["n"] ** 2}
"""

FILL = "umask 22; echo hello > kept/file; mkdir kept/folder; ln -s ../file kept/folder/link; kill $PPID; sleep 9"


def call(folder: Path, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
    drop = ("STAYFAST_", "PYTEST_", "RANK", "WORLD_SIZE", "JOB_COMPLETION_INDEX")
    values = {name: value for name, value in os.environ.items() if not name.startswith(drop)}
    values |= {"PYTHONPATH": f"{SOURCE}:{folder}", "STAYFAST_METADATA": "off", "PYTHONHASHSEED": "0"} | variables
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=values, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def stayfast(folder: Path, *words: str, code: int = 0, **variables: str) -> Any:
    """A command's JSON, one value or a list of its lines."""
    text = call(folder, "-m", "stayfast", *words, "--output", "json", code=code, **variables).stdout
    values = [json.loads(line) for line in text.splitlines()]
    return values[0] if len(values) == 1 else values


def outcome(stderr: str) -> Any:
    return json.loads(next(line for line in stderr.splitlines() if line.startswith('{"outcome"')))


def make(folder: Path) -> dict[str, Any]:
    """Run everything in an empty folder; returns all records, with what differs between two runs taken out."""
    found: dict[str, Any] = {}
    (folder / "train.py").write_text(TRAIN)
    (folder / "jobs.py").write_text(TASK)
    prints = {"STAYFAST_FINGERPRINTS": str(folder / "steps.jsonl"), "STAYFAST_TERMINATION_LOG": str(folder / "message")}
    url = f"file://{folder}/run"
    first = call(folder, "train.py", url, code=75, **prints)
    found["outcome of an interrupted run"] = outcome(first.stderr)
    second = call(folder, "train.py", url, **prints)
    found["outcome of a finished run"] = outcome(second.stderr)
    found["result"] = json.loads(second.stdout)
    found["fingerprints"] = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    found["run"] = objects(folder / "run")
    found["checkpoints ls"] = stayfast(folder, "checkpoints", "ls", url)
    found["checkpoints verify"] = stayfast(folder, "checkpoints", "verify", url)
    found["bill"] = stayfast(folder, "bill", url)
    (folder / "kept").mkdir()
    synced = ["-m", "stayfast", "exec", "--sync", f"kept=file://{folder}/store", "--", "sh", "-c", FILL]
    done = call(folder, *synced, code=75)
    found["outcome of exec"] = outcome(done.stderr)
    found["directory in a store"] = objects(folder / "store")
    found |= batch(folder)
    plain: dict[str, Any] = without_chance(found, str(folder))
    return plain


def batch(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    queue, sink = f"sqlite:///{folder}/queue.db?queue=a", f"sqlite:///{folder}/sink.db?table=results"
    items = [{"id": name, "n": number} for number, name in enumerate(("one", "two", "fails", "bytes"))]
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    found["enqueue"] = stayfast(folder, "enqueue", "--queue", queue, "--key", "id", "items.jsonl")
    found["queue status"] = stayfast(folder, "queue", "status", "--queue", queue)
    options = ["--queue", queue, "--sink", sink, "--workers", "1", "--max-failures", "1", "--chunk", "2"]
    found["work"] = stayfast(folder, "work", "jobs:work", *options)
    found["queue status after work"] = stayfast(folder, "queue", "status", "--queue", queue)
    found["queue dead"] = stayfast(folder, "queue", "dead", "--queue", queue)
    found["audit"] = stayfast(folder, "audit", "--queue", queue, "--sink", sink)
    call(folder, "-c", ENQUEUE, queue)
    found["queue in SQLite"], found["sink in SQLite"] = rows(folder / "queue.db"), rows(folder / "sink.db")
    (folder / "objects").mkdir()
    objects_sink = f"file://{folder}/objects"
    found["work into objects"] = stayfast(
        folder, "work", "jobs:work", "--queue", queue, "--sink", objects_sink, "--workers", "1"
    )
    found["sink as objects"] = {
        str(path.relative_to(folder / "objects")): path.read_bytes().decode("latin-1")
        for path in sorted((folder / "objects").rglob("*"))
        if path.is_file()
    }
    return found


# One item more through a pipe, whose key is the field `key`.
ENQUEUE = """
import json, subprocess, sys
line = json.dumps({"key": "late", "id": "late", "n": 7})
command = [sys.executable, "-m", "stayfast", "enqueue", "--queue", sys.argv[1], "-"]
subprocess.run(command, input=line, text=True, check=True, stdout=subprocess.DEVNULL)
"""


def objects(root: Path) -> dict[str, Any]:
    """Every object of a run: JSON as it is, the trees of checkpoints, and the checksums of the rest."""
    found: dict[str, Any] = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if path.suffix == ".json":
            found[str(path.relative_to(root))] = json.loads(path.read_text())
    for name, inventory in list(found.items()):
        for entry in inventory.get("entries", ()):
            if entry[0] == "(tree)":
                key, _length, _sums = inventory["parts"][entry[3]]
                data = (root / key).read_bytes()[entry[4] : entry[4] + entry[5]]
                found[f"tree of {name}"] = json.loads(data)
    return found


def rows(database: Path) -> dict[str, Any]:
    with sqlite3.connect(database) as connection:
        tables = connection.execute(
            "select name, sql from sqlite_master where sql is not null order by name"
        ).fetchall()
        found: dict[str, Any] = {"schema": dict(tables)}
        for name, sql in tables:
            if sql.startswith("CREATE TABLE") and not name.startswith("sqlite_"):
                cursor = connection.execute(f"select * from {name}")
                columns = [column[0] for column in cursor.description]
                found[name] = [dict(zip(columns, map(printable, row), strict=True)) for row in cursor]
    return found


def printable(value: Any) -> Any:
    return value.decode("latin-1") if isinstance(value, bytes) else value


VARIES = {
    "token",
    "checksum",
    "inventory_sha256",
    "seconds",
    "seconds_used",
    "usd_per_hour",
    "recorded_at",
    "boot",
    "expires",
    "due",
}


def without_chance(value: Any, folder: str, name: str = "") -> Any:
    """The same with words for times, tokens, checksums over them, and the folder's name; types stay visible."""
    if isinstance(value, dict):
        if {"version", "rows"} <= value.keys() and isinstance(value["rows"], list):  # a directory: modification times
            value = value | {"rows": [[*row[:3], "time" if row[3] else 0, *row[4:]] for row in value["rows"]]}
        return {key: without_chance(item, folder, key) for key, item in value.items()}
    if isinstance(value, list):
        if name == "parts":
            return [[key, length, len(sums)] for key, length, sums in value] if value and len(value[0]) == 3 else value
        if len(value) > 100:
            return f"{len(value)} values, sha256 {hashlib.sha256(json.dumps(value).encode()).hexdigest()}"
        return [without_chance(item, folder) for item in value]
    if value is None or isinstance(value, bool):
        return value
    if name in VARIES or name.endswith(("_seconds", "_at")) or name == "goodput":
        return f"some {type(value).__name__}"
    if isinstance(value, str):
        value = re.sub(r'"token": "\w+"', '"token": "some token"', value.replace(folder, "FOLDER"))
        return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "some time", value)
    return value


KEPT = ("run", "store", "kept", "queue.db", "sink.db", "objects")


def write() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (HERE / "records.json").write_text(json.dumps(make(folder), indent=1, sort_keys=True) + "\n")
        shutil.rmtree(HERE / "written", ignore_errors=True)
        (HERE / "written").mkdir()
        for kept in KEPT:
            source, target = folder / kept, HERE / "written" / kept
            if source.is_dir():
                shutil.copytree(source, target, symlinks=True)
            else:
                with sqlite3.connect(source) as connection:
                    connection.execute("pragma wal_checkpoint(truncate)")
                shutil.copy(source, target)


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
