"""What lies in the directory before anything is brought back: whose is it, and may it stay?

The directory carries a mark that its program never sees (an extended attribute): which attempt, of which URL, used it
last. If no other attempt has committed a copy since, what lies here is the newest there is and stays. If one has, it is
out of date and the copy replaces it. What carries no mark is somebody's: it stays where the copy has the same, and is
moved aside otherwise, never deleted.
"""

from __future__ import annotations

import contextlib
import enum
import json
import os
import shutil
from typing import NamedTuple

from stayfast.runtime.directory_sync.file_scan import OURS
from stayfast.runtime.run_record.record import RunRecord

ATTRIBUTE = "user.stayfast.sync"
STAGING = f"{OURS}restore"
ASIDE = f"{OURS}set-aside"
UNFINISHED = 0
"""In place of an attempt's number: a restore into this directory began and did not end."""


class OwnerMark(NamedTuple):
    """Who used the directory last."""

    url: str
    attempt: int


class LocalState(enum.Enum):
    """What is to become of what lies in the directory."""

    EMPTY = "nothing lies there"
    NEWEST = "it goes on from the newest copy, and stays"
    STALE = "another attempt has committed since: the copy replaces it"
    UNKNOWN_OWNER = "nobody knows whose it is"


def classify_local_state(root: str, url: str, head: RunRecord | None) -> LocalState:
    """Compare the directory's mark with what the store knows."""
    if not any(not name.startswith(OURS) for name in os.listdir(root)):
        return LocalState.EMPTY
    newest = None if head is None else head.newest
    if newest is None:
        return LocalState.NEWEST  # there is nothing older or newer than this
    mark = read_mark(root)
    if mark is None or mark.url != url:
        return LocalState.UNKNOWN_OWNER
    return LocalState.NEWEST if newest.attempt <= mark.attempt else LocalState.STALE


def read_mark(root: str) -> OwnerMark | None:
    """None where there is none, or the file system keeps none."""
    try:
        body = json.loads(os.getxattr(root, ATTRIBUTE))
        return OwnerMark(str(body["url"]), int(body["attempt"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write_mark(root: str, url: str, attempt: int) -> None:
    """Where the file system keeps no attributes, the next attempt brings the copy back instead of trusting this one."""
    with contextlib.suppress(OSError):
        os.setxattr(root, ATTRIBUTE, json.dumps({"url": url, "attempt": attempt}).encode())


def move_aside(root: str) -> str:
    """Move everything out of the way; returns where to: beside the directory, or inside where that is a mount."""
    names = [name for name in os.listdir(root) if not name.startswith(OURS)]
    for number in range(1, 10_000):
        for place in (f"{root}.set-aside-{number}", os.path.join(root, f"{ASIDE}-{number}")):
            try:
                os.mkdir(place)
                os.rename(os.path.join(root, names[0]), os.path.join(place, names[0]))
            except FileExistsError:
                break
            except OSError:  # not ours to write to, or another file system
                with contextlib.suppress(OSError):
                    os.rmdir(place)
                continue
            for name in names[1:]:
                os.rename(os.path.join(root, name), os.path.join(place, name))
            return place
    raise OSError(f"nothing in {root} can be moved aside")


def clear_leftovers(root: str) -> None:
    """What a killed restore left behind."""
    shutil.rmtree(os.path.join(root, STAGING), ignore_errors=True)
