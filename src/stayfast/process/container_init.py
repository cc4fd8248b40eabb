"""The process between us and a program that is treated like a container: started by its path, never imported.

It makes the program PID 1 of a fresh PID namespace where the kernel allows it, and otherwise the leader of a session
whose orphans come to this process. Either way nothing of the program outlives it: it ends everything when the program
has ended, and when its own starter is gone. It needs the standard library alone and runs as ``python -I -S``.

For many programs it is started once, as ``keeper.py FD serve``, and forks a keeper for each: a fork costs a thirtieth
of the start of an interpreter.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import select
import signal
import socket
import sys
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 36, 38
_NEWNS, _NEWUTS, _NEWUSER, _NEWPID = 0x20000, 0x4000000, 0x10000000, 0x20000000
_MS_NOSUID_NODEV_NOEXEC, _MS_BIND, _MS_REC_PRIVATE = 0xE, 0x1000, 0x44000
_SECCOMP_CALL = {"x86_64": 317, "aarch64": 277}
_SECCOMP_SET_MODE_FILTER, _NEW_LISTENER, _WAIT_KILLABLE = 1, 8, 32
_LEFT_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)  # ignored by the interpreter; a program expects their defaults

_libc = ctypes.CDLL(None, use_errno=True)


class NamespaceRefusedError(Exception):
    """The kernel does not give what was asked for."""


def main() -> int:
    channel = socket.socket(fileno=int(sys.argv[1]))
    os.set_inheritable(channel.fileno(), False)
    if sys.argv[2:] == ["serve"]:
        channel = _serve_forks(channel)
    asked = json.loads(_read_line(channel))
    if "folder" in asked:
        try:
            os.chdir(asked["folder"])
        except OSError as error:
            _send(channel, error=error.errno or 0)
            return 1
        os.environ.clear()
        os.environ.update(asked["environment"])
    if asked["namespace"]:
        try:
            _unshare(asked)
        except NamespaceRefusedError as error:
            _send(channel, refused=str(error))
            return 0
    else:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go_write)
        _exec_program(channel, asked, ready_write, go_read)
    os.close(ready_write)
    os.close(go_read)
    if os.read(ready_read, 1):
        _send(channel, refused="a /proc of its own cannot be mounted")
        return 0
    _send(channel, started=pid)
    if asked.get("held"):
        _read_line(channel)
    os.close(go_write)  # the program starts after its number is on the way
    return _wait_for_program(channel, pid, namespace=asked["namespace"])


def _serve_forks(orders: socket.socket) -> socket.socket:
    """Fork for every order; returns in the child alone, with the channel and the streams that came with the order."""
    signal.signal(signal.SIGCHLD, _reap_children)
    while True:
        order, descriptors, _, _ = socket.recv_fds(orders, 1, 4)
        if not order:
            os._exit(0)
        if os.fork() == 0:
            break
        for descriptor in descriptors:
            os.close(descriptor)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    orders.close()
    os.setsid()
    channel, *streams = descriptors
    os.set_inheritable(channel, False)  # received descriptors would go on to the program
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return socket.socket(fileno=channel)


def _reap_children(*_: object) -> None:
    """Nobody here asks how they ended, but what they used is to be counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


# -- the namespace


def _unshare(asked: dict[str, Any]) -> None:
    uid, gid = os.geteuid(), os.getegid()
    wanted = _NEWPID | _NEWNS | _NEWUTS
    if _libc.unshare(wanted) != 0:
        if _libc.unshare(wanted | _NEWUSER) != 0:
            raise NamespaceRefusedError(f"unshare: {os.strerror(ctypes.get_errno())}")
        try:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        except OSError as error:
            raise NamespaceRefusedError(f"user namespace: {error.strerror}") from error
    if _libc.mount(b"none", b"/", None, _MS_REC_PRIVATE, None) != 0:
        raise NamespaceRefusedError(f"mount: {os.strerror(ctypes.get_errno())}")
    name = str(asked.get("hostname") or "")
    if name and _give_address(name):
        _libc.sethostname(name.encode(), len(name.encode()))


def _give_address(name: str) -> bool:
    """Resolve a host name inside the namespace, as a pod's /etc/hosts does; false where that is not possible.

    The lines come first, so that the addresses resolve back to this name and not to localhost.
    """
    path = os.path.join(os.environ.get("TMPDIR") or "/tmp", f".stayfast-hosts-{os.getpid()}")
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            has_ipv6 = any(line.startswith(f"{1:032x} ") for line in file)
    except OSError:
        has_ipv6 = False
    lines = [f"127.0.0.1 {name}\n", *([f"::1 {name}\n"] if has_ipv6 else [])]
    try:
        with open("/etc/hosts", "rb") as file:
            known = file.read()
        with open(path, "xb") as own:
            os.fchmod(own.fileno(), 0o644)
            own.write("".join(lines).encode() + known)
    except OSError:
        return False
    try:
        return bool(_libc.mount(os.fsencode(path), b"/etc/hosts", None, _MS_BIND, None) == 0)
    finally:
        os.unlink(path)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _own_proc() -> bool:
    return bool(_libc.mount(b"proc", b"/proc", b"proc", _MS_NOSUID_NODEV_NOEXEC, None) == 0)


# -- the program


def _exec_program(channel: socket.socket, asked: dict[str, Any], ready_write: int, go_read: int) -> None:
    """In the child: turn into the program, or say why not; never returns."""
    try:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        if asked["namespace"] and not _own_proc():
            os.write(ready_write, b"!")
            return
        os.close(ready_write)  # silence means ready: nothing must be written that would be counted as the program's
        os.read(go_read, 1)
        if asked.get("filter"):
            _send_seccomp_listener(channel, bytes.fromhex(asked["filter"]))
        for number in _LEFT_BY_PYTHON:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        os.execvp(asked["command"][0], asked["command"])
    except OSError as error:
        _send(channel, error=error.errno or 0)
    finally:
        os._exit(127)


def _send_seccomp_listener(channel: socket.socket, program: bytes) -> None:
    """Install the filter and give its listener away; without one the program is simply not watched that way."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    number = _SECCOMP_CALL.get(os.uname().machine, -1)
    text = ctypes.create_string_buffer(program, len(program))
    filter_ = Program(len(program) // 8, ctypes.cast(text, ctypes.c_void_p))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE, _NEW_LISTENER):
        for privileges in (False, True):
            if privileges:
                _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            listener = _libc.syscall(number, _SECCOMP_SET_MODE_FILTER, flags, ctypes.byref(filter_))
            if listener >= 0:
                told = {"listener": "killable" if flags & _WAIT_KILLABLE else "plain"}
                socket.send_fds(channel, [json.dumps(told).encode() + b"\n"], [listener])
                os.close(listener)
                return
    _send(channel, unwatched=os.strerror(ctypes.get_errno()))


# -- until it ends


def _wait_for_program(channel: socket.socket, pid: int, *, namespace: bool) -> int:
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(channel, select.POLLIN)
    poll.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        if ended in ready:
            break
        if channel.fileno() in ready and not channel.recv(4096):  # our starter is gone: nobody will ask any more
            os.kill(pid, signal.SIGKILL)
            break
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    known_as = 1 if namespace else pid  # asked of the dead, before they are buried; /proc is theirs
    written, waited_seconds = _written(known_as), _waited(known_as)
    _, status = os.waitpid(pid, 0)
    if not namespace:
        _kill_orphans()
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    try:
        _send(
            channel,
            ended=os.waitstatus_to_exitcode(status),
            cpu_seconds=used.ru_utime + used.ru_stime,
            write_calls=written.get("syscw", 0),
            waited_seconds=waited_seconds,
        )
    except OSError:
        pass
    return 0


def _written(pid: int) -> dict[str, int]:
    """What the first process and all it has waited for have written; nothing where the kernel does not count it."""
    try:
        with open(f"/proc/{pid}/io", encoding="ascii") as file:
            return {name: int(value) for name, _, value in (line.partition(":") for line in file)}
    except (OSError, ValueError):
        return {}


def _waited(pid: int) -> float:
    """How long the first process stood ready while others had the cores; 0 where the kernel does not say."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


def _kill_orphans() -> None:
    """A container's other processes end with its first one."""
    while True:
        for pid in _children():
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _children() -> list[int]:
    with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
        return [int(word) for word in file.read().split()]


def _read_line(channel: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        more = channel.recv(65536)
        if not more:
            sys.exit(1)
        data += more
    return data


def _send(channel: socket.socket, **words: Any) -> None:
    channel.sendall(json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    sys.exit(main())
