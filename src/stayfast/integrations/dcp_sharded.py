"""FSDP2, tensor-parallel and replicated state as one tracked thing that fits any number of ranks.

Every rank saves the shards it holds, with their place in the whole, and nothing is agreed while saving: no collective,
no gathering, the run's own snapshot and commit. On restore the saved ranks' outlines together make the metadata that
DCP's load planner needs, and that planner finds out which slices of which shards this rank wants. Values that are no
tensors go through stayfast's own encoding: no pickle is involved.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.state_dict import (
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from stayfast.errors import CorruptError, FormatError, UsageError
from stayfast.integrations.dcp_items import SavedItemLocation, read_items
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState, UnreadTensor
from stayfast.runtime.state.torch_tensors import torch_dtype
from stayfast.runtime.state.tracked_state import raise_mismatches

log = logging.getLogger("stayfast")

FORMAT = 1
MODEL, OPTIMIZER = "model", "optimizer"


class Sharded:
    """A model and, optionally, its optimizers; ``run.track(state=sharded(model, optimizer))``."""

    def __init__(self, model: Any, *optimizers: Any) -> None:
        if not isinstance(model, torch.nn.Module):
            raise UsageError(f"sharded() wants a torch module first, not a {type(model).__name__}")
        for optimizer in optimizers:
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise UsageError(f"sharded() wants optimizers after the model, not a {type(optimizer).__name__}")
        self._model = model
        self._optimizers = optimizers

    # -- saving

    def state_dict(self) -> dict[str, Any]:
        """What this rank holds: its shards with their offsets, and on rank 0 everything that is the same everywhere."""
        tensors, values = self._flat()
        leads = not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0
        copies = _copies(tensors.values())
        shards = [row for name, tensor in tensors.items() if (row := _shard(name, tensor, leads, copies)) is not None]
        return {"format": FORMAT, "shards": shards, "values": values if leads else {}}

    def load_state_dict(self, _state: dict[str, Any]) -> None:
        """Never called by a run: shards of one rank alone are not the state."""
        raise UsageError("sharded state is restored from all ranks at once", help="track it in stayfast.run")

    def _flat(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Tensors and other values by name; the tensors are the live ones, not copies."""
        tensors: dict[str, Any] = {}
        values: dict[str, Any] = {}
        for key, value in get_model_state_dict(self._model).items():
            (tensors if isinstance(value, torch.Tensor) else values)[f"{MODEL}:{key}"] = value
        for number, optimizer in enumerate(self._optimizers):
            fresh = not optimizer.state
            state = get_optimizer_state_dict(self._model, optimizer)
            if fresh:  # torch fills an empty state by a step that changes nothing; what we save must not know of it
                optimizer.state.clear()
                state = {**state, "state": {}}
            for parameter, row in state["state"].items():
                for key, value in row.items():
                    kind = tensors if isinstance(value, torch.Tensor) else values
                    kind[f"{OPTIMIZER}{number}:{parameter}:{key}"] = value
            values[f"{OPTIMIZER}{number}"] = state["param_groups"]
        return tensors, values

    # -- restoring

    def load_ranks(self, name: str, ranks: Sequence[SavedRankState]) -> None:
        """Load from what all ranks have saved under this name, however many they were."""
        outlines = [rank.structure(name) for rank in ranks]
        merged = _merge(outlines, [rank.key for rank in ranks])
        saved, values = merged.saved, merged.values
        wants = [any(key.startswith(f"{OPTIMIZER}{n}:") for key in saved) for n in range(len(self._optimizers))]
        for optimizer, wanted in zip(self._optimizers, wants, strict=True):
            if wanted:
                get_optimizer_state_dict(self._model, optimizer)  # fills an empty state, so that there is a place
        tensors, here = self._flat()
        untouched = {key for key in tensors if key not in saved and not key.startswith(f"{MODEL}:")}
        raise_mismatches(
            _differences(name, saved, {k: v for k, v in tensors.items() if k not in untouched}, values, here)
        )
        targets = {key: value for key, value in tensors.items() if key in saved}
        planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
        planner.set_up_planner(targets, Metadata(saved), is_coordinator=False)
        plan = planner.create_local_plan()
        read_items(plan, planner, merged.places, ranks.__getitem__)
        _compare_copies({item.storage_index for item in plan.items}, merged, ranks)
        self._set(tensors, values, untouched)

    def _set(self, tensors: dict[str, Any], values: dict[str, Any], untouched: set[str]) -> None:
        both = {**tensors, **values}
        prefix = f"{MODEL}:"
        set_model_state_dict(self._model, {k.removeprefix(prefix): v for k, v in both.items() if k.startswith(prefix)})
        for number, optimizer in enumerate(self._optimizers):
            prefix = f"{OPTIMIZER}{number}:"
            state: dict[str, dict[str, Any]] = {}
            for key, value in both.items():
                if key.startswith(prefix):
                    parameter, _, entry = key.removeprefix(prefix).rpartition(":")
                    state.setdefault(parameter, {})[entry] = value
            groups = values[f"{OPTIMIZER}{number}"]
            if state:
                set_optimizer_state_dict(self._model, optimizer, {"state": state, "param_groups": groups})
            else:
                optimizer.state.clear()
                for now, old in zip(optimizer.param_groups, groups, strict=True):
                    now.update({key: value for key, value in old.items() if key != "params"})
            _forget(self._model, optimizer, {key.split(":")[1] for key in untouched if key.startswith(prefix)})


def sharded(model: Any, *optimizers: Any) -> Sharded:
    """FSDP2, tensor-parallel or plain modules and their optimizers, as one thing for ``run.track``.

    ``run.track(state=sharded(model, optimizer))`` saves each rank's shards with the run's own engine and restores them
    on any number of ranks.
    """
    return Sharded(model, *optimizers)


def _copies(tensors: Iterable[Any]) -> set[Any]:
    """The meshes whose tensors another rank saves as well, so that this rank leaves them out.

    A module outside a tensor-parallel plan lives on the data-parallel part of the mesh alone, and each column of the
    other part holds it again. The first column saves it. Dimensions that no tensor of this model uses do not count:
    along these, pipeline stages for example, other ranks hold other tensors.
    """
    used: dict[Any, tuple[Any, set[int]]] = {}
    for mesh in {tensor.device_mesh for tensor in tensors if isinstance(tensor, DTensor)}:
        if hasattr(mesh, "_get_root_mesh") and mesh.get_coordinate() is not None:
            root = mesh._get_root_mesh()
            found = torch.isin(root.mesh, mesh.mesh).nonzero()
            used[mesh] = root, set((found.amax(0) != found.amin(0)).nonzero().flatten().tolist())
    spans: dict[Any, set[int]] = {}
    for root, dimensions in used.values():
        spans.setdefault(root, set()).update(dimensions)
    return {
        mesh
        for mesh, (root, dimensions) in used.items()
        if any(root.get_coordinate()[number] != 0 for number in spans[root] - dimensions)
    }


def _shard(name: str, tensor: Any, leads: bool, copies: set[Any]) -> list[Any] | None:
    """Name, global size, offsets, and the local tensor; None where another rank saves the very same."""
    if not isinstance(tensor, DTensor):
        return [name, list(tensor.shape), [0] * tensor.dim(), tensor.detach()] if leads else None
    coordinate = tensor.device_mesh.get_coordinate()
    if coordinate is None or tensor.device_mesh in copies:
        return None
    for place, at in zip(tensor.placements, coordinate, strict=True):
        if isinstance(place, Replicate) and at != 0:
            return None
    sizes, offsets = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    if 0 in sizes and tensor.numel():
        return None  # more ranks than rows: this one has none
    return [name, list(tensor.shape), list(offsets), tensor.to_local().detach()]


@dataclass(slots=True)
class _Merged:
    """What all ranks have saved: DCP's metadata, where each shard lies, and the values of rank 0."""

    saved: dict[str, TensorStorageMetadata] = field(default_factory=dict)
    places: dict[MetadataIndex, SavedItemLocation] = field(default_factory=dict)
    copies: dict[MetadataIndex, list[SavedItemLocation]] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


def _merge(outlines: Iterable[Any], keys: Sequence[str]) -> _Merged:
    """All ranks' shards as one state. Of shards with the same place and size, the first one counts."""
    merged = _Merged()
    sizes: dict[MetadataIndex, tuple[int, ...]] = {}
    for rank, outline in enumerate(outlines):
        if not isinstance(outline, Mapping) or outline.get("format") != FORMAT:
            raise FormatError(
                f"{keys[rank]} was not saved by sharded()", help="track what was tracked when it was saved"
            )
        for name, size, offsets, leaf in outline["shards"]:
            if not isinstance(leaf, UnreadTensor) or len(offsets) != len(size) or len(leaf.shape) != len(size):
                raise CorruptError(f"{keys[rank]} holds a shard of {str(name)[:80]} that is none")
            properties = TensorProperties(dtype=torch_dtype(torch, leaf.dtype))
            row = merged.saved.setdefault(name, TensorStorageMetadata(properties, torch.Size(size), []))
            index = MetadataIndex(name, torch.Size(offsets))
            if sizes.setdefault(index, leaf.shape) != leaf.shape:
                raise CorruptError(f"{name}: two ranks saved shards of different sizes at {list(offsets)}")
            if index in merged.places:
                merged.copies.setdefault(index, []).append(SavedItemLocation(rank, leaf.number))
                continue
            merged.places[index] = SavedItemLocation(rank, leaf.number)
            row.chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(leaf.shape)))
        merged.values.update(outline["values"])
    for name, row in merged.saved.items():
        _check_cover(name, row)
    return merged


def _check_cover(name: str, row: TensorStorageMetadata) -> None:
    """The shards cover the tensor, and none lies over another."""
    covered = sum(chunk.sizes.numel() for chunk in row.chunks)
    if covered != row.size.numel():
        raise CorruptError(f"{name}: the shards of all ranks hold {covered} of {row.size.numel()} numbers")
    before: list[ChunkStorageMetadata] = []
    for chunk in sorted(row.chunks, key=lambda chunk: tuple(chunk.offsets)):
        ends = [at + size for at, size in zip(chunk.offsets, chunk.sizes, strict=True)]
        if any(end > size for end, size in zip(ends, row.size, strict=True)):
            raise CorruptError(f"{name}: a shard at {list(chunk.offsets)} is larger than the tensor {list(row.size)}")
        before = [one for one in before if not one.offsets or one.offsets[0] + one.sizes[0] > chunk.offsets[0]]
        if any(_overlap(one, chunk) for one in before):
            raise CorruptError(f"{name}: the shard at {list(chunk.offsets)} lies over another one")
        before.append(chunk)


def _overlap(one: ChunkStorageMetadata, other: ChunkStorageMetadata) -> bool:
    return all(
        max(a, b) < min(a + size, b + length)
        for a, size, b, length in zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    )


def _compare_copies(wanted: set[MetadataIndex], merged: _Merged, ranks: Sequence[SavedRankState]) -> None:
    """Log the shards that several ranks saved with different content; this rank looks at those that it reads."""
    names = set()
    for index in sorted(wanted & merged.copies.keys(), key=str):
        kept = merged.places[index]
        ours = ranks[kept.rank].read_leaf(kept.leaf)
        if any(not _same_bits(ours, ranks[copy.rank].read_leaf(copy.leaf)) for copy in merged.copies[index]):
            names.add(index.fqn)
    if names:
        log.warning(
            "ranks have saved different copies of %s; the copy of the first rank is used",
            ", ".join(sorted(names)),
            extra={"action": "copies_differ"},
        )


def _same_bits(one: Any, other: Any) -> bool:
    return bool(one.dtype == other.dtype and torch.equal(_bits(one), _bits(other)))


def _bits(tensor: Any) -> Any:
    return tensor.contiguous().flatten().view(torch.uint8)


def _differences(
    name: str, saved: Mapping[str, Any], tensors: Mapping[str, Any], values: Mapping[str, Any], here: Mapping[str, Any]
) -> list[str]:
    """Everything that does not fit, before anything is loaded."""
    problems = [f"{name}.{key}: missing in the checkpoint" for key in tensors if key not in saved]
    problems += [f"{name}.{key}: in the checkpoint only" for key in saved if key not in tensors]
    problems += [f"{name}.{key}: missing in the checkpoint" for key in here if key not in values]
    for key, tensor in tensors.items():
        old = saved.get(key)
        if old is not None and old.size != tensor.size():
            problems.append(f"{name}.{key}: shape {list(old.size)} in the checkpoint, {list(tensor.size())} here")
        elif old is not None and old.properties.dtype != tensor.dtype:
            problems.append(f"{name}.{key}: dtype {old.properties.dtype} in the checkpoint, {tensor.dtype} here")
    return problems


def _forget(model: Any, optimizer: Any, parameters: set[str]) -> None:
    """Parameters that never had a gradient have no state in the checkpoint, and must have none here."""
    for name, parameter in model.named_parameters():
        if name in parameters:
            optimizer.state.pop(parameter, None)
