"""Loaders that fetch one batch ahead (accelerate does): the batch in their hands is part of the state.

What is random in a batch (masking, augmentation) was drawn before the last step ran; after a resume the same batch must
come again and the generators must stand where they stood after that step. So the collate function remembers the batch
it made last, a checkpoint keeps it, and the first call after a resume gives it back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stayfast.runtime.state.tracked_state import GlobalRandomState


class PrefetchAwareCollate:
    """Wraps a collate function. In worker processes it changes nothing: their batches are not made in this one."""

    def __init__(self, inner: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._last: Any = None
        self._again: dict[str, Any] | None = None
        self._rng: dict[str, Any] | None = None
        self.replayed = False
        """Whether a batch has been given back, and the generators with it."""

    def __call__(self, features: Any) -> Any:
        batch = self._inner(features)
        if self._again is not None and _is_dict(batch) and set(batch.keys()) == set(self._again):
            batch.update(self._again)
            assert self._rng is not None
            GlobalRandomState().load_state_dict(self._rng)
            self.forget()
            self.replayed = True
        self._last = batch
        return batch

    def ahead(self) -> dict[str, Any] | None:
        """The batch made last, when it was made in this process and is one that can be kept."""
        return dict(self._last) if _is_dict(self._last) else None

    def replay(self, batch: dict[str, Any] | None, rng: dict[str, Any]) -> None:
        """Give this batch back in place of the next one, and then set the generators."""
        self._again, self._rng, self.replayed = batch, rng, False

    def forget(self) -> None:
        """Give nothing back: the next batch begins an epoch."""
        self._again = self._rng = None


def _is_dict(batch: Any) -> bool:
    """Dictionaries, and what looks like one without being one (BatchEncoding)."""
    return hasattr(batch, "keys") and hasattr(batch, "update")
