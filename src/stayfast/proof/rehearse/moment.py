"""The moment of an interruption: has it come, is the program ready for it, and how the machine is taken away."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterable

from stayfast.process.container import ContainedProgram, would_notice_signal
from stayfast.process.proc import signal_disposition
from stayfast.process.tree import send_signal
from stayfast.proof.rehearse.schedule import AtEvent, AtResume, AtTime, InterruptionKind, Kill, Profile
from stayfast.proof.syscalls.events import HOLD_CALL, LET_GO, FileEvent, Reaction
from stayfast.proof.syscalls.seccomp import is_calling

_RESUME_LEAST_SECONDS = 0.05
_SURE_LOOKS = 3
_PATIENCE_SECONDS = 5.0
_SETTLE_SECONDS = 0.02


class MomentWatch:
    """Waits for the moment of one kill, and interrupts the program then; without a kill it only looks."""

    def __init__(
        self, kill: Kill | None, profile: Profile | None, program: ContainedProgram, *, began_at: float
    ) -> None:
        self._kill = kill
        self._profile = profile
        self._program = program
        self._began_at = began_at
        self._lock = threading.Lock()
        self._pending = threading.Event()
        self._touched = 0
        self._due_since: float | None = None
        self._noticing = 0
        self.fired_at: float | None = None
        self.at = ""
        """Where the program was, in words."""
        self.noticed = False
        """Whether its first process notices SIGTERM."""
        self.is_frozen = False
        self.held_path = ""
        """The file before whose change it was frozen."""
        self.handler_seconds: float | None = None
        """Since its start, until its first process handled or waited for SIGTERM."""

    def look_for_handler(self) -> None:
        """A shell blocks signals for moments, so one look is not enough."""
        if self.handler_seconds is None:
            self._noticing = self._noticing + 1 if would_notice_signal(self._program.pid, signal.SIGTERM) else 0
            self.handler_seconds = time.monotonic() - self._began_at if self._noticing >= _SURE_LOOKS else None

    def tick(self) -> None:
        """Between two looks at the program: the moment may have come by the clock, or the program be ready by now."""
        now = time.monotonic()
        if self._kill is None or self.fired_at is not None:
            return
        if self._due_since is None and now >= self.due_at():
            self._due_since = now
        if self._due_since is not None and self._ready_for(self._kill):
            self._fire(self._kill, f"{now - self._began_at:.2f} s after its start", None)

    def react(self, event: FileEvent) -> Reaction:
        """On the watcher's thread: is this the moment?"""
        if self._pending.is_set():
            with self._lock:
                mine = self._pending.is_set()
                self._pending.clear()
            if mine:
                return self._send_term_now()
        kill, touched = self._kill, self._touched
        self._touched += 1
        if kill is None or self.fired_at is not None:
            return LET_GO
        due = _is_at(kill, event) or (isinstance(kill.moment, AtResume) and touched >= kill.moment.touches)
        if not due or not self._ready_for(kill):
            self._due_since = self._due_since or (time.monotonic() if due else None)
            return LET_GO
        return self._fire(kill, _where(event), event)

    def react_to_growth(self, grown: Iterable[FileEvent]) -> None:
        """Output that goes into a file by a shell's doing: it is met between two looks, not at a call."""
        for event in grown:
            kill = self._kill
            if kill is not None and self.fired_at is None and _is_at(kill, event) and self._ready_for(kill):
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
        found = signal_disposition(self._program.pid, signal.SIGTERM)
        if found == "handler" or (found == "blocked" and self.handler_seconds is not None):
            return True
        patience = _PATIENCE_SECONDS + 4 * profile.handler_seconds
        return self._due_since is not None and time.monotonic() - self._due_since > patience

    def due_at(self) -> float:
        """When a moment of the clock comes."""
        kill, profile = self._kill, self._profile
        if kill is None or profile is None:
            return float("inf")
        if isinstance(kill.moment, AtTime):
            return self._began_at + kill.moment.fraction * profile.seconds
        if isinstance(kill.moment, AtResume) and not kill.moment.touches:
            return self._began_at + max(_RESUME_LEAST_SECONDS, kill.moment.fraction * profile.first_write_seconds)
        return float("inf")

    def _fire(self, kill: Kill, at: str, event: FileEvent | None) -> Reaction:
        with self._lock:
            if self.fired_at is not None:
                return LET_GO
            self.fired_at = time.monotonic()
        self.at = at
        pid = self._program.pid
        match kill.kind:
            case InterruptionKind.KILL | InterruptionKind.KILL_DURING_RESUME:
                self._program.kill_now()
                return HOLD_CALL
            case InterruptionKind.TERM | InterruptionKind.OVERLAP:
                self.noticed = would_notice_signal(pid, signal.SIGTERM)
                if event is not None:
                    return self._send_term_now()
                if self.noticed:
                    self.send_term()
                return LET_GO
            case InterruptionKind.FREEZE:
                self.held_path = event.path if event is not None else ""
                self.is_frozen = True
                self._program.pause()
                return HOLD_CALL

    def _send_term_now(self) -> Reaction:
        """While we hold a call of the program: it does not notice, unless the kernel is old; then right after."""
        pid = self._program.pid
        if self._program.listener_kind != "killable":
            return Reaction(then=lambda: send_signal(pid, signal.SIGTERM))
        send_signal(pid, signal.SIGTERM)
        return LET_GO

    def send_term(self) -> None:
        """At any time. A call on its way to us would be broken off by a signal, as no kernel does on its own: so the
        watcher sends it with the next call that it holds, and we do when none comes for a moment."""
        if self._program.listener is not None:
            self._pending.set()
            until = time.monotonic() + _SETTLE_SECONDS
            while self._pending.is_set() and time.monotonic() < until:
                time.sleep(0.0005)
            with self._lock:
                if not self._pending.is_set():
                    return
                self._pending.clear()
            while is_calling(self._program.pid) and time.monotonic() < until + _SETTLE_SECONDS:
                pass
        send_signal(self._program.pid, signal.SIGTERM)


def _is_at(kill: Kill, event: FileEvent) -> bool:
    moment = kill.moment
    return isinstance(moment, AtEvent) and (event.family, event.point) == moment[:2] and event.nth >= moment.nth


def _where(event: FileEvent) -> str:
    return f"at the {event.point} of {event.path}"
