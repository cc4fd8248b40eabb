"""Which files of the product the three data paths visit, found by running them: ``python tests/house/paths.py``.

Writes ``docs/design/data-paths.json``, from which ``tools/make_house.py`` makes its lists. A file counts when at least
one of its functions was called, on any thread.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SOURCE = ROOT / "src"
TARGET = ROOT / "docs/design/data-paths.json"
sys.path[:0] = [str(HERE.parent), str(SOURCE)]

# Loaded by every interpreter through its path: calls count from the moment at which the mark appears.
SITE = """
import atexit, os, sys, threading, time
mark, out, base = os.environ["PATHS_MARK"], os.environ["PATHS_OUT"], os.environ["PATHS_BASE"]
seen, on = set(), os.path.exists(mark)
def profile(frame, event, argument):
    if on and event == "call":
        code = frame.f_code
        if code.co_name != "<module>" and code.co_filename.startswith(base):
            if code.co_filename not in seen:
                seen.add(code.co_filename)
                with open(out, "a") as file:
                    file.write(code.co_filename[len(base):] + "\\n")
def look():
    global on
    while not on:
        time.sleep(0.002)
        on = os.path.exists(mark)
threading.Thread(target=look, daemon=True).start()
threading.setprofile(profile)
sys.setprofile(profile)
"""

SAVE = """
import os, sys, time
import numpy as np
import stayfast
weights = np.zeros(200_000)
with stayfast.run("gs://bucket/run", total_steps=3) as run:
    run.track(weights=(lambda: weights, lambda saved: np.copyto(weights, saved)))
    for step in run.steps():
        weights += 1
        if step == 0:
            run.save(now=True)
        if step == 1:
            open(os.environ["PATHS_MARK"], "w").close()
            time.sleep(0.05)
            run.save(now=True)
            os._exit(0)
"""

TASK = """
import time, stayfast
@stayfast.task(key=lambda item: item["id"])
def work(batch):
    time.sleep(0.05 * len(batch))
    return batch
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "site").mkdir(exist_ok=True)
    (folder / "site" / "sitecustomize.py").write_text(SITE)
    values = {name: value for name, value in os.environ.items() if not name.startswith("STAYFAST_")}
    values |= {"PYTHONPATH": f"{folder / 'site'}:{SOURCE}:{folder}", "STAYFAST_METADATA": "off"}
    values |= {
        "PATHS_MARK": str(folder / "mark"),
        "PATHS_OUT": str(folder / "out"),
        "PATHS_BASE": f"{SOURCE}/stayfast/",
    }
    return values | more


def visited(folder: Path) -> list[str]:
    return sorted(set((folder / "out").read_text().split()))


def save_to_a_bucket(folder: Path) -> list[str]:
    from servers.bucket_server import BucketServer

    (folder / "save.py").write_text(SAVE)
    with BucketServer() as server:
        env = environment(folder, STORAGE_EMULATOR_HOST=server.url)
        subprocess.run([sys.executable, str(folder / "save.py")], env=env, check=True, timeout=60)
    return visited(folder)


def sigterm_of_a_worker(folder: Path) -> list[str]:
    (folder / "jobs.py").write_text(TASK)
    (folder / "items.jsonl").write_text("".join(f'{{"id": "{number}"}}\n' for number in range(2000)))
    env = environment(folder)
    command = [sys.executable, "-m", "stayfast"]
    places = ["--queue", f"sqlite:///{folder}/q.db?queue=a"]
    subprocess.run([*command, "enqueue", *places, "--key", "id", str(folder / "items.jsonl")], env=env, check=True)
    places += ["--sink", f"sqlite:///{folder}/s.db?table=r", "--workers", "1", "--chunk", "4"]
    pool = subprocess.Popen([*command, "work", "jobs:work", *places], env=env, cwd=folder)
    time.sleep(3.0)
    (folder / "mark").touch()
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(60) == 75
    return visited(folder)


def explain(folder: Path) -> list[str]:
    sys.path.insert(0, str(HERE.parent / "cluster"))
    import scenarios

    from servers.api_server import ApiServer
    from stayfast.cluster.kubernetes.resources import JOBS, NODES, PODS

    with ApiServer() as server:
        config = {
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "contexts": [{"name": "test", "context": {"cluster": "c", "user": "u", "namespace": "ml"}}],
            "clusters": [{"name": "c", "cluster": {"server": server.url}}], "users": [{"name": "u", "user": {}}],
        }  # fmt: skip
        (folder / "config").write_text(json.dumps(config))
        job = scenarios.job()
        waits = scenarios.pod(
            conditions=[scenarios.unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu.")]
        )
        for kind, item in ((JOBS, job), (PODS, waits), (NODES, scenarios.node())):
            server.add(kind, item, "ml")
        env = environment(folder, KUBECONFIG=str(folder / "config"))
        (folder / "mark").touch()
        command = [sys.executable, "-m", "stayfast", "explain", job["metadata"]["name"]]
        subprocess.run(command, env=env, check=False, timeout=60)
    return visited(folder)


PATHS = {
    "`run.save(now=True)` to a bucket, until it is committed": save_to_a_bucket,
    "SIGTERM of `stayfast work`, from the signal to both exits": sigterm_of_a_worker,
    "`stayfast explain RUN`": explain,
}


def main() -> None:
    found = {}
    for title, measure in PATHS.items():
        with tempfile.TemporaryDirectory() as name:
            found[title] = measure(Path(name))
            print(len(found[title]), title)
    TARGET.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
