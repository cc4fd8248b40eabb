"""Where each rank leaves its outcome for ``stayfast exec``: a launcher rewrites exit codes, files stay as they are."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any


class OutcomeDirectory:
    """The directory that the settings name, or one of our own that is removed at the end."""

    def __init__(self, wished: str | None) -> None:
        self.path: str | None = None
        """None where no directory can be used: then the exit code alone speaks."""
        self.problem = ""
        """Why there is none, for the user."""
        self._is_ours = wished is None
        if wished is None:
            self._make()
        else:
            self._use(wished)

    def read(self) -> list[dict[str, Any]]:
        """What the ranks have left, in the order of their files' names."""
        found = []
        for path in self._files():
            try:
                with open(path, encoding="utf-8") as file:
                    item = json.loads(file.read(1 << 16))
            except (OSError, ValueError):
                continue
            if path.endswith(".json") and isinstance(item, dict):
                found.append(item)
        return found

    def remove(self) -> None:
        """Remove it if it is ours; the program may have done that, or have put something of its own there."""
        if self._is_ours and self.path is not None:
            with contextlib.suppress(OSError):
                self._empty()
                os.rmdir(self.path)

    def _make(self) -> None:
        for parent in (os.environ.get("TMPDIR"), "/tmp", "/dev/shm", "."):
            if parent:
                path = os.path.join(os.path.abspath(parent), f"stayfast-outcome-{os.getpid()}-{os.urandom(4).hex()}")
                try:
                    os.mkdir(path, 0o700)
                except OSError:
                    continue
                self.path = path
                return
        self.problem = "no directory is writable for the ranks' outcomes; set STAYFAST_OUTCOME_DIR to one that is"

    def _use(self, path: str) -> None:
        self.path = path
        try:
            os.makedirs(path, exist_ok=True)
            self._empty()
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(13, os.strerror(13))
        except OSError as error:
            self.path = None
            self.problem = (
                f"STAYFAST_OUTCOME_DIR={path!r} cannot be used ({error.strerror}); the exit code alone will speak"
            )

    def _empty(self) -> None:
        """Outcomes of an earlier attempt in the same container say nothing about this one."""
        for path in self._files():
            os.unlink(path)

    def _files(self) -> Iterator[str]:
        if self.path is not None and os.path.isdir(self.path):
            for name in sorted(os.listdir(self.path)):
                if name.startswith("rank-"):
                    yield os.path.join(self.path, name)
