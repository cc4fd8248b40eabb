"""Start a program the way a container does: as PID 1 of its own PID namespace, with nothing of it outliving it.

Where the kernel gives no namespace (a container without the right, a hardened host), the program leads a session of its
own, and the two things that make PID 1 special are kept from outside: a signal that it neither handles nor waits for
does not reach it, and everything below it ends with it.
"""

from __future__ import annotations

import errno
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any, NamedTuple

from stayfast.errors import UsageError
from stayfast.process.proc import signal_disposition, write_call_count
from stayfast.process.tree import descendants_of, send_signal

_KEEPER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "container_init.py")
_START_SECONDS = 30.0

Stream = int | IO[bytes] | None


class ContainerOptions(NamedTuple):
    """What may be asked beyond the command; nothing of it is promised without a namespace but the filter."""

    namespace: bool = True
    hostname: str = ""
    seccomp_filter: bytes = b""
    start_paused: bool = False
    """It has a number, but its first instruction waits for ``start_held``."""


class ContainedProgram:
    """A running program and everything below it; used by one thread at a time."""

    def __init__(
        self, keeper: subprocess.Popen[bytes] | None, channel: socket.socket, *, namespace_refusal: str | None
    ) -> None:
        self._keeper = keeper
        self._channel = channel
        self._heard = b""
        self._code: int | None = None
        self.pid = 0
        self.namespace_refusal = namespace_refusal
        self.listener: int | None = None
        """Where the calls that the filter holds up are told; asked for with ``ContainerOptions.seccomp_filter``."""
        self.listener_kind = ""
        """``killable`` where a signal does not disturb a call that we hold, ``plain`` on older kernels, or none."""
        self.unwatched = ""
        """Why there is no listener although one was asked for."""
        self.cpu_seconds = 0.0
        self.write_calls = 0
        self.waited_seconds = 0.0
        """For how much of its time the first process stood ready while others had the cores."""
        self.start_error: int | None = None

    @property
    def namespace(self) -> bool:
        """Whether the program is PID 1 of a namespace; ``namespace_refusal`` says what was missing."""
        return self.namespace_refusal is None

    def start_held(self) -> None:
        """Let a program that is held begin."""
        try:
            self._channel.sendall(b"\n")
        except OSError:
            pass  # its keeper is gone, and so is the program

    def signal(self, number: int) -> bool:
        """Signal the first process, as the kubelet does; false where PID 1 would never notice it."""
        if self.poll() is not None or not self.pid or not would_notice_signal(self.pid, number):
            return False
        send_signal(self.pid, number)
        return True

    def kill_now(self) -> None:
        """SIGKILL to everything, from any thread; the end is learned by waiting."""
        # The first process first: a shell must not go on to its next line because its child was killed.
        for pid in [self.pid] if self.namespace and self.pid else self._known():
            send_signal(pid, signal.SIGKILL)

    def pause(self) -> None:
        """Stop every process where it stands, from any thread."""
        stopped: set[int] = set()
        while fresh := set(self._known()) - stopped:  # what was forked while we were stopping its parent
            for pid in fresh:
                send_signal(pid, signal.SIGSTOP)
            stopped |= fresh

    def resume(self) -> None:
        """Let every process go on, from any thread."""
        for pid in self._known():
            send_signal(pid, signal.SIGCONT)

    def kill_all(self) -> None:
        """End everything without warning, as when the machine is gone."""
        if self.poll() is None:
            self.kill_now()

    def tree(self) -> list[int]:
        """The host's numbers of every process of the program, the first one first."""
        return [] if self.poll() is not None else self._known()

    def _known(self) -> list[int]:
        """The first process and all below it; nothing before it has a number: 0 would mean our own process group."""
        return [self.pid, *descendants_of(self.pid)] if self.pid else []

    def write_call_count(self) -> int:
        """How often the program has written by now; 0 where the kernel does not count it."""
        return sum(map(write_call_count, self._known()))

    def poll(self) -> int | None:
        """The exit code (negative: the signal that ended it), or None while it runs."""
        return self.wait(0.0)

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for the end; None when the time is over first."""
        until = None if seconds is None else time.monotonic() + seconds
        while self._code is None:
            left = None if until is None else max(0.0, until - time.monotonic())
            if not select.select([self._channel], [], [], left)[0]:
                return None
            self._receive()
        return self._code

    def close(self) -> None:
        """End whatever is left and give everything back."""
        self.kill_all()
        try:
            self._channel.shutdown(socket.SHUT_WR)  # the keeper takes this as the order to end
            while self._channel.recv(65536):
                pass
        except OSError:
            pass  # it is gone already
        self._channel.close()
        if self._keeper is not None:
            self._keeper.wait()
        if self.listener is not None:
            os.close(self.listener)
            self.listener = None

    def _receive(self) -> str | None:
        """Take in one message of the keeper; returns why there is no namespace, if that is what it said."""
        data, descriptors, _, _ = socket.recv_fds(self._channel, 65536, 1)
        if descriptors:
            self.listener = descriptors[0]
        self._heard += data
        refused = None
        while b"\n" in self._heard:
            line, _, self._heard = self._heard.partition(b"\n")
            said = json.loads(line)
            self.pid = said.get("started", self.pid)
            self._code = said.get("ended", self._code)
            self.cpu_seconds = said.get("cpu_seconds", self.cpu_seconds)
            self.write_calls = said.get("write_calls", self.write_calls)
            self.waited_seconds = said.get("waited_seconds", self.waited_seconds)
            self.start_error = said.get("error", self.start_error)
            self.unwatched = said.get("unwatched", self.unwatched)
            self.listener_kind = said.get("listener", self.listener_kind)
            refused = said.get("refused", refused)
        if not data and self._code is None:
            self._code = -signal.SIGKILL  # somebody ended the keeper, and the kernel the program with it
        return refused


class InitServer:
    """One process that forks a keeper for each program: for those who start many."""

    def __init__(self) -> None:
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = _interpreter(theirs, "serve", streams={"stdin": subprocess.DEVNULL})

    def launch(self, asked: Mapping[str, Any], streams: Mapping[str, Stream]) -> socket.socket:
        """A channel to a new keeper; callable from any thread."""
        ours, theirs = socket.socketpair()
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            numbers = [_number(streams[name], own, nothing) for own, name in enumerate(("stdin", "stdout", "stderr"))]
            socket.send_fds(self._orders, [b"x"], [theirs.fileno(), *numbers])
        except OSError as error:
            ours.close()
            raise UsageError(f"no process can be started ({error.strerror})") from error
        finally:
            theirs.close()
            os.close(nothing)
        ours.sendall(json.dumps(asked).encode() + b"\n")
        return ours

    def close(self) -> None:
        """No more programs; those that run are not touched."""
        self._orders.close()
        self._server.wait()


def start_contained(
    command: Sequence[str],
    *,
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    stdin: Stream = subprocess.DEVNULL,
    stdout: Stream = None,
    stderr: Stream = None,
    options: ContainerOptions | None = None,
    keepers: InitServer | None = None,
) -> ContainedProgram:
    """Start a program; a namespace that cannot be had is no error, one that was not asked for is not tried.

    A command that cannot be executed ends at once with 127, and ``start_error`` says why.
    """
    wish = options or ContainerOptions()
    streams = {"stdin": stdin, "stdout": stdout, "stderr": stderr}
    why_not: str | None = None if wish.namespace else "not asked for"
    while True:
        asked = {
            "command": list(command),
            "namespace": why_not is None,
            "hostname": wish.hostname,
            "filter": wish.seccomp_filter.hex(),
            "held": wish.start_paused,
        }
        if keepers is None:
            started = _launch(asked, cwd, env, streams, why_not)
        else:
            asked |= {"folder": os.fspath(cwd), "environment": dict(env)}
            started = ContainedProgram(None, keepers.launch(asked, streams), namespace_refusal=why_not)
        refused = _wait_until_started(started, watched=bool(wish.seccomp_filter))
        if refused is None:
            return started
        started.close()
        why_not = refused


def _launch(
    asked: Mapping[str, Any],
    cwd: str | os.PathLike[str],
    env: Mapping[str, str],
    streams: Mapping[str, Stream],
    why_not: str | None,
) -> ContainedProgram:
    ours, theirs = socket.socketpair()
    try:
        keeper = _interpreter(theirs, cwd=cwd, env=dict(env), streams=streams)
    except OSError as error:
        ours.close()
        where = f"in {os.fspath(cwd)} " if error.errno in (errno.ENOENT, errno.EACCES, errno.ENOTDIR) else ""
        raise UsageError(f"no process can be started {where}({error.strerror})") from error
    finally:
        theirs.close()
    ours.sendall(json.dumps(asked).encode() + b"\n")
    return ContainedProgram(keeper, ours, namespace_refusal=why_not)


def _interpreter(
    channel: socket.socket,
    *words: str,
    streams: Mapping[str, Any],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-I", "-S", _KEEPER, str(channel.fileno()), *words],
        cwd=cwd,
        env=env,
        pass_fds=[channel.fileno()],
        start_new_session=True,  # a Ctrl-C in the terminal is ours to handle
        **streams,
    )


def _number(stream: Stream, own: int, nothing: int) -> int:
    """The descriptor of a stream, in the words of subprocess."""
    if stream is None:
        return own
    if stream == subprocess.DEVNULL:
        return nothing
    return stream if isinstance(stream, int) else stream.fileno()


def _wait_until_started(started: ContainedProgram, *, watched: bool) -> str | None:
    """Until the program has its number and its listener; returns why it could not have a namespace."""
    until = time.monotonic() + _START_SECONDS
    while started._code is None and started.start_error is None:
        if started.pid and (not watched or started.listener is not None or started.unwatched):
            return None
        if not select.select([started._channel], [], [], max(0.0, until - time.monotonic()))[0]:
            started.close()
            raise UsageError("the program's keeper did not start within 30 s", help="is the machine out of processes?")
        refused = started._receive()
        if refused is not None:
            return refused
    return None


def would_notice_signal(pid: int, number: int) -> bool:
    """Whether PID 1 would notice this signal from outside: SIGKILL and SIGSTOP always, others handled or waited for."""
    return number in (signal.SIGKILL, signal.SIGSTOP) or signal_disposition(pid, number) in ("handler", "blocked")
