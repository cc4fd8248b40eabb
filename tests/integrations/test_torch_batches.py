"""``ResumableSampler.batches``: every kind of loader resumes at the same sample with the same random numbers."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")

from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset  # noqa: E402

from stayfast.errors import StateMismatchError, UsageError  # noqa: E402
from stayfast.integrations.torch import ResumableSampler  # noqa: E402
from stayfast.runtime.state.tracked_state import GlobalRandomState  # noqa: E402

SIZE, BATCH = 37, 8


class Noisy(Dataset):  # type: ignore[type-arg]
    """Every sample draws from every generator, as augmentation does; in a worker process none."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int | list[int]) -> Any:
        if isinstance(index, list):
            return torch.stack([self[one] for one in index])
        if torch.utils.data.get_worker_info() is not None:
            return torch.tensor([float(index), 0.0])
        return torch.tensor([float(index), torch.rand(()).item() + random.random() + np.random.rand()])


class Buckets:
    """A batch sampler of the program's own: it reads ahead, sorts, and gives batches of different sizes."""

    def __init__(self, sampler: ResumableSampler) -> None:
        self.sampler = sampler

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[list[int]]:
        ahead: list[int] = []
        for index in self.sampler:
            ahead.append(index)
            if len(ahead) == 12:
                ahead.sort()
                yield ahead[:5]
                yield ahead[5:8]
                yield ahead[8:]
                ahead = []
        yield ahead


class Generated(DataLoader):  # type: ignore[type-arg]
    """``__iter__`` is a generator function that draws, as accelerate's is: nothing happens before the first batch."""

    def __iter__(self) -> Any:
        torch.rand(3)
        yield from super().__iter__()


def prepared(loader: Any) -> Any:
    accelerate = pytest.importorskip("accelerate")
    return accelerate.Accelerator(cpu=True).prepare(loader)


def sharded(sampler: ResumableSampler) -> Any:
    """What accelerate makes for rank 1 of 2: its last batches are filled up from the epoch's first."""
    shard = pytest.importorskip("accelerate.data_loader").BatchSamplerShard
    return DataLoader(Noisy(), batch_sampler=shard(BatchSampler(sampler, BATCH, False), 2, 1))


def stateful(sampler: ResumableSampler, **options: Any) -> Any:
    return pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader(
        Noisy(), BATCH, sampler=sampler, **options
    )


LOADERS: dict[str, Callable[[ResumableSampler], Any]] = {
    "plain": lambda s: DataLoader(Noisy(), BATCH, sampler=s),
    "drop-last": lambda s: DataLoader(Noisy(), BATCH, sampler=s, drop_last=True),
    "batch-sampler": lambda s: DataLoader(Noisy(), batch_sampler=BatchSampler(s, BATCH, False)),
    "batch-sampler-drop-last": lambda s: DataLoader(Noisy(), batch_sampler=BatchSampler(s, BATCH, True)),
    "no-batches": lambda s: DataLoader(Noisy(), sampler=s, batch_size=None),
    "lists": lambda s: DataLoader(Noisy(), sampler=BatchSampler(s, BATCH, False), batch_size=None),
    "own-batch-sampler": lambda s: DataLoader(Noisy(), batch_sampler=Buckets(s)),
    "generator-function": lambda s: Generated(Noisy(), BATCH, sampler=s),
    "stateful": stateful,
    "prepared": lambda s: prepared(DataLoader(Noisy(), BATCH, sampler=s)),
    "prepared-drop-last": lambda s: prepared(DataLoader(Noisy(), BATCH, sampler=s, drop_last=True)),
    "prepared-batch-sampler": lambda s: prepared(DataLoader(Noisy(), batch_sampler=Buckets(s))),
    "shard-of-two": sharded,
    "shard-of-two-prepared": lambda s: prepared(sharded(s)),
    "workers": lambda s: DataLoader(Noisy(), BATCH, sampler=s, num_workers=2),
    "workers-drop-last": lambda s: DataLoader(Noisy(), BATCH, sampler=s, num_workers=2, drop_last=True),
    "persistent-workers": lambda s: DataLoader(
        Noisy(), BATCH, sampler=s, num_workers=1, persistent_workers=True, prefetch_factor=1
    ),
    "workers-own-batch-sampler": lambda s: DataLoader(Noisy(), num_workers=1, batch_sampler=Buckets(s)),
    "workers-stateful": lambda s: stateful(s, num_workers=1),
    "workers-prepared": lambda s: prepared(DataLoader(Noisy(), BATCH, sampler=s, num_workers=1)),
}


def train(kind: str, steps: int, saved: dict[str, Any] | None = None) -> tuple[list[Any], list[dict[str, Any]]]:
    """Batches and draws of so many steps, and what a checkpoint after each would hold."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    sampler = ResumableSampler(SIZE, seed=3)
    loader = LOADERS[kind](sampler)
    if saved is not None:
        sampler.load_state_dict(saved["sampler"])
        GlobalRandomState().load_state_dict(saved["rng"])
    batches, seen, states = sampler.batches(loader), [], []
    for _ in range(steps):
        batch = next(batches)
        seen.append((batch.tolist(), torch.rand(2).tolist(), random.random(), np.random.rand()))
        states.append({"sampler": sampler.state_dict(), "rng": GlobalRandomState().state_dict()})
    batches.close()  # type: ignore[attr-defined]
    return seen, states


@pytest.mark.parametrize("kind", LOADERS)
def test_every_loader_resumes_with_the_same_batches_and_numbers(kind: str) -> None:
    if kind == "no-batches":
        steps, cuts = 2 * SIZE + 5, [1, 8, SIZE - 1, SIZE, SIZE + 1, 2 * SIZE]
    elif "workers" in kind:
        steps, cuts = 12, [2, 5, 6]
    else:
        steps, cuts = 12, list(range(1, 12))
    whole, states = train(kind, steps)
    for cut in cuts:
        rest, _ = train(kind, steps - cut, states[cut - 1])
        assert rest == whole[cut:], f"resumed after batch {cut}"


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if kind != "no-batches"])
def test_the_position_counts_samples(kind: str) -> None:
    seen, states = train(kind, 2)
    assert states[1]["sampler"]["position"] == sum(len(batch) for batch, *_ in seen)


@pytest.mark.parametrize("kind", [kind for kind in LOADERS if "workers" not in kind])
def test_the_length_is_that_of_an_epoch_wherever_the_sampler_stands(kind: str) -> None:
    sampler = ResumableSampler(SIZE, seed=3)
    loader = LOADERS[kind](sampler)
    full, batches = (len(sampler), len(loader)), sampler.batches(loader)
    assert full[0] == SIZE
    for _ in range(8):
        next(batches)
        assert (len(sampler), len(loader)) == full
    resumed = ResumableSampler(SIZE, seed=3)
    loader = LOADERS[kind](resumed)
    resumed.load_state_dict(sampler.state_dict())
    assert (len(resumed), len(loader)) == full
    assert len(list(resumed)) == SIZE - resumed.position, "iterated by hand it gives what is left"


def test_a_new_batch_size_continues_at_the_same_sample() -> None:
    sampler = ResumableSampler(24, seed=1)
    order = [int(batch) for batch in DataLoader(range(24), batch_size=None, sampler=sampler)]  # type: ignore[arg-type]
    batches = sampler.batches(DataLoader(range(24), 8, sampler=sampler))  # type: ignore[arg-type]
    next(batches)
    resumed = ResumableSampler(24, seed=1)
    resumed.load_state_dict(sampler.state_dict())
    batches = resumed.batches(DataLoader(range(24), 6, sampler=resumed))  # type: ignore[arg-type]
    assert next(batches).tolist() == order[8:14]


class Shuffled(Buckets):
    """Its order comes from the global generator: a resumed program cannot draw it again."""

    def __iter__(self) -> Iterator[list[int]]:
        batches = list(super().__iter__())
        return iter([batches[number] for number in torch.randperm(len(batches)).tolist()])


def test_a_batch_sampler_with_another_order_after_a_resume_is_refused() -> None:
    torch.manual_seed(0)
    sampler = ResumableSampler(SIZE, seed=3)
    batches = sampler.batches(DataLoader(Noisy(), batch_sampler=Shuffled(sampler)))
    for _ in range(4):
        next(batches)
    resumed = ResumableSampler(SIZE, seed=3)
    resumed.load_state_dict(sampler.state_dict())
    with pytest.raises(StateMismatchError, match=r"other batches than before.*epoch 0 stood after \d+ samples"):
        next(resumed.batches(DataLoader(Noisy(), batch_sampler=Shuffled(resumed))))


class Merged(DataLoader):  # type: ignore[type-arg]
    """Hands out two batches as one."""

    def __iter__(self) -> Any:
        inner = super().__iter__()
        for one in inner:
            yield torch.cat([one, next(inner)])


class Halved(DataLoader):  # type: ignore[type-arg]
    """Hands out each batch in two pieces."""

    def __iter__(self) -> Any:
        for one in super().__iter__():
            yield one[:4]
            yield one[4:]


class Filtered(DataLoader):  # type: ignore[type-arg]
    """Leaves batches out."""

    def __iter__(self) -> Any:
        return (batch for number, batch in enumerate(super().__iter__()) if number % 3 != 2)


def dispatched(sampler: ResumableSampler) -> Any:
    """What accelerate makes for rank 0 of 2 with dispatch_batches and split_batches, not yet iterated."""
    dispatcher = pytest.importorskip("accelerate.data_loader").DataLoaderDispatcher
    loader = dispatcher(Noisy(), split_batches=True, batch_sampler=BatchSampler(sampler, BATCH, False))
    loader.state = types.SimpleNamespace(num_processes=2, process_index=0)
    return loader


class Endless(IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        return iter(range(100))


REFUSED: dict[str, tuple[Callable[[ResumableSampler], Any], str]] = {
    "merged": (lambda s: Merged(Noisy(), BATCH, sampler=s), "position of this Merged cannot be known"),
    "halved": (lambda s: Halved(Noisy(), BATCH, sampler=s), "position of this Halved cannot be known"),
    "filtered": (lambda s: Filtered(Noisy(), BATCH, sampler=s), "position of this Filtered cannot be known"),
    "not-a-loader": (lambda s: map(list, DataLoader(Noisy(), BATCH, sampler=s)), "a map does not show its position"),
    "another-sampler": (lambda s: DataLoader(Noisy(), BATCH, shuffle=True), "indices from this sampler"),
    "copied": (lambda s: DataLoader(Noisy(), BATCH, sampler=list(s)), "indices from this sampler"),  # type: ignore[arg-type]
    "iterable": (lambda s: DataLoader(Endless(), BATCH), "indices from this sampler"),
    "dispatched": (dispatched, "dispatch_batches=True does not show its position: only rank 0 draws indices"),
    "out-of-order": (
        lambda s: DataLoader(Noisy(), BATCH, sampler=s, num_workers=2, in_order=False),
        "in_order=False does not show its position",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_loader_whose_position_cannot_be_known_is_refused(kind: str) -> None:
    make, said = REFUSED[kind]
    sampler = ResumableSampler(SIZE, seed=3)
    with pytest.raises(UsageError, match=said):
        for number, _ in enumerate(sampler.batches(make(sampler))):
            assert number < 3, "not before it has done harm"


def test_a_loader_is_itself_again_outside_of_batches() -> None:
    sampler = ResumableSampler(SIZE, seed=3)
    loader = DataLoader(Noisy(), BATCH, sampler=sampler)
    batches = sampler.batches(loader)
    next(batches)
    assert sum(len(batch) for batch in loader) == SIZE - BATCH
    assert sampler.position == BATCH
    next(batches)
    assert sampler.position == 2 * BATCH
    assert (loader.batch_sampler.batch_size, loader.batch_size) == (BATCH, BATCH)  # type: ignore[union-attr]
