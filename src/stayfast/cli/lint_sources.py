"""Files for the linter: which belong together, reading them, and writing what ``--fix`` changed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence

from stayfast.documents import Limits
from stayfast.errors import UsageError
from stayfast.lint.sources import MANIFESTS, POOLS, Source
from stayfast.text.files import replace_file

_SKIPPED = frozenset(("node_modules", "__pycache__", "venv", "site-packages"))
_BOM = b"\xef\xbb\xbf"


def gather(paths: Sequence[str]) -> list[list[str]]:
    """Bundles of file names: all files named on the command line together, and each folder by itself."""
    named: list[str] = []
    folders: dict[str, list[str]] = {}
    for path in paths:
        if path == "-":
            named.append(path)
        elif os.path.isdir(path):
            for folder, files in _walk(path):
                folders.setdefault(folder, []).extend(files)
        elif os.path.exists(path):
            named.append(path)
        else:
            raise UsageError(f"there is no file or folder {path}", help="check the spelling")
    seen = set(named)
    bundles = [list(dict.fromkeys(named))] if named else []
    for files in folders.values():
        rest = [name for name in dict.fromkeys(files) if name not in seen]
        if rest:
            bundles.append(rest)
    return bundles


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    closed: list[str] = []  # folders that may not be listed; reading them will say so
    for folder, names, files in os.walk(root, onerror=lambda error: closed.append(str(error.filename))):
        names[:] = sorted(name for name in names if not name.startswith(".") and name not in _SKIPPED)
        wanted = [os.path.join(folder, name) for name in sorted(files) if name.endswith(MANIFESTS + POOLS)]
        wanted = [name for name in wanted if _is_file_or_broken(name)]
        if wanted:
            yield folder, wanted
    for folder in closed:
        yield folder, [folder]


def _is_file_or_broken(name: str) -> bool:
    """A plain file, or a link that leads nowhere; pipes and devices in a folder would make us wait for ever."""
    try:
        return stat.S_ISREG(os.stat(name).st_mode)
    except OSError:
        return True


def read(name: str, *, named: bool = True) -> Source:
    """The text of a file.

    A file that is no text is a problem; one that may not be opened is one too, or an error where the user named it.
    """
    try:
        if name == "-":
            if sys.stdin is None:
                raise UsageError("standard input is closed", help="pipe something into it, or name files")
            data = sys.stdin.buffer.read(Limits().characters * 4 + 1)
        else:
            with open(name, "rb") as stream:
                data = stream.read(Limits().characters * 4 + 1)
    except OSError as error:
        if not named:
            return Source(name, "", f"cannot be read: {error.strerror}")
        raise UsageError(f"cannot read {name}: {error.strerror}", help="check the file and its permissions") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return Source(name, "", f"not UTF-8 text (byte {error.start})")
    return Source("<stdin>" if name == "-" else name, text)


def write(name: str, text: str) -> None:
    """Replace a file's content in one step, keeping its mode and its byte order mark."""
    try:
        with open(name, "rb") as stream:
            mark = _BOM if stream.read(3) == _BOM else b""
        mode = os.stat(name).st_mode & 0o7777
        replace_file(os.path.realpath(name), mark + text.encode("utf-8"), mode)
    except OSError as error:
        raise UsageError(f"cannot write {name}: {error.strerror}", help="nothing was changed") from None


def read_text(path: str, what: str) -> str:
    """A small text file that an option names."""
    try:
        with open(path, encoding="utf-8") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read the {what} {path}: {reason}", help="check the option") from None
