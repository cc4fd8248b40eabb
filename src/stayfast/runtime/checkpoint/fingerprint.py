"""Has this device memory changed since the last save? Asked on the device, so that frozen weights never leave it.

A keyed multilinear hash of every 16 KiB: 32-bit words times random 64-bit keys, summed modulo 2**64, with two
independent sets of keys. The keys are drawn from the operating system for every process and never leave it, so no input
can be made to collide, and the chance that a change is missed is below 2**-60. It decides only whether a part equals
the one that this process hashed and committed before; what is stored always carries the checksums of the inventory.
"""

from __future__ import annotations

import os
from typing import Any

WORDS = 4096
ROW_BYTES = 4 * WORDS
BLOCK_ROWS = 2048
"""32 MiB at a time: the products are four times as long as the words and live only for a moment."""


class DeviceFingerprints:
    """The keys of one device."""

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
