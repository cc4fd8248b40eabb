"""Plain PyTorch: a sampler that knows exactly where it is.

::

    sampler = ResumableSampler(len(dataset), seed=7)
    loader = DataLoader(dataset, batch_size=32, sampler=sampler, num_workers=4)
    run.track(model=model, optimizer=optimizer, sampler=sampler)
    batches = sampler.batches(loader)          # endless, epoch after epoch
    for step in run.steps():
        train(next(batches))

Worker processes fetch ahead, so the sampler cannot count what it gave out: it counts what the loop took. Either iterate
``sampler.batches(loader)``, or iterate the loader yourself and call ``sampler.consumed(samples)`` for every batch and
``sampler.finish_epoch()`` when it ends. Iterating yourself, give the DataLoader a generator of its own: every iterator
draws a seed, and a resumed run makes one more of them than an uninterrupted one.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any

from stayfast.errors import StateMismatchError

if TYPE_CHECKING:
    from stayfast.integrations.torch_batches import Pass

log = logging.getLogger("stayfast")


class ResumableSampler:
    """Indices of a data set in a shuffle order that seed and epoch fix, from the exact position onwards.

    With ``replicas`` and ``rank`` each process takes its own share; the order is padded by its own beginning so that
    every rank takes equally many. The position counts the samples that this process took in this epoch.
    """

    def __init__(
        self,
        data: Sized | int,
        *,
        shuffle: bool = True,
        seed: int = 0,
        replicas: int = 1,
        rank: int = 0,
    ) -> None:
        self.size = data if isinstance(data, int) else len(data)
        if self.size < 1:
            raise ValueError("there is nothing to sample from")
        if not 0 <= rank < replicas:
            raise ValueError(f"rank {rank} of {replicas} replicas does not exist")
        self.shuffle, self.seed = shuffle, seed
        self.replicas, self.rank = replicas, rank
        self.epoch = 0
        self.position = 0
        self._checksum = 0  # of the batches taken in this epoch, where the program's own batch sampler orders them
        self._ahead: list[dict[str, Any]] = []  # the generators before each batch that was made and not yet taken
        self._iterators = 0  # made so far
        self._counted = False
        self._pass: Pass | None = None

    def __len__(self) -> int:
        """The samples of an epoch for this rank, wherever it stands in it."""
        return (self.size + self.replicas - 1) // self.replicas

    def __iter__(self) -> Iterator[int]:
        self._iterators += 1
        whole = self._pass is not None and self._pass.whole
        return iter(self._order()[0 if whole else self.position :])

    def _order(self) -> list[int]:
        import torch

        if self.shuffle:
            mixed = hashlib.sha256(f"{self.seed}/{self.epoch}".encode()).digest()
            generator = torch.Generator().manual_seed(int.from_bytes(mixed[:8], "big") >> 1)
            order: list[int] = torch.randperm(self.size, generator=generator).tolist()
        else:
            order = list(range(self.size))
        wanted = len(self) * self.replicas
        padded = order + order[: wanted - self.size] if wanted - self.size <= self.size else order * wanted
        return padded[self.rank : wanted : self.replicas]

    def consumed(self, samples: int) -> None:
        """The loop took this many more; the next epoch begins by itself when all are taken."""
        left = len(self) - self.position
        if not 0 <= samples <= left:
            raise ValueError(f"{samples} samples cannot be taken: {left} are left in epoch {self.epoch}")
        self._take(samples)

    def _take(self, samples: int, checksum: int = 0, *, last: bool = False) -> None:
        self._counted = True
        self.position += samples
        self._checksum = checksum
        whole = self._pass is not None and self._pass.whole
        if last or (self.position == len(self) and not whole):
            self.finish_epoch()

    def finish_epoch(self) -> None:
        """Go to the next epoch, also when a last incomplete batch was dropped. At its very start: nothing happens."""
        if self.position:
            self.epoch += 1
            self.position = self._checksum = 0

    def batches(self, loader: Any) -> Iterator[Any]:
        """Batches of the loader without end, each counted when it is handed out; ``loader`` must use this sampler.

        ``loader`` is a DataLoader of any kind (batch sampler, ``batch_size=None``, workers), or one that accelerate has
        prepared. Raises ``UsageError`` for a loader whose position cannot be known.
        """
        from stayfast.integrations.torch_batches import Pass

        while True:
            epoch = self.epoch
            yield from Pass(self, loader)
            if self.epoch == epoch and not self.position:
                raise ValueError(
                    "the loader gives no batch at all: the batch size exceeds the data and drop_last is set"
                )
            self.finish_epoch()

    def state_dict(self) -> dict[str, Any]:
        """Where it is, and what that refers to."""
        if self._iterators and not self._counted:
            self._counted = True  # told once
            log.warning(
                "the sampler gave out samples and nobody counts them: after a resume the epoch starts over; take "
                "batches from sampler.batches(loader), or call sampler.consumed(samples) for every batch"
            )
        return {
            "epoch": self.epoch,
            "position": self.position,
            "size": self.size,
            "seed": self.seed,
            "shuffle": self.shuffle,
            "replicas": self.replicas,
            "checksum": self._checksum,
            "ahead": self._ahead if self._pass is None else self._pass.ahead(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a saved position; the same data and order are required, or it would mean something else."""
        differences = [
            f"{name}: {state[name]!r} in the checkpoint, {getattr(self, name)!r} here"
            for name in ("size", "seed", "shuffle", "replicas")
            if state[name] != getattr(self, name)
        ]
        if differences:
            raise StateMismatchError(
                f"the sampler does not fit the checkpoint ({'; '.join(differences)})",
                help="use the same data set, seed and number of processes, or start over under another URL",
            )
        self.epoch, self.position = state["epoch"], state["position"]
        self._checksum, self._ahead = state.get("checksum", 0), state.get("ahead", [])
