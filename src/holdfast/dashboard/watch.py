"""What is known now: every run and queue, read again when it changed, and what is new since the last look."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from holdfast.checkpoint.head import HEAD_KEY, MAX_HEAD_BYTES, Head, decode
from holdfast.clock import Clock, SystemClock
from holdfast.dashboard.queues import QueueView
from holdfast.dashboard.runs import Prices, Sample, checkpoint_page, clean, detail, identify, summary
from holdfast.dashboard.sources import find_runs
from holdfast.dashboard.verification import Verifier
from holdfast.errors import HoldfastError, KeyMissingError
from holdfast.fs import FS, SystemFS
from holdfast.stores.base import Store
from holdfast.stores.open import open_store

_LOCAL_SECONDS = 1.0
_BUCKET_SECONDS = 5.0
_FIND_LOCAL_SECONDS = 0.9
_FIND_BUCKET_SECONDS = 60.0
_FIND_SHARE = 400.0  # looking for new runs in a deep tree takes time: at most this share of it
_READERS = 8
_SAMPLES = 500
_GONE = "gone"


@dataclass(frozen=True, slots=True)
class Sources:
    """What ``holdfast dashboard`` was pointed at."""

    urls: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    sink: str | None = None
    prices: Prices = field(default_factory=Prices)
    listed: Mapping[str, Prices] = field(default_factory=dict)
    """Prices of runs at or under a URL, from workload files."""

    def prices_of(self, url: str) -> Prices:
        """The longest URL that fits."""
        fitting = [place for place in self.listed if url == place or url.startswith(place + "/")]
        return self.listed[max(fitting, key=len)] if fitting else self.prices


@dataclass(slots=True, eq=False)
class _Run:
    url: str
    store: Store
    generation: str = ""
    next_look: float = 0.0
    head: Head | None = None
    trouble: str | None = None
    row: dict[str, Any] = field(default_factory=dict)
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=_SAMPLES))


class Watch:
    """Reads on demand; everything here may block and is called from threads, never from the event loop."""

    def __init__(self, sources: Sources, *, clock: Clock | None = None, fs: FS | None = None) -> None:
        self.sources = sources
        self.verifier = Verifier()
        self._clock = clock or SystemClock()
        self._fs = fs or SystemFS()
        self._runs: dict[str, _Run] = {}
        self._queues = {view.id: view for view in (QueueView(u, sources.sink, self._clock) for u in sources.queues)}
        self._find_next = dict.fromkeys(sources.urls, float("-inf"))
        self._troubles: dict[str, str] = {}
        self._lock = threading.Lock()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="holdfast-watch")

    # -- looking

    def refresh(self) -> dict[str, Any] | None:
        """Look at everything that is due; the rows that changed, or None when nothing did."""
        with self._lock:
            before = set(self._runs)
            for url in self.sources.urls:
                self._find(url)
            changed = [run.row for run in self._read_runs()]
            queues = [view.summary() for view in self._queues.values() if view.look()]
            for identity in [name for name, run in self._runs.items() if run.generation == _GONE]:
                self._runs.pop(identity).store.close()
            gone = sorted(before - set(self._runs))
            if not (changed or queues or gone):
                return None
            return {"runs": changed, "queues": queues, "gone": gone, "now": self._clock.wall()}

    def _find(self, url: str) -> None:
        started = self._clock.monotonic()
        if started < self._find_next[url]:
            return
        try:
            found = find_runs(url, self._fs)
        except HoldfastError as error:
            self._troubles[url] = str(error)
            found = []
        else:
            self._troubles.pop(url, None)
        pause = _FIND_LOCAL_SECONDS if url.startswith("file:") else _FIND_BUCKET_SECONDS
        took = self._clock.monotonic() - started
        self._find_next[url] = started + max(pause, _FIND_SHARE * took)
        for run in found:
            if identify(run) not in self._runs:
                self._runs[identify(run)] = _Run(run, open_store(run))

    def _read_runs(self) -> list[_Run]:
        now = self._clock.monotonic()
        due = [run for run in self._runs.values() if now >= run.next_look]
        local = [run for run in due if run.url.startswith("file:")]
        changed = [run for run in local if self._is_new(run)]
        far = [run for run in due if not run.url.startswith("file:")]
        changed = [run for run, new in zip(changed, map(self._read, changed), strict=True) if new]
        changed += [run for run, new in zip(far, self._readers.map(self._read, far), strict=True) if new]
        for run in due:
            run.next_look = now + (_LOCAL_SECONDS if run.url.startswith("file:") else _BUCKET_SECONDS) * 0.9
        return changed

    def _is_new(self, run: _Run) -> bool:
        """One ``stat``; the generation of a local object is its modification time."""
        try:
            status = self._fs.stat(run.url.removeprefix("file://") + "/" + HEAD_KEY)
        except OSError:
            return True
        return status is None or str(status.mtime_ns) != run.generation

    def _read(self, run: _Run) -> bool:
        try:
            blob = run.store.get(HEAD_KEY, length=MAX_HEAD_BYTES + 1)
            if blob.generation == run.generation:
                return False
            head, trouble, generation = clean(decode(blob.data)), None, blob.generation
        except KeyMissingError:
            head, trouble, generation = None, "there is no run here any more", _GONE
        except HoldfastError as error:
            head, trouble, generation = run.head, str(error), ""
        if trouble is not None and trouble == run.trouble:
            return False
        run.head, run.trouble, run.generation = head, trouble, generation
        if head is not None and head.newest is not None and trouble is None:
            self._sample(run, head)
        run.row = self._row(run)
        return True

    def _sample(self, run: _Run, head: Head) -> None:
        assert head.newest is not None
        newest = head.newest
        if not run.samples or (run.samples[-1].step, run.samples[-1].attempt) != (newest.step, newest.attempt):
            run.samples.append(Sample(self._clock.wall(), newest.step, newest.attempt))

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
                "troubles": [{"url": url, "what": what} for url, what in self._troubles.items()],
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
        """Give everything back."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self.verifier.close()
        for view in self._queues.values():
            view.close()
        for run in self._runs.values():
            run.store.close()


def to_json(value: Any) -> bytes:
    """Compact, and safe inside an event stream: one line."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()
