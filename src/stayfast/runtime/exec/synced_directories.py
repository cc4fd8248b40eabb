"""``stayfast exec --sync DIR=URL``: the directories of a program, kept in stores while it runs.

Loaded only when ``--sync`` is given: ``exec`` alone stays as light as it is.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Sequence

from stayfast.clock import SystemClock, to_rfc3339
from stayfast.errors import OutcomeUnknownError, StayfastError, StoreUnavailableError, UsageError
from stayfast.model.exit_codes import FAILED, Outcome
from stayfast.process.tree import paused_tree
from stayfast.runtime.directory_sync.sync import DirectorySync, SyncOptions
from stayfast.runtime.interruption.exit_report import ExitReport, publish_report
from stayfast.runtime.run_record.record import AttemptRecord
from stayfast.settings import Settings
from stayfast.storage.stores.open_store import open_store

_PAIR = re.compile(r"(.+?)=([a-z][a-z0-9]*://.*)\Z", re.DOTALL)
BEGIN_SECONDS = 60.0
"""How long a store may be away at the start: without it nobody knows where the program stood."""
PATIENCE_SECONDS = 600.0
"""How long the last copy of a program that is finished may take before it counts as interrupted."""
LARGEST_SHARE = 0.4  # of the grace window, for the last copy


class SyncedDirectories:
    """All directories of one command."""

    patience_seconds = PATIENCE_SECONDS

    def __init__(self, pairs: Sequence[str], settings: Settings, *, keep: int = 2) -> None:
        self._settings = settings
        clock = SystemClock()
        row = AttemptRecord(
            attempt=0,
            started_at=to_rfc3339(clock.wall()),
            machine=settings.machine,
            zone=settings.zone,
            capacity=settings.capacity,
            usd_per_hour=settings.usd_per_hour,
        )
        options = SyncOptions(clock, row, keep, _wake_supervisor, paused_tree)
        places = check_directories([_parse(pair, settings) for pair in pairs])
        self._mirrors = [DirectorySync(directory, url, open_store(url), options) for directory, url in places]
        self._started = clock.monotonic()
        self._error: StayfastError | None = None
        _log_to_stderr()

    # -- before the program

    def begin(self, signals: Iterable[int]) -> int | None:
        """Bring everything back; None when the program may start, else the code to leave with.

        The main thread stays with the signals: a notice ends the waiting at once.
        """
        ended = threading.Event()

        def work() -> None:
            try:
                self._begin()
            except StayfastError as error:
                self._error = error
            except OSError as error:
                self._error = UsageError(f"the directory cannot be used: {error}")
            ended.set()
            _wake_supervisor()

        threading.Thread(target=work, name="stayfast-restore", daemon=True).start()
        while not ended.is_set():
            info = signal.sigtimedwait([*signals, signal.SIGCHLD], 3600.0)
            if info is not None and info.si_signo in (signal.SIGTERM, signal.SIGINT):
                cause = "cancellation" if info.si_signo == signal.SIGINT else "unknown"
                detail = "the notice came before the program was started: its directory was being brought back"
                return self._leave(Outcome.INTERRUPTED, cause, detail)
        if self._error is None:
            return None
        if isinstance(self._error, StoreUnavailableError | OutcomeUnknownError):
            return self._leave(Outcome.INTERRUPTED, "unknown", f"the program was not started: {self._error}")
        return self._leave(Outcome.FAILED, None, f"the program was not started: {self._error}")

    def _begin(self) -> None:
        until = time.monotonic() + BEGIN_SECONDS
        for mirror in self._mirrors:
            while True:
                try:
                    mirror.claim_and_restore()
                    break
                except (StoreUnavailableError, OutcomeUnknownError):
                    if time.monotonic() > until:
                        raise
                    time.sleep(1.0)

    def _leave(self, outcome: Outcome, cause: str | None, detail: str) -> int:
        code = self._settings.interrupted_code if outcome is Outcome.INTERRUPTED else FAILED
        report = ExitReport(outcome=outcome, code=code, action="program_ended", cause=cause, detail=detail[:300])
        publish_report(report, self._settings._replace(outcome_dir=None))
        return code

    # -- while it runs

    def start(self) -> None:
        """Copy in the background from now on."""
        for mirror in self._mirrors:
            mirror.start()

    def note_crash(self) -> None:
        """A signal ended a process of the program."""
        for mirror in self._mirrors:
            mirror.note_crash()

    @property
    def is_superseded(self) -> bool:
        """Whether a newer attempt has claimed one of the URLs: what this one does can be kept no more."""
        return any(mirror.superseded is not None for mirror in self._mirrors)

    def reserve_seconds(self, window_seconds: float) -> float:
        """What to keep of the window for the last copy, by what copies have taken."""
        if self.is_superseded:
            return 0.0
        return min(LARGEST_SHARE * window_seconds, max(mirror.expected_seconds() for mirror in self._mirrors))

    # -- at its end

    def finish(self) -> None:
        """The program is gone: the last copies."""
        for mirror in self._mirrors:
            mirror.finish()

    @property
    def is_done(self) -> bool:
        """Whether the last copies are over."""
        return all(mirror.done.is_set() for mirror in self._mirrors)

    def unsafe_outcome(self, settings: Settings) -> tuple[Outcome, int, str] | None:
        """What a program that says 0 comes to while its work is not safe; None once it is. It is to be resumed."""
        bad = next((mirror for mirror in self._mirrors if not _is_safe(mirror)), None)
        if bad is None:
            return None
        why = bad.superseded or bad.last_error or "it took too long"
        detail = f"the program left with 0, but the last copy of {bad.directory} is not in {bad.url}: {why}"
        return Outcome.INTERRUPTED, settings.interrupted_code, detail[:300]

    @property
    def attempt(self) -> int | None:
        """Which one this is, by what the stores have seen; None before they were asked."""
        return max((mirror.attempt for mirror in self._mirrors), default=0) or None

    @property
    def saved(self) -> str:
        """What is in the stores, in words."""
        return "; ".join(
            f"{mirror.directory}: " + ("nothing" if mirror.newest is None else f"copy {mirror.newest.step}")
            for mirror in self._mirrors
        )[:300]

    def record_end(self, outcome: Outcome, cause: str | None, seconds: float) -> None:
        """Write down the end in every ledger, if there is time for it."""
        used = round(time.monotonic() - self._started, 3)

        def work() -> None:
            for mirror in self._mirrors:
                if mirror.superseded is None and mirror.done.is_set():
                    finished = outcome is Outcome.FINISHED
                    mirror.record_end(finished=finished, outcome=outcome, cause=cause, useful_seconds=used)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(max(0.0, min(seconds, 5.0)))


def _parse(pair: str, settings: Settings) -> tuple[str, str]:
    match = _PAIR.match(pair)
    if match is None:
        raise UsageError(f"--sync {pair!r} is not DIR=URL", help="write it like --sync ./ckpt=gs://bucket/run")
    directory, url = match.groups()
    if "{index}" in url:
        if settings.completion_index is None:
            raise UsageError(
                f"--sync {pair!r} has {{index}} in it, but JOB_COMPLETION_INDEX is not set",
                help="run it in an Indexed Job, or set the variable",
            )
        url = url.replace("{index}", settings.completion_index)
    return directory, url


def check_directories(places: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Directories that do not lie in each other, each with a URL of its own."""
    for number, (directory, url) in enumerate(places):
        root = os.path.realpath(directory)
        if os.path.lexists(directory) and not os.path.isdir(directory):
            raise UsageError(f"{directory} is not a directory", help="--sync keeps directories")
        if url.startswith("file://") and _is_in(os.path.realpath(url.removeprefix("file://")), root):
            raise UsageError(f"{url} lies inside {directory}", help="keep the copies somewhere else")
        for other, other_url in places[:number]:
            place = os.path.realpath(other)
            if _is_in(root, place) or _is_in(place, root):
                raise UsageError(f"{directory} and {other} lie in each other", help="give --sync the outer one alone")
            if url.rstrip("/") == other_url.rstrip("/"):
                raise UsageError(f"{directory} and {other} have the same URL", help="give each a URL of its own")
    return places


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith(place.rstrip("/") + "/")


def _wake_supervisor() -> None:
    """The main thread waits for signals: one that it takes for a child's end makes it look around."""
    os.kill(os.getpid(), signal.SIGCHLD)


def _log_to_stderr() -> None:
    """The mirrors speak through the log; a host application does not exist here, so this is the place to listen."""
    if sys.stderr is None:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("stayfast exec: %(message)s"))
    logger = logging.getLogger("stayfast")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False


def _is_safe(mirror: DirectorySync) -> bool:
    """Whether everything that the program finished is in the store."""
    return mirror.done.is_set() and mirror.superseded is None and mirror.last_error is None
