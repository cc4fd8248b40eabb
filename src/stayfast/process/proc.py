"""Readers of /proc: what the kernel says of a process now. One that is gone reads as nothing."""

from __future__ import annotations

import os
from typing import NamedTuple

_SIGTIMEDWAIT = {"x86_64": 128, "aarch64": 137}


class ProcessStat(NamedTuple):
    """Of /proc/PID/stat, what is needed here."""

    state: str
    """The kernel's letter for what it is doing: Z and X have ended, T and t are stopped."""
    parent: int
    cpu_ticks: int
    children_ticks: int
    """Of its children that are gone."""


def process_ids() -> list[int]:
    """All processes that can be seen from here."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def read_stat(pid: int) -> ProcessStat | None:
    """None when it is gone."""
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    if len(fields) < 15:
        return None
    own, children = int(fields[11]) + int(fields[12]), int(fields[13]) + int(fields[14])
    return ProcessStat(fields[0].decode(), int(fields[1]), own, children)


def process_state(pid: int) -> str:
    """The kernel's letter for what a process is doing; X when it is gone."""
    found = read_stat(pid)
    return "X" if found is None else found.state


def read_status(pid: int) -> dict[str, str]:
    """The rows of /proc/PID/status by name; works for a thread's number too."""
    text = _read(pid, "status").decode("utf-8", "replace")
    return dict(line.split(":\t", 1) for line in text.split("\n") if ":\t" in line)


def status_number(pid: int, name: str) -> int:
    """A number of the status, such as ``Tgid``, the process that a thread belongs to; 0 when it is gone."""
    return int((read_status(pid).get(name) or "0").split()[0])


def command_line(pid: int, *, most_bytes: int = 4096) -> list[str]:
    """The words that it was started with."""
    data = _read(pid, "cmdline", most_bytes)
    return [word.decode("utf-8", "replace") for word in data.split(b"\0")] if data else []


def waits_in(pid: int) -> str:
    """The kernel's name for what it waits for; empty when it does not wait."""
    name = _read(pid, "wchan", 200).decode("utf-8", "replace").strip()
    return name if name.strip("0") else ""


def executable_name(pid: int) -> str:
    """The file that it runs, without its directory."""
    return os.path.basename(_link(pid, "exe") or "")


def working_directory(pid: int) -> str | None:
    """None when it is gone."""
    return _link(pid, "cwd")


def descriptor_path(pid: int, descriptor: int) -> str | None:
    """What a descriptor is open on; None when it is not."""
    return _link(pid, f"fd/{descriptor}")


def descriptor_size(pid: int, descriptor: int) -> int:
    """The size of the file behind it; 0 when there is none."""
    try:
        return os.stat(f"/proc/{pid}/fd/{descriptor}").st_size
    except OSError:
        return 0


def descriptor_position(pid: int, descriptor: int) -> tuple[int, int]:
    """The offset and the flags of an open file; ``OSError`` when it is gone."""
    with open(f"/proc/{pid}/fdinfo/{descriptor}", encoding="ascii") as file:
        words = dict(line.split()[:2] for line in file if line.startswith(("pos:", "flags:")))
    return int(words["pos:"]), int(words["flags:"], 8)


def write_call_count(pid: int) -> int:
    """How often a process and all its children that are gone have written; 0 where the kernel does not count it."""
    lines = _read(pid, "io").splitlines()
    return next((int(line[6:]) for line in lines if line.startswith(b"syscw:")), 0)


def threads_of(pid: int) -> list[int]:
    """The numbers of its threads."""
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return []


def system_calls_of(pid: int) -> set[int]:
    """The numbers of the system calls that its threads are in."""
    words = (_read(pid, f"task/{thread}/syscall", 20).split(b" ", 1)[0] for thread in threads_of(pid))
    return {int(word) for word in words if word.isdigit()}


def signal_disposition(pid: int, number: int) -> str:
    """What a process does about a signal now: ``handler``, ``blocked`` (it may wait for it), ``ignored``, ``default``.

    A process that is gone says ``gone``.
    """
    status = read_status(pid)
    if not status:
        return "gone"
    bit = 1 << (number - 1)
    for name, meaning in (("SigCgt", "handler"), ("SigBlk", "blocked"), ("SigIgn", "ignored")):
        if int(status.get(name, "0"), 16) & bit:
            return meaning
    # While a thread sits in sigtimedwait the kernel shows what it waits for as not blocked.
    return "blocked" if _SIGTIMEDWAIT.get(os.uname().machine) in system_calls_of(pid) else "default"


def _link(pid: int, name: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/{name}")
    except OSError:
        return None


def _read(pid: int, name: str, most_bytes: int = -1) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read(most_bytes)
    except OSError:
        return b""
