"""When a program is ready for SIGTERM: it handles the signal, or it is of a kind that will not.

An interpreter may import for a while before it installs a handler, and looks just like one that never will: it is given
the whole time. A shell or a compiled program that has come to rest is not.
"""

from __future__ import annotations

import os
import re
import signal
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from stayfast.process.proc import command_line, executable_name, read_stat, signal_disposition, status_number

REST_SECONDS = 0.25
PLAIN_SECONDS = 1.0
STEADY_SECONDS = 2.0
LOADING_SECONDS = 10.0
_YOUNG_SECONDS = 0.5  # what a new process maps at first is its own start
_INTERPRETERS = re.compile(r"(python|pypy|node|deno|bun|ruby|perl|java|julia|php|dotnet|lua|R|Rscript)[\d.]*")
SHELLS = frozenset(("sh", "bash", "dash", "ash", "zsh", "ksh", "busybox"))
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "multiprocessing.semaphore_tracker")
"""Python's own helpers: they end when their pipe closes, a moment after the process that they serve."""
_WRAPPERS = SHELLS | {"tini", "dumb-init", "catatonit", "timeout", "sudo", "su", "runuser"}
_MAY_CHANGE = re.compile(
    r"\b(exec|trap|source)\b|(^|[\s;&])\.\s"
)  # a shell whose text has none of these stays what it is
_LONGEST_TEXT = 1 << 16
_EXEC = re.compile(r"(\S*/)?(stayfast|-m stayfast) exec ")


@dataclass(slots=True)
class _Life:
    """What the looks at one process have shown."""

    born: float
    ticks: int
    libraries: int
    busy_at: float


class Readiness:
    """Looks at a tree of processes again and again."""

    def __init__(self, began: float) -> None:
        self._began = began
        self._lives: dict[int, _Life] = {}
        self._busy_at = self._loaded_at = began

    def is_ready(self, tree: Sequence[int], now: float) -> bool:
        """Whether every program handles SIGTERM or never will, and is loaded; ``tree`` has the first process first."""
        rows = {pid: row for pid in tree if (row := _row(pid)) is not None}
        for pid, row in rows.items():
            self._note(pid, row, now)
        is_done = now - self._busy_at >= REST_SECONDS or now - self._loaded_at >= STEADY_SECONDS
        return (
            is_done and bool(rows) and all(self._is_settled(pid, now) for pid in {tree[0], *_programs(tree[0], rows)})
        )

    def is_loading(self, now: float) -> bool:
        """Whether a process has mapped more code a moment ago, as imports do."""
        return now - self._loaded_at < LOADING_SECONDS

    def _note(self, pid: int, row: _Row, now: float) -> None:
        life = self._lives.get(pid)
        if life is None:
            life = self._lives[pid] = _Life(now, row.ticks, row.libraries, self._began)
            self._busy_at = now
        if row.ticks != life.ticks or row.state in "RD":  # on a busy machine it also waits for a core
            life.ticks, life.busy_at, self._busy_at = row.ticks, now, now
        if row.libraries > life.libraries:
            if now - life.born >= _YOUNG_SECONDS:
                self._loaded_at = now
            life.libraries = row.libraries

    def _is_settled(self, pid: int, now: float) -> bool:
        if signal_disposition(pid, signal.SIGTERM) != "default":
            return True
        name = executable_name(pid)
        if now - self._began < PLAIN_SECONDS or _INTERPRETERS.fullmatch(name):
            return False
        return not _MAY_CHANGE.search(_text(pid)) if name in SHELLS else now - self._lives[pid].busy_at >= PLAIN_SECONDS


class _Row(NamedTuple):
    parent: int
    state: str
    ticks: int
    libraries: int


def _programs(first: int, rows: dict[int, _Row]) -> list[int]:
    """The processes that do the work: what shells, inits and ``stayfast exec`` start, and a launcher's workers."""
    children: dict[int, list[int]] = defaultdict(list)
    for pid, row in rows.items():
        children[row.parent].append(pid)
    found, rest = [], [(first, True)] if first in rows else []
    while rest:
        pid, is_first = rest.pop()
        is_wrapper = bool(children[pid]) and _is_wrapper(pid)
        if not is_wrapper and (is_first or _is_worker(pid, rows[pid].parent)):
            found.append(pid)
        rest += [(child, is_wrapper) for child in children[pid]]
    return found


def _is_worker(pid: int, parent: int) -> bool:
    """Whether it is an interpreter with a program of its own, and no copy of its parent."""
    words = _words(pid)
    is_helper = any(helper in word for helper in HELPERS for word in words)
    return not is_helper and words != _words(parent) and _INTERPRETERS.fullmatch(executable_name(pid)) is not None


def _row(pid: int) -> _Row | None:
    """None when it is gone."""
    stat = read_stat(pid)
    if stat is None or stat.state in "ZX":
        return None
    return _Row(stat.parent, stat.state, stat.cpu_ticks, status_number(pid, "VmLib"))


def _is_wrapper(pid: int) -> bool:
    return executable_name(pid) in _WRAPPERS or _EXEC.search(" ".join(_words(pid))) is not None


def _words(pid: int) -> list[str]:
    return command_line(pid, most_bytes=_LONGEST_TEXT)


def _text(pid: int) -> str:
    """What a shell was asked to run: its own words, or the file that they name."""
    words = _words(pid)
    path = next((word for word in words[1:] if word and not word.startswith("-")), "")
    path = os.path.join(f"/proc/{pid}/cwd", path)
    try:
        if os.path.isfile(path):  # a pipe would have to be read to its end
            with open(path, encoding="utf-8", errors="replace") as file:
                return file.read(_LONGEST_TEXT)
    except (OSError, ValueError):
        pass
    return " ".join(words)
