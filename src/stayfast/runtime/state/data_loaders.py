"""torchdata's StatefulDataLoader, resumed to the exact batch *and* the exact random numbers.

Its own state brings back the position in this epoch. Three things are missing for a resumed run to equal an
uninterrupted one, and are added here. The epoch of a DistributedSampler fixes the order. Making an iterator draws a
seed (from the global generator, or from the loader's own), which an uninterrupted run did at the start of the epoch and
must not do again in its middle. And the loader's own generator stands, after a resume, one draw behind, so that the
*next* epoch would be shuffled differently.
"""

from __future__ import annotations

import sys
from typing import Any

from stayfast.errors import UsageError
from stayfast.runtime.state.tracked_state import TrackedObject

_SAMPLERS = "torchdata.stateful_dataloader.sampler"  # theirs keep their place


def track_loader(name: str, loader: Any) -> TrackedObject | None:
    """A loader with its position; None for one of the program's own that has ``state_dict`` and ``load_state_dict``."""
    if hasattr(loader, "base_dataloader"):
        raise UsageError(
            f"{name}: the position of a loader that accelerate has prepared cannot be restored",
            help="give the DataLoader a stayfast.integrations.torch.ResumableSampler before it is prepared, track "
            "that, and iterate sampler.batches(loader)",
        )
    stateful = sys.modules.get("torchdata.stateful_dataloader")
    if stateful is not None and isinstance(loader, stateful.StatefulDataLoader):
        check_data(loader)
        wrapped = StatefulLoaderState(loader)
        return TrackedObject(name, wrapped.state_dict, wrapped.load_state_dict, loader)
    if _has_state(loader):
        return None
    raise UsageError(
        f"{name}: a plain DataLoader cannot say where it is",
        help="track a torchdata.stateful_dataloader.StatefulDataLoader, or give the DataLoader a "
        "stayfast.integrations.torch.ResumableSampler, track that, and iterate sampler.batches(loader)",
    )


class StatefulLoaderState:
    """``state_dict``/``load_state_dict`` around a StatefulDataLoader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, Any]:
        """The loader's own state, and where its generator stands."""
        generator = self._loader.generator
        state = self._loader.state_dict()
        taken = {"loader": state, "generator": None if generator is None else generator.get_state()}
        sampler = self._sampler()
        return taken if sampler is None else taken | {"epoch": sampler.epoch}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the iterator now, at the saved place, then put the generator back to where it stood."""
        sampler = self._sampler()
        if sampler is not None and "epoch" in state:
            sampler.set_epoch(state["epoch"])  # the program's own call comes after the iterator is made: too late
        self._loader.load_state_dict(state["loader"])
        self._loader.state_dict()  # makes the iterator, which the program's own iter() will be given
        if state["generator"] is not None and self._loader.generator is not None:
            self._loader.generator.set_state(state["generator"])

    def _sampler(self) -> Any:
        """The sampler whose order depends on the epoch, if there is one."""
        for sampler in (self._loader.sampler, getattr(self._loader.batch_sampler, "sampler", None)):
            if callable(getattr(sampler, "set_epoch", None)) and isinstance(getattr(sampler, "epoch", None), int):
                return sampler
        return None


def check_data(loader: Any) -> None:
    """Refuse what cannot be resumed exactly.

    Of a stream without a state of its own torchdata passes over too many batches at its second resume.
    """
    from torch.utils.data import IterableDataset

    data = loader.dataset
    if isinstance(data, IterableDataset) and not callable(getattr(data, "state_dict", None)):
        raise UsageError(
            f"a loader over {type(data).__name__}, an IterableDataset without a state, cannot be resumed exactly",
            help="give the data set state_dict and load_state_dict, or make it a Dataset with __getitem__",
        )
    _check_order(loader)


def _check_order(loader: Any) -> None:
    """Refuse a sampler that torchdata can only run again from its start: a random one then gives another order."""
    stateful = sys.modules.get("torchdata.stateful_dataloader")
    if stateful is None or not isinstance(loader, stateful.StatefulDataLoader):
        return
    from torch.utils.data import BatchSampler

    sampler, batches = loader.sampler, loader.batch_sampler
    keeps_place = True  # of the sampler inside
    if batches is not None and not _has_state(batches):
        keeps_place = type(batches) is not BatchSampler  # it is run again, and the sampler in it
        if keeps_place and type(batches).__module__ != _SAMPLERS:
            raise _unknown_order(batches)
        sampler = batches.sampler
    elif batches is not None:
        return
    if not (
        _is_repeatable(sampler) or (keeps_place and (_has_state(sampler) or type(sampler).__module__ == _SAMPLERS))
    ):
        raise _unknown_order(sampler)


def _has_state(thing: Any) -> bool:
    return callable(getattr(thing, "state_dict", None)) and callable(getattr(thing, "load_state_dict", None))


def _is_repeatable(sampler: Any) -> bool:
    """Whether it gives the same order again: nothing random in it, or all of it from the seed and the epoch."""
    from torch.utils.data import DistributedSampler, SequentialSampler
    from torch.utils.data.dataloader import _InfiniteConstantSampler

    return isinstance(sampler, DistributedSampler) or type(sampler) in (SequentialSampler, _InfiniteConstantSampler)


def _unknown_order(sampler: Any) -> UsageError:
    return UsageError(
        f"a StatefulDataLoader with a {type(sampler).__name__} of {type(sampler).__module__} resumes in another order: "
        "the sampler has no state",
        help="leave it out and write shuffle=True, use the RandomSampler of torchdata.stateful_dataloader.sampler, or "
        "give the sampler state_dict and load_state_dict",
    )
