"""What a baseline does while it runs: how long it takes elsewhere is not known, so a long one is described.

The first line comes after ten seconds, each later one after twice as long: what takes a second or more elsewhere is
described by the time it takes ten times as long.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from stayfast.process.proc import command_line, process_state, read_stat, waits_in
from stayfast.proof.rehearse.attempt import Attempt, last_error_line

FIRST_SECONDS = 10.0
_IDLE_SHARE = 0.02  # of one core
_STATES = {"R": "runs", "S": "waits", "D": "waits for a disk", "T": "is stopped", "t": "is stopped"}


class SlowBaseline:
    """Describes one run of the baseline from time to time."""

    def __init__(self, title: str, attempt: Attempt, report: Callable[[str], None]) -> None:
        self._title = title
        self._attempt = attempt
        self._report = report
        self._due = FIRST_SECONDS
        self._looked_at = time.monotonic()
        self._used = 0.0

    def tick(self) -> None:
        """Report when it is time to."""
        age = self._attempt.age_seconds
        if age < self._due:
            return
        self._due *= 2
        now = time.monotonic()
        processes = self._attempt.program.tree()
        used = sum(map(_cpu_seconds, processes))
        share = max(0.0, used - self._used) / max(now - self._looked_at, 1e-9)
        self._looked_at, self._used = now, used
        self._report(f"{self._title}: {age:.0f} s so far, " + self._describe(processes, share))

    def _describe(self, processes: list[int], share: float) -> str:
        rows = [f"{len(processes)} processes" if len(processes) != 1 else "1 process", f"{share:.0%} of a core"]
        waits = [_doing(pid) for pid in processes[-1:]]
        if said := last_error_line(self._attempt.log):
            rows.append(f"last output {_since(self._attempt.log):.0f} s ago: {said[:120]}")
        else:
            rows.append("no output")
        if share < _IDLE_SHARE:
            rows += [*waits, "if it does not hang outside of rehearse, try --no-namespace; Ctrl-C ends the rehearsal"]
        return "; ".join(rows)


def _cpu_seconds(pid: int) -> float:
    """Of a process and its children that are gone."""
    stat = read_stat(pid)
    return 0.0 if stat is None else (stat.cpu_ticks + stat.children_ticks) / os.sysconf("SC_CLK_TCK")


def _doing(pid: int) -> str:
    """A process and the kernel's name for what it waits for."""
    words, waits = " ".join(command_line(pid)).strip(), waits_in(pid)
    where = f" in {waits}" if waits else ""
    return f"process {pid} ({words[:80]}) {_STATES.get(process_state(pid), 'ends')}{where}"


def _since(path: str) -> float:
    try:
        return max(0.0, time.time() - os.stat(path).st_mtime)
    except OSError:
        return 0.0
