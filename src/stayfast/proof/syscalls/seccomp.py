"""Which system calls are held up to be looked at: a seccomp filter in the program, its listener with us.

A call is answered with "go on" in well under a millisecond; holding one is how a program is stopped exactly between two
of its own actions. Where this is not possible (an old kernel, another sandbox around us), files are polled instead.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from stayfast.process.proc import system_calls_of

_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_OPENS = {"x86_64": {"open": (2, 1), "openat": (257, 2)}, "aarch64": {"openat": (56, 2)}}
_NAMES = {
    "x86_64": {
        "creat": 85, "openat2": 437, "truncate": 76,
        "rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "unlink": 87, "unlinkat": 263,
        "symlink": 88, "symlinkat": 266,
    },
    "aarch64": {
        "openat2": 437, "truncate": 45,
        "renameat": 38, "renameat2": 276, "linkat": 37, "unlinkat": 35, "symlinkat": 36,
    },
}  # fmt: skip
# Mode, owner, dates and attributes by name, with the argument that is the name; the directory's is the one before it.
_CHANGES = {
    "x86_64": {
        "chmod": (90, 0), "chown": (92, 0), "lchown": (94, 0), "utime": (132, 0), "utimes": (235, 0),
        "setxattr": (188, 0), "lsetxattr": (189, 0), "removexattr": (197, 0), "lremovexattr": (198, 0),
        "fchmodat": (268, 1), "fchmodat2": (452, 1), "fchownat": (260, 1), "futimesat": (261, 1), "utimensat": (280, 1),
    },
    "aarch64": {
        "setxattr": (5, 0), "lsetxattr": (6, 0), "removexattr": (14, 0), "lremovexattr": (15, 0),
        "fchmodat": (53, 1), "fchmodat2": (452, 1), "fchownat": (54, 1), "utimensat": (88, 1),
    },
}  # fmt: skip
# With the argument that names the descriptor written to.
_WRITES = {
    "x86_64": {
        "write": (1, 0), "pwrite64": (18, 0), "writev": (20, 0), "pwritev": (296, 0), "pwritev2": (328, 0),
        "ftruncate": (77, 0), "sendfile": (40, 0), "copy_file_range": (326, 2), "dup2": (33, 0), "dup3": (292, 0),
    },
    "aarch64": {
        "write": (64, 0), "pwrite64": (68, 0), "writev": (66, 0), "pwritev": (70, 0), "pwritev2": (287, 0),
        "ftruncate": (46, 0), "sendfile": (71, 0), "copy_file_range": (285, 2), "dup3": (24, 0),
    },
}  # fmt: skip
_FALLOCATE = {"x86_64": {"fallocate": (285, 0)}, "aarch64": {"fallocate": (47, 0)}}
O_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _NOTIFY = 0x7FFF0000, 0x7FC00000

RECEIVE, SEND = 0xC0502100, 0xC0182101
_NOTIFICATION = struct.Struct("=QIIiIQ6Q")
_ANSWER = struct.Struct("=QqiI")
_GO_ON = 1


class Call(NamedTuple):
    """One system call that is being held."""

    id: int
    pid: int
    name: str
    arguments: tuple[int, ...]


def machine() -> str | None:
    """This machine's name if its system calls are known here."""
    name = os.uname().machine
    return name if name in _ARCH else None


def build_filter(*, writes: bool, space: bool = False) -> bytes:
    """The program for the kernel: opens for writing, renames, removals, changes of mode or date.

    ``writes``: also what goes into files; ``space``: everything that takes space, into standard output too.
    """
    name = machine()
    if name is None:
        return b""
    rows = [_row(_LOAD, 4), _row(_EQUAL, _ARCH[name], 1, 0), _row(_RETURN, _ALLOW), _row(_LOAD, 0)]
    for number, flags_at in _OPENS[name].values():
        rows += _only(number, _row(_LOAD, 16 + 8 * flags_at), _row(_ANY_BIT, O_WRITING, 0, 1))
    changes = (number for number, _ in _CHANGES[name].values())
    for number in (*_NAMES[name].values(), *changes):
        rows += [_row(_EQUAL, number, 0, 1), _row(_RETURN, _NOTIFY)]
    held = [*_WRITES[name].values()] if writes or space else []
    for number, descriptor_at in (*held, *(_FALLOCATE[name].values() if space else ())):
        # Standard output and its kin are not files of the program, and it may print a lot.
        rows += _only(number, _row(_LOAD, 16 + 8 * descriptor_at), _row(_AT_LEAST, 0 if space else 3, 0, 1))
    rows.append(_row(_RETURN, _ALLOW))
    return b"".join(rows)


def _only(number: int, load: bytes, test: bytes) -> list[bytes]:
    return [_row(_EQUAL, number, 0, 4), load, test, _row(_RETURN, _NOTIFY), _row(_RETURN, _ALLOW)]


def _row(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _numbers() -> dict[int, str]:
    name = machine()
    if name is None:
        return {}
    single = {number: call for call, number in _NAMES[name].items()}
    tables = (_OPENS[name], _CHANGES[name], _WRITES[name], _FALLOCATE[name])
    return single | {row[0]: call for table in tables for call, row in table.items()}


NUMBERS = _numbers()
CHANGED_AT = {call: argument for call, (_, argument) in _CHANGES.get(machine() or "", {}).items()}
"""Where calls that change no content, but what else is known of a file, name it."""
_DESCRIPTOR_AT = {**_WRITES.get(machine() or "", {}), **_FALLOCATE.get(machine() or "", {})}


def parse(data: bytes | bytearray) -> Call:
    """What the listener said."""
    identity, pid, _, number, _, _, *arguments = _NOTIFICATION.unpack_from(data)
    return Call(identity, pid, NUMBERS.get(number, "?"), tuple(arguments))


def receive_buffer() -> bytearray:
    """Zeroed, as the kernel insists."""
    return bytearray(_NOTIFICATION.size)


def pack_response(identity: int, *, error: int = 0) -> bytes:
    """Go on, or fail with this error number."""
    return _ANSWER.pack(identity, 0, -error, 0 if error else _GO_ON)


def descriptor_of(call: Call) -> int | None:
    """The descriptor that a writing call writes to."""
    row = _DESCRIPTOR_AT.get(call.name)
    return None if row is None else call.arguments[row[1]] & 0xFFFFFFFF


def is_calling(pid: int) -> bool:
    """Whether a thread of this process is in one of the calls that are looked at."""
    return not NUMBERS.keys().isdisjoint(system_calls_of(pid))
