"""One life of the program: started as a container is, watched, and taken away at its moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stayfast.process.container import (
    ContainedProgram,
    ContainerOptions,
    InitServer,
    start_contained,
)
from stayfast.proof.rehearse.facts import AttemptObservation, WriteCounts
from stayfast.proof.rehearse.moment import MomentWatch
from stayfast.proof.rehearse.schedule import TWO_WRITERS, AtTime, InterruptionKind, Kill, Profile
from stayfast.proof.rehearse.workspace import unshare_file
from stayfast.proof.syscalls.disk_limit import DiskLimit
from stayfast.proof.syscalls.polling import FilePoller, watch_files
from stayfast.proof.syscalls.seccomp import build_filter
from stayfast.proof.syscalls.watcher import SyscallWatcher

_TICK_SECONDS = 0.02
_TAIL_BYTES = 4000
_TRAILERS = ("    at ", "Node.js v")
_COUNT_SECONDS = 0.1
_COUNT_SHARE = 0.02  # of one core, however many processes there are


class AttemptEnvironment(NamedTuple):
    """Where and how a program is started."""

    command: Sequence[str]
    folder: str
    """The trial's own directory: ``work`` is the copy, ``tmp`` the scratch space, ``log`` what was printed."""
    environment: Mapping[str, str]
    grace_seconds: float
    limit_seconds: float
    allows: Callable[[str], bool]
    namespace: bool = True
    watch: bool = True
    disk: DiskLimit | None = None
    keepers: InitServer | None = None

    @property
    def work(self) -> str:
        return os.path.join(self.folder, "work")


class Attempt:
    """From its start to its end; ``tick`` is called again and again by the trial."""

    def __init__(
        self,
        number: int,
        surroundings: AttemptEnvironment,
        kill: Kill | None,
        profile: Profile | None,
        *,
        learn: bool = False,
        count: bool = False,
    ) -> None:
        """Without a profile this is a baseline: nothing is done to it; ``learn`` looks at every write.

        ``count`` looks how often it has written by now, again and again: at every process there is, so not for all.
        """
        self.number = number
        self._around = surroundings
        self._kill = kill
        self._learn = learn
        self._count = count
        self._until_replaced: WriteCounts | None = None
        self.calls: list[tuple[float, int]] = []
        """How often it had written when, where that is counted."""
        self._next_count = 0.0
        self._overran = False
        self._timed_out = False
        self._ended_at: float | None = None
        self.log = os.path.join(surroundings.folder, f"attempt-{number}.log")
        self.began_at = time.monotonic()
        self.program = self._start()
        self.moment = MomentWatch(kill, profile, self.program, began_at=self.began_at)
        self.watcher: SyscallWatcher | FilePoller = self._watch()

    def _start(self) -> ContainedProgram:
        around = self._around
        kill = self._kill
        aimed = kill is not None and (not isinstance(kill.moment, AtTime) or kill.kind in TWO_WRITERS)
        options = ContainerOptions(
            namespace=around.namespace,
            hostname=around.environment.get("HOSTNAME", ""),
            seccomp_filter=build_filter(writes=aimed or self._learn, space=around.disk is not None)
            if around.watch
            else b"",
        )
        with open(self.log, "wb") as log:
            return start_contained(
                around.command,
                cwd=around.work,
                env=around.environment,
                stdout=log,
                stderr=log,
                options=options,
                keepers=around.keepers,
            )

    def _watch(self) -> SyscallWatcher | FilePoller:
        if self.program.listener is None:
            return watch_files(self._around.work, self.moment.react)
        return SyscallWatcher(
            self.program.listener,
            self._around.work,
            react=self.moment.react,
            allows=self._around.allows,
            before_write=unshare_file,
            disk=self._around.disk,
        )

    @property
    def age_seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began_at

    def tick(self, *, alone: bool = True) -> bool:
        """Do what is due; true once the program has ended. ``alone``: the grace is watched here, not by the trial."""
        if self._ended_at is not None:
            return True
        due = self.moment.due_at() - time.monotonic()
        wait = _TICK_SECONDS if self.fired else min(_TICK_SECONDS, max(0.0, due))
        if self.program.wait(wait) is not None:
            self._ended_at = time.monotonic()
            return True
        self.moment.look_for_handler()
        self.moment.react_to_growth(self.watcher.grown())
        if self._count and self.age_seconds >= self._next_count:
            began = time.thread_time()
            self.calls.append((self.age_seconds, self.program.write_call_count()))
            pause = max(_COUNT_SECONDS, (time.thread_time() - began) / _COUNT_SHARE)
            self._next_count = self.age_seconds + pause
        self.moment.tick()
        fired_at, frozen = self.moment.fired_at, self.is_frozen
        if alone and fired_at is not None and not frozen:
            self.enforce_grace(fired_at)
        if self.age_seconds > self._around.limit_seconds and not self._timed_out and not frozen:
            self._timed_out = True
            self.program.kill_all()
        return False

    def enforce_grace(self, since: float) -> None:
        """End it by force when its time is over."""
        if time.monotonic() - since >= self._around.grace_seconds and not self._overran and self._ended_at is None:
            self._overran = True
            self.program.kill_all()

    @property
    def fired(self) -> bool:
        """Whether its moment has come."""
        return self.moment.fired_at is not None

    @property
    def runs_beside_replacement(self) -> bool:
        """Whether the replacement has to start while this one is still there."""
        return self.fired and self._kill is not None and self._kill.kind in TWO_WRITERS and self._ended_at is None

    def replace(self) -> None:
        """Its replacement is about to start: what it does from now on is done beside that one."""
        self._until_replaced = WriteCounts(len(self.watcher.opened_seconds), self.program.write_call_count())

    @property
    def is_frozen(self) -> bool:
        return self.moment.is_frozen

    def resume(self) -> None:
        """The zombie goes on where it stood."""
        if self.moment.is_frozen:
            self.moment.is_frozen = False
            self.program.resume()
            if isinstance(self.watcher, SyscallWatcher):
                self.watcher.release()

    # -- the end

    def close(self) -> AttemptObservation:
        """Everything that was seen; whatever still runs is ended."""
        code = self.program.poll()
        ended_at = self._ended_at or time.monotonic()
        if code is None:
            self.program.kill_all()
            code = self.program.wait(30.0)
        self.watcher.close()
        self.program.close()
        fired = self.moment.fired_at
        # A kill that came while the program was leaving by itself was too late to be one.
        killed = self._kill is not None and self._kill.kind in (
            InterruptionKind.KILL,
            InterruptionKind.KILL_DURING_RESUME,
        )
        delivered = fired is not None and not (killed and code != -signal.SIGKILL)
        by_itself = delivered and not killed and not self._overran
        return AttemptObservation(
            number=self.number,
            began_seconds=self.began_at,
            seconds=ended_at - self.began_at,
            ran_seconds=(fired if fired is not None and delivered else ended_at) - self.began_at,
            code=code if code is not None and code >= 0 else 128 - (code or -signal.SIGKILL),
            kill=self._kill,
            delivered=delivered,
            noticed=self.moment.noticed,
            overran=self._overran,
            safe_seconds=ended_at - fired if by_itself and fired is not None else None,
            first_write_seconds=self.watcher.first_event_seconds,
            cpu_seconds=self.program.cpu_seconds,
            write_calls=self.program.write_calls,
            waited_seconds=self.program.waited_seconds,
            opens=len(self.watcher.opened_seconds),
            late=self._late(ended_at - self.began_at),
            until_replaced=self._until_replaced,
            families=self.watcher.families,
            timed_out=self._timed_out,
            last_words=last_error_line(self.log),
            at=self.moment.at,
        )

    def _late(self, seconds: float) -> WriteCounts:
        """What it wrote in the second half of its time."""
        half = seconds / 2
        early_calls = max((count for at, count in self.calls if at <= half), default=0)
        opens = sum(at > half for at in self.watcher.opened_seconds)
        return WriteCounts(opens, max(0, self.program.write_calls - early_calls))


def can_watch(folder: str, environment: Mapping[str, str], keepers: InitServer, *, namespace: bool) -> bool:
    """Whether system calls can be held here; only a program that is started so can tell."""
    options = ContainerOptions(namespace=namespace, seccomp_filter=build_filter(writes=False))
    command = [sys.executable, "-ISc", ""]
    started = start_contained(
        command, cwd=folder, env=environment, stderr=subprocess.DEVNULL, options=options, keepers=keepers
    )
    try:
        return started.listener is not None
    finally:
        started.kill_all()
        started.close()


def last_error_line(path: str) -> str:
    """The last line that was printed and says something: Node ends with its version, after where it was."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.path.getsize(path) - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").strip().splitlines()
    except OSError:
        return ""
    telling = [line.strip() for line in lines if line.strip() and not line.startswith(_TRAILERS)]
    return telling[-1][:300] if telling else ""
