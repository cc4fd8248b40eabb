"""One way to run each suite until it finds something or its time is over, in a process of its own.

``python -m faults.hunters HUNTER SEED SECONDS`` prints what was found and how much was tried. The bug, if any, comes
with the environment (see ``planted``); without one nothing may be found, however long it is looked for.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from faults import planted
from faults.tiers import Lost

TESTS = Path(__file__).resolve().parents[1]
MANY = 10**9
PR_SECONDS = 45.0


class Impossible(Exception):
    """This machine cannot run that suite."""


@contextlib.contextmanager
def scratch() -> Iterator[str]:
    """A directory in memory where there is one."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stayfast-hunt-", dir=place) as folder:
        yield folder


def _need(reason: str | None) -> None:
    if reason:
        raise Impossible(reason)


def crash_states(seed: int, seconds: float) -> int:
    from faults import crash_states as suite

    return suite.run(seed, MANY, seconds).states


def power_cuts(seed: int, seconds: float) -> int:
    from faults import power_cuts as suite
    from faults import powercut

    _need(powercut.why_not())
    report: dict[str, int] = powercut.in_private_mounts(suite.run, seed, MANY, seconds)
    return report["cuts"]


def power_cuts_of_the_queue(seed: int, seconds: float) -> int:
    from faults import powercut

    sys.path.insert(0, str(TESTS / "queue"))
    import sqlite_power_cuts as suite

    _need(powercut.why_not())
    cuts, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        report = powercut.in_private_mounts(suite.run, seed + cuts, 4, False)
        cuts += report["cuts"]
        if report["broken"]:
            raise Lost(f"seed {seed}, cut {cuts}: {report['broken']} promises were broken")
    return cuts


def syscall_faults(seed: int, seconds: float) -> int:
    from faults import syscall_faults as suite

    _need(suite.why_not())
    return suite.run(seed, MANY, seconds).injected


def killed_trainers(seed: int, seconds: float) -> int:
    from faults import kills as suite

    return suite.run(seed, MANY, seconds).kills


def _killed_workers(seed: int, seconds: float, sink: str) -> int:
    sys.path.insert(0, str(TESTS / "queue"))
    import kill_campaign as suite

    kills, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with scratch() as folder:
            options = {"queue": f"sqlite://{folder}/queue.db?queue=q", "sink": f"sqlite://{folder}/{sink}.db?table=r"}
            result = suite.Campaign({**options, "kills": 60, "seed": seed + kills, "stop_early": True}).run()
        kills += result["kills"]
        wrong = {name: result[name] for name in ("acknowledged_not_stored", "lost", "unexpected", "wrong")}
        if any(wrong.values()):
            raise Lost(f"seed {seed}, after {kills} kills: {wrong}")
    return kills


def killed_workers_one_file(seed: int, seconds: float) -> int:
    return _killed_workers(seed, seconds, "queue")


def killed_workers_two_files(seed: int, seconds: float) -> int:
    return _killed_workers(seed, seconds, "sink")


def signal_storm(seed: int, seconds: float) -> int:
    sys.path.insert(0, str(TESTS / "runtime"))
    import storm_server

    programs, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with scratch() as folder:
            command = [sys.executable, os.path.abspath(storm_server.__file__), "30", str(seed + programs), folder]
            done = subprocess.run(
                [*command, "--impatient"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
        result = json.loads(done.stdout.splitlines()[-1])
        programs += result["programs"]
        if result["wrong"]:
            raise Lost(f"seed {seed}, of {programs} programs: {result['wrong'][0]}")
    return programs


def simulated_attempts(seed: int, seconds: float) -> int:
    from faults import attempts_sim as suite

    return suite.run(seed, MANY, seconds).schedules


def wrong_clocks(seed: int, seconds: float) -> int:
    sys.path.insert(0, str(TESTS / "queue"))
    from test_two_owners import stolen_under_skew

    rounds, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        with scratch() as folder:
            stolen = stolen_under_skew(f"{folder}/queue.db", 20)
        rounds += 20
        if stolen:
            raise Lost(f"seed {seed}, in {rounds} rounds: {stolen} items were taken from owners with fresh leases")
    return rounds


def long_items(seed: int, seconds: float) -> int:
    """A worker computes for three leases; somebody else asks for work all the time and must get none."""
    from stayfast.batch.queue.sqlite import SqliteQueue
    from stayfast.batch.sink.sqlite import SqliteSink
    from stayfast.batch.worker.task import Task
    from stayfast.batch.worker.worker import Worker, WorkerOptions
    from stayfast.runtime.interruption.guard import Guard

    lease, items, until = 1.0, 0, time.monotonic() + seconds
    os.environ["STAYFAST_OUTCOME_FILE"] = os.devnull
    while time.monotonic() < until:
        with scratch() as folder:
            path = f"{folder}/queue.db"
            rival = SqliteQueue(path, lease_seconds=lease)
            rival.enqueue([("long", "1")])
            began, computing = os.pipe()
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException), Guard() as guard:
                    task = Task(
                        lambda batch: [os.write(computing, b"x") and time.sleep(3 * lease)], key=None, each=False
                    )
                    queue = SqliteQueue(path, lease_seconds=lease)
                    Worker(task, queue, SqliteSink(path), guard, WorkerOptions(chunk=1)).run()
                os._exit(0)
            os.close(computing)
            os.read(began, 1)
            stolen = []
            while not stolen and not os.waitpid(pid, os.WNOHANG)[0]:
                stolen = rival.claim(1)
                time.sleep(0.02)
            if stolen:
                os.waitpid(pid, 0)
                raise Lost(f"seed {seed}: the item of a living worker was handed out a second time")
            rival.close()
            os.close(began)
        items += 1
    return items


def queue_machine(seed: int, seconds: float) -> int:
    sys.path.insert(0, str(TESTS / "queue"))
    from hypothesis import seed as seeded
    from test_queue_machine import QueueMachine, drive

    calls, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            calls += drive(seeded(seed + calls)(QueueMachine), 20)
        except AssertionError as error:
            raise Lost(f"seed {seed}, after {calls + QueueMachine.calls} calls: {error}") from None
    return calls


def damage(seed: int, seconds: float) -> int:
    from faults import damage as suite

    return suite.run(seed, MANY, seconds)


def hostile_parts(seed: int, seconds: float) -> int:
    """Leaves of kinds that a checkpoint never has, with a pickle in them: nothing may look at the pickle."""
    from stayfast.errors import CheckpointError
    from stayfast.runtime.state.frameworks import build_leaf

    opened: list[str] = []
    sys.addaudithook(lambda event, _: opened.append(event) if event == "pickle.find_class" else None)
    poison = b"cbuiltins\nlen\n(S'x'\ntR."
    rng, tried, until = random.Random(seed), 0, time.monotonic() + seconds
    words = [
        "pickle",
        "pickle:",
        "numpy:|O",
        "numpy:object",
        "torch:load",
        "torch:Tensor",
        "object",
        "python",
        "marshal",
    ]
    while time.monotonic() < until:
        for word in [*words, "".join(rng.choices("abcdeiklmnopqrstuvwxyz:", k=rng.randint(0, 8)))]:
            tried += 1
            try:
                build_leaf(word, (len(poison),), memoryview(poison))
            except CheckpointError:
                pass
            if opened:
                raise Lost(f"seed {seed}: a leaf of kind {word!r} was unpickled")
    return tried


def hostile_documents(seed: int, seconds: float) -> int:
    sys.path.insert(0, str(TESTS / "documents"))
    from test_gate import HOSTILE

    from stayfast.documents import load_documents
    from stayfast.errors import DocumentError

    tried, until = 0, time.monotonic() + seconds
    while time.monotonic() < until:
        for name, text in HOSTILE.items():
            tried += 1
            try:
                load_documents(text, "bad.yaml")
            except DocumentError:
                continue
            raise Lost(f"seed {seed}: {name!r} was read without complaint")
    return tried


def web_requests(seed: int, seconds: float) -> int:
    from faults import web_requests as suite

    return suite.run(seed, seconds)


def cluster_rights(seed: int, seconds: float) -> int:
    from faults import cluster_rights as suite

    return suite.run(seed, seconds)


HUNTERS: dict[str, Callable[[int, float], int]] = {
    "A": crash_states,
    "B:store": power_cuts,
    "B:queue": power_cuts_of_the_queue,
    "C": syscall_faults,
    "D:trainers": killed_trainers,
    "D:queue:one file": killed_workers_one_file,
    "D:queue:two files": killed_workers_two_files,
    "E": signal_storm,
    "G:simulated": simulated_attempts,
    "G:clocks": wrong_clocks,
    "G:long items": long_items,
    "H": queue_machine,
    "J": damage,
    "K": hostile_parts,
    "L": hostile_documents,
    "N": web_requests,
    "O": cluster_rights,
}


HERE = ("A", "G:simulated", "J", "N", "O")
"""Those that leave nothing behind: for every change they look in the test's own process."""


def hunt_here(hunter: str, seed: int, seconds: float, bug: str) -> dict[str, Any]:
    """As ``hunt``, without the price of another process."""
    began, cpu = time.monotonic(), _cpu_seconds()
    answer: dict[str, Any] = {"found": "", "tried": 0, "impossible": ""}
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with planted.switched_on(bug) if bug else contextlib.nullcontext():
            answer["tried"] = HUNTERS[hunter](seed, seconds)
    except Lost as error:
        answer["found"] = str(error)
    finally:
        logging.disable(disabled)
    return {**answer, **_spent(began, cpu)}


def hunt(hunter: str, seed: int, seconds: float, bug: str = "") -> dict[str, Any]:
    """Run a hunter in a process of its own; ``found`` says what it found, ``tried`` how much it did."""
    paths = [str(TESTS / "faults" / "planting"), str(TESTS), *(path for path in sys.path if path.endswith("src"))]
    environment = {**os.environ, "STAYFAST_PLANTED_BUG": bug, "STAYFAST_METADATA": "off"}
    environment["PYTHONPATH"] = os.pathsep.join([*paths, os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    began, cpu = time.monotonic(), _cpu_seconds()
    command = [sys.executable, "-m", "faults.hunters", hunter, str(seed), str(seconds)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds + 1800)
    answer: dict[str, Any] = {"found": "", "tried": 0, "impossible": ""}
    if done.returncode < 0:
        answer["found"] = f"the process died of signal {-done.returncode}"
    elif done.returncode:
        raise AssertionError(f"the hunter {hunter} failed by itself: {done.stderr[-3000:]}")
    else:
        answer |= json.loads(done.stdout.splitlines()[-1])
    return {**answer, **_spent(began, cpu)}


def _cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def _spent(began: float, cpu: float) -> dict[str, float]:
    """By the clock, and of one core; on a busy machine only the second means anything."""
    return {"seconds": round(time.monotonic() - began, 2), "core_seconds": round(_cpu_seconds() - cpu, 2)}


def main() -> None:
    logging.disable(logging.CRITICAL)
    name, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    try:
        answer = {"tried": HUNTERS[name](seed, seconds)}
    except Lost as error:
        answer = {"found": str(error)}  # type: ignore[dict-item]
    except Impossible as reason:
        answer = {"impossible": str(reason)}  # type: ignore[dict-item]
    except AssertionError as error:  # from a process with private mounts
        if "Lost:" not in str(error):
            raise
        answer = {"found": str(error).splitlines()[0]}  # type: ignore[dict-item]
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
