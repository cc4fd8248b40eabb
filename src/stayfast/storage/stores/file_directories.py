"""What a file store needs of the local disk: directories made durable, listed and swept; system errors as ours."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Iterator

from stayfast.clock import Clock
from stayfast.errors import AccessDeniedError, KeyMissingError, StoreError, StoreFullError, StoreUnavailableError
from stayfast.filesystem import FS
from stayfast.storage.stores.protocol import TEMPORARY, Entry

_CANNOT_SYNC = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EINVAL)
LEFTOVER_SECONDS = 900.0
"""Age at which a temporary file counts as left behind. Names are unique: sweeping a live one only fails its put."""


class DirectoryTree:
    """What a file store knows of its directories."""

    def __init__(self, root: str, fs: FS, clock: Clock) -> None:
        self._root = root
        self._fs = fs
        self._clock = clock
        self._known: set[str] = set()
        self._lock = threading.Lock()

    def ensure_durable(self, directory: str) -> str:
        """Make the directory and its parents exist and last.

        A directory that another process made a moment ago is not yet durable, so its parent is synced here too, once
        per store: what we put into it must not vanish with it.
        """
        with self._lock:
            if directory in self._known and self._fs.stat(directory) is not None:
                return directory
            for step in self._unsynced_parents(directory):
                missing = self._fs.stat(step) is None
                if missing:
                    self._fs.mkdir(step)
                try:
                    self._fs.fsync_dir(os.path.dirname(step))
                except OSError as error:  # high above the root it may be closed to us, or not a real disk at all
                    if missing or error.errno not in _CANNOT_SYNC:
                        raise
                self._known.add(step)
        return directory

    def _unsynced_parents(self, directory: str) -> list[str]:
        """Outermost first, from the top of the disk: a parent that exists may be as new as what lies in it."""
        steps, step = [], directory
        while step != "/" and (step not in self._known or self._fs.stat(step) is None):
            steps.append(step)
            step = os.path.dirname(step)
        return steps[::-1]

    def forget(self, directory: str) -> None:
        """It is gone: make it again next time."""
        with self._lock:
            self._known.discard(directory)

    def walk(self, key: str) -> Iterator[Entry]:
        """Everything under a folder, in the order of whole keys."""
        directory = os.path.join(self._root, key) if key else self._root
        try:
            names = self._fs.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        rows = []
        for name in names:
            if not name.startswith(TEMPORARY):
                status = self._fs.stat(os.path.join(directory, name))
                if status is not None:
                    rows.append((name + "/" if status.is_dir else name, status))
        for name, status in sorted(rows):  # "a/" sorts as its children do
            child = f"{key}/{name}" if key else name
            if status.is_dir:
                yield from self.walk(child.rstrip("/"))
            else:
                yield Entry(child, status.size)

    def remove_empty(self, directory: str) -> None:
        """A checkpoint's directory goes with its last part; a race with a writer leaves it, harmlessly."""
        while directory.startswith(self._root + "/"):
            try:
                self._fs.rmdir(directory)
            except OSError:
                if not self._sweep(directory):
                    return
                with contextlib.suppress(OSError):
                    self._fs.rmdir(directory)
            self.forget(directory)
            directory = os.path.dirname(directory)

    def remove_leftovers(self) -> int:
        """Sweep every directory, and remove those that hold nothing else."""
        count = 0
        for directory in sorted(self._directories(self._root), key=len, reverse=True):
            swept = self._sweep(directory)
            count += swept
            if swept:
                self.remove_empty(directory)
        return count

    def _directories(self, directory: str) -> Iterator[str]:
        try:
            names = self._fs.listdir(directory)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield directory
        for name in names:
            path = os.path.join(directory, name)
            status = self._fs.stat(path)
            if status is not None and status.is_dir and not status.is_link:  # what a link leads to is not ours
                yield from self._directories(path)

    def _sweep(self, directory: str) -> int:
        oldest = (self._clock.wall() - LEFTOVER_SECONDS) * 1e9
        count = 0
        with contextlib.suppress(OSError):
            for name in self._fs.listdir(directory):
                path = os.path.join(directory, name)
                status = self._fs.stat(path) if name.startswith(TEMPORARY) else None
                if status is not None and not status.is_dir and status.mtime_ns < oldest:
                    self._fs.unlink(path)
                    count += 1
        return count


class DirectWriteRefusedError(Exception):
    """O_DIRECT was taken by open and not by write: alignment, or a disk so full that a write stopped in a block."""

    @classmethod
    @contextlib.contextmanager
    def from_einval(cls, *, direct: bool) -> Iterator[None]:
        """Raise this in place of EINVAL, so that the same bytes are tried again through the page cache."""
        try:
            yield
        except OSError as error:
            if direct and error.errno == errno.EINVAL:
                raise cls from error
            raise


@contextlib.contextmanager
def os_errors(key: str, url: str, verb: str) -> Iterator[None]:
    """Before anything has its name: a failed write certainly left nothing."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        if verb == "read":
            raise KeyMissingError(f"there is no {key} in {url}") from error
        raise _translate(error, key, url, verb) from error
    except OSError as error:
        raise _translate(error, key, url, verb) from error


@contextlib.contextmanager
def durability_errors(key: str, url: str) -> Iterator[None]:
    """After the name was given: it shows, but nobody knows whether it would survive a power cut."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"the disk failed to make {key} in {url} durable ({error.strerror or error})",
            help="nothing was deleted; leave this machine, the next attempt goes on from what survives",
        ) from error


def _translate(error: OSError, key: str, url: str, verb: str) -> StoreError:
    place = f"{key} in {url}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return StoreFullError(f"cannot {verb} {place}: no space left on the disk", help="free space or use another URL")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return AccessDeniedError(
            f"cannot {verb} {place}: {os.strerror(error.errno).lower()}",
            help="make the directory writable or use another URL",
        )
    if error.errno == errno.ENOTDIR:
        return StoreError(
            f"cannot {verb} {place}: a part of the path is a file, not a directory", help="use another key or URL"
        )
    if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):  # no second try makes a name shorter
        return StoreError(f"cannot {verb} {place}: {os.strerror(error.errno).lower()}", help="use another URL")
    return StoreUnavailableError(
        f"cannot {verb} {place}: {error.strerror or error}", help="check the disk, or use another URL"
    )
