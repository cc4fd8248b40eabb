"""Has this device memory changed since the last save? Asked on the device, so that frozen weights never leave it.

A keyed multilinear hash: 32-bit words times random 64-bit keys, summed modulo 2**64, in two levels and with two
independent sets of keys, 128 bits in all. The keys are drawn from the operating system for every process and never
leave it, so no input can be made to collide, and the chance that a change is missed is below 2**-60. It decides only
whether a part equals the one that this process hashed and committed before; what is stored always carries the checksums
of the inventory.
"""

from __future__ import annotations

import os
from typing import Any

WORDS = 4096
ROW_BYTES = 4 * WORDS
BLOCK_ROWS = 2048
"""32 MiB at a time: the products are twice as long as the words and live only for a moment."""


class Fingerprints:
    """The keys of one device."""

    def __init__(self, torch: Any, device: Any) -> None:
        self._torch = torch
        generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(8), "big") >> 1)
        low, high = -(1 << 63), (1 << 63) - 1
        self._word_keys = torch.randint(low, high, (2, WORDS), generator=generator, dtype=torch.int64).to(device)
        self._row_keys = torch.randint(low, high, (2, 2, BLOCK_ROWS), generator=generator, dtype=torch.int64).to(device)

    def of(self, data: Any) -> Any:
        """The fingerprint of a flat tensor of bytes: two 64-bit numbers per 32 MiB block, still on the device."""
        blocks = data.split(BLOCK_ROWS * ROW_BYTES)
        return self._torch.stack([self._block(block) for block in blocks])

    def _block(self, data: Any) -> Any:
        torch = self._torch
        whole = data.numel() // ROW_BYTES * ROW_BYTES
        rows = [self._rows(data[:whole])] if whole else []
        if whole < data.numel():
            last = torch.zeros(ROW_BYTES, dtype=torch.uint8, device=data.device)
            last[: data.numel() - whole] = data[whole:]
            rows.append(self._rows(last))
        hashes = torch.cat(rows, dim=1)
        keys = self._row_keys[:, :, : hashes.shape[1]]
        return ((hashes & 0xFFFFFFFF) * keys[:, 0] + (hashes >> 32) * keys[:, 1]).sum(dim=1) + data.numel()

    def _rows(self, data: Any) -> Any:
        if data.storage_offset() % 4:
            data = data.clone()
        words = data.view(self._torch.int32).view(-1, WORDS)
        return self._torch.stack([(words * keys).sum(dim=1) for keys in self._word_keys])
