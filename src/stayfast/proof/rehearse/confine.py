"""Trials must not meet each other or the real thing: writes stay inside the copy, unless the command says ``{trial}``.

A path outside fails for the program as on a read-only file system; caches that programs can do without fail silently,
anything else ends the rehearsal with the path's name. A URL of a bucket, queue or database is refused before anything
starts. A command that uses ``{trial}`` has taken care of it, and is trusted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from stayfast.errors import UsageError
from stayfast.model import variables

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
