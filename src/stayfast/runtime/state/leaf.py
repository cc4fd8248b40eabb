"""A leaf: one array, tensor or long byte string of a state, described and found in memory."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

from stayfast.errors import CorruptError

BYTES = "bytes"
MAX_DIMENSIONS = 64


@dataclass(slots=True)
class Leaf:
    """One piece of raw memory to store.

    ``value`` keeps the memory alive. ``address`` is where its bytes lie, contiguous, in host memory; it is None for a
    tensor on a device, which the device's own copy takes from ``value``.
    """

    dtype: str
    shape: tuple[int, ...]
    length: int
    value: Any
    address: int | None
    name: str = ""
    path: Any = None
    """Where it stands in the state, until it has a name: names are made off the training loop's time."""
    group: str = ""
    device: str = ""
    """Where a tensor lived, such as ``cuda:0``; empty for host memory."""


def bytes_leaf(data: bytes) -> Leaf:
    """A long byte string."""
    address = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    return Leaf(BYTES, (len(data),), len(data), data, address)


def check_size(shape: tuple[int, ...], itemsize: int, length: int) -> None:
    """Shape and length must agree before anything is allocated by either."""
    if len(shape) > MAX_DIMENSIONS or math.prod(shape) * itemsize != length:
        raise CorruptError(f"a leaf of shape {list(shape)[:8]} and {itemsize} bytes per item is {length} bytes long")
