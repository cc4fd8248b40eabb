"""The batches of a DataLoader, each counted when the loop takes it.

A loader draws indices ahead of the batches that it hands out: for its workers, or to learn which batch is the last
(accelerate does). So the indices are watched on their way from the sampler to the loader, and every batch handed out is
matched with the indices that were drawn for it. A loader that does not hand out one batch per draw, in order, is
refused.

Two things must not differ after a resume. The generators: making an iterator draws seeds that the uninterrupted run
drew long ago, and what is random in a batch that was made ahead was drawn before the step that was saved. And the
order: a batch sampler of the program's own is asked again from the beginning of the epoch, and must give the same
batches again.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.utils.data import BatchSampler, DataLoader

from stayfast.errors import StateMismatchError, UsageError
from stayfast.runtime.state.tracked_state import GlobalRandomState

if TYPE_CHECKING:
    from stayfast.integrations.torch import ResumableSampler

_OWN = "pass the DataLoader itself and wrap what batches() gives, or count with sampler.consumed(samples)"


class Indices(BatchSampler):  # type: ignore[misc]  # torch has no types when it is not installed
    """Stands in a loader where its batch sampler stood, for good; an open pass sees what is drawn."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.drawing: Pass | None = None

    def __getattr__(self, name: str) -> Any:
        if name == "inner":  # not set yet, in a copy
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inner) if self.drawing is None else self.drawing.draw()


@dataclass(slots=True)
class Drawn:
    """The indices of one batch: how many, the checksum of all up to here, the generators before it was made."""

    samples: int
    checksum: int
    rng: dict[str, Any] | None


def find(loader: Any) -> tuple[DataLoader[Any], Indices]:
    """The DataLoader inside and its indices, from now on watched; raises ``UsageError`` where there is none."""
    base = getattr(loader, "base_dataloader", loader)  # accelerate's loaders iterate another one inside
    if not isinstance(base, DataLoader):
        raise UsageError(f"a {type(loader).__name__} does not show its position: it is not a DataLoader", help=_OWN)
    if hasattr(loader, "slice_fn") and loader.state.num_processes > 1:  # accelerate's DataLoaderDispatcher
        raise UsageError(
            "a loader with dispatch_batches=True does not show its position: only rank 0 draws indices",
            help="leave dispatch_batches out of the accelerator's DataLoaderConfiguration",
        )
    if base.num_workers and not getattr(base, "in_order", True):
        raise UsageError("a DataLoader with in_order=False does not show its position", help="leave in_order out")
    name = "sampler" if base.batch_sampler is None else "batch_sampler"
    if not isinstance(vars(base)[name], Indices):
        vars(base)[name] = Indices(vars(base)[name])  # setattr is refused there
    return base, vars(base)[name]


class Pass:
    """One pass over a loader, from the sampler's position to the end of its epoch."""

    def __init__(self, sampler: ResumableSampler, loader: Any) -> None:
        self._sampler, self._loader = sampler, loader
        self._base, self._indices = find(loader)
        inner = self._indices.inner
        simple = inner is sampler or (type(inner) is BatchSampler and inner.sampler is sampler)
        self.whole = not simple
        """Whether the sampler gives the epoch from its beginning: a batch sampler may remember what it has seen."""
        self._pending: deque[Drawn] = deque()
        self._ahead: int | None = None  # so many batches are drawn ahead whenever one is handed out
        self._exhausted = False
        self._replay = deque(sampler._ahead)
        self._rng: dict[str, Any] | None = None  # what to go back to once the loader is where it was
        self._seed: Any = None

    def __iter__(self) -> Iterator[Any]:
        """The batches; the generators stay as they are until the first index beyond what was drawn before."""
        sampler = self._sampler
        if sampler.position or (sampler.epoch and self._base.persistent_workers):  # the iterator was made long ago
            self._rng = GlobalRandomState().state_dict()
            self._seed = None if self._base.generator is None else self._base.generator.get_state()
        if hasattr(self._loader, "set_epoch"):  # accelerate's loader counts its passes from 0 in every process
            self._loader.set_epoch(sampler.epoch)
        sampler._pass = self._indices.drawing = self
        try:
            for batch in self._loader:
                self._hand_out()
                yield batch
            self._restore()
            if self._pending:
                raise self._unknown()
        finally:
            if self._indices.drawing is self:
                self._indices.drawing = None
            if sampler._pass is self:
                sampler._pass, sampler._ahead = None, self.ahead()

    def ahead(self) -> list[dict[str, Any]]:
        """The generators before each batch that was made ahead in this process."""
        return [item.rng for item in self._pending if item.rng is not None]

    def draw(self) -> Iterator[Any]:
        """The indices on their way to the loader."""
        self._indices.drawing = None  # what else iterates this loader is not this pass
        iterators, checksum = self._sampler._iterators, 0
        source = iter(self._indices.inner)
        if self.whole and self._sampler.position:
            checksum = self._pass_over(source)
        for index in source:
            if self._sampler._iterators == iterators:
                raise UsageError(
                    "the loader does not take its indices from this sampler",
                    help="make the DataLoader with sampler=sampler, or with a batch sampler that iterates it",
                )
            checksum = self._sum(index, checksum)
            self._pending.append(Drawn(self._count(index), checksum, self._before_fetch()))
            yield index
        self._exhausted = True
        self._restore()

    def _pass_over(self, source: Iterator[Any]) -> int:
        """Draw again what was taken, without making the batches; returns the checksum up to there."""
        sampler, done, checksum = self._sampler, 0, 0
        while done < sampler.position:
            index = next(source, None)
            if index is None:
                break
            done += self._count(index)
            checksum = self._sum(index, checksum)
        if done != sampler.position or checksum != sampler._checksum:
            raise StateMismatchError(
                f"the batch sampler gives other batches than before the interruption: epoch {sampler.epoch} stood "
                f"after {sampler.position} samples",
                help="keep the batch size, and let the order of batches depend on the sampler alone",
            )
        return checksum

    def _count(self, index: Any) -> int:
        """The samples of one draw: without a batch sampler a draw is one sample, unless it is a list."""
        batched = self._base.batch_sampler is not None or isinstance(index, (list, tuple))
        return len(index) if batched else 1

    def _sum(self, index: Any, before: int) -> int:
        return zlib.crc32(repr(index).encode(), before) if self.whole else 0

    def _before_fetch(self) -> dict[str, Any] | None:
        """Put the generators where they stood when this batch was made before; returns how they stand now."""
        if self._base.num_workers:
            self._restore()
            return None  # made in another process
        if self._rng is not None and self._replay:
            GlobalRandomState().load_state_dict(self._replay.popleft())
        else:
            self._restore()
        return GlobalRandomState().state_dict() if self._ahead != 0 else None

    def _restore(self) -> None:
        if self._rng is not None:
            GlobalRandomState().load_state_dict(self._rng)
            if self._seed is not None:
                self._base.generator.set_state(self._seed)
            self._rng = None

    def _hand_out(self) -> None:
        """Count the batch that the loop is given now."""
        if not self._pending:
            raise self._unknown()
        self._restore()
        taken = self._pending.popleft()
        waiting = len(self._pending)
        if self._ahead is None:
            made_ahead = self._base.num_workers * (self._base.prefetch_factor or 0)
            self._ahead = min(waiting, made_ahead + (self._loader is not self._base))  # accelerate's: one more
        if waiting > self._ahead or (waiting < self._ahead and not self._exhausted):
            raise self._unknown()
        self._sampler._take(taken.samples, taken.checksum, last=self._exhausted and not waiting)

    def _unknown(self) -> UsageError:
        return UsageError(
            f"the position of this {type(self._loader).__name__} cannot be known: it does not hand out one batch for "
            "each batch of indices that it draws",
            help=_OWN,
        )
