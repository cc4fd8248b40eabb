"""SQLite files that queues and sinks share: one way to open them, so that both promise the same.

Write-ahead log and ``synchronous=FULL``: a commit that returned survives a power cut. (``NORMAL``, the usual advice for
WAL, lost 28,645 of 87,411 acknowledged rows under 60 power cuts; FULL lost none.) Network file systems are refused,
because SQLite's locks and shared memory do not work there.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping

from stayfast.clock import SystemClock
from stayfast.errors import StayfastError, UrlError
from stayfast.filesystem import unsafe_filesystem

BUSY_TIMEOUT_SECONDS = 20.0
_CHECKPOINT_PAGES = 4000
_TRANSIENT = ("locked", "busy", "locking protocol", "disk i/o error", "unable to open")


def connect(path: str, *, readonly: bool = False) -> sqlite3.Connection:
    """A connection in autocommit mode with the pragmas that durability needs; any thread may use it, one at a time."""
    directory = os.path.dirname(path)
    if not os.path.isdir(directory):
        raise UrlError(f"there is no directory {directory}", help="create it, or name another file")
    if readonly and not os.path.exists(path):
        raise UrlError(f"there is no file {path}", help="check the path; `stayfast enqueue` creates it")
    if os.path.exists(path) and not os.path.isfile(path):
        raise UrlError(f"{path} is not a file", help="name another one")
    unsafe = unsafe_filesystem(directory)
    if unsafe:
        raise UrlError(
            f"{path} is on {unsafe}, where SQLite cannot lock or sync safely",
            help="use a local disk, or postgresql:// for workers on many machines",
        )
    fresh = not os.path.exists(path)
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False)
        if not readonly:  # whoever only looks changes nothing, least of all in a database that is not ours
            _use_wal(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        connection.execute("PRAGMA cache_size=-8000")
    except sqlite3.DatabaseError as error:
        if any(word in str(error).lower() for word in (*_TRANSIENT[:3], "full")):
            raise  # the caller knows how to wait
        raise UrlError(f"{path} cannot be used as a SQLite database: {error}", help="name another file") from error
    if fresh:
        fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    return connection


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switching a new file over needs it for oneself, and SQLite gives up at once: workers often start together."""
    clock = SystemClock()
    until = clock.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or clock.monotonic() > until:
                raise
            clock.sleep(0.01)


def file_identity(path: str) -> str:
    """The same string for the same file, whatever names lead to it: decides who may share a transaction."""
    found = _inode(path)
    if found is None:
        raise UrlError(f"{path} was moved or removed while it was being opened", help="put the file back")
    return "sqlite:{}:{}".format(*found)


class OpenFile:
    """A database file that has a connection, as its path led to it when the connection was made.

    SQLite keeps writing to a file that was moved or removed, and reports every commit as durable. Connections that were
    opened before and after the -shm file was removed know nothing of each other's locks and overwrite each other.
    """

    def __init__(self, path: str, gone: type[StayfastError]) -> None:
        self._path, self._gone = path, gone
        self._files = {name: _inode(name) for name in (path, path + "-wal", path + "-shm")}

    def check(self) -> None:
        """Raise ``gone`` when the path, or that of a file beside it, leads to another file or to none."""
        if any(_inode(name) != found for name, found in self._files.items() if found or name == self._path):
            raise self._gone(
                f"{self._path} or its -wal or -shm file was moved, removed or replaced while it was in use; "
                "what was written since then is lost",
                help="put the file back, or enqueue again, and check with `stayfast audit`",
            )


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_dev, status.st_ino


@contextlib.contextmanager
def translate_errors(
    place: str, unavailable: type[StayfastError], broken: type[StayfastError], names: Mapping[str, str] | None = None
) -> Iterator[None]:
    """SQLite's errors as one sentence of ours; the transient ones as a kind that is worth another try."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error).lower()
        if "full" in text:
            raise unavailable(f"cannot write {place}: no space left on the disk", help="free space") from error
        if isinstance(error, sqlite3.OperationalError) and any(word in text for word in _TRANSIENT):
            raise unavailable(f"{place} is not available: {error}", help="it is tried again") from error
        hint = next((cure for word, cure in (names or {}).items() if word in text), None)
        raise broken(f"{place} cannot be used: {error}", help=hint or "name another file") from error


def migrate(
    connection: sqlite3.Connection, part: str, version: int, steps: Mapping[int, Callable[[sqlite3.Connection], None]]
) -> None:
    """Bring one part of the file to its schema version, under the write lock; a newer file is left alone."""
    found = schema_version(connection, part)
    if found == version:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("CREATE TABLE IF NOT EXISTS stayfast_schema (part TEXT PRIMARY KEY, version INTEGER)")
        found = schema_version(connection, part)
        if found > version:
            raise UrlError(
                f"{part} has schema version {found}, and this stayfast knows versions up to {version}",
                help="upgrade stayfast on this machine",
            )
        for step in range(found + 1, version + 1):
            steps[step](connection)
        connection.execute(
            "INSERT INTO stayfast_schema VALUES (?, ?) ON CONFLICT (part) DO UPDATE SET version=excluded.version",
            (part, version),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has ended it already
            connection.execute("ROLLBACK")
        raise


def schema_version(connection: sqlite3.Connection, part: str) -> int:
    """Which version of a part the file has; 0 when it has none."""
    try:
        row = connection.execute("SELECT version FROM stayfast_schema WHERE part=?", (part,)).fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" in str(error):
            return 0
        raise
    return 0 if row is None else int(row[0])
