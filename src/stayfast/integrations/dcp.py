"""``torch.distributed.checkpoint`` on stayfast's stores: sharded state with checksums and an atomic commit.

In a run, track the state; every rank saves its own shards and any number of ranks may resume::

    run.track(state=sharded(model, optimizer))

Without a run, hand DCP a writer and a reader::

    dcp.save(state, storage_writer=StayfastWriter("gs://bucket/run", step=1000))
    dcp.load(state, storage_reader=StayfastReader("gs://bucket/run"))

Each rank's items become parts of their own under ``checkpoints/<step>-<attempt>/rank-NNNNN``, raw and checksummed. The
checkpoint's own folder holds DCP's ``.metadata``, a pickle that DCP makes and reads itself; it is handed to DCP only
after its bytes matched the sha256 that the commit record ties down. Nothing exists before the one replace of
``HEAD.json`` that commits it all, so a save that dies leaves the checkpoint before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

from stayfast.clock import SystemClock
from stayfast.errors import FormatError, StayfastError, UsageError
from stayfast.integrations.dcp_items import (
    SavedItemLocation,
    number_leaves,
    pickle_by_dcp,
    read_items,
    resolve_items,
    unpickle_by_dcp,
)
from stayfast.integrations.dcp_sharded import sharded
from stayfast.model.exit_codes import Outcome
from stayfast.runtime.checkpoint.checkpointer import Checkpointer, default_threads
from stayfast.runtime.checkpoint.cleanup import run_cleanup
from stayfast.runtime.checkpoint.inventory import SHA256
from stayfast.runtime.checkpoint.policies import KeepLast, Retention, apply_retention
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState
from stayfast.runtime.checkpoint.writer import DurableSnapshot
from stayfast.runtime.run_record.owner import RecordOwner
from stayfast.runtime.run_record.read import read_record
from stayfast.runtime.run_record.record import AttemptRecord, CheckpointRecord
from stayfast.storage.stores.open_store import open_store

__all__ = ["StayfastReader", "StayfastWriter", "sharded"]

ITEMS = "dcp_items"
METADATA = "dcp_metadata"


class StayfastWriter(StorageWriter):  # type: ignore[misc]  # torch has no types when it is not installed
    """Saves through DCP into a stayfast store; one writer claims the place once, however often it saves."""

    def __init__(self, url: str, *, step: int = 0, retention: Retention | None = None) -> None:
        self.url = url
        self.step = step
        self._retention = retention or KeepLast(2)
        self._clock = SystemClock()
        self._store = open_store(url)
        self._ledger: RecordOwner | None = None

    def save(self, state: dict[str, Any], *, step: int, **options: Any) -> None:
        """``dcp.save`` at a step; what one of the ranks found wrong comes out as stayfast's own error."""
        self.step = step
        with _plain_errors():
            dcp.save(state, storage_writer=self, **options)

    # -- what DCP calls

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """DCP's ``checkpoint_id`` is the step."""
        if checkpoint_id is not None:
            self.step = _step(checkpoint_id)

    def set_up_storage_writer(self, is_coordinator: bool, *_args: Any, **kwargs: Any) -> None:  # noqa: ARG002
        if not kwargs.get("use_collectives", True):
            raise UsageError("saving without collectives leaves nobody to commit", help="use use_collectives=True")
        if self.step < 0:
            raise UsageError(f"step={self.step} is negative")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """The coordinator claims the place and tells every rank where its part goes; ranks without items have none."""
        attempt = self._claim()
        parts = iter(range(1, len(plans) + 1))
        return [replace(plan, storage_data=(attempt, self.step, next(parts)) if plan.items else None) for plan in plans]

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        results: list[WriteResult] = []
        if plan.items:
            if not isinstance(plan.storage_data, tuple):
                raise UsageError("the plan says no place to write to", help="use a planner without plan caching")
            attempt, step, part = plan.storage_data
            items, digests = resolve_items(plan, planner)
            leaves = number_leaves(ITEMS, items)
            saved = self._persist({ITEMS: items}, attempt, step, part)
            for item, tensor, leaf, sha256 in zip(plan.items, items, leaves, digests, strict=True):
                place = (part, leaf, sha256, saved.inventory_sha256, saved.size)
                results.append(WriteResult(item.index, tensor.nbytes, place))
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """Every rank's part is durable: store the metadata, then commit all of it with one replace."""
        ledger = self._ledger
        assert ledger is not None, "DCP finishes on the rank that planned"
        attempt = ledger.head.attempt
        parts: dict[int, tuple[str, int]] = {}
        for result in [item for rank in results for item in rank]:
            part, _, _, sha256, size = result.storage_data
            parts[part] = (sha256, size)
        places = [[replace(item, storage_data=item.storage_data[:3]) for item in rank] for rank in results]
        data = pickle_by_dcp(metadata, places)
        whole = torch.frombuffer(bytearray(data), dtype=torch.uint8)
        saved = self._persist({METADATA: whole}, attempt, self.step, 0, algorithm=SHA256)
        committed = CheckpointRecord(
            step=self.step,
            attempt=attempt,
            committed_at=ledger.timestamp(),
            size=saved.size,
            inventory_sha256=saved.inventory_sha256,
            others=tuple(parts[number] for number in sorted(parts)),
        )
        # Each save ends the attempt on record: nobody knows whether this writer will be heard of again.
        ledger.commit(
            committed,
            keep=lambda found: apply_retention(self._retention, found),
            outcome=Outcome.FINISHED,
            ended_at=ledger.timestamp(),
        )
        run_cleanup(self._store, self._clock, attempt)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()

    # -- inside

    def _claim(self) -> int:
        """Once per writer; whoever wrote here before can commit no more."""
        if self._ledger is None:
            ledger = RecordOwner(self._store, self.url, clock=self._clock)
            ledger.claim(AttemptRecord(attempt=0, started_at=ledger.timestamp()))
            self._ledger = ledger
        else:
            self._ledger.update_attempt(outcome=None, ended_at=None)  # alive: pruning leaves its unfinished save alone
        return self._ledger.head.attempt

    def _persist(
        self, state: dict[str, Any], attempt: int, step: int, part: int, *, algorithm: str | None = None
    ) -> DurableSnapshot:
        engine = Checkpointer(self._store, buffers=1, rank=part, algorithm=algorithm)
        try:
            return engine.persist(engine.snapshot(step, state), attempt)
        finally:
            engine.close()


class StayfastReader(StorageReader):  # type: ignore[misc]  # torch has no types when it is not installed
    """Loads through DCP what a ``StayfastWriter`` has committed: the newest, or the one of a step."""

    def __init__(self, url: str, *, step: int | None = None) -> None:
        self.url = url
        self.step = step
        self._store = open_store(url)
        self._chosen: CheckpointRecord | None = None
        self._places: dict[Any, SavedItemLocation] = {}
        self._problem: StayfastError | None = None

    def load(self, state: dict[str, Any], **options: Any) -> None:
        """``dcp.load``; what one of the ranks found wrong comes out as stayfast's own error."""
        with _plain_errors():
            dcp.load(state, storage_reader=self, **options)

    # -- what DCP calls

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """DCP's ``checkpoint_id`` is the step."""
        if checkpoint_id is not None:
            self.step = _step(checkpoint_id)

    def read_metadata(self) -> Metadata:
        """DCP's own metadata, unpickled by DCP after its sha256 matched."""
        try:
            self._problem = None
            return unpickle_by_dcp(self._metadata())
        except StayfastError as error:
            # DCP would turn it into "metadata is None"; kept for the next call, which passes errors on as they are.
            self._problem = error
            return Metadata({})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool) -> None:  # noqa: ARG002
        if self._problem is not None:
            raise self._problem
        self._places = {}
        for index, (part, leaf, sha256) in metadata.storage_data.items():
            self._places[index] = SavedItemLocation(part, leaf, sha256)

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        rows = self._committed().ranks
        with _threads() as threads:
            read_items(plan, planner, self._places, lambda part: SavedRankState(self._store, rows[part], threads))
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return str(checkpoint_id).isdecimal()

    # -- inside

    def _metadata(self) -> bytes:
        """The bytes of DCP's metadata, once they have matched."""
        self._chosen = None
        committed = self._committed()
        with _threads() as threads:
            first = SavedRankState(self._store, committed, threads)
            if METADATA not in first.names or first.inventory.algorithm != SHA256:
                raise FormatError(
                    f"checkpoint {committed.name} in {self.url} was not saved by a StayfastWriter",
                    help="restore it with stayfast.run and the objects that were tracked when it was saved",
                )
            return bytes(first.load_object(METADATA).numpy())

    def _committed(self) -> CheckpointRecord:
        """Looked up once per load: a save that commits meanwhile changes nothing."""
        if self._chosen is None:
            head = read_record(self._store, SystemClock())
            found = [] if head is None else [row for row in head.checkpoints if self.step in (None, row.step)]
            if not found:
                what = "no checkpoint" if self.step is None else f"no checkpoint of step {self.step}"
                raise UsageError(f"{what} is committed in {self.url}", help="stayfast checkpoints ls URL lists them")
            self._chosen = found[0]
        return self._chosen


def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(default_threads(), thread_name_prefix="stayfast-dcp")


def _step(checkpoint_id: str | os.PathLike[str]) -> int:
    text = os.fspath(checkpoint_id)
    if not text.isdecimal():
        raise UsageError(
            f"the checkpoint_id {text!r} is not a step", help="give the step as digits; the URL says where"
        )
    return int(text)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """DCP wraps what a rank raised and names all ranks; one of ours says it better."""
    try:
        yield
    except CheckpointException as error:
        for found, _ in error.failures.values():
            if isinstance(found, StayfastError):
                raise found from error
        raise
