"""What is known now: every run and queue, read again when it changed, and what is new since the last look."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import Any

from stayfast.clock import Clock, SystemClock
from stayfast.dashboard.queue_view import QueueView
from stayfast.dashboard.run_view import (
    RunPricing,
    Sample,
    checkpoint_page,
    committed_at,
    detail,
    identify,
    sanitize,
    summary,
)
from stayfast.dashboard.sources import find_runs
from stayfast.dashboard.thread_pool import DaemonThreadPool
from stayfast.dashboard.verification import Verifier
from stayfast.errors import KeyMissingError, StayfastError
from stayfast.filesystem import FS, SystemFS
from stayfast.runtime.run_record.record import MAX_HEAD_BYTES, RECORD_KEY, RunRecord, decode
from stayfast.storage.stores.open_store import open_store
from stayfast.storage.stores.protocol import Store

_LOCAL_SECONDS = 1.0
_BUCKET_SECONDS = 5.0
_FIND_LOCAL_SECONDS = 0.9
_FIND_BUCKET_SECONDS = 60.0
_FIND_SHARE = 400.0  # looking for new runs in a deep tree takes time: at most this share of it
_READERS = 8
_PATIENCE_SECONDS = 1.0
_SLOW_SECONDS = 5.0
_CLOSE_SECONDS = 1.0
_SAMPLES = 500
_GONE = "gone"


@dataclass(frozen=True, slots=True)
class Sources:
    """What ``stayfast dashboard`` was pointed at."""

    urls: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    sink: str | None = None
    prices: RunPricing = field(default_factory=RunPricing)
    listed: Mapping[str, RunPricing] = field(default_factory=dict)
    """Prices of runs at or under a URL, from workload files."""

    def prices_of(self, url: str) -> RunPricing:
        """The longest URL that fits."""
        fitting = [place for place in self.listed if url == place or url.startswith(place + "/")]
        return self.listed[max(fitting, key=len)] if fitting else self.prices


@dataclass(slots=True, eq=False)
class _Run:
    url: str
    store: Store
    generation: str = ""
    next_look: float = 0.0
    head: RunRecord | None = None
    trouble: str | None = None
    row: dict[str, Any] = field(default_factory=dict)
    changed: bool = False
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


class RunCache:
    """Reads on demand; everything here may block and is called from threads, never from the event loop.

    What is on this machine is read at once. Buckets and servers are read by threads of their own, which are waited for
    only a moment: one that does not answer must not keep anybody from seeing the rest.
    """

    def __init__(self, sources: Sources, *, clock: Clock | None = None, fs: FS | None = None) -> None:
        self.sources = sources
        self.verifier = Verifier()
        self._clock = clock or SystemClock()
        self._fs = fs or SystemFS()
        self._runs: dict[str, _Run] = {}
        self._queues = {view.id: view for view in (QueueView(u, sources.sink, self._clock) for u in sources.queues)}
        self._sent_versions = dict.fromkeys(self._queues, 0)
        self._find_next = dict.fromkeys(sources.urls, float("-inf"))
        self._troubles: dict[str, str] = {}
        self._told_troubles: dict[str, str] = {}
        self._turn = threading.Lock()  # one look at a time
        self._lock = threading.Lock()  # around what is known; never held while anything is read
        self._readers = DaemonThreadPool(_READERS, "stayfast-watch")
        self._under_way: dict[str, tuple[Future[None], float]] = {}

    # -- looking

    def refresh(self) -> dict[str, Any] | None:
        """Look at everything that is due; the rows that changed, or None when nothing did."""
        with self._turn:
            before = set(self._runs)
            until = self._clock.monotonic() + _PATIENCE_SECONDS
            self._wait([self._begin(url, self._find, url) for url in self.sources.urls], until)
            reading = [self._begin(run.url, self._read, run) for run in self._due()]
            counting = [self._begin(view.url, self._count, view) for view in self._queues.values()]
            self._wait([*reading, *counting], until)
            self._report_slow_sources()
            return self._changes(before)

    def _begin(self, url: str, call: Callable[[Any], None], what: Any) -> Future[None] | None:
        """Here and now for what is on this machine; elsewhere on a thread, unless the last time is not over yet."""
        if url.startswith(("file:", "sqlite:", "memory:")):
            call(what)
            return None
        known = self._under_way.get(url)
        if known is not None and not known[0].done():
            return None
        future = self._readers.submit(call, what)
        self._under_way[url] = (future, self._clock.monotonic())
        return future

    def _wait(self, futures: list[Future[None] | None], until: float) -> None:
        begun = [future for future in futures if future is not None]
        if begun:
            wait(begun, timeout=max(0.0, until - self._clock.monotonic()))

    def _report_slow_sources(self) -> None:
        """Say who keeps us waiting."""
        now = self._clock.monotonic()
        with self._lock:
            for url, (future, since) in self._under_way.items():
                if not future.done() and now - since > _SLOW_SECONDS and url in self._find_next:
                    self._troubles[url] = "it has not answered yet"

    def _changes(self, before: set[str]) -> dict[str, Any] | None:
        with self._lock:
            for identity in [name for name, run in self._runs.items() if run.generation == _GONE]:
                self._runs.pop(identity).store.close()
            changed = [run for run in self._runs.values() if run.changed]
            for run in changed:
                run.changed = False
            queues = [view for view in self._queues.values() if view.version != self._sent_versions[view.id]]
            self._sent_versions |= {view.id: view.version for view in queues}
            gone = sorted(before - set(self._runs))
            troubles = self._troubles != self._told_troubles
            self._told_troubles = dict(self._troubles)
            if not (changed or queues or gone or troubles):
                return None
            return {
                "runs": [run.row for run in changed],
                "queues": [view.summary() for view in queues],
                "gone": gone,
                "troubles": self._list_troubles(),
                "now": self._clock.wall(),
            }

    def _list_troubles(self) -> list[dict[str, str]]:
        return [{"url": url, "what": what} for url, what in self._troubles.items()]

    def _find(self, url: str) -> None:
        started = self._clock.monotonic()
        if started < self._find_next[url]:
            return
        trouble = None
        try:
            found = find_runs(url, self._fs)
        except StayfastError as error:
            trouble, found = str(error), []
        pause = _FIND_LOCAL_SECONDS if url.startswith("file:") else _FIND_BUCKET_SECONDS
        took = self._clock.monotonic() - started
        self._find_next[url] = started + max(pause, _FIND_SHARE * took)
        with self._lock:
            if trouble is None:
                self._troubles.pop(url, None)
            else:
                self._troubles[url] = trouble
            for run in found:
                if identify(run) not in self._runs:
                    self._runs[identify(run)] = _Run(run, open_store(run))

    def _due(self) -> list[_Run]:
        now = self._clock.monotonic()
        due = [run for run in list(self._runs.values()) if now >= run.next_look]
        for run in due:
            run.next_look = now + (_LOCAL_SECONDS if run.url.startswith("file:") else _BUCKET_SECONDS) * 0.9
        return [run for run in due if not run.url.startswith("file:") or self._is_new(run)]

    def _count(self, view: QueueView) -> None:
        view.look()

    def _is_new(self, run: _Run) -> bool:
        """One ``stat``; the generation of a local object is its modification time."""
        try:
            status = self._fs.stat(run.url.removeprefix("file://") + "/" + RECORD_KEY)
        except OSError:
            return True
        return status is None or str(status.mtime_ns) != run.generation

    def _read(self, run: _Run) -> None:
        try:
            blob = run.store.get(RECORD_KEY, length=MAX_HEAD_BYTES + 1)
            if blob.generation == run.generation:
                return
            head, trouble, generation = sanitize(decode(blob.data)), None, blob.generation
        except KeyMissingError:
            head, trouble, generation = None, "there is no run here any more", _GONE
        except StayfastError as error:
            head, trouble, generation = run.head, str(error), ""
        if trouble is not None and trouble == run.trouble:
            return
        run.head, run.trouble, run.generation = head, trouble, generation
        if head is not None and head.newest is not None and trouble is None:
            self._sample(run, head)
        run.row = self._row(run)
        run.changed = True

    def _sample(self, run: _Run, head: RunRecord) -> None:
        assert head.newest is not None
        newest = head.newest
        if not run.samples or (run.samples[-1].step, run.samples[-1].attempt) != (newest.step, newest.attempt):
            run.samples.append(Sample(committed_at(newest) or self._clock.wall(), newest.step, newest.attempt))

    def _row(self, run: _Run) -> dict[str, Any]:
        if run.head is None:
            name = run.url.rstrip("/").rpartition("/")[2]
            return {"id": identify(run.url), "url": run.url, "name": name, "state": "broken", "trouble": run.trouble}
        return {**summary(run.url, run.head, self.sources.prices_of(run.url)), "trouble": run.trouble}

    # -- telling

    def overview(self) -> dict[str, Any]:
        """The first page, whole, as of the last look."""
        with self._lock:
            return {
                "runs": [run.row for run in self._runs.values() if run.row],
                "queues": [view.summary() for view in self._queues.values()],
                "troubles": self._list_troubles(),
                "on_demand": bool(self.sources.listed) or self.sources.prices.on_demand_usd_per_hour is not None,
                "now": self._clock.wall(),
            }

    def run(self, identity: str) -> dict[str, Any] | None:
        """One run in full; None when there is none of that name."""
        run = self._runs.get(identity)
        if run is None or run.head is None:
            return None
        self.verifier.look(run.url, run.head)
        found = detail(run.url, run.head, self.sources.prices_of(run.url), list(run.samples))
        return {**found, "trouble": run.trouble, "now": self._clock.wall()}

    def checkpoints(self, identity: str, offset: int) -> dict[str, Any] | None:
        """A page of a run's checkpoints."""
        run = self._runs.get(identity)
        if run is None or run.head is None:
            return None
        return checkpoint_page(run.head, offset, self.verifier.states(run.url, run.head))

    def queue(self, identity: str) -> dict[str, Any] | None:
        """One queue in full."""
        view = self._queues.get(identity)
        return None if view is None else {**view.detail(), "now": self._clock.wall()}

    # -- changing

    def retry(self, identity: str, keys: list[str] | None) -> int | None:
        """Dead letters back to ready; None when there is no such queue."""
        view = self._queues.get(identity)
        return None if view is None else view.retry(keys)

    def verify(self, identity: str, name: str) -> bool:
        """Begin to read a checkpoint; false when there is no such one."""
        run = self._runs.get(identity)
        rows: Sequence[Any] = run.head.checkpoints if run is not None and run.head is not None else ()
        chosen = next((row for row in rows if row.name == name), None)
        if run is None or chosen is None:
            return False
        self.verifier.verify(run.url, chosen)
        return True

    def close(self) -> None:
        """Give everything back, in a moment; what does not answer is left to itself."""
        self._readers.shutdown()
        self.verifier.close()
        closing = threading.Thread(target=self._close_all, name="stayfast-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_SECONDS)

    def _close_all(self) -> None:
        for view in self._queues.values():
            view.close()
        for run in list(self._runs.values()):
            run.store.close()


def to_json(value: Any) -> bytes:
    """Compact, and safe inside an event stream: one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
