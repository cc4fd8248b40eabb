"""torchdata's StatefulDataLoader, resumed to the exact batch *and* the exact random numbers.

Its own state brings back the position in this epoch. Three things are missing for a resumed run to equal an
uninterrupted one, and are added here. The epoch of a DistributedSampler fixes the order. Making an iterator draws a
seed (from the global generator, or from the loader's own), which an uninterrupted run did at the start of the epoch and
must not do again in its middle. And the loader's own generator stands, after a resume, one draw behind, so that the
*next* epoch would be shuffled differently.
"""

from __future__ import annotations

from typing import Any

from stayfast.errors import UsageError


class LoaderState:
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
    """Refuse a stream without a state of its own: torchdata passes over too many batches at its second resume."""
    from torch.utils.data import IterableDataset

    data = loader.dataset
    if isinstance(data, IterableDataset) and not callable(getattr(data, "state_dict", None)):
        raise UsageError(
            f"a loader over {type(data).__name__}, an IterableDataset without a state, cannot be resumed exactly",
            help="give the data set state_dict and load_state_dict, or make it a Dataset with __getitem__",
        )
