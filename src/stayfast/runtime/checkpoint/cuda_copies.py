"""Snapshots of CUDA tensors: copied to pinned host memory on a side stream while training goes on.

Three kinds of waiting, and none of them on the host:

* the side stream waits for what the current stream has computed so far;
* the next ``step()`` of an optimizer we hooked waits, on the device, until the tensors it will overwrite are copied;
* tensors that no hooked optimizer owns (BatchNorm statistics change in the forward pass; captured graphs replay without
  hooks) are copied first, and the current stream waits for them before anything that comes after this call.

The threads that write parts wait on events, part by part, so that writing begins while later parts still arrive.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from typing import Any

from stayfast.runtime.checkpoint.layout import Layout
from stayfast.runtime.checkpoint.snapshot import HostBuffer
from stayfast.runtime.state.leaf import Leaf

GROUP_BYTES = 256 << 20
"""An event is recorded after this much, so that parts can be written before all have arrived."""
WORDS = 4096
ROW_BYTES = 4 * WORDS
BLOCK_ROWS = 2048
"""32 MiB are fingerprinted at a time: the products are four times as long as the words and live only for a moment."""

CopyMark = tuple[int, int, Any]
"""From which place on, on which device, and the event after which it has landed."""

UnchangedParts = dict[int, bytes | None]
"""Parts that did not change in the last save, with their fingerprints where they were taken."""


def pin_function(torch: Any) -> Callable[[int, int], Callable[[], None] | None]:
    """How to pin memory that we mapped ourselves."""

    def register(address: int, length: int) -> Callable[[], None] | None:
        runtime = torch.cuda.cudart()
        if int(runtime.cudaHostRegister(address, length, 0)) != 0:
            return None  # limits on locked memory: copies still work, through the driver's own staging
        return lambda: runtime.cudaHostUnregister(address)

    return register


class PendingCopies:
    """One snapshot's copies on their way; what it holds is kept alive until they have landed."""

    def __init__(self, layout: Layout, prints: dict[int, bytes], same: set[int]) -> None:
        self.prints, self.same = prints, same
        self.landed = False
        self._layout = layout
        self._issued = threading.Event()
        self._marks: list[CopyMark] = []
        self._error: BaseException | None = None
        self._keep: Sequence[Leaf] = ()

    def begin(self, first: list[CopyMark], copies: list[Callable[[], CopyMark]], keep: Sequence[Leaf]) -> None:
        """Issue the copies from a thread of their own, so that the caller pays for none of them."""
        self._keep = keep
        self._marks = list(first)
        threading.Thread(target=self._issue, args=(copies,), name="stayfast-copies", daemon=True).start()

    def _issue(self, copies: list[Callable[[], CopyMark]]) -> None:
        try:
            for copy in copies:
                self._marks.append(copy())
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._error = error
        finally:
            self._issued.set()

    def wait_for_part(self, part: int) -> None:
        """Block this host thread until the part has landed."""
        self._issued.wait()
        if self._error is not None:
            raise self._error
        place = self._layout.parts[part]
        end = place.start + place.length
        for start, _, event in self._marks:
            if start < end:
                event.synchronize()
        if part == len(self._layout.parts) - 1:
            self.wait_all()

    def wait_all(self) -> None:
        """Block until no copy is under way any more, whatever became of it, and let go of the tensors."""
        self._issued.wait()
        for _, _, event in self._marks:
            event.synchronize()
        self.landed = True
        for leaf in self._keep:
            leaf.value = None
        self._keep = ()

    def make_streams_wait(self, torch: Any) -> None:
        """Make the current stream of every device wait for the copies; the host goes on."""
        self._issued.wait()
        if torch.cuda.is_current_stream_capturing():
            return
        for _, device, event in self._marks:
            torch.cuda.current_stream(device).wait_event(event)


class DeviceCopier:
    """Side streams, hooked optimizers, and the snapshots that the next step has to wait for."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._streams: dict[int, Any] = {}
        self._optimizers: list[Any] = []
        self._handles: list[Any] = []
        self._pending: list[PendingCopies] = []
        self._fingerprints: dict[int, DeviceFingerprints] = {}

    def watch_optimizer(self, optimizer: Any) -> None:
        """From now on this optimizer's step waits, on the device, for copies of what it will overwrite.

        A wrapper that has no hooks of its own (accelerate's) steps the optimizer inside it, which has them.
        """
        while not hasattr(optimizer, "_optimizer_step_pre_hooks"):
            optimizer = getattr(optimizer, "optimizer", None)
            if optimizer is None:
                return  # its tensors are copied before the next step begins
        if any(known is optimizer for known in self._optimizers):
            return
        self._optimizers.append(optimizer)
        self._handles.append(optimizer.register_step_pre_hook(self._before_step))

    def unwatch_optimizers(self) -> None:
        """Leave the optimizers as they were."""
        for handle in self._handles:
            handle.remove()
        self._handles, self._optimizers = [], []

    def _before_step(self, *_: Any) -> None:
        while self._pending:
            self._pending.pop().make_streams_wait(self._torch)

    def _optimizer_tensors(self) -> set[int]:
        """Addresses of tensors that change only in a hooked, uncaptured ``step()``."""
        found: set[int] = set()
        for optimizer in self._optimizers:
            if any(group.get("capturable") for group in optimizer.param_groups):
                continue  # may be inside a captured graph, whose replay runs no hook
            found.update(tensor.data_ptr() for group in optimizer.param_groups for tensor in group["params"])
            for row in optimizer.state.values():
                found.update(value.data_ptr() for value in row.values() if isinstance(value, self._torch.Tensor))
        return found

    def copy(self, leaves: Sequence[Leaf], layout: Layout, arena: HostBuffer, cold: UnchangedParts) -> PendingCopies:
        """Start copying every device leaf to its place in the arena; returns at once.

        Parts that did not change in the last save are asked on the device whether they changed now. That question
        waits for the device; it is asked only in runs that have frozen parts, and spares them the copy.
        """
        torch = self._torch
        host = torch.frombuffer(arena.view, dtype=torch.uint8)
        numbers = [number for number, leaf in enumerate(leaves) if leaf.address is None and leaf.length]
        devices = sorted({leaves[number].value.device.index for number in numbers})
        for device in devices:
            self._stream(device).wait_stream(torch.cuda.current_stream(device))
        prints = self._part_fingerprints(leaves, layout, set(cold)) if cold else {}
        same = {part for part, found in prints.items() if found == cold.get(part)}
        numbers = [number for number in numbers if not same.issuperset(layout.parts_of(number, leaves[number].length))]
        numbers.sort(key=lambda number: layout.positions[number])
        owned = self._optimizer_tensors()
        at_once = [number for number in numbers if leaves[number].value.data_ptr() not in owned]
        later = [number for number in numbers if leaves[number].value.data_ptr() in owned]
        first = []
        for device in devices:
            mine = [number for number in at_once if leaves[number].value.device.index == device]
            if mine:
                event = self._issue(mine, leaves, layout, host, device)
                torch.cuda.current_stream(device).wait_event(event)
                first.append((0, device, event))
        arrival = PendingCopies(layout, prints, same)
        copies = []
        for device in devices:
            mine = [number for number in later if leaves[number].value.device.index == device]
            copies += [
                self._deferred_copy(group, leaves, layout, host, device) for group in _split_by_bytes(mine, leaves)
            ]
        arrival.begin(first, copies, leaves)
        self._pending = [item for item in self._pending if not item.landed]
        if self._optimizers:
            self._pending.append(arrival)
        return arrival

    def _deferred_copy(
        self, numbers: list[int], leaves: Sequence[Leaf], layout: Layout, host: Any, device: int
    ) -> Callable[[], CopyMark]:
        start = layout.positions[numbers[0]]
        return lambda: (start, device, self._issue(numbers, leaves, layout, host, device))

    def _issue(self, numbers: list[int], leaves: Sequence[Leaf], layout: Layout, host: Any, device: int) -> Any:
        """Queue copies on the device's side stream; the event says when they have landed."""
        torch = self._torch
        stream = self._stream(device)
        with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(stream):
            for number in numbers:
                leaf, place = leaves[number], layout.positions[number]
                leaf.value = leaf.value.detach().contiguous()  # a view with gaps is made whole on the device
                source = leaf.value.reshape(-1).view(torch.uint8)
                host[place : place + leaf.length].copy_(source, non_blocking=True)
            event = torch.cuda.Event(blocking=True)  # many writer threads wait: they must not spin
            event.record(stream)
        return event

    def _part_fingerprints(self, leaves: Sequence[Leaf], layout: Layout, parts: set[int]) -> dict[int, bytes]:
        """Fingerprints of those of the parts that lie wholly on devices."""
        torch = self._torch
        pieces: dict[int, list[tuple[int, int, int]]] = {}
        for number, leaf in enumerate(leaves):
            for part in layout.parts_of(number, leaf.length) if leaf.length else ():
                if leaf.address is not None:
                    parts.discard(part)
                place = layout.parts[part]
                low = max(place.start - layout.positions[number], 0)
                pieces.setdefault(part, []).append((number, low, place.start + place.length - layout.positions[number]))
        found: dict[int, list[tuple[int, Any]]] = {}
        for part in sorted(parts):
            for number, low, high in pieces.get(part, []):
                value = leaves[number].value.detach()
                device = value.device.index
                if device not in self._fingerprints:
                    self._fingerprints[device] = DeviceFingerprints(torch, value.device)
                with torch.no_grad(), torch.cuda.device(device), torch.cuda.stream(self._stream(device)):
                    flat = value.contiguous().reshape(-1).view(torch.uint8)[low:high]
                    found.setdefault(device, []).append((part, self._fingerprints[device].compute(flat)))
        result: dict[int, bytes] = {}
        for device, rows in found.items():
            with torch.cuda.device(device), torch.cuda.stream(self._stream(device)):
                everything = torch.cat([row for _, row in rows]).cpu().numpy()  # one answer per device, not per tensor
            at = 0
            for part, row in rows:
                result[part] = result.get(part, b"") + everything[at : at + len(row)].tobytes()
                at += len(row)
        return result

    def _stream(self, device: int) -> Any:
        if device not in self._streams:
            self._streams[device] = self._torch.cuda.Stream(device)
        return self._streams[device]


def _split_by_bytes(numbers: list[int], leaves: Sequence[Leaf]) -> list[list[int]]:
    groups: list[list[int]] = []
    filled = GROUP_BYTES
    for number in numbers:
        if filled >= GROUP_BYTES:
            groups.append([])
            filled = 0
        groups[-1].append(number)
        filled += leaves[number].length
    return groups


class DeviceFingerprints:
    """Has device memory changed since the last save? Asked on the device, so that frozen weights never leave it.

    A keyed multilinear hash of every 16 KiB: 32-bit words times random 64-bit keys, summed modulo 2**64, with two
    independent sets of keys. The keys are drawn from the operating system for every process and never leave it, so no
    input can be made to collide, and the chance that a change is missed is below 2**-60. It decides only whether a part
    equals the one that this process hashed and committed before; what is stored always carries the checksums of the
    inventory. One object holds the keys of one device.
    """

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(8), "big") >> 1)
        low, high = -(1 << 63), (1 << 63) - 1
        self._keys = torch.randint(low, high, (2, WORDS), generator=generator, dtype=torch.int64).to(device)

    def compute(self, data: Any) -> Any:
        """The fingerprint of a flat tensor of bytes: two 64-bit numbers per 16 KiB, still on the device."""
        torch = self._torch
        whole = data.numel() // ROW_BYTES * ROW_BYTES
        rows = [self._rows(block) for block in data[:whole].split(BLOCK_ROWS * ROW_BYTES)] if whole else []
        if whole < data.numel():
            last = torch.zeros(ROW_BYTES, dtype=torch.uint8, device=data.device)
            last[: data.numel() - whole] = data[whole:]
            rows.append(self._rows(last) + (data.numel() - whole))
        return torch.cat(rows)

    def _rows(self, data: Any) -> Any:
        if data.storage_offset() % 4:
            data = data.clone()
        words = data.view(self._torch.int32).view(-1, 1, WORDS)
        return (words * self._keys).sum(dim=2)
