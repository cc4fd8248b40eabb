"""Tracked things: what is accepted, what is refused and how, differences all at once, generators, the sampler."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from stayfast.errors import StateMismatchError, UsageError
from stayfast.integrations.torch import ResumableSampler
from stayfast.runtime.state.tracked_state import GlobalRandomState, collect_states, load_states, make_tracked


def tracked(**things: Any) -> dict[str, Any]:
    return {name: make_tracked(name, thing) for name, thing in things.items()}


def test_objects_and_pairs_of_functions() -> None:
    box = {"value": 1}
    model = torch.nn.Linear(2, 2)
    things = tracked(model=model, box=(lambda: dict(box), box.update))
    state = collect_states(things)
    assert state["box"] == {"value": 1}
    saved = {"model": {key: value.clone() for key, value in state["model"].items()}, "box": {"value": 5}}
    torch.nn.init.zeros_(model.weight)
    load_states(things, saved)
    assert box["value"] == 5
    assert model.weight.any()


@pytest.mark.parametrize("thing", [object(), 3, torch.nn.Linear, (1, 2), (len,)])
def test_what_has_no_state_is_refused(thing: Any) -> None:
    with pytest.raises(UsageError, match=r"^x: .*; track an object"):
        make_tracked("x", thing)


@pytest.mark.parametrize(
    ("thing", "cure"),
    [
        (np.zeros(3), "lambda saved: np.copyto(x, saved)"),
        ({"a": 1}, "x.update"),
        ([1, 2], "lambda saved: x.__setitem__(slice(None), saved)"),
    ],
)
def test_the_refusal_of_plain_values_shows_a_pair_that_works(thing: Any, cure: str) -> None:
    with pytest.raises(UsageError) as caught:
        make_tracked("x", thing)
    pair = str(caught.value).split("run.track(x=")[1].removesuffix(")")
    assert pair == f"(lambda: x, {cure})"
    get, put = eval(pair, {"x": thing, "np": np})
    before = get().copy()
    put({"a": 2} if isinstance(thing, dict) else [5] * len(thing))
    assert list(get()) != list(before) or get() != before


@pytest.mark.parametrize(
    ("make", "draw"),
    [
        (lambda: random.Random(3), lambda it: it.random()),
        (lambda: np.random.default_rng(3), lambda it: it.normal()),
        (lambda: np.random.Generator(np.random.MT19937(3)), lambda it: it.normal()),
        (lambda: torch.Generator().manual_seed(3), lambda it: torch.rand(1, generator=it).item()),
    ],
)
def test_a_generator_of_ones_own_goes_on_after_a_real_save(make: Any, draw: Any, tmp_path: Path) -> None:
    import stayfast

    whole = make()
    wanted = [draw(whole) for _ in range(6)]
    drawn: list[float] = []
    for total in (3, 6):
        mine = make()
        with stayfast.run(f"file://{tmp_path}/run", total_steps=total) as run:
            run.track(generator=mine)
            for _ in run.steps():
                drawn.append(draw(mine))
    assert drawn == wanted


def test_a_plain_loader_is_refused_with_a_hint() -> None:
    loader: Any = DataLoader(TensorDataset(torch.ones(4)))
    with pytest.raises(UsageError, match=r"StatefulDataLoader.*ResumableSampler"):
        make_tracked("loader", loader)


def test_a_stateful_loader_is_taken() -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    loader = module.StatefulDataLoader(TensorDataset(torch.ones(4)))
    taken = make_tracked("loader", loader)
    assert taken.thing is loader
    assert set(taken.get()) == {"loader", "generator"}


def test_a_stream_without_a_state_is_refused() -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")

    class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Any:
            return iter(range(24))

    class Stateful(Stream):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dict(self, state: dict[str, Any]) -> None: ...

    with pytest.raises(UsageError, match="Stream, an IterableDataset without a state, cannot be resumed exactly"):
        make_tracked("loader", module.StatefulDataLoader(Stream()))
    make_tracked("loader", module.StatefulDataLoader(Stateful()))


class WithState(torch.utils.data.SequentialSampler):
    """A sampler of the program's own that keeps its place."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def own_batches(data: list[int]) -> torch.utils.data.BatchSampler:
    class Own(torch.utils.data.BatchSampler):
        pass

    return Own(torch.utils.data.SequentialSampler(data), 5, False)


@pytest.mark.parametrize(
    "order",
    [
        lambda data, _theirs: {"sampler": torch.utils.data.RandomSampler(data)},
        lambda data, _theirs: {"sampler": torch.utils.data.WeightedRandomSampler([1.0] * len(data), 50)},
        lambda data, _theirs: {"sampler": torch.utils.data.SubsetRandomSampler(data)},
        lambda data, _theirs: {"sampler": torch.utils.data.RandomSampler(data), "batch_size": None},
        lambda data, _theirs: {
            "batch_sampler": torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 5, False)
        },
        lambda data, theirs: {"batch_sampler": theirs.BatchSampler(torch.utils.data.RandomSampler(data), 5, False)},
        lambda data, theirs: {"batch_sampler": torch.utils.data.BatchSampler(theirs.RandomSampler(data), 5, False)},
        lambda data, _theirs: {"batch_sampler": own_batches(data)},
    ],
)
def test_a_stateful_loader_whose_sampler_has_no_state_is_refused(order: Any) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    data = list(range(50))
    loader = module.StatefulDataLoader(data, **order(data, module.sampler))
    with pytest.raises(UsageError, match="resumes in another order: the sampler has no state"):
        make_tracked("loader", loader)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    "order",
    [
        lambda _data, _theirs: {"shuffle": True, "batch_size": 5},
        lambda _data, _theirs: {"shuffle": True, "batch_size": 5, "generator": torch.Generator().manual_seed(1)},
        lambda _data, _theirs: {"batch_size": 5, "drop_last": True},
        lambda data, theirs: {"sampler": theirs.RandomSampler(data), "batch_size": 5},
        lambda data, theirs: {"sampler": theirs.RandomSampler(data), "batch_size": None},
        lambda data, _theirs: {
            "batch_sampler": torch.utils.data.BatchSampler(torch.utils.data.SequentialSampler(data), 5, False)
        },
        lambda data, theirs: {"batch_sampler": theirs.BatchSampler(theirs.RandomSampler(data), 5, False)},
    ],
)
def test_a_stateful_loader_that_is_accepted_resumes_in_its_order(order: Any, workers: int) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    data = list(range(50))

    def make() -> Any:
        return module.StatefulDataLoader(data, num_workers=workers, **order(data, module.sampler))

    torch.manual_seed(3)
    loader = make()
    list(loader)
    batches = iter(loader)
    for _ in range(3):
        next(batches)
    state, random_state = make_tracked("loader", loader).get(), torch.get_rng_state()
    wanted = [torch.as_tensor(batch).tolist() for batch in [*batches, *loader]]
    torch.manual_seed(99)
    loader = make()
    make_tracked("loader", loader).set(state)
    torch.set_rng_state(random_state)
    assert [torch.as_tensor(batch).tolist() for batch in [*loader, *loader]] == wanted


def test_a_sampler_of_the_program_with_a_state_is_accepted() -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    data = list(range(50))
    assert (
        make_tracked("loader", module.StatefulDataLoader(data, sampler=WithState(data), batch_size=5)).name == "loader"
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stateful_loader_resumes_in_the_epoch_of_its_distributed_sampler(workers: int) -> None:
    module = pytest.importorskip("torchdata.stateful_dataloader")
    from torch.utils.data.distributed import DistributedSampler

    def make() -> tuple[Any, Any]:
        data = list(range(24))
        sampler: Any = DistributedSampler(data, 1, 0, seed=7)
        return sampler, module.StatefulDataLoader(data, batch_size=2, sampler=sampler, num_workers=workers)

    def epoch(sampler: Any, batches: Any, number: int) -> Any:
        sampler.set_epoch(number)
        return iter(batches)

    sampler, loader = make()
    batches = epoch(sampler, loader, 3)
    for _ in range(5):
        next(batches)
    state = make_tracked("loader", loader).get()
    wanted = [batch.tolist() for batch in batches]
    sampler, loader = make()
    make_tracked("loader", loader).set(state)
    assert [batch.tolist() for batch in epoch(sampler, loader, 3)] == wanted


def test_all_differences_are_listed_at_once_and_nothing_is_loaded() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Linear(3, 2))
    other = torch.nn.Sequential(
        torch.nn.Linear(4, 3), torch.nn.Linear(3, 5, dtype=torch.float64), torch.nn.Linear(1, 1)
    )
    optimizer = torch.optim.SGD(model.parameters())
    two_groups = torch.optim.SGD([{"params": model[0].parameters()}, {"params": model[1].parameters()}])
    saved = {"model": other.state_dict(), "optimizer": two_groups.state_dict(), "gone": 1}
    before = model[0].weight.detach().clone()
    with pytest.raises(StateMismatchError) as caught:
        load_states(tracked(model=model, optimizer=optimizer, extra=(dict, print)), saved)
    text = str(caught.value)
    for words in (
        "extra: tracked, but not in the checkpoint",
        "gone: in the checkpoint, but not tracked",
        "model.2.weight: in the checkpoint only",
        "model.1.weight: shape [5, 3] in the checkpoint, [2, 3] here",
        "optimizer: 2 parameter groups in the checkpoint, 1 here",
    ):
        assert words in text
    assert torch.equal(model[0].weight, before)
    wrong_type = {"model": torch.nn.Linear(2, 2, dtype=torch.float64).state_dict()}
    with pytest.raises(StateMismatchError, match=r"dtype torch\.float64 in the checkpoint, torch\.float32 here"):
        load_states(tracked(model=torch.nn.Linear(2, 2)), wrong_type)


def test_names_on_one_side_pass_when_not_strict_but_shapes_do_not() -> None:
    model = torch.nn.Linear(2, 2)
    load_states(
        tracked(model=model, new=(dict, print)), {"model": {"weight": torch.ones(2, 2)}, "old": 1}, strict=False
    )
    assert model.weight.sum() == 4
    with pytest.raises(StateMismatchError, match="shape"):
        load_states(tracked(model=model), {"model": {"weight": torch.ones(3, 2)}}, strict=False)


def test_a_refusal_by_the_object_itself_is_named() -> None:
    def refuse(_: Any) -> None:
        raise KeyError("momentum")

    with pytest.raises(StateMismatchError, match="odd: its load_state_dict refused"):
        load_states(tracked(odd=(dict, refuse)), {"odd": {}})


def test_optimizer_with_other_parameters() -> None:
    def stepped(width: int) -> torch.optim.Optimizer:
        model = torch.nn.Linear(2, width)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2)).sum().backward()
        optimizer.step()
        return optimizer

    with pytest.raises(StateMismatchError, match=r"exp_avg: shape \[3, 2\], parameter \[4, 2\]"):
        load_states(tracked(optimizer=stepped(4)), {"optimizer": stepped(3).state_dict()})


def test_generators_go_on_where_they_were() -> None:
    def draw() -> list[Any]:
        return [random.random(), np.random.rand(), np.random.randn(), torch.rand(1).item(), random.gauss(0, 1)]

    draw()
    rng = GlobalRandomState()
    state = rng.state_dict()
    expected = [draw() for _ in range(3)]
    draw()
    rng.load_state_dict(state)
    assert [draw() for _ in range(3)] == expected


def test_nothing_is_imported_for_the_generators_sake() -> None:
    code = (
        "import sys; from stayfast.runtime.state.tracked_state import GlobalRandomState; "
        "r = GlobalRandomState(); s = r.state_dict(); "
        "r.load_state_dict(s); assert not {'numpy', 'torch'} & set(sys.modules), 'loaded'; print(sorted(s))"
    )
    source = str(Path(__file__).resolve().parents[2] / "src")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": source})
    assert done.stdout.strip() == "['python']", done.stderr


def indices(loader: Any) -> list[int]:
    return [int(item) for batch in loader for item in batch[0]]


def make_loader(sampler: ResumableSampler, **options: Any) -> Any:
    data = TensorDataset(torch.arange(sampler.size))
    return DataLoader(data, batch_size=4, sampler=sampler, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"num_workers": 2, "prefetch_factor": 3}], ids=str)
@pytest.mark.parametrize("shuffle", [True, False])
def test_the_sampler_goes_on_at_the_exact_sample(options: dict[str, Any], shuffle: bool) -> None:
    size, cut, total = 22, 8, 13

    def take(sampler: ResumableSampler, count: int) -> list[list[int]]:
        batches = sampler.batches(make_loader(sampler, **options))
        return [next(batches)[0].tolist() for _ in range(count)]

    whole = take(ResumableSampler(size, shuffle=shuffle, seed=3), total)
    first = ResumableSampler(size, shuffle=shuffle, seed=3)
    head = take(first, cut)
    second = ResumableSampler(size, shuffle=shuffle, seed=3)
    second.load_state_dict(first.state_dict())
    assert head + take(second, total - cut) == whole


def test_every_epoch_has_its_own_order_and_all_samples() -> None:
    sampler = ResumableSampler(10, seed=1)
    orders = []
    for _ in range(3):
        orders.append(list(sampler))
        sampler.consumed(10)
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    assert sampler.epoch == 3


def test_ranks_share_an_epoch_evenly() -> None:
    shares = [list(ResumableSampler(10, seed=5, replicas=4, rank=rank)) for rank in range(4)]
    assert {len(share) for share in shares} == {3}
    assert set().union(*shares) == set(range(10))
    tiny = [list(ResumableSampler(1, replicas=3, rank=rank)) for rank in range(3)]
    assert tiny == [[0], [0], [0]]


def test_a_sampler_that_nobody_counts_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    sampler = ResumableSampler(8)
    assert sampler.state_dict()["position"] == 0
    assert caplog.text == ""
    next(iter(make_loader(sampler)))
    sampler.state_dict()
    sampler.state_dict()
    assert caplog.text.count("sampler.batches(loader)") == 1
    counted = ResumableSampler(8)
    next(counted.batches(make_loader(counted)))
    counted.state_dict()
    assert caplog.text.count("sampler.batches(loader)") == 1


def test_misuse_of_the_sampler_is_told() -> None:
    sampler = ResumableSampler(5)
    with pytest.raises(ValueError, match="cannot be taken"):
        sampler.consumed(6)
    with pytest.raises(StateMismatchError, match="size: 6 in the checkpoint, 5 here"):
        sampler.load_state_dict(ResumableSampler(6).state_dict())
    with pytest.raises(ValueError, match="does not exist"):
        ResumableSampler(5, replicas=2, rank=2)
    with pytest.raises(ValueError, match="nothing to sample"):
        ResumableSampler(0)
    data = TensorDataset(torch.arange(3))
    small = ResumableSampler(3)
    loader: Any = DataLoader(data, batch_size=4, sampler=small, drop_last=True)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no batch at all"):
        next(small.batches(loader))
