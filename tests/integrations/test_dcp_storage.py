"""The DCP writer and reader in one process: what is stored, what is read, and what damage leads to."""

# ruff: noqa: E402 - torch comes first: without it these tests are skipped
from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from stayfast.cli.main import main
from stayfast.errors import CorruptError, FormatError, StateMismatchError, SupersededError, UsageError
from stayfast.integrations.dcp import StayfastReader, StayfastWriter, sharded
from stayfast.runtime.checkpoint.sharded_reader import SavedRankState, UnreadTensor
from stayfast.runtime.run_record.record import CheckpointRecord
from stayfast.storage.stores.memory import MemoryStore

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


class Watch:
    """Audit hooks cannot be removed: one for the process, switched on for a while."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.on = False
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.on and event == "pickle.find_class":
            self.seen.append((str(arguments[0]), str(arguments[1])))

    def __enter__(self) -> Watch:
        self.seen, self.on = [], True
        return self

    def __exit__(self, *_error: object) -> None:
        self.on = False


@pytest.fixture(scope="module")
def unpickled() -> Watch:
    return Watch()


def make_state(seed: int, *, width: int = 16) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(width, width, generator=generator)
    return {
        "weight": weight,
        "tied": weight,
        "view": torch.randn(width, 4, generator=generator).t(),
        "half": torch.randn(3, generator=generator).to(torch.bfloat16),
        "empty": torch.empty(0, 3),
        "scalar": torch.tensor(float(seed)),
        "nested": {"count": seed, "names": ["a", "b"], "moment": torch.randn(width, generator=generator)},
    }


def blank(width: int = 16) -> dict[str, Any]:
    state = make_state(99, width=width)
    return {**state, "tied": torch.zeros(width, width), "nested": {**state["nested"], "names": []}}


def assert_equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        if isinstance(value, dict):
            assert_equal(found[name], value)
        elif isinstance(value, torch.Tensor):
            assert torch.equal(found[name], value), name
            assert found[name].dtype == value.dtype
        else:
            assert found[name] == value, name


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"file://{tmp_path}/run"


@pytest.fixture(params=["file", "memory", "gs", "s3"])
def any_url(
    request: pytest.FixtureRequest, tmp_path: Path, cloud_environment: Callable[[str, str], None]
) -> Iterator[str]:
    if request.param in ("gs", "s3"):
        server = request.getfixturevalue("bucket_server")
        cloud_environment(request.param, server.url)
        yield f"{request.param}://bucket/run"
    elif request.param == "memory":
        yield f"memory://{tmp_path.name}"
    else:
        yield f"file://{tmp_path}/run"


def test_round_trip_on_every_store(any_url: str) -> None:
    dcp.save(make_state(1), storage_writer=StayfastWriter(any_url, step=5))
    found = blank()
    dcp.load(found, storage_reader=StayfastReader(any_url))
    assert_equal(found, make_state(1))


def test_newest_or_the_one_asked_for(url: str) -> None:
    writer = StayfastWriter(url)
    for step in (1, 2, 3):
        writer.save(make_state(step), step=step)
    for step, wanted in ((None, 3), (3, 3), (2, 2)):
        found = blank()
        StayfastReader(url, step=step).load(found)
        assert_equal(found, make_state(wanted))
    found = blank()
    dcp.load(found, checkpoint_id="2", storage_reader=StayfastReader(url))
    assert_equal(found, make_state(2))
    with pytest.raises(UsageError, match="no checkpoint of step 1 is committed"):
        StayfastReader(url, step=1).load(blank())  # retention keeps two


def test_retention_removes_parts_and_metadata(url: str, tmp_path: Path) -> None:
    writer = StayfastWriter(url)
    for step in range(5):
        writer.save(make_state(step), step=step)
    folders = sorted(path.name for path in (tmp_path / "run" / "checkpoints").iterdir())
    assert folders == ["000000000003-000001", "000000000004-000001"]


def test_the_command_line_sees_it(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    StayfastWriter(url).save(make_state(1), step=8)
    assert main(["checkpoints", "verify", url, "--output", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["checkpoints"]
    assert (row["step"], row["verdict"]) == (8, "whole")


def test_a_second_writer_takes_over_and_the_first_commits_no_more(url: str) -> None:
    first, second = StayfastWriter(url), StayfastWriter(url)
    first.save(make_state(1), step=1)
    second.save(make_state(2), step=2)
    with pytest.raises(SupersededError):
        first.save(make_state(3), step=3)
    found = blank()
    StayfastReader(url).load(found)
    assert_equal(found, make_state(2))


def test_the_same_step_again_replaces_it(url: str) -> None:
    writer = StayfastWriter(url)
    writer.save(make_state(1), step=1)
    writer.save(make_state(2), step=1)
    found = blank()
    StayfastReader(url).load(found)
    assert_equal(found, make_state(2))


def test_asynchronous_save(url: str) -> None:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        dcp.async_save(make_state(4), storage_writer=StayfastWriter(url, step=4)).result()
        found = blank()
        StayfastReader(url).load(found)
    finally:
        torch.distributed.destroy_process_group()
    assert_equal(found, make_state(4))


# -- damage


def parts(tmp_path: Path, pattern: str) -> list[Path]:
    return sorted((tmp_path / "run" / "checkpoints").glob(pattern))


def flip(path: Path, offset: int) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= 0x10
    path.write_bytes(data)


def test_flipped_byte_in_a_shard_is_named(url: str, tmp_path: Path) -> None:
    StayfastWriter(url).save(make_state(1), step=1)
    (path,) = parts(tmp_path, "*/rank-00001/part-*.bin")
    flip(path, 100)
    with pytest.raises(CorruptError, match=r"checkpoints/000000000001-000001/rank-00001/part-00000.bin does not match"):
        StayfastReader(url).load(blank())
    with pytest.raises(CheckpointException, match=r"CorruptError.*rank-00001/part-00000.bin"):
        dcp.load(blank(), storage_reader=StayfastReader(url))


@pytest.mark.parametrize("what", ["truncated", "missing", "inventory", "head"])
def test_other_damage_is_an_error_of_ours(url: str, tmp_path: Path, what: str) -> None:
    StayfastWriter(url).save(make_state(1), step=1)
    (path,) = parts(tmp_path, "*/rank-00001/part-*.bin")
    if what == "truncated":
        os.truncate(path, 40)
    elif what == "missing":
        path.unlink()
    elif what == "inventory":
        flip(parts(tmp_path, "*/rank-00001/inventory.json")[0], 60)
    else:
        flip(tmp_path / "run" / "HEAD.json", 30)
    with pytest.raises(CorruptError, match="part-00000.bin" if what in ("truncated", "missing") else None):
        StayfastReader(url).load(blank())


class Evil:
    """What an attacker would leave in the bucket."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (os.environ["EVIL"],)


def evil_pickle() -> bytes:
    import pickle  # noqa: TID251 - the attack that must fail

    return pickle.dumps(Evil())


def test_tampered_metadata_is_refused_before_anything_is_unpickled(
    url: str, tmp_path: Path, unpickled: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    StayfastWriter(url).save(make_state(1), step=1)
    with unpickled:
        StayfastReader(url).load(blank())
    assert ("torch.distributed.checkpoint.metadata", "Metadata") in unpickled.seen, "the hook does see DCP unpickle"

    monkeypatch.setenv("EVIL", str(tmp_path / "owned"))
    (path,) = parts(tmp_path, "*-000001/part-00000.bin")
    size = path.stat().st_size
    path.write_bytes(evil_pickle().ljust(size, b"\0"))
    with unpickled, pytest.raises(CorruptError, match=r"000000000001-000001/part-00000.bin does not match"):
        StayfastReader(url).load(blank())
    assert unpickled.seen == []
    assert not (tmp_path / "owned").exists()


def test_a_forged_inventory_does_not_help(
    url: str, tmp_path: Path, unpickled: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata and its checksums replaced together: the record's sha256 of the inventory still stands in the way."""
    StayfastWriter(url).save(make_state(1), step=1)
    monkeypatch.setenv("EVIL", str(tmp_path / "owned"))
    (path,) = parts(tmp_path, "*-000001/part-00000.bin")
    data = evil_pickle().ljust(path.stat().st_size, b"\0")
    path.write_bytes(data)
    (listing,) = parts(tmp_path, "*-000001/inventory.json")
    body = json.loads(listing.read_text())
    body["parts"][0][2] = [hashlib.sha256(data).hexdigest()]
    del body["checksum"]
    body["checksum"] = hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    listing.write_text(json.dumps(body, sort_keys=True, separators=(",", ":")))
    with unpickled, pytest.raises(CorruptError, match=r"inventory.json does not match the sha256 in the commit record"):
        StayfastReader(url).load(blank())
    assert unpickled.seen == []
    assert not (tmp_path / "owned").exists()


def test_opaque_values_need_their_sha256_as_well(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """DCP unpickles them too; should a chunk checksum ever be made to match, the sha256 in the metadata does not."""
    StayfastWriter(url).save({"count": 5}, step=1)
    (path,) = parts(tmp_path, "*/rank-00001/part-*.bin")
    flip(path, 12)
    monkeypatch.setattr("stayfast.runtime.checkpoint.reader.digest_named", lambda _name: _Anything())
    monkeypatch.setattr("stayfast.integrations.dcp.SHA256", "sha256")
    with pytest.raises(CorruptError, match="does not match its sha256"):
        StayfastReader(url).load({"count": 0})


class _Anything:
    """A checksum function whose result equals whatever is expected."""

    def __call__(self, _data: object) -> _Anything:
        return self

    def __eq__(self, _other: object) -> bool:
        return True

    def __ne__(self, _other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


# -- what cannot work says why


def test_what_cannot_work_says_why(url: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no checkpoint is committed"):
        StayfastReader(url).load(blank())
    with pytest.raises(UsageError, match="is not a step"):
        dcp.save(make_state(1), checkpoint_id="best", storage_writer=StayfastWriter(url))
    with pytest.raises(UsageError, match="negative"):
        StayfastWriter(url).save(make_state(1), step=-1)
    import stayfast

    with stayfast.run(f"{url}-of-a-run", total_steps=1) as run:
        run.track(model=torch.nn.Linear(2, 2))
        for _ in run.steps():
            pass
    with pytest.raises(FormatError, match="was not saved by a StayfastWriter"):
        StayfastReader(f"{url}-of-a-run").load(blank())


# -- sharded state, one process


def trained(steps: int, **shape: int) -> tuple[Any, Any]:
    torch.manual_seed(3)
    model = torch.nn.Linear(shape.get("width", 4), 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        model(torch.ones(1, shape.get("width", 4))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def save_run(url: str, *things: Any, steps: int = 1) -> None:
    import stayfast

    with stayfast.run(url, total_steps=steps) as run:
        run.track(state=sharded(*things))
        for _ in run.steps():
            pass


def test_sharded_state_before_the_first_optimizer_step(url: str) -> None:
    model, optimizer = trained(0)
    save_run(url, model, optimizer)
    assert not optimizer.state, "saving leaves the optimizer as it was"
    other, empty = trained(0)
    with torch.no_grad():
        other.weight.zero_()
    save_run(url, other, empty, steps=2)
    assert torch.equal(other.weight, model.weight)
    assert not empty.state


def test_sharded_state_of_parameters_that_never_had_a_gradient(url: str) -> None:
    def build() -> tuple[Any, Any]:
        model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 2), "unused": torch.nn.Linear(2, 2)})
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    model, optimizer = build()
    model["used"](torch.ones(1, 2)).sum().backward()
    optimizer.step()
    save_run(url, model, optimizer)
    again, restored = build()
    save_run(url, again, restored, steps=2)
    assert len(restored.state) == len(optimizer.state) == 2
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def test_sharded_state_that_does_not_fit_lists_everything(url: str) -> None:
    save_run(url, *trained(1))
    wider, optimizer = trained(1, width=5)
    before = wider.weight.detach().clone()
    with pytest.raises(StateMismatchError) as caught:
        save_run(url, wider, optimizer, steps=2)
    text = str(caught.value)
    assert "state.model:weight: shape [4, 4] in the checkpoint, [4, 5] here" in text
    assert "exp_avg_sq" in text
    assert torch.equal(wider.weight, before), "nothing was loaded"


def test_a_damaged_newest_one_is_set_aside_for_sharded_state_too(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = trained(1)
    save_run(url, model, optimizer)
    first = model.weight.detach().clone()
    with torch.no_grad():
        model.weight.add_(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(sharded(model)), "load_ranks", lambda *_: None)
        save_run(url, model, optimizer, steps=2)
    (path,) = parts(tmp_path, "000000000001-*/part-*.bin")
    flip(path, 100)
    again, restored = trained(0)
    save_run(url, again, restored, steps=3)
    assert "000000000001-000002 is damaged and set aside" in caplog.text
    assert torch.equal(again.weight, first)


def test_sharded_wants_a_model_and_optimizers() -> None:
    with pytest.raises(UsageError, match="wants a torch module first"):
        sharded({})
    with pytest.raises(UsageError, match="wants optimizers after the model"):
        sharded(torch.nn.Linear(1, 1), torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="from all ranks at once"):
        sharded(torch.nn.Linear(1, 1)).load_state_dict({})


# -- reading parts of a part


class CountingStore(MemoryStore):
    """Counts the bytes that are read from parts."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0
        self._count_lock = threading.Lock()

    def read_into(self, key: str, buffer: memoryview, *, offset: int = 0) -> int:
        count = super().read_into(key, buffer, offset=offset)
        with self._count_lock:
            self.read += count
        return count


def test_only_the_chunks_asked_for_are_read() -> None:
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer

    store = CountingStore()
    engine = Checkpointer(store, buffers=1)
    big = [torch.randn(3 << 20, generator=torch.Generator().manual_seed(n)) for n in range(3)]  # 12 MiB each
    state = {"a": {"big": big, "text": b"x" * 5000, "rate": 0.5}, "b": {"small": torch.arange(4)}}
    saved = engine.persist(engine.snapshot(1, state), 1)
    row = CheckpointRecord(1, 1, "", saved.size, saved.inventory_sha256)
    with ThreadPoolExecutor(2) as threads:
        rank = SavedRankState(store, row, threads)
        assert rank.names == ["a", "b"]
        outline = rank.structure("a")
        assert outline["rate"] == 0.5
        assert outline["text"] == b"x" * 5000
        assert [type(item) for item in outline["big"]] == [UnreadTensor] * 3
        assert outline["big"][1].shape == (3 << 20,)
        assert store.read < 1 << 20, "an outline costs a small read"
        rank.read_leaves([outline["big"][1].number])
        assert 12 << 20 <= store.read < 13 << 20
        assert torch.equal(rank.read_leaf(outline["big"][1].number), big[1])
        rank.read_leaf(outline["big"][1].number)
        assert store.read < 13 << 20, "each chunk is read once"
        assert torch.equal(rank.load_object("b")["small"], torch.arange(4))
        assert all(torch.equal(a, b) for a, b in zip(rank.load_object("a")["big"], big, strict=True))
        with pytest.raises(StateMismatchError, match="c is tracked"):
            rank.structure("c")
    engine.close()


def test_a_leaf_that_does_not_exist_is_corruption() -> None:
    from stayfast.runtime.checkpoint.checkpointer import Checkpointer

    store = MemoryStore()
    engine = Checkpointer(store, buffers=1)
    saved = engine.persist(engine.snapshot(1, {"a": torch.zeros(2)}), 1)
    with ThreadPoolExecutor(1) as threads:
        rank = SavedRankState(store, CheckpointRecord(1, 1, "", saved.size, saved.inventory_sha256), threads)
        with pytest.raises(CorruptError, match="refers to leaf 7"):
            rank.read_leaf(7)
    engine.close()
