"""One-line mistakes, switched on by name in tests only; each must be found by the suite that exists to find it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from holdfast.fs import FS


def wrap_fs(bug: str | None, fs: FS) -> FS:
    return fs


@contextlib.contextmanager
def switched_on(bug: str | None) -> Iterator[None]:
    yield
