"""The rendered pod and the runtime, together: the rendered command and environment as a real process, really stopped.

No kubelet is needed to see that what the manifest promises is what the program does: it leaves with a code that the
rendered policy forgives, inside the rendered window, and its lease file is the one that is watched.
"""

from __future__ import annotations

import datetime
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from render_cases import GANG, TRAIN, container, environment, job_spec, on, rendered, template

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import sys, time, stayfast
with stayfast.run(sys.argv[1], total_steps=1_000_000) as run:
    for step in run.steps():
        if step == 3:
            print("running", flush=True)
        time.sleep(0.01)
"""


@pytest.fixture
def start(tmp_path):
    """Start the command of a bundle as a container would, with the program and the URL that are given."""
    (tmp_path / "program.py").write_text(PROGRAM)
    stub = tmp_path / "bin"
    stub.mkdir()
    (stub / "stayfast").write_text(f'#!/bin/sh\nexec {sys.executable} -m stayfast "$@"\n')
    (stub / "stayfast").chmod(0o755)
    begun = []

    def run(bundle, **more):
        values = {**environment(bundle), "STAYFAST_METADATA": "off", "STAYFAST_TERMINATION_LOG": str(tmp_path / "log")}
        values |= {"PATH": f"{stub}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE), **more}
        process = subprocess.Popen(
            container(bundle)["command"],
            cwd=tmp_path,
            env=values,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(process)
        assert process.stdout.readline() == "running\n"
        return process

    yield run
    for process in begun:
        if process.poll() is None:
            process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def training(tmp_path, command, base=TRAIN):
    program = f"{command}, program.py, file://{tmp_path}/run"
    return base.replace("[python, train.py]", f"[{program}]").replace("[torchrun, train.py]", f"[{program}]")


def test_an_interrupted_pod_leaves_with_a_code_that_its_job_forgives(start, tmp_path):
    bundle = rendered(on(training(tmp_path, sys.executable), "spot"))
    process = start(bundle)
    begun = time.monotonic()
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=60)
    assert time.monotonic() - begun < template(bundle)["spec"]["terminationGracePeriodSeconds"]
    forgiven = [rule for rule in job_spec(bundle)["podFailurePolicy"]["rules"] if rule["action"] == "Ignore"]
    assert code in next(rule["onExitCodes"]["values"] for rule in forgiven if "onExitCodes" in rule)
    assert code == 75


def test_a_gang_member_leaves_with_a_code_that_restarts_the_set(start, tmp_path):
    """Behind `stayfast exec --`, which a launcher gets; here the launcher is a shell that would answer 1."""
    base = GANG.replace(
        "[torchrun, train.py]", f"[sh, -c, '{sys.executable} program.py file://{tmp_path}/run || exit 1']"
    )
    bundle = rendered(on(base, "spot"))
    assert container(bundle)["command"][:3] == ["stayfast", "exec", "--"]
    process = start(bundle)
    process.send_signal(signal.SIGTERM)
    code = process.wait(timeout=60)
    fails = [
        rule["onExitCodes"]["values"] for rule in job_spec(bundle)["podFailurePolicy"]["rules"] if "onExitCodes" in rule
    ]
    assert code in fails[0]
    assert code == 75, "the shell's 1 would have counted as a failure"


def test_the_end_of_the_lease_arrives_through_the_rendered_file(start, tmp_path):
    """The kubelet writes the annotation into the file; here the test does."""
    bundle = rendered(on(training(tmp_path, sys.executable), "flex-start"))
    name = environment(bundle)["STAYFAST_LEASE_FILE"]
    (item,) = next(
        volume["downwardAPI"]["items"] for volume in template(bundle)["spec"]["volumes"] if volume["name"] == "lease"
    )
    assert name.endswith("/" + item["path"])
    file = tmp_path / item["path"]
    file.write_text("")  # empty until somebody writes the annotation
    process = start(bundle, STAYFAST_LEASE_FILE=str(file))
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=60)  # within the rendered lead
    file.write_text(soon.strftime("%Y-%m-%dT%H:%M:%SZ"))
    assert process.wait(timeout=60) == 75
    assert "run-limit" in process.stderr.read()
