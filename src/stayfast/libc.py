"""The C library of this process, for system calls that Python does not offer; loaded when it is first needed."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ctypes


@cache
def load_libc() -> ctypes.CDLL:
    """Errors are read with ``ctypes.get_errno``; where there is no C library to load, ``OSError``."""
    import ctypes  # 10 ms that few programs need to spend

    return ctypes.CDLL(None, use_errno=True)
