"""Real power cuts without a power switch: ext4 on a loop device over memory, shut down without flushing its journal.

::

    with powercut.Disk() as disk:                        # inside powercut.in_private_mounts(...)
        outcome = disk.run_and_cut(writer, after_seconds=0.02)
        # writer(path, ack) runs in a process of its own; ack(bytes) goes through a pipe, off the disk
        check(disk.path, outcome.acknowledged)           # the disk is mounted again: journal replayed

The writer is frozen before the cut: an fsync that races the shutdown may return 0 and would be a false alarm.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import mmap
import os
import select
import signal
import struct
import subprocess
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOOP_CTL_GET_FREE = 0x4C82
LOOP_SET_FD = 0x4C00
LOOP_CLR_FD = 0x4C01
LOOP_SET_STATUS64 = 0x4C04
AUTOCLEAR_AT, AUTOCLEAR = 52, 4
BLKFLSBUF = 0x1261
FS_IOC_SHUTDOWN = 0x8004587D
NOLOGFLUSH = 2
CLONE_NEWNS = 0x00020000
MS_REC, MS_PRIVATE = 16384, 1 << 18

Ack = Callable[[bytes], None]
Writer = Callable[[str, Ack], None]

_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


@dataclass
class Outcome:
    """What the writer said before the power went, and how it ended if it ended before that."""

    acknowledged: list[bytes]
    finished: bool


class Disk:
    """An ext4 file system that can lose its power; use inside a private mount namespace."""

    def __init__(self, *, size_bytes: int = 16 << 20) -> None:
        self._size = size_bytes
        self.path = ""
        self.cuts = 0

    def __enter__(self) -> Disk:
        self._memory = os.memfd_create("disk")
        os.ftruncate(self._memory, self._size)
        self._bytes = mmap.mmap(self._memory, self._size)
        for _ in range(20):  # somebody else may take the free device between the two calls
            self._device = self._free_device()
            self._loop = os.open(self._device, os.O_RDWR)
            try:
                fcntl.ioctl(self._loop, LOOP_SET_FD, self._memory)
                break
            except OSError as error:
                os.close(self._loop)
                if error.errno != errno.EBUSY:
                    raise
        else:
            raise OSError(errno.EBUSY, "no loop device stays free")
        info = bytearray(232)
        info[AUTOCLEAR_AT] = AUTOCLEAR  # the device goes with its last user, even if this process is killed
        fcntl.ioctl(self._loop, LOOP_SET_STATUS64, bytes(info))
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", self._device], check=True)
        self.path = tempfile.mkdtemp(prefix="powercut-")
        self._mount()
        return self

    def __exit__(self, *_: object) -> None:
        self._unmount()
        with contextlib.suppress(OSError):
            fcntl.ioctl(self._loop, LOOP_CLR_FD)
        os.close(self._loop)
        self._bytes.close()
        os.close(self._memory)
        with contextlib.suppress(OSError):
            os.rmdir(self.path)

    @staticmethod
    def _free_device() -> str:
        control = os.open("/dev/loop-control", os.O_RDWR)
        try:
            return f"/dev/loop{fcntl.ioctl(control, LOOP_CTL_GET_FREE)}"
        finally:
            os.close(control)

    def _mount(self) -> None:
        _check(_libc.mount(self._device.encode(), self.path.encode(), b"ext4", 0, None), "mount")

    def _unmount(self) -> None:
        for _ in range(200):
            if _libc.umount2(self.path.encode(), 0) == 0:
                return
            if ctypes.get_errno() != errno.EBUSY:
                break
            time.sleep(0.005)
        _check(-1, "umount")

    def cut(self) -> None:
        """The power goes: everything that was not made durable is gone. Then the machine comes back."""
        self._power_off()
        self._power_on()

    def _power_off(self) -> None:
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, FS_IOC_SHUTDOWN, struct.pack("I", NOLOGFLUSH))
        finally:
            os.close(fd)
        self._image = self._bytes[:]

    def _power_on(self) -> None:
        """Unmounting writes some of what the journal never had; no real disk gets that, so the image goes back."""
        self._unmount()
        fcntl.ioctl(self._loop, BLKFLSBUF)
        self._bytes[:] = self._image
        self._mount()
        self.cuts += 1

    def run_and_cut(
        self, writer: Writer, *, after_lines: int = 0, after_seconds: float | None = None, limit_seconds: float = 20.0
    ) -> Outcome:
        """Run the writer, cut when it stops itself (SIGSTOP), ends, or the time is over; then kill it.

        The time begins with the line that is asked for: a slow machine promises as much as a fast one.
        """
        reader, sender = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            _child(writer, self.path, sender)
        os.close(sender)
        said = bytearray()
        found = _wait(pid, reader, said, limit_seconds, after_lines, after_seconds)
        if found == "running":
            os.kill(pid, signal.SIGSTOP)
            found = "stopped" if os.WIFSTOPPED(os.waitpid(pid, os.WUNTRACED)[1]) else "ended"
        finished = found == "ended"
        self._power_off()
        if not finished:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        while piece := os.read(reader, 65536):
            said += piece
        os.close(reader)
        self._power_on()
        return Outcome(said.split(b"\n")[:-1], finished)


def _child(writer: Writer, path: str, sender: int) -> None:
    code = 1
    try:
        writer(path, lambda line: os.writev(sender, [line, b"\n"]) and None)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(pid: int, reader: int, said: bytearray, limit: float, lines: int, seconds: float | None) -> str:
    """Until it is stopped, ended (by itself, which must be without error), or the time is over: still running."""
    deadline = time.monotonic() + limit
    while True:
        done, status = os.waitpid(pid, os.WNOHANG | os.WUNTRACED)
        if done and os.WIFSTOPPED(status):
            return "stopped"
        if done:
            if status != 0:
                raise AssertionError(f"the writer failed by itself (wait status {status}); its traceback is on stderr")
            return "ended"
        if seconds is not None and said.count(b"\n") >= lines:
            deadline, seconds = time.monotonic() + seconds, None
        if time.monotonic() > deadline:
            return "running"
        if select.select([reader], [], [], 0.0005)[0]:
            said += os.read(reader, 65536)


def in_private_mounts(function: Callable[..., Any], *args: Any) -> Any:
    """Call in a child whose mounts nobody else sees and that vanish with it; the result travels as JSON."""
    reader, sender = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            _check(_libc.unshare(CLONE_NEWNS), "unshare")
            _check(_libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "make mounts private")
            answer = {"result": function(*args)}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
        with os.fdopen(sender, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(sender)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(pid, 0)
    if not text:
        raise AssertionError("the process with private mounts died without an answer")
    answer = json.loads(text)
    if "error" in answer:
        raise AssertionError(f"{answer['error']}\n{answer['trace']}")
    return answer["result"]


def why_not() -> str | None:
    """Why power cuts are impossible here, or None."""
    if os.geteuid() != 0:
        return "power cuts need root (mount, loop devices)"
    if not os.path.exists("/dev/loop-control"):
        return "power cuts need loop devices (/dev/loop-control is absent)"
    if subprocess.run(["sh", "-c", "command -v mkfs.ext4"], capture_output=True).returncode:
        return "power cuts need mkfs.ext4"
    try:
        in_private_mounts(_probe)
    except AssertionError as error:
        return f"power cuts do not work here: {str(error).splitlines()[0]}"
    return None


def _probe() -> int:
    with Disk(size_bytes=8 << 20) as disk:
        disk.cut()
        return disk.cuts
