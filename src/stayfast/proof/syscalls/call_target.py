"""Which file a held system call is about, and where it really is: the kernel follows links, and so do we."""

from __future__ import annotations

import os
import struct

from stayfast.process.proc import descriptor_path, working_directory
from stayfast.proof.syscalls import seccomp

_AT_FDCWD = 0xFFFFFF9C
_PATH_BYTES = 4096
_MOST_LINKS = 40  # the kernel's own limit
_NEW = os.O_CREAT | os.O_EXCL
_DEVICES = ("/dev/", "/proc/")
# These mean the name itself, where others follow a link that stands there.
_NAMING = frozenset(
    {"rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "lchown"}
)


def target(call: seccomp.Call) -> tuple[str | None, bool]:
    """The file that a call is about to change, and whether it empties it."""
    arguments = call.arguments
    named_at = seccomp.CHANGED_AT.get(call.name)
    if named_at is not None:
        return _path(call.pid, arguments[0] if named_at else None, arguments[named_at]), False
    descriptor = seccomp.descriptor_of(call)
    if descriptor is not None:
        return descriptor_path(call.pid, descriptor), False
    match call.name:
        case "open":
            return _path(call.pid, None, arguments[0]), bool(arguments[1] & os.O_TRUNC)
        case "openat":
            return _path(call.pid, arguments[0], arguments[1]), bool(arguments[2] & os.O_TRUNC)
        case "openat2":
            flags = struct.unpack("=Q", read_memory(call.pid, arguments[2], 8))[0]
            if not flags & seccomp.O_WRITING:
                return None, False
            return _path(call.pid, arguments[0], arguments[1]), bool(flags & os.O_TRUNC)
        case "creat" | "truncate":
            return _path(call.pid, None, arguments[0]), True
        case "rename" | "link" | "symlink":
            return _path(call.pid, None, arguments[1]), False
        case "symlinkat":
            return _path(call.pid, arguments[1], arguments[2]), False
        case "unlink":
            return _path(call.pid, None, arguments[0]), False
        case "unlinkat":
            return _path(call.pid, arguments[0], arguments[1]), False
        case "renameat" | "renameat2" | "linkat":
            return _path(call.pid, arguments[2], arguments[3]), False
    return None, False


def source(call: seccomp.Call) -> list[str]:
    """The file that a rename takes away."""
    arguments = call.arguments
    match call.name:
        case "rename":
            path = _path(call.pid, None, arguments[0])
        case "renameat" | "renameat2":
            path = _path(call.pid, arguments[0], arguments[1])
        case _:
            return []
    return [_place(path)] if path is not None and os.path.lexists(path) else []


def resolved_path(call: seccomp.Call, path: str) -> str:
    """Where the file is that a call names."""
    if call.name in _NAMING or _flags(call) & os.O_NOFOLLOW or _flags(call) & _NEW == _NEW:
        return _place(path)
    return _followed(path)


def _flags(call: seccomp.Call) -> int:
    """Of those that open; others have none."""
    at = {"open": 1, "openat": 2}.get(call.name)
    return 0 if at is None else call.arguments[at]


def _place(path: str) -> str:
    """Where a name is; what a link there points to is not meant."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))


def _followed(path: str) -> str:
    """Where a link leads that is opened or changed by its name; devices are the program's own and not ours."""
    place = _place(path)
    for _ in range(_MOST_LINKS):
        if path.startswith(_DEVICES) or place.startswith(_DEVICES) or not os.path.islink(place):
            break
        path = os.path.join(os.path.dirname(place), os.readlink(place))
        place = path if path.startswith(_DEVICES) else _place(path)
    return place


def _path(pid: int, directory: int | None, address: int) -> str | None:
    name = os.fsdecode(read_memory(pid, address, _PATH_BYTES).split(b"\0", 1)[0])
    if name.startswith("/") or not name:
        return name or None
    base = None
    if directory is None or directory & 0xFFFFFFFF == _AT_FDCWD:
        base = working_directory(pid)
    else:
        base = descriptor_path(pid, directory & 0xFFFFFFFF)
    return None if base is None else os.path.join(base, name)


def read_memory(pid: int, address: int, size: int) -> bytes:
    """Up to the end of the page after the address at least: a name may end where readable memory ends."""
    descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY)
    try:
        try:
            return os.pread(descriptor, size, address)
        except OSError:
            return os.pread(descriptor, 4096 - address % 4096, address)
    finally:
        os.close(descriptor)
