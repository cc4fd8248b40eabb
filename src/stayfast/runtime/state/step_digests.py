"""What every step has left, as short digests in a file: two runs that should be the same show where they part.

Only with ``STAYFAST_FINGERPRINTS``; hashing the whole state after every step is far too dear for real work. One line of
JSON per step and rank: each tracked thing, the random number generators, and what the program has added itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from typing import Any

from stayfast.errors import SettingError
from stayfast.forks import close_descriptor, open_descriptor

RNG = "~rng"


class StepDigests:
    """Writes the lines of one attempt."""

    def __init__(self, path: str, rank: int, state: Callable[[], dict[str, Any]]) -> None:
        self._path = path
        self._rank = rank
        self._state = state
        self._added: dict[str, Any] = {}

    def add(self, values: Mapping[str, Any]) -> None:
        """More about the step in progress, such as the ids of its samples."""
        self._added |= values

    def record(self, step: int) -> None:
        """One line, whole or not at all: several ranks append to the same file."""
        from stayfast.runtime.state.tracked_state import GlobalRandomState

        values = {RNG: GlobalRandomState().state_dict(), **self._state(), **self._added}
        self._added = {}
        parts = {name: state_digest(value) for name, value in values.items()}
        line = json.dumps({"step": step, "rank": self._rank, "parts": parts}) + "\n"
        try:
            descriptor = open_descriptor(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise SettingError(
                f"STAYFAST_FINGERPRINTS: {self._path} cannot be written ({error.strerror})",
                help="name a file in a folder that exists",
            ) from None
        try:
            os.write(descriptor, line.encode())
        finally:
            close_descriptor(descriptor)


def state_digest(value: Any) -> str:
    """Equal for equal values, to the last bit."""
    hashed = hashlib.sha256()
    _update_digest(hashed.update, value)
    return hashed.hexdigest()[:16]


def _update_digest(update: Callable[[bytes], None], value: Any) -> None:
    kind = type(value).__name__
    if isinstance(value, Mapping):
        update(b"{")
        for key in sorted(value, key=repr):
            update(repr(key).encode())
            _update_digest(update, value[key])
        update(b"}")
    elif isinstance(value, list | tuple):
        update(b"[")
        for item in value:
            _update_digest(update, item)
        update(b"]")
    elif isinstance(value, bytes | bytearray | memoryview):
        update(bytes(value))
    elif hasattr(value, "detach"):  # a tensor, on whatever device
        import torch  # its tensors are here, so it is too

        flat = value.detach().cpu().contiguous().flatten()
        update(f"{kind}{tuple(value.shape)}{value.dtype}".encode())
        update(flat.view(torch.uint8).numpy().tobytes())
    elif hasattr(value, "tobytes") and hasattr(value, "shape"):
        update(f"{kind}{value.shape}{value.dtype}".encode())
        update(value.tobytes())
    else:
        update(f"{kind}:{value!r}".encode())
