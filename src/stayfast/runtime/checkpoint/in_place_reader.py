"""Restoring into tensors that exist: each chunk is read, verified, and only then copied to where it belongs.

A few chunk-sized buffers are all the host memory this takes. With a GPU they are pinned and the copies to the device
run on a stream of their own, while the next chunks are read and verified.
"""

from __future__ import annotations

import ctypes
import sys
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stayfast.errors import CorruptError, EncodingError
from stayfast.runtime.checkpoint.cuda_copies import pin_function
from stayfast.runtime.checkpoint.inventory import Inventory, InventoryEntry
from stayfast.runtime.checkpoint.reader import chunk_length, chunks_of, part_starts, read_chunk, wait_all_or_cancel
from stayfast.runtime.checkpoint.snapshot import map_pages
from stayfast.runtime.state.decoding import decode
from stayfast.runtime.state.encoding import encode, name_leaves
from stayfast.runtime.state.frameworks import build_leaf
from stayfast.runtime.state.leaf import check_size
from stayfast.runtime.state.torch_tensors import torch_dtype
from stayfast.storage.stores.protocol import Store

Piece = tuple[int, int, int]
"""Entry number, its first byte in the whole, and its end."""
READERS = 10
"""More of them only fight over memory bandwidth and the interpreter: half as fast with 16 on a 16-core machine."""


class RestoreTarget:
    """Where the bytes of one entry go: host memory by address, or a device tensor seen as bytes."""

    def __init__(self, value: Any, address: int | None, flat: Any = None) -> None:
        self.value, self.address, self.flat = value, address, flat


def restore_targets(inventory: Inventory, into: Mapping[str, Any] | None, torch: Any) -> list[RestoreTarget]:
    """An existing tensor where ``into`` has one of the same name, dtype and shape; fresh memory otherwise."""
    existing = _existing(into)
    found: list[RestoreTarget] = []
    fresh: list[tuple[int, int]] = []
    total = 0
    for entry in inventory.entries:
        value = existing.get((entry.name, entry.dtype, entry.shape))
        if value is not None and entry.length:
            found.append(_target_over(torch, value))
        elif entry.device.startswith("cuda") and torch is not None and torch.cuda.is_available() and entry.length:
            found.append(_target_over(torch, _on_device(torch, entry)))
        else:
            fresh.append((len(found), total))
            found.append(RestoreTarget(None, None))
            total += -(-entry.length // 64) * 64
    _, memory, address = map_pages(max(total, 1))
    for number, place in fresh:
        entry = inventory.entries[number]
        view = memory[place : place + entry.length]
        is_raw = entry.dtype in ("json", "bytes")  # made of these bytes once they are there
        value = view if is_raw else build_leaf(entry.dtype, entry.shape, view)
        found[number] = RestoreTarget(value, address + place)
    return found


def _existing(into: Mapping[str, Any] | None) -> dict[tuple[str, str, tuple[int, ...]], Any]:
    if not into:
        return {}
    try:
        leaves = encode(into).leaves
        name_leaves(leaves)
    except EncodingError:
        return {}  # what is there now cannot be told apart: restore beside it
    return {
        (leaf.name, leaf.dtype, leaf.shape): leaf.value
        for leaf in leaves
        if leaf.dtype.startswith("torch:") and leaf.value.is_contiguous()
    }


def _target_over(torch: Any, tensor: Any) -> RestoreTarget:
    if tensor.device.type == "cpu":
        return RestoreTarget(tensor, tensor.data_ptr())
    return RestoreTarget(tensor, None, tensor.detach().reshape(-1).view(torch.uint8))


def _on_device(torch: Any, entry: InventoryEntry) -> Any:
    dtype = torch_dtype(torch, entry.dtype.partition(":")[2])
    check_size(entry.shape, dtype.itemsize, entry.length)
    index = entry.device.partition(":")[2]
    same = index.isdecimal() and int(index) < torch.cuda.device_count()
    return torch.empty(entry.shape, dtype=dtype, device=entry.device if same else "cuda")


CopyRange = tuple[RestoreTarget, int, int, int]
"""Where to, at which of its bytes, from which byte of the chunk, how many."""


class ReadBuffer:
    """One reader's buffer, pinned where there is a GPU, and its streams to the devices.

    Each reader makes its own: pinning is slow, and this way the others read meanwhile. It belongs to one thread, whose
    current stream it sets and never sets back.
    """

    def __init__(self, length: int, torch: Any) -> None:
        _, self.view, self._address = map_pages(length)
        self._torch, self._device = torch, -1
        self._streams: dict[int, tuple[Any, Any]] = {}
        self._unpin: Callable[[], None] | None = None
        if torch is not None:
            self._unpin = pin_function(torch)(self._address, length)
            self._flat = torch.frombuffer(self.view, dtype=torch.uint8)

    def wait(self) -> None:
        """Until the copies out of this buffer have landed."""
        for _, event in self._streams.values():
            event.synchronize()

    def copy_out(self, moves: list[CopyRange]) -> None:
        """Start the copies to where the bytes belong; nothing more, as the interpreter is what many readers lack."""
        used: set[int] = set()
        for target, at, start, length in moves:
            if target.flat is None:
                assert target.address is not None
                ctypes.memmove(target.address + at, self._address + start, length)
                continue
            device = target.flat.device.index
            if device != self._device:
                self._switch(device)
            target.flat[at : at + length].copy_(self._flat[start : start + length], non_blocking=True)
            used.add(device)
        for device in used:
            stream, event = self._streams[device]
            event.record(stream)

    def _switch(self, device: int) -> None:
        if device not in self._streams:
            self._streams[device] = (self._torch.cuda.Stream(device), self._torch.cuda.Event())
        self._torch.cuda.set_stream(self._streams[device][0])
        self._device = device

    def free(self) -> None:
        """Wait for the copies and give the memory back."""
        for stream, _ in self._streams.values():
            stream.synchronize()
        if self._unpin is not None:
            self._unpin()


def restore_in_place(
    store: Store, inventory: Inventory, into: Mapping[str, Any] | None, threads: int
) -> dict[str, Any]:
    """The state, with the tensors of ``into`` in it wherever they fit. They are overwritten even if a later chunk is
    damaged: the caller then restores another checkpoint over them, or gives up."""
    torch = sys.modules.get("torch")
    torch = torch if torch is not None and torch.cuda.is_available() else None
    targets = restore_targets(inventory, into, sys.modules.get("torch"))
    starts = part_starts(inventory)
    order = sorted((starts[e.part] + e.offset, n, e.length) for n, e in enumerate(inventory.entries) if e.length)
    pieces = [(number, start, start + length) for start, number, length in order]
    if torch is not None:
        torch.cuda.synchronize()  # whatever was queued on these tensors comes before what we write into them
    work = deque(_entries_by_chunk(inventory, pieces))
    length_of_slot = min(inventory.chunk_bytes, max((part.length for part in inventory.parts), default=1))

    def reader() -> None:
        slot = ReadBuffer(length_of_slot, torch)
        try:
            while work:
                try:
                    (part, number, _, place), overlapping = work.popleft()
                except IndexError:
                    break  # another reader took the last one
                length = chunk_length(inventory, part, number)
                slot.wait()
                read_chunk(store, inventory, part, number, slot.view[:length])
                moves: list[CopyRange] = []
                for which, start, end in overlapping:
                    low, high = max(start, place), min(end, place + length)
                    moves.append((targets[which], low - start, low - place, high - low))
                slot.copy_out(moves)
        except BaseException:
            work.clear()  # nobody needs the rest
            raise
        finally:
            slot.free()

    readers = min(threads, READERS, max(1, len(work)))
    with ThreadPoolExecutor(readers, thread_name_prefix="stayfast-restore") as pool:
        wait_all_or_cancel([pool.submit(reader) for _ in range(readers)])
    return _build_state(inventory, targets)


def _entries_by_chunk(inventory: Inventory, pieces: list[Piece]) -> list[tuple[Any, list[Piece]]]:
    """Each chunk with the entries that lie in it; both are in order of place."""
    result = []
    first = 0
    for row in chunks_of(inventory):
        part, number, _, place = row
        end = place + chunk_length(inventory, part, number)
        while first < len(pieces) and pieces[first][2] <= place:
            first += 1
        last = first
        while last < len(pieces) and pieces[last][1] < end:
            last += 1
        result.append((row, pieces[first:last]))
    return result


def _build_state(inventory: Inventory, targets: list[RestoreTarget]) -> dict[str, Any]:
    def fetch(number: int) -> Any:
        if not 0 <= number < len(inventory.entries) - 1:
            raise CorruptError(f"the tree refers to leaf {number}, which does not exist")
        value = targets[number].value
        return bytes(value) if inventory.entries[number].dtype == "bytes" else value

    return decode(targets[-1].value, fetch)
