"""One life of the program: started as a container is, watched, and taken away at its moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stayfast.process.container import (
    ContainedProgram,
    ContainerOptions,
    InitServer,
    start_contained,
    would_notice_signal,
)
from stayfast.process.tree import send_signal, signal_disposition
from stayfast.proof.rehearse.facts import AttemptObservation, WriteCounts
from stayfast.proof.rehearse.plan import TWO_WRITERS, AtEvent, AtResume, AtTime, InterruptionKind, Kill, Profile
from stayfast.proof.rehearse.workspace import unshare_file
from stayfast.proof.syscalls.disk_limit import DiskLimit
from stayfast.proof.syscalls.polling import FilePoller, watch_files
from stayfast.proof.syscalls.seccomp import build_filter, is_calling
from stayfast.proof.syscalls.watcher import HOLD_CALL, LET_GO, FileEvent, Reaction, SyscallWatcher

_TICK_SECONDS = 0.02
_TAIL_BYTES = 4000
_TRAILERS = ("    at ", "Node.js v")
_RESUME_LEAST_SECONDS = 0.05
_SURE_LOOKS = 3
_PATIENCE_SECONDS = 5.0
_SETTLE_SECONDS = 0.02
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
        self._profile = profile
        self._learn = learn
        self._count = count
        self._lock = threading.Lock()
        self._pending = threading.Event()
        self._fired_at: float | None = None
        self._at = ""
        self._until_replaced: WriteCounts | None = None
        self.calls: list[tuple[float, int]] = []
        """How often it had written when, where that is counted."""
        self._next_count = 0.0
        self._touched = 0
        self._noticed = False
        self._overran = False
        self._timed_out = False
        self._frozen = False
        self._ended_at: float | None = None
        self._noticing = 0
        self.handler_seconds: float | None = None
        self._due_since: float | None = None
        self.held_path = ""
        self.log = os.path.join(surroundings.folder, f"attempt-{number}.log")
        self.began_at = time.monotonic()
        self.program = self._start()
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
            return watch_files(self._around.work, self._react)
        return SyscallWatcher(
            self.program.listener,
            self._around.work,
            react=self._react,
            allows=self._around.allows,
            before_write=unshare_file,
            disk=self._around.disk,
        )

    @property
    def age_seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self.began_at

    # -- when

    def _react(self, event: FileEvent) -> Reaction:
        """On the watcher's thread: is this the moment?"""
        if self._pending.is_set():
            with self._lock:
                mine = self._pending.is_set()
                self._pending.clear()
            if mine:
                return self._send_term_now()
        kill, touched = self._kill, self._touched
        self._touched += 1
        if kill is None or self._fired_at is not None:
            return LET_GO
        due = _is_at(kill, event) or (isinstance(kill.moment, AtResume) and touched >= kill.moment.touches)
        if not due or not self._ready_for(kill):
            self._due_since = self._due_since or (time.monotonic() if due else None)
            return LET_GO
        return self._fire(kill, _where(event), event)

    def _look_at_streams(self) -> None:
        """Output that goes into a file by a shell's doing: it is met between two looks, not at a call."""
        for event in self.watcher.grown():
            kill = self._kill
            if kill is not None and self._fired_at is None and _is_at(kill, event) and self._ready_for(kill):
                self._fire(kill, _where(event), None)

    def _ready_for(self, kill: Kill) -> bool:
        """A handler that the program is still about to install is waited for: it is late, not missing."""
        profile = self._profile
        if (
            kill.kind not in (InterruptionKind.TERM, InterruptionKind.OVERLAP)
            or profile is None
            or profile.handler_seconds is None
        ):
            return True
        # Every start of a thread blocks signals for a moment: only a block that lasts means that it waits for them.
        found = signal_disposition(self.program.pid, signal.SIGTERM)
        if found == "handler" or (found == "blocked" and self.handler_seconds is not None):
            return True
        patience = _PATIENCE_SECONDS + 4 * profile.handler_seconds
        return self._due_since is not None and time.monotonic() - self._due_since > patience

    def _due_at(self) -> float:
        kill, profile = self._kill, self._profile
        if kill is None or profile is None:
            return float("inf")
        if isinstance(kill.moment, AtTime):
            return self.began_at + kill.moment.fraction * profile.seconds
        if isinstance(kill.moment, AtResume) and not kill.moment.touches:
            return self.began_at + max(_RESUME_LEAST_SECONDS, kill.moment.fraction * profile.first_write_seconds)
        return float("inf")

    # -- what

    def _fire(self, kill: Kill, at: str, event: FileEvent | None) -> Reaction:
        with self._lock:
            if self._fired_at is not None:
                return LET_GO
            self._fired_at = time.monotonic()
        self._at = at
        pid = self.program.pid
        match kill.kind:
            case InterruptionKind.KILL | InterruptionKind.KILL_DURING_RESUME:
                self.program.kill_now()
                return HOLD_CALL
            case InterruptionKind.TERM | InterruptionKind.OVERLAP:
                self._noticed = would_notice_signal(pid, signal.SIGTERM)
                if event is not None:
                    return self._send_term_now()
                if self._noticed:
                    self._send_term()
                return LET_GO
            case InterruptionKind.FREEZE:
                self.held_path = event.path if event is not None else ""
                self._frozen = True
                self.program.pause()
                return HOLD_CALL

    def _send_term_now(self) -> Reaction:
        """While we hold a call of the program: it does not notice, unless the kernel is old; then right after."""
        pid = self.program.pid
        if self.program.listener_kind != "killable":
            return Reaction(then=lambda: send_signal(pid, signal.SIGTERM))
        send_signal(pid, signal.SIGTERM)
        return LET_GO

    def _send_term(self) -> None:
        """At any time. A call on its way to us would be broken off by a signal, as no kernel does on its own: so the
        watcher sends it with the next call that it holds, and we do when none comes for a moment."""
        if isinstance(self.watcher, SyscallWatcher):
            self._pending.set()
            until = time.monotonic() + _SETTLE_SECONDS
            while self._pending.is_set() and time.monotonic() < until:
                time.sleep(0.0005)
            with self._lock:
                if not self._pending.is_set():
                    return
                self._pending.clear()
            while is_calling(self.program.pid) and time.monotonic() < until + _SETTLE_SECONDS:
                pass
        send_signal(self.program.pid, signal.SIGTERM)

    def tick(self, *, alone: bool = True) -> bool:
        """Do what is due; true once the program has ended. ``alone``: the grace is watched here, not by the trial."""
        if self._ended_at is not None:
            return True
        now = time.monotonic()
        wait = min(_TICK_SECONDS, max(0.0, self._due_at() - now)) if self._fired_at is None else _TICK_SECONDS
        if self.program.wait(wait) is not None:
            self._ended_at = time.monotonic()
            return True
        if self.handler_seconds is None:  # a shell blocks signals for moments, so one look is not enough
            self._noticing = self._noticing + 1 if would_notice_signal(self.program.pid, signal.SIGTERM) else 0
            self.handler_seconds = self.age_seconds if self._noticing >= _SURE_LOOKS else None
        self._look_at_streams()
        if self._count and self.age_seconds >= self._next_count:
            began = time.thread_time()
            self.calls.append((self.age_seconds, self.program.write_call_count()))
            pause = max(_COUNT_SECONDS, (time.thread_time() - began) / _COUNT_SHARE)
            self._next_count = self.age_seconds + pause
        now = time.monotonic()
        if self._kill is not None and self._fired_at is None:
            if self._due_since is None and now >= self._due_at():
                self._due_since = now
            if self._due_since is not None and self._ready_for(self._kill):
                self._fire(self._kill, f"{now - self.began_at:.2f} s after its start", None)
        if alone and self._kill is not None and self._fired_at is not None and not self._frozen:
            self.enforce_grace(self._fired_at)
        if now - self.began_at > self._around.limit_seconds and not self._timed_out and not self._frozen:
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
        return self._fired_at is not None

    @property
    def runs_beside_replacement(self) -> bool:
        """Whether the replacement has to start while this one is still there."""
        return self.fired and self._kill is not None and self._kill.kind in TWO_WRITERS and self._ended_at is None

    def replace(self) -> None:
        """Its replacement is about to start: what it does from now on is done beside that one."""
        self._until_replaced = WriteCounts(len(self.watcher.opened_seconds), self.program.write_call_count())

    @property
    def is_frozen(self) -> bool:
        return self._frozen

    def resume(self) -> None:
        """The zombie goes on where it stood."""
        if self._frozen:
            self._frozen = False
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
        fired = self._fired_at
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
            noticed=self._noticed,
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
            at=self._at,
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


def _is_at(kill: Kill, event: FileEvent) -> bool:
    moment = kill.moment
    return isinstance(moment, AtEvent) and (event.family, event.point) == moment[:2] and event.nth >= moment.nth


def _where(event: FileEvent) -> str:
    return f"at the {event.point} of {event.path}"


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
