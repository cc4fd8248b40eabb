"""Suite F, the whole product: real runs in real processes, resumed, on a bucket where a quarter goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import stayfast
from faults.counts import record
from faults.noisy_server import NoisyServer
from stayfast.runtime.run_record.record import decode

pytestmark = pytest.mark.faults
SEED = int(os.environ.get("STAYFAST_SEED", "20261115"))
PROGRAM = """
import json, sys
import stayfast

class State:
    def __init__(self):
        self.data, self.seen = bytearray(300_000), []
    def state_dict(self):
        return {"data": bytes(self.data), "seen": list(self.seen)}
    def load_state_dict(self, state):
        self.data, self.seen = bytearray(state["data"]), list(state["seen"])

state = State()
with stayfast.run(sys.argv[1], total_steps=int(sys.argv[2])) as run:
    run.track(state=state)
    for step in run.steps():
        state.data[step] += 1
        state.seen.append(step)
        run.save(now=True)
print(json.dumps({"seen": state.seen, "data": list(state.data[:20]), "rest": sum(state.data[20:])}))
"""


@pytest.mark.parametrize("scheme", ["gs", "s3"])
def test_runs_are_resumed_exactly_whatever_gets_lost(cloud_environment: Any, scheme: str) -> None:
    print(f"seed {SEED}")
    with NoisyServer(SEED) as server:
        cloud_environment(scheme, server.url)
        environment = {**os.environ, "PYTHONPATH": str(Path(stayfast.__file__).parents[1])}
        for total in (4, 8, 12):
            command = [sys.executable, "-c", PROGRAM, f"{scheme}://bucket/run", str(total)]
            done = subprocess.run(command, capture_output=True, env=environment, text=True, timeout=120)
            assert done.returncode == 0, done.stderr[-2000:]
            found = json.loads(done.stdout.splitlines()[-1])
            assert found["seen"] == list(range(total)), "every step once, none from a stale checkpoint"
            assert found["data"] == [1] * total + [0] * (20 - total)
            assert found["rest"] == 0
        heads = [decode(data) for data in server.heads_of("run/")]
        assert [head.attempt for head in heads] == sorted(head.attempt for head in heads)
        for row in heads[-1].checkpoints:
            assert any(name.startswith(f"run/checkpoints/{row.name}/") for name in server.names()), row
        injected = sum(server.injected.values())
        assert injected >= 15, "void: too few faults"
        record("F", run_faults=injected)
