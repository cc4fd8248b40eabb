"""``stayfast init``: what it writes runs here, as it is, and survives a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from stayfast.capacity.machines.prices import bundled_catalogue
from stayfast.capacity.spec import read_spec
from stayfast.capacity.spec.workload import WorkloadKind
from stayfast.cli.main import main

SOURCE = str(Path(__file__).resolve().parents[2] / "src")


def run_python(directory, *args, **environment):
    env = {**os.environ, "PYTHONPATH": SOURCE, **environment}
    return subprocess.run([sys.executable, *args], cwd=directory, env=env, capture_output=True, text=True, timeout=60)


def stayfast(directory, *args):
    return run_python(directory, "-c", "from stayfast.cli.main import entry; entry()", *args)


def init(kind, target, capsys):
    assert main(["init", kind, str(target), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("kind", "name"), [("train", "My Run 7"), ("batch", "42")])
def test_the_spec_is_valid_as_written(kind, name, tmp_path, capsys):
    init(kind, tmp_path / name, capsys)
    path = tmp_path / name / "stayfast.yaml"
    spec = read_spec(path.read_text(), str(path), accelerators=bundled_catalogue().accelerators)
    assert spec.kind == WorkloadKind(kind)
    assert spec.name == {"My Run 7": "my-run-7", "42": "run-42"}[name]
    assert spec.work_seconds


def test_the_training_program_runs_and_resumes(tmp_path, capsys):
    init("train", tmp_path / "p", capsys)
    whole = run_python(tmp_path / "p", "train.py", STEPS="300", PAUSE_SECONDS="0", RUN_URL=f"file://{tmp_path}/one")
    assert whole.returncode == 0, whole.stderr
    assert whole.stdout.startswith("done: ")
    result = (tmp_path / "p" / "result.json").read_text()
    first = run_python(tmp_path / "p", "train.py", STEPS="120", PAUSE_SECONDS="0", RUN_URL=f"file://{tmp_path}/two")
    assert first.returncode == 0, first.stderr
    second = run_python(tmp_path / "p", "train.py", STEPS="300", PAUSE_SECONDS="0", RUN_URL=f"file://{tmp_path}/two")
    assert second.returncode == 0, second.stderr
    assert (tmp_path / "p" / "result.json").read_text() == result


def test_a_killed_training_program_goes_on(tmp_path, capsys):
    init("train", tmp_path / "p", capsys)
    env = {**os.environ, "PYTHONPATH": SOURCE, "STEPS": "100000000"}
    process = subprocess.Popen(
        [sys.executable, "train.py"], cwd=tmp_path / "p", env=env, stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "p" / "checkpoints" / "HEAD.json").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        process.terminate()
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 75, err
    bill = stayfast(tmp_path / "p", "bill", f"file://{tmp_path}/p/checkpoints", "--usd-per-hour", "3.6", "--json")
    assert bill.returncode == 0, bill.stderr
    result = json.loads(bill.stdout)
    assert result["attempts"] == 1
    assert result["steps"] > 0
    assert result["usd"] == pytest.approx(result["paid_seconds"] / 1000)


def test_the_training_program_survives_the_rehearsal_that_is_proposed(tmp_path, capsys):
    assert main(["init", "train", str(tmp_path / "fit")]) == 0
    proposed = next(line.strip() for line in capsys.readouterr().out.splitlines() if "rehearse" in line)
    assert proposed in (tmp_path / "fit" / "train.py").read_text()
    command = proposed.replace("stayfast rehearse", f"{sys.executable} -m stayfast rehearse --trials 3 --parallel 3")
    command = command.replace("python train.py", f"{sys.executable} train.py")
    ended = subprocess.run(["sh", "-c", command], cwd=tmp_path / "fit", capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_batch_project_runs(tmp_path, capsys):
    init("batch", tmp_path / "p", capsys)
    queue, sink = "sqlite://./work.db", "sqlite://./results.db?table=results"
    for url in (queue, sink):
        assert url in (tmp_path / "p" / "tasks.py").read_text()
        assert url in (tmp_path / "p" / "stayfast.yaml").read_text()
    done = stayfast(tmp_path / "p", "enqueue", "--queue", queue, "items.jsonl", "--json")
    assert json.loads(done.stdout)["added"] == 100, done.stderr
    worked = stayfast(tmp_path / "p", "work", "tasks:count", "--queue", queue, "--sink", sink)
    assert worked.returncode == 0, worked.stderr
    audit = stayfast(tmp_path / "p", "audit", "--queue", queue, "--sink", sink, "--json")
    assert audit.returncode == 0, audit.stderr
    assert json.loads(audit.stdout)["recorded"] == 100
    assert {"work.db", "results.db"} <= {path.name for path in (tmp_path / "p").iterdir()}


def test_nothing_is_overwritten(tmp_path, capsys):
    (tmp_path / "train.py").write_text("mine")
    assert main(["init", "train", str(tmp_path)]) == 2
    assert "has train.py already" in capsys.readouterr().err
    assert [item.name for item in tmp_path.iterdir()] == ["train.py"]
    (tmp_path / "file").write_text("")
    assert main(["init", "batch", str(tmp_path / "file" / "x")]) == 2
    assert "cannot be written" in capsys.readouterr().err
