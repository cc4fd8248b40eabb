"""Kill a mirror and its program again and again while files are uploaded; judge what comes back each time.

Run as a program: ``kill_loop.py STORE_URL WORK KILLS SEED [--stay]``. Each life is a pair of forked processes, a writer
and a mirror, both killed at a random moment; the directory is wiped, and the next life starts from what was committed.
The writer's states are few and known: a restored directory that is none of them is an error. With ``--stay`` only the
writer dies, and the mirror makes its last copy. The last line is JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

from mirrored import opened  # noqa: E402

import stayfast.runtime.directory_sync.change_tracker as rules  # noqa: E402
import stayfast.runtime.directory_sync.sync as tuning  # noqa: E402
from stayfast.storage.stores.open_store import open_store  # noqa: E402

tuning.SOON_SECONDS, tuning.CALM_SECONDS, tuning.BETWEEN_COPIES_SECONDS = 0.005, 0.0, 0.0
rules.TORN_NS = 100_000_000  # this writer never takes longer over a file


def blob(number: int) -> bytes:
    return random.Random(number).randbytes(150_000 + number % 7 * 4096)


def write(root: Path) -> None:
    """Data by rename, a log by appending, a pointer by rename, then the oldest data goes."""
    latest = root / "LATEST"
    number = int(latest.read_text()) if latest.exists() else 0
    lines = (root / "log").read_text().splitlines() if (root / "log").exists() else []
    (root / "log.tmp").write_text("".join(line + "\n" for line in lines[:number]))
    os.replace(root / "log.tmp", root / "log")
    for extra in root.glob("data-*"):
        if int(extra.name.split("-")[1].removesuffix(".tmp")) not in (number - 1, number):
            extra.unlink()
    while True:
        number += 1
        (root / f"data-{number}.tmp").write_bytes(blob(number))
        os.replace(root / f"data-{number}.tmp", root / f"data-{number}")
        with open(root / "log", "a") as log:
            log.write(f"line {number}\n")
        (root / "LATEST.tmp").write_text(str(number))
        os.replace(root / "LATEST.tmp", latest)
        (root / f"data-{number - 2}").unlink(missing_ok=True)
        time.sleep(random.uniform(0.02, 0.1))


def judge(root: Path) -> int:
    """The number the directory stands at; an error when the program was never in this state."""
    for path in root.glob("*.tmp"):  # closed and not yet renamed is a finished state too, if it is whole
        if path.name == "LATEST.tmp":
            assert path.read_text().isdigit(), path.read_text()
        elif path.name == "log.tmp":
            assert all(line.startswith("line ") and line.endswith("\n") for line in path.read_text().splitlines(True))
        else:
            number = int(path.name.removesuffix(".tmp").split("-")[1])
            assert path.read_bytes() == blob(number), f"{path.name} is torn"
        path.unlink()
    if not (root / "LATEST").exists():
        left = {path.name for path in root.iterdir()}
        assert left <= {"data-1", "log"}, left
        return 0
    number = int((root / "LATEST").read_text())
    lines = (root / "log").read_text().splitlines()
    assert lines == [f"line {n + 1}" for n in range(len(lines))], lines
    names = {path.name for path in root.iterdir()} - {"LATEST", "log"}
    data = {int(name.split("-")[1]) for name in names}
    for one in data:
        assert (root / f"data-{one}").read_bytes() == blob(one), f"data-{one} is torn"
    pair = {n for n in (number - 1, number) if n > 0}
    allowed = [
        (number, pair),
        (number, pair | {number - 2} - {0, -1}),
        (number, pair | {number + 1}),
        (number + 1, pair | {number + 1}),
    ]
    assert (len(lines), data) in allowed, (number, len(lines), data)
    return number


def life(url: str, root: Path, random_: random.Random, stay: bool) -> int:
    """One attempt; returns where it started from."""
    shutil.rmtree(root, ignore_errors=True)
    reading, writing = os.pipe()
    mirror_pid = os.fork()
    if not mirror_pid:
        os.setsid()
        mirror = opened(root, open_store(url))
        started = judge(root)
        writer = os.fork()
        if not writer:
            write(root)
        os.write(writing, f"{started} {writer}\n".encode())
        mirror.start()
        _, status = os.waitpid(writer, 0)
        if os.WIFSIGNALED(status):
            mirror.note_crash()
        mirror.finish()
        assert mirror.done.wait(30)
        assert mirror.last_error is None
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        line = stream.readline().split()
    assert line, "the mirror died by itself"
    time.sleep(random_.uniform(0.0, 0.5))
    os.kill(int(line[1]), signal.SIGKILL)
    if not stay:
        os.killpg(mirror_pid, signal.SIGKILL)
    _, status = os.waitpid(mirror_pid, 0)
    if stay:
        assert status == 0, status
    return int(line[0])


def main() -> None:
    url, work, kills, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    random_ = random.Random(seed)
    last = 0
    for _ in range(kills):
        start = life(url, work / "d", random_, "--stay" in sys.argv)
        assert start >= last, f"committed work is gone: {last} before, {start} now"
        last = start
    print(json.dumps({"kills": kills, "reached": last}))


if __name__ == "__main__":
    main()
