"""Items out of payloads, and the task run on a chunk of them.

Every item ends as a result or as a failure of its own, never of its neighbours.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from stayfast.batch.queue.protocol import Failure, Lease
from stayfast.batch.sink.encoding import encode_result, encode_results
from stayfast.batch.sink.protocol import Result
from stayfast.batch.worker.task import Failed, Task, TaskResultError, check_result_is_value, check_results
from stayfast.errors import Interrupted, SinkError, StayfastError, UsageError
from stayfast.model.exit_codes import FAILED

_LONGEST_REASON = 8000
_FAILED = (Failed, BaseException)
# Between two payloads that are read as one text: nobody can write it, so nobody's brackets reach across.
_SEPARATOR = os.urandom(16).hex()
_BETWEEN = f',"{_SEPARATOR}",'


class LeasedItem(NamedTuple):
    """A lease and the item it stands for."""

    lease: Lease
    item: Any


class ChunkResult(NamedTuple):
    """What became of some items: to record and acknowledge, or to count as failed."""

    results: list[Result]
    leases: list[Lease]  # of the results, in the same order
    failures: list[Failure]


def decode_items(task: Task, leases: Sequence[Lease]) -> tuple[list[LeasedItem], list[Failure]]:
    """Items from payloads, each by itself; one that cannot be read, or is not what its key says, dies alone."""
    items = _decode_all([lease.payload for lease in leases]) if task.key is None else None
    if items is not None:
        return list(map(LeasedItem, leases, items)), []
    work, failures = [], []
    for lease in leases:
        problem, item = _decode_one(task, lease)
        if problem is None:
            work.append(LeasedItem(lease, item))
        else:
            failures.append(Failure(lease, problem, final=True))
    return work, failures


def _decode_all(payloads: list[str]) -> list[Any] | None:
    """All in one go, at half the price; None when one of them is not JSON, and each has to be looked at."""
    try:
        found = json.loads(f"[{_BETWEEN.join(payloads)}]")
    except (ValueError, RecursionError):
        return None
    whole = len(found) == 2 * len(payloads) - 1 and all(seam == _SEPARATOR for seam in found[1::2])
    return found[::2] if whole else None


def _decode_one(task: Task, lease: Lease) -> tuple[str | None, Any]:
    try:
        item = json.loads(lease.payload)
    except (ValueError, RecursionError) as error:
        return f"the payload is not JSON: {error}", None
    if task.key is not None:
        try:
            key = task.key(item)
        except Exception as error:  # noqa: BLE001 - user code; told in the dead-letter
            return f"the key function failed: {type(error).__name__}: {error}", None
        if key != lease.key:
            return f"the item was enqueued as {lease.key!r}, and the task's key function says {key!r}", None
    return None, item


def run_task(
    task: Task, chunk: Sequence[LeasedItem], stop: Callable[[], bool]
) -> tuple[ChunkResult, Sequence[LeasedItem]]:
    """Run the task; returns what was settled and the items not begun because of ``stop``."""
    settled = ChunkResult([], [], [])
    if not task.each:
        _run_chunk(task, chunk, settled, stop)
        return settled, ()
    for index, work in enumerate(chunk):
        if stop():
            return settled, chunk[index:]
        try:
            _collect_results(settled, (work,), (_run(task, work.item),), task.name)
        except TaskResultError:
            raise
        except BaseException as error:  # noqa: BLE001 - user code; told in the dead-letter
            if isinstance(error, Interrupted) and stop():
                return settled, chunk[index:]
            settled.failures.append(Failure(work.lease, failure_reason(error)))
    return settled, ()


def _run_chunk(task: Task, chunk: Sequence[LeasedItem], settled: ChunkResult, stop: Callable[[], bool]) -> None:
    """The whole chunk at once; when that fails, one by one, so that only the guilty fail."""
    try:
        given = check_results(_run(task, [work.item for work in chunk]), len(chunk), task.name)
    except TaskResultError:
        raise
    except BaseException as error:
        if isinstance(error, Interrupted) and stop():  # without a notice it is an error like any other
            raise
        if len(chunk) == 1:
            settled.failures.append(Failure(chunk[0].lease, failure_reason(error)))
            return
        for work in chunk:
            _run_chunk(task, [work], settled, stop)
        return
    _collect_results(settled, chunk, given, task.name)


def _run(task: Task, argument: Any) -> Any:
    """The user's function; a process that it forked and forgot ends here, before it touches what is its parent's."""
    home = os.getpid()
    try:
        return task.function(argument)
    finally:
        if os.getpid() != home:
            os._exit(FAILED)


def _collect_results(settled: ChunkResult, chunk: Sequence[LeasedItem], given: Sequence[Any], name: str) -> None:
    results, leases, failures = settled
    texts = encode_results(given)
    if texts is not None:
        for (lease, _), text in zip(chunk, texts, strict=True):
            results.append(Result(lease.key, text, lease.generation))
            leases.append(lease)
        return
    for (lease, _), value in zip(chunk, given, strict=True):
        if isinstance(value, _FAILED):
            failures.append(_failure(lease, value))
            continue
        try:
            payload = encode_result(value)
        except SinkError as error:
            check_result_is_value(value, name)
            failures.append(Failure(lease, str(error)))
            continue
        results.append(Result(lease.key, payload, lease.generation))
        leases.append(lease)


def _failure(lease: Lease, value: Failed | BaseException) -> Failure:
    if isinstance(value, Failed):
        return Failure(lease, value.reason[:_LONGEST_REASON], final=not value.retry)
    return Failure(lease, failure_reason(value))


def failure_reason(error: BaseException) -> str:
    """The traceback, its end kept when it is long."""
    if isinstance(error, StayfastError) and isinstance(error, UsageError):
        return str(error)
    text = "".join(traceback.format_exception(error))
    return text if len(text) <= _LONGEST_REASON else "…" + text[-_LONGEST_REASON:]
