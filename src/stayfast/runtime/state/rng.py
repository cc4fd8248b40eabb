"""The global random number generators as one tracked thing: ``random``, NumPy, torch and CUDA.

What the program never loaded has no state worth keeping, and is not loaded by asking. On restore a library is loaded
when its state was saved: the interrupted program had it.
"""

from __future__ import annotations

import importlib
import random
import sys
from typing import Any


class GlobalRandomState:
    """``state_dict``/``load_state_dict`` over every global generator in use."""

    def state_dict(self) -> dict[str, Any]:
        """The state of each, as plain values."""
        state: dict[str, Any] = {"python": random.getstate()}
        numpy = sys.modules.get("numpy")
        if numpy is not None and hasattr(numpy, "random"):
            found = numpy.random.get_state(legacy=False)
            inner = dict(found["state"])
            inner["key"] = inner["key"].tobytes() if "key" in inner else None
            state["numpy"] = {**found, "state": inner}
        torch = sys.modules.get("torch")
        if torch is not None and hasattr(torch, "get_rng_state"):
            state["torch"] = torch.get_rng_state().numpy().tobytes()
            if torch.cuda.is_available() and torch.cuda.is_initialized():
                state["cuda"] = [item.numpy().tobytes() for item in torch.cuda.get_rng_state_all()]
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Put every generator back; a machine with fewer GPUs takes as many states as it has."""
        random.setstate(state["python"])
        if "numpy" in state:
            _load_numpy(state["numpy"])
        if "torch" in state:
            torch = importlib.import_module("torch")
            torch.set_rng_state(_byte_tensor(torch, state["torch"]))
            if "cuda" in state and torch.cuda.is_available():
                for device, saved in zip(range(torch.cuda.device_count()), state["cuda"], strict=False):
                    torch.cuda.set_rng_state(_byte_tensor(torch, saved), device)


def _load_numpy(saved: dict[str, Any]) -> None:
    numpy = importlib.import_module("numpy")
    inner = dict(saved["state"])
    if inner.get("key") is not None:
        inner["key"] = numpy.frombuffer(inner["key"], dtype=numpy.uint32).copy()
    numpy.random.set_state({**saved, "state": inner})


def _byte_tensor(torch: Any, data: bytes) -> Any:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
