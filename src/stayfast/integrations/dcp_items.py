"""DCP's items as tensors to store and back, and DCP's metadata, pickled and unpickled by DCP alone."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.filesystem import FileSystemBase
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import (
    LoadItemType,
    LoadPlan,
    LoadPlanner,
    SavePlan,
    SavePlanner,
    WriteItemType,
)
from torch.distributed.checkpoint.storage import WriteResult

from stayfast.errors import CorruptError
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState
from stayfast.runtime.state.encoding import encode


def resolve_items(plan: SavePlan, planner: SavePlanner) -> tuple[list[Any], list[str | None]]:
    """Every item as a plain tensor, and for opaque bytes (which a load unpickles) their sha256."""
    items: list[Any] = []
    digests: list[str | None] = []
    for item in plan.items:
        data = planner.resolve_data(item)
        if item.type == WriteItemType.BYTE_IO:
            raw = bytearray(data.getbuffer())
            digests.append(hashlib.sha256(raw).hexdigest())
            items.append(torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8))
        else:
            digests.append(None)
            items.append(data.detach())
    return items, digests


def number_leaves(name: str, items: list[Any]) -> list[int]:
    """Which leaf each item becomes: tied weights are one leaf under two names."""
    rows = json.loads(encode({name: items}).tree)["map"][name]
    return [row["tensor"] for row in rows]


class _InMemoryFile(FileSystemBase):  # type: ignore[misc]  # torch has no types when it is not installed
    """One file in memory, for the two functions of DCP that insist on a file."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = data

    @contextmanager
    def create_stream(self, _path: Any, mode: str) -> Iterator[io.BytesIO]:
        stream = io.BytesIO() if "w" in mode else io.BytesIO(self.data)
        yield stream
        self.data = stream.getvalue()

    def concat_path(self, _path: Any, suffix: str) -> str:
        return suffix

    def rename(self, path: Any, new_path: Any) -> None: ...

    def init_path(self, path: Any) -> Any:
        return path

    def mkdir(self, path: Any) -> None: ...

    @classmethod
    def validate_checkpoint_id(cls, _checkpoint_id: Any) -> bool:
        return False

    def exists(self, _path: Any) -> bool:
        return False

    def rm_file(self, path: Any) -> None: ...


def pickle_by_dcp(metadata: Metadata, results: list[list[WriteResult]]) -> bytes:
    """DCP's ``.metadata``, made by DCP's own file writer."""
    writer = FileSystemWriter("memory", sync_files=False)
    writer.fs = box = _InMemoryFile()
    writer.finish(metadata, results)
    return box.data


def unpickle_by_dcp(data: bytes) -> Metadata:
    """The inverse. It runs what the pickle says: call it with bytes that have been verified, and with no others."""
    reader = FileSystemReader("memory")
    reader.fs = _InMemoryFile(data)
    return reader.read_metadata()


@dataclass(frozen=True, slots=True)
class SavedItemLocation:
    """Where one item of a plan lies: which rank's part, which leaf of it, and for opaque bytes their sha256."""

    rank: int
    leaf: int
    sha256: str | None = None


def read_items(
    plan: LoadPlan, planner: LoadPlanner, places: Mapping[Any, SavedItemLocation], rank: Callable[[int], SavedRankState]
) -> None:
    """Read what the plan wants, one saved rank after the other, and hand it to the planner.

    Nothing is handed over before the chunks it lies in have matched their checksums; opaque bytes, which the planner
    may unpickle, must match their sha256 as well.
    """
    by_rank: dict[int, list[tuple[Any, SavedItemLocation]]] = {}
    for item in plan.items:
        place = places[item.storage_index]
        by_rank.setdefault(place.rank, []).append((item, place))
    for number, wanted in sorted(by_rank.items()):
        source = rank(number)
        source.read_leaves({place.leaf for _, place in wanted})
        for item, place in wanted:
            value = source.read_leaf(place.leaf)
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, io.BytesIO(_verified(value, place, source)))
            else:
                _fill(planner, item, value)


def _fill(planner: LoadPlanner, item: Any, value: Any) -> None:
    part = narrow_tensor_by_index(value, item.storage_offsets, item.lengths)
    target = planner.resolve_tensor(item).detach()
    if target.size() != part.size():
        raise CorruptError(
            f"{item.storage_index.fqn}: {list(part.size())} is stored where {list(target.size())} belongs"
        )
    target.copy_(part)
    planner.commit_tensor(item, target)


def _verified(value: Any, place: SavedItemLocation, source: SavedRankState) -> bytes:
    data = value.numpy().tobytes() if isinstance(value, torch.Tensor) else bytes(value)
    if hashlib.sha256(data).hexdigest() != place.sha256:
        raise CorruptError(f"{source.inventory.entries[place.leaf].name} of {source.key} does not match its sha256")
    return data
