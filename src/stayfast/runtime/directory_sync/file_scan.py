"""What lies in a directory right now, by metadata alone."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
from typing import NamedTuple

FILE, FOLDER, LINK = "file", "folder", "link"
OURS = ".stayfast-"
"""How names at the top of the directory start that are ours: never copied, never restored."""


class FileState(NamedTuple):
    """One name, as two looks can compare it: equal means that nothing was done to it in between."""

    kind: str
    mode: int = 0
    size: int = 0
    mtime_ns: int = 0
    ctime_ns: int = 0
    inode: int = 0
    target: str = ""
    """Of a link that stays inside: where it leads, relative to the link's own folder."""
    absolute: bool = False
    """The link was written with the directory's own path in front."""


Listing = dict[str, FileState]
"""By path relative to the directory, with slashes."""


class Scan(NamedTuple):
    """One look at the whole directory."""

    listing: Listing
    skipped: dict[str, str]
    """What is not copied, and why."""
    unreadable_folders: list[str]
    """Folders of which nobody knows what is in them."""


def scan(root: str) -> Scan:
    """Walk the directory; what vanishes meanwhile was not there."""
    found = Scan({}, {}, [])
    open_list = [""]
    while open_list:
        folder = open_list.pop()
        try:
            with os.scandir(os.path.join(root, folder)) as rows:
                for row in rows:
                    path = f"{folder}/{row.name}" if folder else row.name
                    if not folder and row.name.startswith(OURS):
                        continue
                    seen = _look(root, path, row, found.skipped)
                    if seen is not None:
                        found.listing[path] = seen
                        if seen.kind == FOLDER:
                            open_list.append(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            found.skipped[folder or "."] = f"cannot be read ({error.strerror})"
            found.unreadable_folders.append(folder)
    return found


def _look(root: str, path: str, row: os.DirEntry[str], left_out: dict[str, str]) -> FileState | None:
    try:
        status = row.stat(follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            return _link(root, path, left_out)
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return FileState(FOLDER, stat.S_IMODE(status.st_mode) & 0o777)
    if stat.S_ISREG(status.st_mode):
        return file_state(status)
    left_out[path] = "is neither a file, a folder nor a link"
    return None


def file_state(status: os.stat_result) -> FileState:
    """A regular file's row."""
    mode = stat.S_IMODE(status.st_mode) & 0o777
    return FileState(FILE, mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


def read_file_state(root: str, path: str) -> FileState | None:
    """One file alone; None when it is gone or no file any more."""
    try:
        status = os.lstat(os.path.join(root, path))
    except OSError:
        return None
    return file_state(status) if stat.S_ISREG(status.st_mode) else None


def is_closed_for_writing(root: str, path: str, seen: FileState) -> bool:
    """Whether this version of a file is open for writing nowhere: the kernel gives a lease for reading only then.

    False where it gives none at all (a network file system, somebody else's file).
    """
    try:
        descriptor = os.open(os.path.join(root, path), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Who opens it for writing at this very instant waits for us; the signal that tells us so would be our end.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        return file_state(os.fstat(descriptor)) == seen
    except (OSError, AttributeError):
        return False
    finally:
        os.close(descriptor)


def _link(root: str, path: str, left_out: dict[str, str]) -> FileState | None:
    target = os.readlink(os.path.join(root, path))
    absolute = target.startswith("/")
    if absolute:
        folder, name = os.path.split(target)
        inside = os.path.relpath(os.path.join(os.path.realpath(folder), name), root)
        target = os.path.relpath(inside, os.path.dirname(path) or ".")
    if not stays_inside(path, target):
        left_out[path] = "is a link that leads outside"
        return None
    return FileState(LINK, target=target, absolute=absolute)


def stays_inside(path: str, target: str) -> bool:
    """Whether a relative link at ``path`` leads to something in the directory, by its text alone."""
    if not target or target.startswith("/") or "\0" in target:
        return False
    whole = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return whole != ".." and not whole.startswith("../")
