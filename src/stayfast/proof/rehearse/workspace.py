"""Where a trial runs: a fresh copy of the work directory, and what of the rest it may write to.

Files are cloned (reflink) where that works. Elsewhere large ones are linked, which is safe only while opens are held:
the moment the program opens one for writing, the link becomes a copy of its own before the call goes on.
Trials must not meet each other or the real thing: writes stay inside the copy, unless the command says ``{trial}``. A
path outside fails for the program as on a read-only file system; caches that programs can do without fail silently,
anything else ends the rehearsal with the path's name. A URL of a bucket, queue or database is refused before anything
starts. A command that uses ``{trial}`` has taken care of it, and is trusted.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence

from stayfast.errors import UsageError
from stayfast.model import variables

_FICLONE = 0x40049409
LINK_FROM_BYTES = 1 << 20
# Tools' own directories: large, not written by the program, and reached through a link like everything outside.
LINKED = frozenset(
    {".git", ".hg", ".venv", "venv", "node_modules", ".tox", ".mypy_cache", ".ruff_cache", ".pytest_cache"}
)
TRIAL = "{trial}"
_REMOTE = re.compile(
    r"\b(gs|s3|s3a|postgres|postgresql|pubsub|https?|hdfs|abfss?|azure|mysql|redis|rediss|amqp|ftp)://", re.I
)
_ALWAYS = ("/dev", "/proc", "/sys")
_CACHES = (
    "/__pycache__/",
    "/.cache/",
    "/.npm/",
    "/.local/",
    "/.config/",
    "/.triton/",
    "/.nv/",
    "/.matplotlib/",
    "/.pki/",
)
_URL_VARIABLES = (variables.QUEUE, variables.SINK, variables.RUN_URL)


class WorkspaceCopier:
    """Copies one directory as often as needed."""

    def __init__(self, source: str, *, may_link: bool) -> None:
        """``may_link``: every open for writing will be seen, so that links can be broken in time."""
        self._source = os.path.realpath(source)
        self._may_link = may_link
        self._may_clone = True

    def copy_to(self, target: str) -> None:
        """Make target a copy; a full disk is one sentence."""
        try:
            self._directory(self._source, target)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise UsageError(
                    f"there is no space for another copy of {self._source} at {os.path.dirname(target)}",
                    help="set TMPDIR to a larger disk, or use --parallel 1",
                ) from error
            raise UsageError(
                f"{error.filename or self._source} cannot be copied ({error.strerror})",
                help="run rehearse in the directory of the program alone",
            ) from error

    def _directory(self, source: str, target: str) -> None:
        os.mkdir(target)
        with os.scandir(source) as entries:
            for entry in entries:
                goal = os.path.join(target, entry.name)
                if entry.is_symlink():
                    os.symlink(self._aim(entry.path), goal)
                elif entry.is_dir():
                    if entry.name in LINKED:
                        os.symlink(entry.path, goal)
                    elif not target.startswith(entry.path + os.sep):  # the copies lie below what is copied
                        self._directory(entry.path, goal)
                elif entry.is_file():
                    self._file(entry.path, goal, entry.stat().st_size)
        shutil.copystat(source, target)

    def _aim(self, link: str) -> str:
        """Where the copy of a link points: inside to the copy's own, outside to the very same place."""
        told, folder = os.readlink(link), os.path.dirname(link)
        place = os.path.normpath(os.path.join(folder, told))
        is_inside = place == self._source or place.startswith(self._source + os.sep)
        if os.path.isabs(told) == is_inside:
            return os.path.relpath(place, folder) if is_inside else place
        return told

    def _file(self, source: str, target: str, size: int) -> None:
        if self._may_clone and size:
            if _clone(source, target):
                return
            self._may_clone = False
        if self._may_link and size >= LINK_FROM_BYTES:
            try:
                os.link(source, target)
                return
            except OSError:
                pass  # another file system, or a kernel that protects files of others from links
        shutil.copy2(source, target)


def _clone(source: str, target: str) -> bool:
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            fcntl.ioctl(new.fileno(), _FICLONE, old.fileno())
        except OSError:
            os.unlink(target)  # free for a link
            return False
    shutil.copystat(source, target)
    return True


def unshare_file(path: str) -> None:
    """Give a file that shares its content with the original a content of its own; the program waits meanwhile."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if not stat.S_ISREG(found.st_mode) or found.st_nlink < 2 or found.st_size < LINK_FROM_BYTES:
        return
    own = f"{path}.stayfast-own"
    shutil.copy2(path, own)
    os.replace(own, path)


def remove_tree(path: str) -> None:
    """A directory and all below it, whatever modes the program has left there; absent is fine."""

    def unlock(_: object, failed: str, __: object) -> None:
        try:
            os.chmod(os.path.dirname(failed), 0o700)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, 0o700)  # never a file's: it may be a link to the original
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)
        except OSError:
            pass

    shutil.rmtree(path, onerror=unlock)


def empty_directory(directory: str) -> None:
    """What the node's own disk loses with the node."""
    for name in os.listdir(directory) if os.path.isdir(directory) else ():
        path = os.path.join(directory, name)
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)


def files_below(root: str) -> Iterator[str]:
    """Relative paths of all regular files, sorted; links to elsewhere are not followed."""
    found = []
    for folder, names, files in os.walk(root):
        names[:] = [name for name in names if name not in ("__pycache__", ".git")]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return iter(sorted(path for path in found if not os.path.islink(os.path.join(root, path))))


class AllowedPaths:
    """What a trial may write to."""

    def __init__(self, command: Sequence[str], *, writable: Sequence[str] = ()) -> None:
        self.trusts = any(TRIAL in word for word in command)
        self._writable = tuple(os.path.realpath(path) for path in writable)

    def allows(self, path: str, own: str) -> bool:
        """Whether a real path may be written to by the trial whose directory is ``own``."""
        return self.trusts or any(
            path == room or path.startswith(room + "/") for room in (own, *_ALWAYS, *self._writable)
        )


def is_cache(path: str) -> bool:
    """Whether a program can do without this file."""
    temporary = os.path.basename(path) in {"", os.path.basename(os.path.dirname(path))}
    return temporary or any(part in path for part in _CACHES) or path.endswith(".pyc")


def expand_trial_name(command: Sequence[str], name: str) -> list[str]:
    """The command of one trial."""
    return [word.replace(TRIAL, name) for word in command]


def check_command(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Refuse remote URLs that all trials would share."""
    if any(TRIAL in word for word in command):
        return
    found = [word for word in command if _REMOTE.search(word)]
    found += [f"{name}={environment[name]}" for name in _URL_VARIABLES if _REMOTE.search(environment.get(name, ""))]
    if found:
        raise UsageError(
            f"every trial would write to {found[0]}",
            help="put {trial} into the URL, so that each trial has a place of its own",
        )


def check_refused(paths: Sequence[str]) -> None:
    """After the baseline: the program needs a place that the trials would share."""
    real = sorted({path for path in paths if not is_cache(path)})
    if real:
        more = f" and {len(real) - 1} more" if len(real) > 1 else ""
        raise UsageError(
            f"the program writes outside its directory, to {real[0]}{more}",
            help="put {trial} into its path on the command line, use a path in the current directory, "
            "or allow it with --writable DIR",
        )


def check_ephemeral(directories: Sequence[str]) -> list[str]:
    """The absolute ones, which all trials share; one that holds anything is not ours to empty."""
    shared = [path for path in directories if os.path.isabs(path) and TRIAL not in path]
    for path in shared:
        if os.path.lexists(path) and (not os.path.isdir(path) or os.listdir(path)):
            raise UsageError(
                f"--ephemeral {path} is not an empty directory, and would be emptied",
                help="name one inside the current directory, or one that does not exist yet",
            )
    for path in directories:
        if not os.path.isabs(path) and ".." in path.split("/"):
            raise UsageError(f"--ephemeral {path} leads out of the directory", help="name it by its whole path")
    return shared
