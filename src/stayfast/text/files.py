"""Files that the user names: read within bounds, written in one step or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import tempfile

from stayfast.errors import UsageError

TEMPORARY = ".stayfast-"
"""How the name of a file begins that is about to replace another."""
MAX_TEXT_BYTES = 256 << 20
MAX_SPEC_BYTES = 12 << 20


def read_text(name: str, *, most_bytes: int = MAX_TEXT_BYTES) -> str:
    """A text file, or one sentence; pipes such as ``<(sed …)`` are read too, and a device no further than the bound."""
    try:
        with open(name, "rb") as stream:
            data = stream.read(most_bytes + 1) if os.fstat(stream.fileno()).st_size <= most_bytes else None
    except OSError as error:
        cure = (
            "check the path, or run: stayfast init train DIR" if name.endswith((".yaml", ".yml")) else "check the path"
        )
        raise UsageError(f"{name} cannot be read ({error.strerror})", help=cure) from error
    if data is None or len(data) > most_bytes:
        raise UsageError(f"{name} is larger than {most_bytes >> 20} MiB", help="split the file")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{name} is not UTF-8 text (byte {error.start})", help="save it as UTF-8") from error


def write_text(name: str, text: str, *, mode: int = 0o666) -> None:
    """A whole file or the old one: a full disk never leaves half; links are followed, pipes and devices written to."""
    data = text.encode("utf-8", "surrogateescape")
    try:
        target = os.path.realpath(name, strict=False)
        there = os.stat(target) if os.path.exists(target) else None
        if there is not None and not stat.S_ISREG(there.st_mode):
            with open(target, "wb") as stream:
                stream.write(data)
            return
        replace_file(target, data, stat.S_IMODE(there.st_mode) if there else new_file_mode(mode))
    except OSError as error:
        raise UsageError(f"{name} cannot be written ({error.strerror})", help="name another file") from error


def check_writable(name: str) -> None:
    """Whether ``write_text`` would have a place to write to, as far as one can know before."""
    folder = os.path.dirname(os.path.realpath(name))
    trouble = errno.EISDIR if os.path.isdir(name) else 0 if os.path.isdir(folder) else errno.ENOENT
    if not trouble and not os.access(name if os.path.exists(name) else folder, os.W_OK):
        trouble = errno.EACCES
    if trouble:
        raise UsageError(f"{name} cannot be written ({os.strerror(trouble)})", help="name another file")


def replace_file(target: str, data: bytes, mode: int, *, is_synced: bool = False) -> None:
    """In one step: a reader sees the old file or the new one; ``is_synced`` also after a power cut."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(target) or ".", prefix=TEMPORARY)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            if is_synced:
                stream.flush()
                os.fsync(stream.fileno())
        os.chmod(temporary, mode)
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def new_file_mode(mode: int = 0o666) -> int:
    """What ``open`` would give a new file; there is no way to ask for the umask but to set it."""
    now = os.umask(0o077)
    os.umask(now)
    return mode & ~now
