"""From saved ranks to the tensors that DCP's load planner asks for: for ``sharded`` and for the reader."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, LoadPlanner

from stayfast.errors import CorruptError
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState


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
