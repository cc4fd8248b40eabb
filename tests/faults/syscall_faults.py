"""Suite C: one system call of a save, a restore or a prune fails, is cut short, or is the last one of its process.

Each case is a fork that waits until strace holds it, so that counting starts at the first call of the operation itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import random
import re
import shutil
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faults import subject
from faults.subject import State
from faults.tiers import Lost
from stayfast.errors import StayfastError
from stayfast.filesystem import SystemFS
from stayfast.storage.stores.file import FileStore

CALLS = (
    "openat,pwrite64,preadv,preadv2,fsync,fdatasync,close,link,linkat,rename,renameat,renameat2,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir,utimensat,flock,stat,newfstatat,fstat,getdents64,ftruncate"
)
FAULTS = ("signal=KILL", "error=ENOSPC", "error=EIO", "error=EINTR")
ONLY_WRITES = ("pwrite64", "openat", "fsync", "linkat", "link", "mkdir", "rename", "utimensat")
OPERATIONS = ("save", "restore", "prune")
LINE = re.compile(r"^(?:\d+ +)?(\w+)\((.*)\) += (-?\d+|\?)(.*)$")


def why_not() -> str | None:
    """Why this suite cannot run here, or None."""
    if shutil.which("strace") is None:
        return "syscall faults need strace"
    probe = subprocess.run(["strace", "-qq", "-o", "/dev/null", "true"], capture_output=True, text=True)
    return None if probe.returncode == 0 else f"strace does not work here: {probe.stderr.strip()[:100]}"


@dataclass(frozen=True)
class Case:
    operation: str
    call: str
    number: int
    fault: str
    persistent: bool = False

    @property
    def injection(self) -> str:
        return f"inject={self.call}:{self.fault}:when={self.number}{'+' if self.persistent else ''}"


@dataclass
class Outcome:
    lines: list[str]
    killed: bool
    trace: list[tuple[str, str, str, str]]


@dataclass
class Report:
    injected: int = 0
    killed: int = 0
    failed: int = 0
    succeeded: int = 0
    kinds: Counter[str] = field(default_factory=Counter)


def states() -> list[State]:
    """Two committed checkpoints, one more to save."""
    return [subject.make_state(random.Random(step), step) for step in range(4)]


def prepare(root: str) -> None:
    """A run with two checkpoints, and what an unfinished save and retention left to be pruned."""
    attempt = subject.Attempt(FileStore(root), inline=True)
    for step, state in enumerate(states()[:3]):
        attempt.save(step, state)
    snapshot = attempt.engine.snapshot(9, states()[0])
    attempt.engine.persist(snapshot, attempt.number)


def operate(operation: str, root: str, say: Callable[[str], None]) -> None:
    """In the child: what the fault hits."""
    try:
        attempt = subject.Attempt(FileStore(root, fs=SystemFS()), inline=True)
        say(f"claimed {attempt.number}")
        if operation == "save":
            attempt.save(3, states()[3])
            say("ack")
        elif operation == "prune":
            attempt.prune()
            say("pruned")
        else:
            found = attempt.restore()
            say(f"restored {found[0] if found and found[1] == states()[found[0]] else 'something else'}")
    except StayfastError as error:
        say(f"error {type(error).__name__} {str(error)!r}")


def run_case(case: Case | None, operation: str, root: str) -> Outcome:
    """Fork, let strace take hold, go; with no case it only counts."""
    patch = _PATCHES.get(case.fault) if case else None
    reader, sender = os.pipe()
    gate, opener = os.pipe()
    pid = os.fork()
    if pid == 0:
        _child(operation, root, gate, sender, lambda: patch(case.number) if patch and case else None)
    os.close(sender)
    os.close(gate)
    log = f"{root}.strace"
    options = ["-e", case.injection] if case and not patch else []
    command = ["strace", "-f", "-qq", "-y", "-s", "0", "-o", log, "-e", f"trace={CALLS}", *options, "-p", str(pid)]
    tracer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        _wait_for_tracer(pid)
        os.write(opener, b"g")
        os.close(opener)
        with os.fdopen(reader) as pipe:
            lines = pipe.read().splitlines()
        _, status = os.waitpid(pid, 0)
    finally:
        tracer.wait(timeout=10)
    trace = [match.groups() for line in Path(log).read_text().splitlines() if (match := LINE.match(line))]
    os.unlink(log)
    if not os.WIFSIGNALED(status) and status:
        raise Lost(f"{case}: the process failed with something that is no error of ours (wait status {status})")
    return Outcome(lines, os.WIFSIGNALED(status), trace)  # type: ignore[arg-type]


def _child(operation: str, root: str, gate: int, sender: int, patch: Callable[[], None]) -> None:
    code = 1
    try:
        os.read(gate, 1)
        patch()
        operate(operation, root, lambda line: os.write(sender, f"{line}\n".encode()) and None)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _write_short(number: int) -> None:
    """strace can only pretend that a write was short; here the kernel really takes no more than half of the n-th."""
    real, seen = os.pwrite, 0

    def pwrite(fd: int, data: memoryview, offset: int) -> int:
        nonlocal seen
        seen += 1
        return real(fd, data[: max(1, len(data) // 2)] if seen == number else data, offset)

    os.pwrite = pwrite  # type: ignore[assignment]


def _close_badly(number: int) -> None:
    """strace would skip the call; the kernel gives the descriptor back, and with it the lock, even when it says EIO."""
    real, seen = os.close, 0

    def close(fd: int) -> None:
        nonlocal seen
        seen += 1
        real(fd)
        if seen == number:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    os.close = close  # type: ignore[assignment]


_PATCHES = {"short": _write_short, "bad close": _close_badly}


def _wait_for_tracer(pid: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        status = Path(f"/proc/{pid}/status").read_text()
        if "TracerPid:\t0\n" not in status:
            return
        time.sleep(0.001)
    raise AssertionError("strace did not attach")


def all_cases(base: str, work: str) -> list[Case]:
    """Every call of every operation, with every fault; some once, some from then on."""
    cases = []
    for operation in OPERATIONS:
        root = f"{work}/count-{operation}"
        shutil.copytree(base, root)
        counts = Counter(row[0] for row in run_case(None, operation, root).trace)
        for call, count in sorted(counts.items()):
            for number in range(1, count + 1):
                for fault in FAULTS:
                    if (fault == "error=ENOSPC" and call not in ONLY_WRITES) or (call == "close" and "error" in fault):
                        continue
                    cases.append(Case(operation, call, number, fault))
                    if fault in ("error=ENOSPC", "error=EIO"):
                        cases.append(Case(operation, call, number, fault, persistent=True))
        cases += [Case(operation, "close", n, "bad close") for n in range(1, counts["close"] + 1)]
        cases += [Case(operation, "pwrite64", n, "short") for n in range(1, counts["pwrite64"] + 1)]
    return cases


def check(case: Case, root: str, outcome: Outcome) -> None:
    """As in suite A, and: an error of ours in one sentence, no traceback, no leftovers that pile up."""
    known = states()
    store = FileStore(root)
    try:
        found = subject.restore_all(store)
    except StayfastError as error:
        raise Lost(f"the head lists what cannot be restored: {error}") from error
    for step, state in found:
        if state != known[step]:
            raise Lost(f"step {step} came back with other content")
    steps = [step for step, _ in found]
    if steps not in ([3, 2], [2, 1]) or ("ack" in outcome.lines and steps != [3, 2]):
        raise Lost(f"found steps {steps} after {outcome.lines}")
    for line in outcome.lines:
        if line.startswith("restored") and line != f"restored {steps[0]}":
            raise Lost(f"{line}, newest is {steps[0]}")
    _check_syncs(outcome)
    leftovers = list(Path(root).rglob(".tmp-*"))
    if leftovers and not outcome.killed and case.call not in ("unlink", "unlinkat"):
        raise Lost(f"{len(leftovers)} temporary files were left behind by a process that lived on")
    after = subject.Attempt(store, inline=True)
    after.save(steps[0] + 1, known[0])
    after.prune()
    if [step for step, _ in subject.restore_all(store)] != [steps[0] + 1, steps[0]]:
        raise Lost("the next save did not work")


def _check_syncs(outcome: Outcome) -> None:
    """What a failed fsync covered must never be given its name, nor an unconfirmed name be acknowledged."""
    failed_files: set[str] = set()
    failed_dirs: set[str] = set()
    for call, arguments, result, error in outcome.trace:
        if "EINTR" in error:
            continue  # nothing was tried yet: calling again is right
        if call == "fsync" and (match := re.search(r"<(.*)>", arguments)):
            path = match[1]
            if "/.tmp-" in path:
                if result == "-1":
                    failed_files.add(path)
            elif result == "-1":
                failed_dirs.add(path)
            else:
                failed_dirs.discard(path)
        if call in ("link", "linkat", "rename", "renameat", "renameat2") and result == "0":
            for path in failed_files:
                if f'"{path}"' in arguments:
                    raise Lost(f"{path} got its name although its fsync had failed")
    if "ack" in outcome.lines and failed_dirs:
        raise Lost(f"acknowledged although the names in {failed_dirs} were not confirmed")


def run(seed: int, count: int, deadline_seconds: float | None = None) -> Report:
    """A seeded sample of all cases, or all of them again and again for the larger tiers."""
    report = Report()
    rng = random.Random(seed)
    began = time.monotonic()
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(prefix="stayfast-syscalls-", dir=place) as work:
        base = f"{work}/base"
        prepare(base)
        cases = all_cases(base, work)
        rng.shuffle(cases)
        while report.injected < count:
            case = cases[report.injected % len(cases)]
            if deadline_seconds is not None and time.monotonic() - began > deadline_seconds:
                break
            root = f"{work}/run-{report.injected}"
            shutil.copytree(base, root)
            try:
                _one_case(case, root, report)
            except Lost as error:
                raise Lost(f"seed {seed}, {case}: {error}") from None
            shutil.rmtree(root)
    return report


def _one_case(case: Case, root: str, report: Report) -> None:
    outcome = run_case(case, case.operation, root)
    hit = case.fault in _PATCHES or outcome.killed or any("INJECTED" in row[3] for row in outcome.trace)
    if not hit:
        raise AssertionError(f"{case} was never reached")
    report.injected += 1
    report.kinds[case.fault] += 1
    report.killed += outcome.killed
    failed = any(line.startswith("error") for line in outcome.lines)
    report.failed += failed
    report.succeeded += not failed and not outcome.killed
    with contextlib.suppress(ValueError):
        outcome.lines.remove("")
    check(case, root, outcome)
