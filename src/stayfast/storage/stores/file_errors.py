"""System errors of the local disk as ours: each says what, where, and what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator

from stayfast.errors import AccessDeniedError, KeyMissingError, StoreError, StoreFullError, StoreUnavailableError


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
