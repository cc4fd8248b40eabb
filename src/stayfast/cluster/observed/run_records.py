"""What a run has recorded outside the cluster: its checkpoints and cost in the bucket, its items in the queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from stayfast.clock import SystemClock, from_rfc3339
from stayfast.cluster.observed.runs import Phase, RunSummary
from stayfast.errors import StayfastError

if TYPE_CHECKING:  # stores and queues are imported where a run has them
    from stayfast.runtime.run_record.record import RunRecord

MOST_OBJECTS = 200
"""A ledger in a bucket is one object per item: more would take longer than anybody waits for a status."""
READ_AGAIN_SECONDS = 300.0


class CheckpointAge(NamedTuple):
    """What the bucket says about a run."""

    age_seconds: float
    interval_seconds: float


def read_records(row: RunSummary) -> dict[str, Any]:
    """What the bucket and the queue say; a place that does not answer becomes a note."""
    found: dict[str, Any] = {"notes": []}
    if row.run_url:
        _try(found, lambda: _read_run(str(row.run_url)))
    if row.queue_url:
        _try(found, lambda: _read_queue(str(row.queue_url), row.sink_url))
    return found


def _try(found: dict[str, Any], read: Callable[[], dict[str, Any]]) -> None:
    try:
        answer = read()
    except StayfastError as error:
        answer = {"notes": [error.message]}
    found["notes"] += answer.pop("notes", [])
    found |= answer


def _read_run(url: str) -> dict[str, Any]:
    if not _is_in_bucket(url):
        return {}  # one record per index, or a path inside the pod
    from stayfast.runtime.run_record.billing import bill_run

    head = _read_head(url)
    if head is None:
        return {"checkpoint": None}
    bill = bill_run(head, None)
    found: dict[str, Any] = {"attempts": head.attempt, "goodput": bill["goodput"], "usd": bill["usd"]}
    found["checkpoint"] = None
    if head.newest is not None:
        try:
            age = round(max(0.0, SystemClock().wall() - from_rfc3339(head.newest.committed_at)), 1)
        except ValueError:
            age = None
        found["checkpoint"] = {"step": head.newest.step, "committed_at": head.newest.committed_at, "age_seconds": age}
    return found


def _is_in_bucket(url: str) -> bool:
    from stayfast.storage.stores.open_store import find_bucket

    return "{index}" not in url and find_bucket(url) is not None


def _read_head(url: str) -> RunRecord | None:
    from stayfast.runtime.run_record.read import read_record
    from stayfast.storage.stores.open_store import open_store

    store = open_store(url)
    try:
        return read_record(store, SystemClock())
    finally:
        store.close()


def _read_queue(url: str, sink_url: str | None) -> dict[str, Any]:
    """Pub/Sub does not count; the ledger of its keys does, which stands beside the results."""
    if url.startswith("sqlite:"):
        return {"notes": ["the queue is a file inside the pods: its depth cannot be seen from here"]}
    if url.startswith("pubsub:"):
        return _read_pubsub_ledger(url, sink_url)
    from stayfast.batch.queue.open_queue import open_queue

    queue = open_queue(url, create=False)
    try:
        return {"queue": asdict(queue.depth())}
    finally:
        queue.close()


def _read_pubsub_ledger(url: str, sink_url: str | None) -> dict[str, Any]:
    if not sink_url or sink_url.startswith(("sqlite:", "file:")):
        return {"notes": ["Pub/Sub does not count, and its ledger is a file inside the pods: depth cannot be seen"]}
    from stayfast.batch.queue.pubsub_ledger import ledger_depth, open_ledger
    from stayfast.batch.sink.open_sink import open_sink

    sink = open_sink(sink_url, create=False)
    ledger = open_ledger(sink_url, unquote(urlsplit(url).path).strip("/"))
    try:
        is_database = sink_url.startswith("postgres")
        depth = ledger_depth(ledger, sink.missing, most=None if is_database else MOST_OBJECTS)
    finally:
        ledger.close()
        sink.close()
    if depth is None:
        note = f"the queue has more than {MOST_OBJECTS} items in a bucket; count them with: stayfast queue status"
        return {"notes": [note]}
    return {"queue": asdict(depth)}


class CheckpointAges:
    """Ages of the newest checkpoints, read now and then: one request per running run."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], CheckpointAge] = {}
        self._read_at = -READ_AGAIN_SECONDS

    def __call__(self, rows: list[RunSummary], now: float) -> Mapping[tuple[str, str], CheckpointAge]:
        if now - self._read_at >= READ_AGAIN_SECONDS:
            self._read_at = now
            self._known = {}
            for row in [row for row in rows if row.phase is Phase.RUNNING and row.run_url][:100]:
                found = self._read(str(row.run_url), now)
                if found is not None:
                    self._known[row.namespace, row.run] = found
        return self._known

    @staticmethod
    def _read(url: str, now: float) -> CheckpointAge | None:
        if not _is_in_bucket(url):
            return None
        try:
            head = _read_head(url)
            moments = [from_rfc3339(item.committed_at) for item in head.checkpoints] if head else []
        except (StayfastError, ValueError):
            return None  # a bucket that does not answer is no news about the run
        if not moments:
            return None
        gaps = sorted(left - right for left, right in pairwise(moments))
        interval = gaps[len(gaps) // 2] if gaps else 1800.0
        return CheckpointAge(max(0.0, now - moments[0]), max(30.0, interval))
