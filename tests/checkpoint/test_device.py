"""The path of CUDA tensors, on a stand-in for the device that keeps count of streams, events and waits.

What only a GPU can show (speed, true overlap) is in ``benchmarks/checkpoint_gpu.py``; what is decided in our code is
here: what is copied before the call returns, who waits for whom, and what need not be copied at all.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from saving import save

from stayfast.errors import CheckpointError
from stayfast.runtime.checkpoint import cuda_copies
from stayfast.runtime.checkpoint.checkpointer import Checkpointer
from stayfast.runtime.checkpoint.cuda_copies import ROW_BYTES, DeviceFingerprints
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.runtime.state import torch_tensors
from stayfast.storage.stores.memory import MemoryStore

Make = Callable[..., Checkpointer]
FROM_ELEMENTS = 1000  # smaller tensors stay on the host


class Pretend:
    """Tensors of some size live "on the device"; what the streams were asked is written down."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def stream(self, name: str) -> Any:
        note = self.log.append
        return SimpleNamespace(
            wait_stream=lambda other: note(f"{name} waits for {other.name}"),
            wait_event=lambda event: note(f"{name} waits for event"),
            synchronize=lambda: note(f"host waits for {name}"),
            name=name,
        )


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pretend]:
    fake = Pretend()
    main, real = fake.stream("main"), torch_tensors.torch_leaf

    def torch_leaf(module: Any, tensor: Any) -> Any:
        tag, leaf, identity = real(module, tensor)
        if tensor.numel() >= FROM_ELEMENTS:
            leaf.address, leaf.device = None, "cuda:0"
        return tag, leaf, identity

    original = cuda_copies.PendingCopies._issue

    def issue(self: Any, copies: Any) -> None:
        fake.gate.wait(30)
        original(self, copies)

    runtime = SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0)
    event = lambda **_: SimpleNamespace(record=lambda stream: fake.log.append("event"), synchronize=lambda: None)  # noqa: E731
    monkeypatch.setattr(torch_tensors, "torch_leaf", torch_leaf)
    monkeypatch.setattr(cuda_copies.PendingCopies, "_issue", issue)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # restores go to the host, with a GPU here or not
    monkeypatch.setattr(torch.cuda, "cudart", lambda: runtime)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda *_: main)
    monkeypatch.setattr(torch.cuda, "Stream", lambda *_: fake.stream("side"))
    monkeypatch.setattr(torch.cuda, "Event", event)
    monkeypatch.setattr(torch.cuda, "stream", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "device", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    yield fake
    fake.gate.set()


def training(**options: Any) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.BatchNorm1d(2000))
    optimizer = torch.optim.AdamW(model[0].parameters(), **options)
    model[0](torch.randn(4, 64)).sum().backward()
    optimizer.step()
    return model, optimizer


def test_round_trip_and_what_is_copied_at_once(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    model, optimizer = training()
    engine.watch_optimizer(optimizer)
    engine.watch_optimizer(optimizer)  # twice is once
    engine.watch_optimizer(model)  # not an optimizer: nothing to hook
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    pretend.gate.clear()
    snapshot = engine.snapshot(1, state)
    # BatchNorm's tensors belong to no optimizer: on their way, and the main stream waits for them, before we are back.
    assert pretend.log == ["side waits for main", "event", "main waits for event"]
    model[1].running_mean.fill_(77)
    pretend.gate.set()
    persisted = engine.persist(snapshot, 1)
    back = engine.restore(CheckpointRecord(1, 1, "", persisted.size, persisted.inventory_sha256))
    assert not back["model"]["1.running_mean"].any()
    assert torch.equal(back["model"]["0.weight"], model[0].weight)
    assert torch.equal(back["optimizer"]["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])
    assert all(leaf.value is None for leaf in snapshot.leaves)


def test_the_next_step_waits_for_the_copies(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    model, optimizer = training()
    engine.watch_optimizer(optimizer)
    before = model[0].weight.detach().clone()
    pretend.gate.clear()
    snapshot = engine.snapshot(1, {"model": model.state_dict()})
    stepping = threading.Thread(target=optimizer.step)
    stepping.start()
    stepping.join(0.2)
    assert stepping.is_alive()
    assert torch.equal(model[0].weight, before)
    pretend.gate.set()
    stepping.join(30)
    assert pretend.log[-1] == "main waits for event"
    assert not torch.equal(model[0].weight, before)
    persisted = engine.persist(snapshot, 1)
    back = engine.restore(CheckpointRecord(1, 1, "", persisted.size, persisted.inventory_sha256))
    assert torch.equal(back["model"]["0.weight"], before)
    count = len(pretend.log)
    optimizer.step()  # a step without a snapshot before it waits for nothing
    assert len(pretend.log) == count


def test_captured_optimizers_own_nothing(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    model, optimizer = training()
    optimizer.param_groups[0]["capturable"] = True
    engine.watch_optimizer(optimizer)
    pretend.gate.clear()
    snapshot = engine.snapshot(1, {"model": model.state_dict()})
    model[0].weight.data.zero_()  # a graph replay: no hook runs
    pretend.gate.set()
    persisted = engine.persist(snapshot, 1)
    back = engine.restore(CheckpointRecord(1, 1, "", persisted.size, persisted.inventory_sha256))
    assert back["model"]["0.weight"].any()


def test_an_error_while_copying_reaches_the_saver(
    pretend: Pretend, make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(MemoryStore(), buffers=1)
    model, optimizer = training()
    engine.watch_optimizer(optimizer)

    def lost() -> Any:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(cuda_copies.DeviceCopier, "_deferred_copy", lambda *_: lost)
    snapshot = engine.snapshot(1, {"model": model.state_dict()})
    with pytest.raises(RuntimeError, match="device is gone"):
        engine.persist(snapshot, 1)
    snapshot.release()
    assert engine.free_buffers == 1


def test_closing_takes_the_hooks_away(pretend: Pretend) -> None:
    engine = Checkpointer(MemoryStore(), threads=1)
    _, optimizer = training()
    engine.watch_optimizer(optimizer)
    assert optimizer._optimizer_step_pre_hooks
    engine.close()
    assert not optimizer._optimizer_step_pre_hooks


def lora() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)
    base = {f"layer{n}": torch.randn(30_000, generator=generator) for n in range(12)}
    return {"base": base, "adapter": torch.randn(20_000, generator=generator), "step": 0}


def test_frozen_parts_stop_leaving_the_device(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    state = lora()
    written, same = [], []
    for step in range(6):
        state["adapter"].add_(1)
        state["step"] = step
        snapshot = engine.snapshot(step, state)
        same.append(len(snapshot.unchanged_parts))
        persisted = engine.persist(snapshot, 1)
        engine.mark_committed(persisted)
        written.append(persisted.written_bytes)
    # first all is written; then content is recognised; then fingerprints are taken; from then on they decide
    assert same[:3] == [0, 0, 0]
    assert same[3] == same[5] > 8
    assert max(written[1:]) < written[0] / 5
    back = engine.restore(CheckpointRecord(5, 1, "", persisted.size, persisted.inventory_sha256))
    assert back["step"] == 5
    assert torch.equal(back["adapter"], state["adapter"])
    assert all(torch.equal(back["base"][name], value) for name, value in state["base"].items())


def test_a_frozen_part_that_changes_is_stored(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    state = lora()
    for step in range(4):
        save(engine, step, state)
    for name in ("layer0", "layer11"):
        state["base"][name][12_345] += 1e-7
        state["base"][name][-1] *= -1
        back = engine.restore(save(engine, 4 + int(name[5:]), state))
        assert torch.equal(back["base"][name], state["base"][name])
        for step in range(100, 103):
            save(engine, step + 100 * int(name[5:]), state)


def test_a_snapshot_whose_base_is_gone_is_refused(pretend: Pretend, make_engine: Make) -> None:
    engine = make_engine(MemoryStore())
    state = lora()
    for step in range(4):
        save(engine, step, state)
    late = engine.snapshot(5, state)
    assert late.unchanged_parts
    for value in state["base"].values():
        value.add_(1)
    save(engine, 6, state)
    with pytest.raises(CheckpointError, match="take another snapshot"):
        engine.persist(late, 1)


@pytest.mark.parametrize("length", [1, 3, 4, 1000, ROW_BYTES, ROW_BYTES + 1, 5 * ROW_BYTES, (32 << 20) + 5])
def test_fingerprints_tell_every_small_change(length: int) -> None:
    prints = DeviceFingerprints(torch, "cpu")
    data = torch.randint(0, 256, (length,), dtype=torch.uint8, generator=torch.Generator().manual_seed(length))
    before = prints.compute(data)
    assert torch.equal(prints.compute(data.clone()), before)
    places = torch.linspace(0, length - 1, 12).long().tolist() if length < 1 << 20 else [0, length - 1]
    for place in places:
        for bit in (0, 7):
            data[place] ^= 1 << bit
            assert not torch.equal(prints.compute(data), before)
            data[place] ^= 1 << bit
    if length > 1:
        assert not torch.equal(prints.compute(data[:-1]), before)


def test_fingerprints_tell_pairs_of_flipped_signs_and_swaps() -> None:
    prints = DeviceFingerprints(torch, "cpu")
    values = torch.randn(ROW_BYTES, dtype=torch.float64)
    before = prints.compute(values.view(torch.uint8))
    generator = torch.Generator().manual_seed(2)
    for _ in range(60):
        first, second = torch.randint(0, len(values), (2,), generator=generator).tolist()
        if first == second:
            continue
        values[[first, second]] *= -1
        assert not torch.equal(prints.compute(values.view(torch.uint8)), before)
        values[[first, second]] *= -1
        values[[first, second]] = values[[second, first]]
        assert not torch.equal(prints.compute(values.view(torch.uint8)), before)
        values[[first, second]] = values[[second, first]]
    assert torch.equal(prints.compute(values.view(torch.uint8)), before)
