"""The real disk with a hook around every operation that changes it, to stop, kill or look at a named point."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from stayfast.filesystem import Buffer, SystemFS

Hook = Callable[[str, str], None]
"""Called with ``before:<operation>`` or ``after:<operation>`` and the path or descriptor."""


class HookedFS(SystemFS):
    """Every durable step is a named point, twice: just before and just after."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def _around(self, name: str, place: object, *args: Any, **options: Any) -> Any:
        self._hook(f"before:{name}", str(place))
        result = getattr(super(), name)(*args, **options)
        self._hook(f"after:{name}", str(place))
        return result

    def create(self, path: str, *, direct: bool = False) -> int:
        fd: int = self._around("create", path, path, direct=direct)
        return fd

    def write(self, fd: int, data: Buffer, offset: int) -> None:
        self._around("write", fd, fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._around("truncate", fd, fd, size)

    def set_mtime(self, fd: int, mtime_ns: int) -> None:
        self._around("set_mtime", fd, fd, mtime_ns)

    def fsync(self, fd: int) -> None:
        self._around("fsync", fd, fd)

    def fsync_dir(self, path: str) -> None:
        self._around("fsync_dir", path, path)

    def link(self, source: str, target: str) -> None:
        self._around("link", target, source, target)

    def replace(self, source: str, target: str) -> None:
        self._around("replace", target, source, target)

    def unlink(self, path: str) -> None:
        self._around("unlink", path, path)

    def mkdir(self, path: str) -> None:
        self._around("mkdir", path, path)

    def rmdir(self, path: str) -> None:
        self._around("rmdir", path, path)


class SignalAt:
    """A hook that sends its own process a signal at the n-th point (counted from 0); each name is counted."""

    def __init__(self, point: int, which: signal.Signals) -> None:
        self.point = point
        self.which = which
        self.passed = 0

    def __call__(self, name: str, place: str) -> None:
        if self.passed == self.point:
            self.passed += 1
            os.kill(os.getpid(), self.which)
        else:
            self.passed += 1
