"""Every example is run as its README says: undisturbed, and with a real SIGTERM in the middle and a second start."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
import sys
import uuid
from pathlib import Path

import pytest
from runtime_children import Child, environment

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
STAYFAST = [sys.executable, "-m", "stayfast"]
PATIENCE_SECONDS = 120.0
"""Not a speed limit: the machine may be busy with other suites."""

PROGRAMS = {
    "numpy": ([sys.executable, "train.py"], "step 20", ["numpy"]),
    "pytorch": ([sys.executable, "train.py"], "step 20", ["torch"]),
    "lightning": ([sys.executable, "train.py"], "step 20", ["lightning", "torchdata"]),
    "hugging-face": ([sys.executable, "train.py"], "step 20", ["transformers", "accelerate"]),
    "bash": ([*STAYFAST, "exec", "--done-file", "result.json", "--", "./job.sh"], "step 20", []),
}
OTHERS = {"batch", "pubsub", "gke"}


def copy(name: str, tmp_path: Path, label: str) -> Path:
    """The example in a folder of its own, without what a person's own try may have left."""
    target = tmp_path / label
    leavings = shutil.ignore_patterns("run", "out", "state", "result.json", "*.db*", "items.jsonl", "__pycache__")
    shutil.copytree(EXAMPLES / name, target, ignore=leavings)
    return target


def start(command: list[str], folder: Path, **variables: object) -> Child:
    return Child(command, environment(OMP_NUM_THREADS="1", **variables), cwd=folder)


def finish(command: list[str], folder: Path, **variables: object) -> str:
    ended = start(command, folder, **variables).end(PATIENCE_SECONDS)
    assert ended.code == 0, f"{command}: {ended.code}\n{ended.err[-3000:]}"
    return ended.out


def interrupt(command: list[str], folder: Path, text: str, **variables: object) -> None:
    """SIGTERM once this text was printed; anything but 75 fails."""
    child = start(command, folder, **variables)
    child.wait_for(text, PATIENCE_SECONDS)
    child.send(signal.SIGTERM)
    ended = child.end(PATIENCE_SECONDS)
    assert ended.code == 75, f"{command}: {ended.code}\n{ended.out[-1000:]}\n{ended.err[-3000:]}"


def test_every_folder_is_tested_and_listed() -> None:
    folders = {path.name for path in EXAMPLES.iterdir() if path.is_dir()}
    assert folders == set(PROGRAMS) | OTHERS
    overview = (EXAMPLES / "README.md").read_text()
    for name in folders:
        assert (EXAMPLES / name / "README.md").exists()
        assert f"]({name}/README.md)" in overview


def test_examples_are_short() -> None:
    for path in [*EXAMPLES.glob("*/*.py"), *EXAMPLES.glob("*/*.sh")]:
        assert len(path.read_text().splitlines()) <= 150, path


@pytest.mark.parametrize("name", PROGRAMS)
def test_interrupted_it_ends_like_undisturbed(name: str, tmp_path: Path) -> None:
    command, text, modules = PROGRAMS[name]
    for module in modules:
        pytest.importorskip(module)
    undisturbed, disturbed = copy(name, tmp_path, "undisturbed"), copy(name, tmp_path, "disturbed")
    finish(command, undisturbed, PAUSE_SECONDS="0")
    interrupt(command, disturbed, text, PAUSE_SECONDS="0.1")
    assert not (disturbed / "result.json").exists(), "it was to be stopped in the middle"
    out = finish(command, disturbed, PAUSE_SECONDS="0")
    assert "step 5 " not in out.replace("\n", " \n"), "the second start goes on; it does not begin again"
    wanted = json.loads((undisturbed / "result.json").read_text())
    assert json.loads((disturbed / "result.json").read_text()) == wanted


def labels(database: Path, table: str) -> dict[str, object]:
    with sqlite3.connect(database) as connection:
        return {key: json.loads(payload) for key, payload in connection.execute(f"SELECT key, payload FROM {table}")}


@pytest.mark.parametrize("place", ["sqlite", "postgres"])
def test_batch(place: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = copy("batch", tmp_path, "batch")
    queue, sink = "sqlite://./work.db?queue=texts", "sqlite://./work.db?table=labels"
    if place == "postgres":
        base, mark = request.getfixturevalue("postgres_base"), uuid.uuid4().hex[:8]
        queue, sink = f"{base}?queue=texts{mark}", f"{base}?table=labels{mark}"
    given = {"STAYFAST_QUEUE": queue, "STAYFAST_SINK": sink}
    finish([sys.executable, "make_items.py"], folder)
    finish([*STAYFAST, "enqueue", "--key", "id", "items.jsonl"], folder, **given)
    work = [*STAYFAST, "work", "jobs:infer", "--workers", "2", "--chunk", "10"]
    interrupt(work, folder, "batch of", PAUSE_SECONDS="0.3", **given)
    finish(work, folder, PAUSE_SECONDS="0", **given)
    proof = json.loads(finish([*STAYFAST, "audit", "--sink", sink, "--json"], folder, **given))
    assert (proof["enqueued"], proof["recorded"], proof["dead"], proof["missing"]) == (400, 400, 0, [])
    if place == "sqlite":
        found = labels(folder / "work.db", "labels")
        sys.path.insert(0, str(folder))
        try:
            from jobs import model
        finally:
            sys.path.remove(str(folder))
            sys.modules.pop("jobs", None)
        for line in (folder / "items.jsonl").read_text().splitlines():
            item = json.loads(line)
            assert found[item["id"]] == model(item["text"])


def test_pubsub(tmp_path: Path, pubsub_server: object) -> None:
    folder = copy("pubsub", tmp_path, "pubsub")
    mark = uuid.uuid4().hex[:8]
    sink = "sqlite://./results.db?table=words"
    given = {
        "STAYFAST_QUEUE": f"pubsub://lab/texts{mark}-sub?topic=texts{mark}&deadline=10",
        "STAYFAST_SINK": sink,
        "PUBSUB_EMULATOR_HOST": pubsub_server.host,  # type: ignore[attr-defined]
    }
    finish([sys.executable, "make_items.py"], folder)
    finish([*STAYFAST, "enqueue", "--sink", sink, "items.jsonl"], folder, **given)
    work = [*STAYFAST, "work", "jobs:count", "--chunk", "10"]
    interrupt(work, folder, "batch of", PAUSE_SECONDS="0.3", **given)
    finish(work, folder, PAUSE_SECONDS="0", **given)
    proof = json.loads(finish([*STAYFAST, "audit", "--sink", sink, "--json"], folder, **given))
    assert (proof["enqueued"], proof["recorded"], proof["dead"], proof["missing"]) == (300, 300, 0, [])
    found = labels(folder / "results.db", "words")
    assert found["text-0000"] == {"words": 2}
    assert found["text-0008"] == {"words": 18}


def test_the_bundle_is_up_to_date_and_clean(tmp_path: Path) -> None:
    folder = copy("gke", tmp_path, "gke")
    finish([*STAYFAST, "render", "-f", "stayfast.yaml", "-d", "deploy", "--check"], folder)
    found = json.loads(finish([*STAYFAST, "lint", "--format", "json", "--strict", "deploy"], folder))
    assert [item for item in found["findings"] if item["severity"] != "advice"] == []
    (folder / "stayfast.yaml").write_text((folder / "stayfast.yaml").read_text().replace("tune:v1", "tune:v2"))
    stale = start([*STAYFAST, "render", "-f", "stayfast.yaml", "-d", "deploy", "--check"], folder).end(PATIENCE_SECONDS)
    assert stale.code == 1
